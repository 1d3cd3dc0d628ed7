#!/usr/bin/env bash
# Wrong, missing, huge, duplicate and racing arguments. Each is refused with exit code 3 (4 when nobody can be
# asked), stderr names the thing and the remedy, and nothing has changed: not what is listed, not what is
# recorded, not the drives.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"
need mkfs.ext4 mkswap

# Runs alone: its loop devices and mounts are everybody's.
refusals=0
skipped=()

# Everything that a refused command must leave alone.
snapshot() {
    # The first scrub is put on the calendar by a look at the array, whenever that is.
    strake array list --output json | grep -v '"next_us"'
    strake export list --output json
    grep -v '"since_us"' "$state/state.json"
    # A sparse file that was written to has blocks.
    (cd "$work" && stat -c '%n %s %b' free* ext4 mbr gpt swap 2>/dev/null)
}

# refused [-4] WORD... -- COMMAND...: it ends with 3 (or 4), its stderr holds every WORD, and nothing changed.
refused() {
    local wanted=3 words=() word
    if [[ $1 == -4 ]]; then
        wanted=4
        shift
    fi
    while [[ $1 != -- ]]; do
        words+=("$1")
        shift
    done
    shift
    snapshot >"$work/before" 2>/dev/null || true
    expect $wanted timeout 30 "$@"
    for word in "${words[@]}"; do
        grep -qiF -- "$word" "$work/err" || fail "stderr does not say '$word': $(printf '%.300s' "$*")"
    done
    if grep -qiE 'panicked|RUST_BACKTRACE' "$work/err"; then fail "a panic: $*"; fi
    kill -0 "$daemon_pid" 2>/dev/null || fail "straked is gone after: $*"
    snapshot >"$work/after" 2>/dev/null || true
    cmp -s "$work/before" "$work/after" || { diff "$work/before" "$work/after" >&2; fail "something changed: $*"; }
    refusals=$((refusals + 1))
}

# create DRIVES [ARGUMENT...]: the command that makes a RAID 6 of drives with commas between them.
create=(strake array create new --level 6 --drives)

free() {
    local at list=()
    for at in "$@"; do list+=("$work/free$at"); done
    (IFS=, && echo "${list[*]}")
}

repeated() { printf "%.0s$1" $(seq "$2"); }

root() { [[ $(id -u) -eq 0 ]]; }

which_drives() {
    refused "free0" "named twice" "a drive of its own" -- "${create[@]}" "$(free 0 1 2 0)"
    refused "named twice" -- "${create[@]}" "$(free 0 1 2),$work/./free0"
    ln -s free0 "$work/symbolic"
    refused "$work/free0" "$work/symbolic" "same drive" "a drive of its own" -- "${create[@]}" "$(free 0 1 2),$work/symbolic"
    ln "$work/free0" "$work/hard"
    refused "$work/hard" "same drive" -- "${create[@]}" "$(free 0 1 2),$work/hard"
    rm "$work/symbolic" "$work/hard"
    refused "at least 4" "3 were given" "add members or choose another level" -- "${create[@]}" "$(free 0 1 2)"
    refused "at least 3" -- strake array create new --level 5 --drives "$(free 0 1)"
    refused "64" "70 " -- "${create[@]}" "$(seq -f "$work/many%g" -s, 70 | tee >(tr , '\n' | xargs truncate -s 32M))"
    rm -f "$work"/many*
    refused "groups" "how many" -- strake array create new --level 60 --drives "$(free 0 1 2 3 4 5 6 7)"
    refused "groups of 5" "choose" -- strake array create new --level 60 --group-size 5 --drives "$(free 0 1 2 3 4 5 6 7)"
    refused "no groups" "50, 60 or 70" -- "${create[@]}" "$(free 0 1 2 3)" --group-size 4
    refused "cannot be empty" -- "${create[@]}" "$(free 0 1 2),"
    refused "--drives" -- strake array create new --level 6
    refused "at most" "drives" -- "${create[@]}" "$(repeated /x, 1000)/y"
    refused "at most 4096" -- "${create[@]}" "$(free 0 1 2),/$(repeated x 5000)"
    say "the same drive twice, under another path, too few, too many, groups that do not divide: refused"
}

