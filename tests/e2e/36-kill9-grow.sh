#!/usr/bin/env bash
# kill -9 of the daemon while an array grows, at random moments, beside data that a client has written and verifies.
# After each restart the array is back whole, by itself, with its old size or the new one, and grows when it is told again.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

rounds=${GROW_ROUNDS:-12}
seed=${STRAKE_SEED:-$RANDOM}
RANDOM=$seed
say "seed $seed (STRAKE_SEED=$seed repeats the choices, not the timing)"

client() { expect 0 python3 "$e2e/_nbd.py" "$@" --socket "$work/nbd.sock" --export tank --model "$work/model"; }

make_drives 4 64MiB
start_daemon
expect 0 strake array create tank --level 6 --drives "$drive_list" --strip 64KiB --block-size 4096
expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"
client crash --windows 0:2048 --after 300 --kill "$daemon_pid" --seed "$seed"
reap_daemon
start_daemon
restarted tank
client verify
expect 0 strake wait tank --for healthy --timeout 60s

grown=0
mib=64
# Milliseconds that growing takes here, once it is known.
takes=300
milliseconds() { echo $(($(date +%s%N) / 1000000)); }
bytes=$(array_value tank "it['size_bytes']")
for ((round = 1; round <= rounds; round++)); do
    mib=$((mib + 1 + RANDOM % 8))
    for drive in "${drives[@]}"; do truncate -s "${mib}MiB" "$drive"; done
    at=$((RANDOM % (takes + 1)))
    strake array grow tank >"$work/command.out" 2>"$work/command.err" &
    command=$! outcome=0
    sleep "$(printf '%d.%03d' $((at / 1000)) $((at % 1000)))"
    kill9_daemon
    wait "$command" || outcome=$?
    # Either it was told that it is done, or it cannot tell.
    [[ $outcome -eq 0 || $outcome -eq 4 ]] || { cat "$work/command.err" >&2; fail "growing ended with $outcome when the daemon was killed"; }
    start_daemon
    restarted tank
    expect 0 strake wait tank --for healthy --timeout 60s
    now=$(array_value tank "it['size_bytes']")
    if [[ $now -ne $bytes ]]; then grown=$((grown + 1)); fi
    [[ $outcome -ne 0 || $now -ne $bytes ]] || fail "round $round: an array that was reported grown has its old size"
    client verify
    # By something, so that there is something to measure.
    mib=$((mib + 4))
    for drive in "${drives[@]}"; do truncate -s "${mib}MiB" "$drive"; done
    began=$(milliseconds)
    expect 0 strake array grow tank
    takes=$(($(milliseconds) - began))
    bytes=$(array_value tank "it['size_bytes']")
    [[ $now -lt $bytes ]] || fail "round $round: it has not grown"
    client verify
done
expect 0 strake array scrub start tank --wait
expect 0 strake array fail tank --member 1 --accept redundancy --yes
expect 0 strake array fail tank --member 2 --accept redundancy --yes
client verify
say "$rounds times kill -9 while an array grew: $grown had the new size after it, all grew in the end, nothing was lost"
stop_daemon
