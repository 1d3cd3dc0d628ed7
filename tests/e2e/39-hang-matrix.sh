#!/usr/bin/env bash
# A drive that hangs while an array is created, and when the daemon starts after kill -9: on its opening, getattr, a
# read and a write of its label, a flush, a page of the bitmap, and the redo log. One array for each, all at the same
# time. The daemon answers, other arrays serve, each array serves without its drive, and takes it back when it answers.
# The rows of a running array, a rebuild and a stop are in 37-hang-run.sh.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"
need nbdcopy fio
fio --enghelp 2>/dev/null | grep -qw nbd || skip "this fio has no nbd engine"

# What hangs of the drive of each array: areas of a member are in docs/on-disk.md.
rows=(open getattr label_read label_write flush bitmap log)
declare -A creates=([open]="open" [getattr]="getattr" [label_read]="read 0-1M" [label_write]="write 0-1M" [flush]="fsync"
    [bitmap]="write 1M-4M" [log]="write 6M-16M")
declare -A starts=([open]="open" [getattr]="getattr" [label_read]="read 0-1M" [label_write]="write 0-1M" [flush]="fsync"
    [bitmap]="read 1M-4M" [log]="read 6M-16M")

in_sync() { [[ $(array_value "$1" "[m['state'] for m in it['members']].count('in_sync')") -eq $2 ]]; }

# answers_soon: prints how long a look at everything takes.
answers_soon() {
    local begun
    begun=$(now_ms)
    run timeout 10 strake status
    [[ $code -le 2 ]] || fail "status ended with $code while drives hang"
    echo $(($(now_ms) - begun))
}

# neighbour SECONDS: the 99th percentile of requests to the array on other drives, in milliseconds.
neighbour() {
    timeout -k 5 $(($1 + 90)) fio --name=other --ioengine=nbd --uri="nbd+unix:///other?socket=$work/other.sock" --rw=randrw --bs=4k --size=48M \
        --iodepth=4 --time_based --runtime="$1" --output-format=json --output="$work/other.json" 2>"$work/other.err" ||
        fail "requests of the array on other drives failed"
    python3 - "$work/other.json" <<'PYTHON'
import json, sys
job = json.load(open(sys.argv[1]))["jobs"][0]
assert job["error"] == 0
print(f"{max(job[kind]['clat_ns']['percentile']['99.000000'] for kind in ('read', 'write')) / 1e6:.1f}")
PYTHON
}

# calm: until a crash costs no array anything. One that costs a member as well would leave regions in doubt otherwise,
# and the array is rightly not started without consent then. The pauses are the idle time in question.
calm() {
    local attempt row left
    for ((attempt = 1; attempt <= 6; attempt++)); do
        sleep 5
        kill9_daemon
        start_daemon
        left=0
        for row in "${rows[@]}"; do
            restarted "$row"
            left=$((left + $(array_value "$row" "it['resync_bytes_at_start']")))
        done
        [[ $left -ne 0 ]] || return 0
        for row in "${rows[@]}"; do expect 0 strake wait "$row" --for resync --timeout 60s; done
    done
    fail "an idle array has regions in doubt"
}

start_fuse
make_fuse_drives $((2 * ${#rows[@]})) 64MiB
served=("${drives[@]}")
make_drives 4 64MiB other
start_daemon
expect 0 strake array create other --level 5 --drives "$drive_list"
expect 0 strake export create other --via nbd --listen "unix:$work/other.sock"
expect 0 strake wait other --for resync --timeout 60s
before=$(neighbour 3)

# Created: each command ends with its drive's name, and nothing else waits for it.
hang_rows creates 0
creating=()
begun=$(now_ms)
for at in "${!rows[@]}"; do
    row=${rows[at]}
    make_drives 2 64MiB "new_$row"
    timeout 120 strake array create "new_$row" --level 5 --drives "$drive_list,${served[at]}" >"$work/$row.out" \
        2>"$work/$row.err" &
    creating+=($!)
    child_pids+=($!)
done
took=$(answers_soon)
beside=$(neighbour 3)
say "create: status after $took ms, p99 of the other array $before ms before, $beside ms beside"
for at in "${!rows[@]}"; do
    row=${rows[at]} code=0
    wait "${creating[at]}" || code=$?
    if [[ $row == log ]]; then
        # What the log has held before is known not to count by its header: creating writes nothing there.
        [[ $code -eq 0 ]] || fail "create touches the log, which hangs: $(cat "$work/$row.err")"
        say "create, $row: made within $(($(now_ms) - begun)) ms, as nothing is written there"
        continue
    fi
    [[ $code -ne 0 && $code -ne 124 ]] || fail "create on a drive that hangs on $row ended with $code"
    grep -q "${served[at]}" "$work/$row.err" || fail "create, $row: the drive is not named: $(cat "$work/$row.err")"
    say "create, $row: refused within $(($(now_ms) - begun)) ms"
done
expect 0 fuse_ctl release
expect 0 strake array unload new_log

# Started after kill -9.
for at in "${!rows[@]}"; do
    row=${rows[at]}
    make_drives 3 64MiB "$row"
    expect 0 strake array create "$row" --level 6 --drives "${served[${#rows[@]} + at]},$drive_list"
    expect 0 strake export create "$row" --via nbd --listen "unix:$work/$row.sock"
done
head -c 8M /dev/urandom >"$work/image"
expect 0 strake array set log --consistency strict
for row in "${rows[@]}"; do
    expect 0 nbdcopy "$work/image" "nbd+unix:///$row?socket=$work/$row.sock"
    expect 0 strake wait "$row" --for resync --timeout 60s
done
calm
kill9_daemon
hang_rows starts "${#rows[@]}"
begun=$(now_ms)
launch straked --state-dir "$state" --socket "$STRAKE_SOCKET" --cores auto
within 15 "straked answers while drives hang" daemon_answers
answered=$(($(now_ms) - begun))
within 15 "the other array is offered while drives hang" is_offered other
say "start: answered after $answered ms, the other array offered after $(($(now_ms) - begun)) ms"
took=$(answers_soon)
for row in "${rows[@]}"; do
    within 40 "the array whose drive hangs on $row serves without it" is_offered "$row"
    say "start, $row: served within $(($(now_ms) - begun)) ms"
done
beside=$(neighbour 3)
say "start: status after $took ms, p99 of the other array $before ms before, $beside ms beside"
for row in "${rows[@]}"; do
    expect 0 nbdcopy "nbd+unix:///$row?socket=$work/$row.sock" "$work/back"
    cmp -n "$(stat -c %s "$work/image")" "$work/image" "$work/back" || fail "$row: what was read back differs"
done
expect 0 fuse_ctl release
for row in "${rows[@]}"; do within 60 "$row: the drive is taken back" in_sync "$row" 4; done
say "start, ${rows[*]}: all drives are taken back by themselves"
stop_daemon