what_drives() {
    refused "$work/missing" "nothing at this path" "check the path" -- "${create[@]}" "$(free 0 1 2),$work/missing"
    refused "$work" "directory" "only regular files and block devices" -- "${create[@]}" "$(free 0 1 2),$work"
    refused "/dev/null" "only regular files and block devices" -- "${create[@]}" "$(free 0 1 2),/dev/null"
    mkfifo "$work/pipe"
    refused "$work/pipe" "only regular files" -- "${create[@]}" "$(free 0 1 2),$work/pipe"
    refused "only regular files" -- "${create[@]}" "$(free 0 1 2),$STRAKE_SOCKET"
    : >"$work/empty"
    refused "$work/empty" "0 bytes" "use another drive" -- "${create[@]}" "$(free 0 1 2),$work/empty"
    truncate -s 1MiB "$work/tiny"
    refused "$work/tiny" "too small" "at least" -- "${create[@]}" "$(free 0 1 2),$work/tiny"
    say "missing, directory, character device, pipe, socket, empty, too small: refused"

    truncate -s 64MiB "$work/ext4" "$work/swap" "$work/mbr" "$work/gpt"
    mkfs.ext4 -q "$work/ext4"
    mkswap -q "$work/swap"
    # A partition table as UEFI 2.10 section 5.2 has it: an entry at 446, 55 AA at 510, the GPT header at LBA 1.
    printf '\x80\0\x02\0\x83\0\0\0\0\x08\0\0\0\0\x01\0' | dd of="$work/mbr" bs=1 seek=446 conv=notrunc status=none
    printf '\x55\xaa' | dd of="$work/mbr" bs=1 seek=510 conv=notrunc status=none
    dd if="$work/mbr" of="$work/gpt" bs=512 count=1 conv=notrunc status=none
    printf 'EFI PART' | dd of="$work/gpt" bs=512 seek=1 conv=notrunc status=none
    (cd "$work" && sha256sum ext4 swap mbr gpt) >"$work/occupied"
    refused "$work/ext4" "ext4" "another drive" "--overwrite" -- "${create[@]}" "$(free 0 1 2),$work/ext4"
    refused "$work/swap" "swap" "--overwrite" -- "${create[@]}" "$(free 0 1 2),$work/swap"
    refused "$work/mbr" "partition table" "--overwrite" -- "${create[@]}" "$(free 0 1 2),$work/mbr"
    refused "$work/gpt" "partition table" "GPT" "--overwrite" -- "${create[@]}" "$(free 0 1 2),$work/gpt"
    refused "${drives[0]}" "member 0 of array good" "another drive" -- "${create[@]}" "$(free 0 1 2),${drives[0]}"
    say "ext4, swap, partition tables, a member of another array: refused, naming what was found"
}

what_shape() {
    local strip level block
    for strip in 96KiB 2KiB 2MiB 0 banana -1 99999999999999999999; do
        refused -- "${create[@]}" "$(free 0 1 2 3)" "--strip=$strip"
    done
    refused "96 KiB" "power of two" "4KiB, 8KiB" "512KiB, 1MiB" "nearest" -- "${create[@]}" "$(free 0 1 2 3)" --strip 96KiB
    for level in 7 n+99 n+0 "" 1000; do
        refused "level" -- strake array create new --level "$level" --drives "$(free 0 1 2 3)"
    done
    refused "use 0, 1, 10, 5, 6, 7.3" -- strake array create new --level 6.6 --drives "$(free 0 1 2 3)"
    for block in 0 513 8192 banana; do
        refused -- "${create[@]}" "$(free 0 1 2 3)" "--block-size=$block"
    done
    refused "513" "use 512 or 4096" -- "${create[@]}" "$(free 0 1 2 3)" --block-size 513
    say "strips, levels and block sizes that do not exist: refused"
}

