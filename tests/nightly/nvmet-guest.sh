#!/usr/bin/env bash
# Linux's own NVMe/TCP target (nvmet), in a guest, serves two members of a RAID 6 whose other four a daemon of ours
# serves. Under writes that go on, the guest's link is cut until its members are missing, its port is taken away for a
# moment, a namespace of it goes and comes back, and the daemon with the array is killed. Each time the array goes on, finds
# the members again, and copies only what they lack. Then the target asks for proof (DH-HMAC-CHAP), of one side and of both.
# Ends with a line of JSON.
#
# Usage: tests/nightly/nvmet-guest.sh
#
# RIG, RIG_KERNEL, STRAKE_BIN_DIR and KEEP are told of in _guest.sh (Debian: nvme-cli python3). Exit code 77: cannot run
# here.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/nightly/_guest.sh
guest_needs nvme
guest_programs strake-cli strake-daemon
STRAKE_BIN_DIR=$programs
# shellcheck source=tests/e2e/_lib.sh
. tests/e2e/_lib.sh

seed=${STRAKE_SEED:-$RANDOM}
say "seed $seed (STRAKE_SEED=$seed repeats the choices, not the timing)"
host=nqn.2014-08.org.nvmexpress:uuid:6f1bd6b4-4bd2-4d55-a3a5-8c3a4f0a7e11
kernels=nqn.2014-08.org.nvmexpress:nvmet
proving=nqn.2014-08.org.nvmexpress:proving
declare -A told=()

# serve_ours: a second daemon with four namespaces; their addresses are added to `remotes`.
serve_ours() {
    local listen=127.0.0.1:0 n array_socket=$STRAKE_SOCKET
    export STRAKE_SOCKET=$work/other.sock
    state=$work/other start_daemon
    child_pids+=("$daemon_pid")
    for ((n = 0; n < 4; n++)); do
        make_drives 1 128MiB "other$n."
        expect 0 strake array create "lun$n" --level 0 --drives "$drive_list" --block-size 4096
        expect 0 strake export create "lun$n" --via nvme-tcp --listen "$listen" --allow-host "$host"
        listen=$(export_value "lun$n" "['listen']")
        remotes+=("$(export_value "lun$n" "['uri']")")
    done
    export STRAKE_SOCKET=$array_socket
}

client() { expect 0 timeout 300 python3 "$e2e/_nbd.py" "$@" --socket "$work/nbd.sock" --export tank --model "$work/model"; }
member_states() { array_value tank "' '.join(m['state'] for m in it['members'])"; }
are() { [[ $(member_states) == "$1" ]]; }
in_sync="in_sync in_sync in_sync in_sync in_sync in_sync"
without_guest="in_sync in_sync in_sync in_sync missing missing"

# steady: begins a client that writes and reads back what it wrote until it is stopped; any error ends it.
steady() {
    rm -f "$work/enough" "$work/steady"
    python3 "$e2e/_nbd.py" steady --socket "$work/nbd.sock" --export tank --windows 8192:512 --seed "$seed" \
        --progress "$work/steady" --until "$work/enough" >"$work/steady.out" 2>&1 &
    victim=$!
    child_pids+=("$victim")
    goes_on 20
}
turns() { cat "$work/steady" 2>/dev/null || echo 0; }
turned_beyond() {
    kill -0 "$victim" 2>/dev/null || { cat "$work/steady.out" >&2; fail "the client was disturbed"; }
    [[ $(turns) -gt $1 ]]
}
goes_on() { within 90 "the client goes on" turned_beyond "$(($(turns) + $1))"; }
stop_steady() {
    touch "$work/enough"
    wait "$victim" || { cat "$work/steady.out" >&2; fail "the client saw an error"; }
}

# Members that came back, and the most that was copied to one, in MiB.
returns() {
    expect 0 strake event list --output json
    json "[e['cause'] for e in it['events'] if e['kind'] == 'member_returned']"
}
copied_most() { returns | grep -o '[0-9]* MiB are copied' | sort -n | tail -1 | cut -d' ' -f1; }
returned() { [[ $(returns | python3 -c 'import json, sys; print(len(json.load(sys.stdin)))') -ge $1 ]]; }

# Its port 4420 is `port` here.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
guest_boot "$PWD/tests/nightly/_nvmet_target.sh" nvmet_tcp,loop "tcp:127.0.0.1:$port-:4420"
told[kernel]=$answer
say "Linux's target: ${told[kernel]}"
guest open_port
guest serve "$kernels" "$host"
guest offer "$kernels"

remotes=()
serve_ours
for n in 1 2; do remotes+=("nvme-tcp://127.0.0.1:$port/$kernels?nsid=$n"); done
start_daemon
# A host whose name is not on the list.
expect 2 strake drive connect "${remotes[4]}" --host-nqn nqn.2014-08.org.nvmexpress:another
say "refused: $(<"$work/err")"
for remote in "${remotes[@]}"; do
    expect 0 strake drive connect "$remote" --host-nqn "$host" --hold 12