what_name() {
    local name named=(strake array create --level 6 --drives "$(free 0 1 2 3)" --)
    refused "'/'" "letters, digits" -- "${named[@]}" a/b
    refused "at most" "300" -- "${named[@]}" "$(repeated a 300)"
    refused $'\xf0\x9f\x98\x80' "letters, digits" -- "${named[@]}" $'\xf0\x9f\x98\x80'
    for name in "" . .. -x "a b" $'a\nb' $'\x1b[31m' "$(repeated a 100000)"; do
        refused "name" -- "${named[@]}" "$name"
    done
    if grep -q $'\x1b' "$work/err"; then fail "an escape sequence of a name reached the terminal"; fi
    refused "form of a UUID" -- "${named[@]}" 01234567-89ab-cdef-0123-456789abcdef
    refused "form of a UUID" -- strake array rename good 01234567-89ab-cdef-0123-456789abcdef
    refused "good" "already" "another name" -- strake array create good --level 6 --drives "$(free 0 1 2 3)"
    say "names with /, 300 characters, emoji, spaces, newlines, escapes, taken: refused"
}

no_such_thing() {
    local verb
    for verb in "show" "fail --member 0 --accept redundancy --yes" "replace --member 0 --with $work/free0" "add --drive $work/free0" \
        "unload --yes" "destroy --yes"; do
        # shellcheck disable=SC2086 # the words of $verb are separate arguments
        refused "nope" "existing names: good" -- strake array $verb nope
    done
    refused "nope" "--drives" -- strake array import nope
    refused "is a drive of an array" -- strake config backup "${drives[0]}"
    refused "is a drive of an array" -- strake config backup "${drives[0]}" --overwrite
    refused "not a backup" "--overwrite" -- strake config backup "$work/free0"
    refused "$work/missing" "check the path" -- strake array import --drives "$work/missing"
    refused "nope" -- strake wait nope --for rebuild
    refused "nope" "existing names: good" -- strake export create nope --via nbd --listen "unix:$work/other.sock"
    refused "nope" "existing names: good" -- strake export remove nope
    refused "$work/missing" "drive list" -- strake drive show "$work/missing"
    refused "9" "members 0 to 4" -- strake array fail good --member 9 --accept redundancy --yes
    refused -- strake array fail good --member 4294967296 --accept redundancy --yes
    refused -- strake array fail good --member=-1 --yes
    refused "members 0 to 4" -- strake array replace good --member 5 --with "$work/free0"
    refused "frobnicate" -- strake frobnicate
    refused -- strake
    refused "banana" -- strake wait good --for rebuild --timeout banana
    refused -4 "$work/none.sock" "strake daemon start" -- strake --socket "$work/none.sock" status
    say "arrays, members, exports, drives, commands and daemons that are not there: refused"
}

exports() {
    local listen
    expect 0 strake export create good --via nbd --listen "unix:$work/nbd.sock"
    grep -q unchanged "$work/out" || fail "the same export again is not 'unchanged'"
    refused "good" "remove it first" -- strake export create good --via nbd --listen "unix:$work/other.sock"
    for listen in 0.0.0.0:10809 192.0.2.1:10809 '[::]:10809'; do
        refused "$listen" "TLS" "loopback" -- strake export create good --name two --via nbd --listen "$listen"
    done
    for listen in banana 127.0.0.1:99999 localhosts:10809 localhost:port; do
        refused "${listen#localhost:}" "unix:/" -- strake export create good --name two --via nbd --listen "$listen"
    done
    for listen in "unix:$STRAKE_SOCKET" "unix:$work/free0" "unix:$work" "unix:$work/none/x.sock" "unix:/$(repeated x 200)"; do
        refused "${listen#unix:}" "--listen" -- strake export create good --name two --via nbd --listen "$listen"
    done
    refused "empty" -- strake export create good --name two --via nbd --listen unix:
    refused "'/'" "letters, digits" -- strake export create good --name a/b --via nbd --listen "unix:$work/other.sock"
    refused "at most" -- strake export create good --name "$(repeated a 300)" --via nbd --listen "unix:$work/other.sock"
    refused "iscsi" "nbd" "nvme-tcp" -- strake export create good --name two --via iscsi --listen 127.0.0.1:1
    refused "--allow-host" "hostnqn" -- strake export create good --name two --via nvme-tcp --listen 127.0.0.1:1
    refused "exported as good" "export remove good" "--force" -- strake array unload good --yes
    refused "exported as good" "--force" -- strake array destroy good --yes
    refused "--yes" -- strake array destroy good --force
    expect 0 strake status
    say "exports twice, of nothing, on other addresses; unload and destroy while exported: refused"
}

members() {
    refused "has all its members" -- strake array add good --drive "$work/free0"
    expect 0 strake array fail good --member 0 --accept redundancy --yes
    refused "$work/ext4" "ext4" "--overwrite" -- strake array replace good --member 0 --with "$work/ext4"
    refused "$work/tiny" "too small" "at least as large" -- strake array replace good --member 0 --with "$work/tiny"
    refused "$work/missing" "check the path" -- strake array replace good --member 0 --with "$work/missing"
    refused "${drives[2]}" "member 2 of array good" -- strake array replace good --member 0 --with "${drives[2]}"
    refused "directory" -- strake array replace good --member 0 --with "$work"
    expect 0 strake array fail good --member 1 --accept redundancy --yes
    refused "would lose data" "member 2" "replace" -- strake array fail good --member 2 --accept redundancy --yes
    for member in 0 1; do
        truncate -s 64MiB "$work/again$member"
        expect 0 strake array replace good --member $member --with "$work/again$member"
    done
    wait_rebuilt good
    say "replacing healthy members, replacements that do not fit, failing beyond redundancy: refused"
}

mixed() {
    truncate -s 80MiB "$work/larger"
    expect 0 "${create[@]}" "$(free 0 1 2),$work/larger"
    local warning
    warning=$(grep -F "$work/larger" "$work/err") || fail "no warning about the larger drive"
    expect 0 strake array destroy new --yes
    say "drives of mixed sizes: works with a warning (${warning#strake: })"
    refused "${drives[2]}" "array good" -- "${create[@]}" "$(free 1 2 3),${drives[2]}" --overwrite --yes
    expect 0 "${create[@]}" "$(free 0 1 2 3)"
    expect 0 strake array unload new --yes
    refused "$work/free0" "member of array new" "--overwrite" -- strake array create other --level 6 --drives "$(free 0 4 5 6)"
    expect 0 strake array import new --drives "$(free 0 1 2 3)"
    expect 0 strake array destroy new --yes
    expect 0 "${create[@]}" "$(free 0 1 2 3)"
    expect 0 strake array destroy new --yes
    say "drives of an unloaded array: refused; of a destroyed one: free again"
}

loop() {
    local size=$1 file=$2
    loop_device=$(losetup -f --show --sector-size "$size" "$file" 2>"$work/err") || return 1
    loops+=("$loop_device")
    # Whoever had the device before may have left it read-only.
    blockdev --setrw "$loop_device"
}

kernel_devices() {
    if ! root || ! loop 4096 "$work/free4"; then
        skipped+=("mixed LBA sizes and mounted devices: no loop devices here")
        return
    fi
    local large=$loop_device
    loop 512 "$work/free5" || fail "a second loop device cannot be had"
    refused "4096" "block" -- "${create[@]}" "$(free 0 1),$large,$loop_device" --block-size 512
    expect 0 "${create[@]}" "$(free 0 1),$large,$loop_device"
    [[ $(array_value new "it['block_bytes']") == 4096 ]] || fail "mixed LBA sizes do not give the largest"
    expect 0 strake array destroy new --yes
    losetup -d "$large"
    losetup -d "$loop_device"
    say "drives of mixed LBA sizes: the largest is taken, a smaller one asked for is refused"
    cp --sparse=always "$work/ext4" "$work/to-mount"
    loop 512 "$work/to-mount"
    mkdir "$work/mounted"
    if mount "$loop_device" "$work/mounted" 2>/dev/null; then
        mounts+=("$work/mounted")
        refused "$loop_device" "in use" "mounted" -- "${create[@]}" "$(free 0 1 2),$loop_device" --overwrite --yes
        umount "$work/mounted"
        say "a mounted device: refused, saying where it is mounted"
    else
        skipped+=("a mounted device: mount is not allowed here")
    fi
    losetup -d "$loop_device"
}