done
expect 0 strake drive show "${remotes[4]}"
say "$(<"$work/out")"
# Ours are reserved; the kernel's target has no reservations before 6.13, and those only when it is told to.
guards() { local it; for it in "$@"; do expect 0 strake drive show "$it" --output json; json "it['reservation']"; done | xargs; }
told[guards]=$(guards "${remotes[@]}" | tr ' ' _)
[[ ${told[guards]} == reserved_reserved_reserved_reserved_none_none ]] || fail "guards: ${told[guards]}"

drive_list=$(IFS=,; echo "${remotes[*]}")
expect 0 strake array create tank --level 6 --drives "$drive_list" --strip 64KiB
initialized() { [[ $(array_value tank "'initializing' in it['states']") == false ]]; }
within 300 "the array is initialized" initialized
# Regions stay marked for a while after that; not beyond an orderly stop.
stop_daemon
start_daemon
within 60 "the array is there again" are "$in_sync"
expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"
client fill --windows 0:4096 --seed "$seed"

say "the guest's link is cut"
steady
guest cut
within 90 "the guest's members are missing" are "$without_guest"
goes_on 40
guest mend
within 120 "the guest's members are in sync again" are "$in_sync"
returned 2 || fail "members that returned: $(returns)"
told[link_cut_copied_mib]=$(copied_most)

say "its port is taken away for a moment"
guest withdraw "$kernels"
goes_on 20
guest offer "$kernels"
goes_on 40
within 120 "all members are in sync" are "$in_sync"

say "a namespace goes, and comes back"
guest namespace "$kernels" 2 0
goes_on 40
guest namespace "$kernels" 2 1
within 120 "all members are in sync" are "$in_sync"
goes_on 20
stop_steady
say "members came back: $(returns)"
told[copied_most_mib]=$(copied_most)
((told[copied_most_mib] <= 32)) || fail "more than some regions were copied: $(returns)"
client verify

say "the daemon with the array is killed"
kill9_daemon
start_daemon
restarted tank
within 120 "all members are there again" are "$in_sync"
client verify

# What the guest's members hold is needed now, and right.
expect 0 strake wait tank --for resync --timeout 120s
expect 0 strake array scrub start tank --wait --output json
[[ $(json "it['wrong_bytes'] + it['unsure_bytes'] + it['unreadable_bytes']") == 0 ]] || fail "scrub: $(<"$work/out")"
expect 0 strake array fail tank --member 0 --accept redundancy --yes
expect 0 strake array fail tank --member 2 --accept redundancy --yes
client verify
told[verified]=$(<"$work/out")

say "the target requires authentication"
guest serve "$proving" "$host"
guest offer "$proving"
umask 077
gen() { nvme gen-dhchap-key --hmac="$1" --nqn "$2"; }
pair="nvme-tcp://127.0.0.1:$port/$proving?nsid=1,nvme-tcp://127.0.0.1:$port/$proving?nsid=2"

# proves HASH GROUP [both]: connects to the target's subsystem that asks for proof, and uses what it serves.
proves() {
    local hash=$1 group=$2 extra=() one
    gen 0 "$host" >"$work/host.key"
    guest secrets "$host" "hmac($hash)" "$group" "$(<"$work/host.key")"
    if [[ -n ${3:-} ]]; then
        gen 0 "$proving" >"$work/target.key"
        guest secrets "$host" "hmac($hash)" "$group" "$(<"$work/host.key")" "$(<"$work/target.key")"
        extra=(--controller-secret-file "$work/target.key")
    fi
    expect 2 strake drive connect "${pair%%,*}" --host-nqn "$host"
    gen 0 "$host" >"$work/wrong.key"
    expect 2 strake drive connect "${pair%%,*}" --host-nqn "$host" --secret-file "$work/wrong.key"
    for one in ${pair/,/ }; do
        expect 0 strake drive connect "$one" --host-nqn "$host" --secret-file "$work/host.key" "${extra[@]}"
    done
    expect 0 strake array create proved --level 1 --drives "$pair" --yes
    expect 0 strake array destroy proved --yes
    for one in ${pair/,/ }; do expect 0 strake drive disconnect "$one"; done
    told["proof_${hash}_$group${3:+_both}"]=shown
}
proves sha256 null
proves sha384 ffdhe2048
proves sha512 ffdhe3072 both

guest_ends
python3 -c 'import json, sys; print(json.dumps(dict(zip(sys.argv[1::2], sys.argv[2::2]), verdict="held")))' \
    $(for key in "${!told[@]}"; do printf '%s %s ' "$key" "${told[$key]// /_}"; done)