# A drive whose file system has no room for what create writes stands for one that goes away in the middle.
vanishing() {
    mkdir "$work/small"
    if ! root || ! mount -t tmpfs -o size=128k none "$work/small" 2>/dev/null; then
        skipped+=("a drive that fails during create: no tmpfs here")
        return
    fi
    mounts+=("$work/small")
    truncate -s 64MiB "$work/small/drive"
    strake array list --output json >"$work/before"
    run "${create[@]}" "$(free 0 1 2),$work/small/drive"
    local failed=$code
    [[ $failed -ge 2 ]] || fail "create on a drive that cannot be written ended with $code"
    grep -qF "$work/small/drive" "$work/err" || fail "the drive that failed is not named"
    local reason
    reason=$(<"$work/err")
    strake array list --output json >"$work/after"
    cmp -s "$work/before" "$work/after" || fail "an array is listed that could not be created"
    expect 0 "${create[@]}" "$(free 0 1 2 3)"
    expect 0 strake array destroy new --yes
    say "a drive that fails during create: no array is left, the other drives are free (exit code $failed: ${reason#strake: })"
}

racing() {
    local n codes=() pids=()
    for n in 1 2 3 4 5 6; do
        strake array create "racer$n" --level 6 --drives "$(free 0 1 2 3)" >/dev/null 2>"$work/race$n" &
        pids+=($!)
    done
    for n in 0 1 2 3 4 5; do
        code=0
        wait "${pids[n]}" || code=$?
        codes+=("$code")
    done
    [[ $(printf '%s\n' "${codes[@]}" | sort | tr -d '\n') == 033333 ]] || fail "six at once for the same drives: ${codes[*]}"
    local winner
    expect 0 strake array list --output json
    winner=$(json "[a['name'] for a in it['arrays'] if a['name'].startswith('racer')][0]")
    pids=()
    for n in 1 2 3 4; do
        strake array destroy "$winner" --yes >/dev/null 2>&1 &
        pids+=($!)
        strake array show "$winner" >/dev/null 2>&1 &
        pids+=($!)
    done
    for n in "${pids[@]}"; do wait "$n" || true; done
    refused "$winner" -- strake array show "$winner"
    say "six creations at once on the same drives: one wins, the others are refused"
}

# straked_refuses WORD... -- ARGUMENT...: a daemon that may not start says why, on its own.
straked_refuses() {
    local words=() word
    while [[ $1 != -- ]]; do
        words+=("$1")
        shift
    done
    shift
    run timeout 30 straked "$@"
    [[ $code -eq 3 ]] || fail "straked $* ended with $code"
    for word in "${words[@]}"; do
        grep -qiF -- "$word" "$work/err" || fail "straked $*: stderr does not say '$word'"
    done
    refusals=$((refusals + 1))
}

daemons() {
    straked_refuses "$state" "process $daemon_pid" "--state-dir" -- --state-dir "$state" --socket "$work/2.sock"
    straked_refuses "$STRAKE_SOCKET" "answers" "--socket" -- --state-dir "$work/state2" --socket "$STRAKE_SOCKET"
    straked_refuses "$work/free0" "--state-dir" -- --state-dir "$work/free0" --socket "$work/2.sock"
    straked_refuses "$work/free0" "not a socket" "--socket" -- --state-dir "$work/state2" --socket "$work/free0"
    straked_refuses "banana" -- --cores banana
    refused "$state" "process $daemon_pid" -- strake daemon start --state-dir "$state" --socket "$work/2.sock"
    refused "$STRAKE_SOCKET" -- strake daemon start --state-dir "$work/state2" --socket "$STRAKE_SOCKET"
    expect 0 strake status
    kill9_daemon
    [[ -S $STRAKE_SOCKET ]] || fail "no stale socket to try"
    start_daemon
    restarted good
    say "two daemons on one state directory or socket: refused; a stale socket: replaced"

    stop_daemon
    cp "$state/state.json" "$work/state.good"
    head -c 20 "$work/state.good" >"$state/state.json"
    straked_refuses "$state/state.json" "is invalid" "move it away" -- --state-dir "$state" --socket "$work/2.sock"
    cmp -s <(head -c 20 "$work/state.good") "$state/state.json" || fail "a damaged state file was overwritten"
    cp "$work/state.good" "$state/state.json"
    chmod 666 "$state/state.json"
    start_daemon
    [[ $(stat -c %a "$state/state.json") == 600 ]] || fail "other users can still use the state file"
    restarted good
    say "a damaged state file: refused, and left as it is"
}

new_is_online() { [[ $(array_value new "'online' in it['states']") == true ]]; }

# A daemon that finds its directory full or read-only serves what it holds, and says what is wrong with it.
served_all_the_same() {
    start_daemon
    within 30 "array new is online" new_is_online
    run strake status
    grep -q "state directory" "$work/out" || fail "status does not tell of the state directory"
    refused "$state" "nothing was done" -- strake export create new --via nbd --listen "unix:$work/other.sock"
    stop_daemon
}

full_and_read_only() {
    mkdir "$work/fs"
    if ! root || ! mount -t tmpfs -o size=128k none "$work/fs" 2>/dev/null; then
        skipped+=("a state directory that is full or read-only: no tmpfs here")
        return
    fi
    mounts+=("$work/fs")
    stop_daemon
    local kept=$state
    state=$work/fs/state
    start_daemon
    dd if=/dev/zero of="$work/fs/fill" bs=1k count=200 status=none 2>/dev/null || true
    refused "$state" "No space left" "free space" "nothing was done" -- "${create[@]}" "$(free 0 1 2 3)"
    # The entries of the refused command wait for space.
    expect 1 strake status
    grep -q "cannot be written" "$work/out" || fail "the status does not name the state directory: $(<"$work/out")"
    rm "$work/fs/fill"
    expect 0 "${create[@]}" "$(free 0 1 2 3)"
    # A read-only view laid over the directory: the file system itself is in use for writing.
    mount --bind "$work/fs" "$work/fs" && mounts=("$work/fs" "${mounts[@]}") && mount -o remount,bind,ro "$work/fs"
    refused "$state" "read-only" "--state-dir" "nothing was done" -- strake array destroy new --yes
    refused "$state" "read-only" -- strake export create new --via nbd --listen "unix:$work/other.sock"
    straked_refuses "$work/fs/other" "read-only" "--state-dir" -- --state-dir "$work/fs/other" --socket "$work/2.sock"
    stop_daemon
    served_all_the_same
    umount "$work/fs"
    dd if=/dev/zero of="$work/fs/fill" bs=1k count=200 status=none 2>/dev/null || true
    served_all_the_same
    rm "$work/fs/fill"
    start_daemon
    expect 0 strake array destroy new --yes
    stop_daemon
    state=$kept
    start_daemon
    restarted good
    say "a state directory that is full or read-only: straked serves, and refuses commands before anything is done"
}

make_drives 10 64MiB free
make_drives 5 64MiB
start_daemon
expect 0 strake array create good --level 6 --drives "$drive_list" --strip 64KiB
expect 0 strake export create good --via nbd --listen "unix:$work/nbd.sock"
which_drives
what_drives
what_shape
what_name
no_such_thing
exports
members
mixed
kernel_devices
vanishing
racing
daemons
full_and_read_only
expect 0 strake status
stop_daemon
(cd "$work" && sha256sum --quiet -c occupied) || fail "a refused drive was written to"
say "$refusals refusals, each with a reason and a remedy, and nothing changed"
for what in "${skipped[@]}"; do say "skipped: $what"; done
