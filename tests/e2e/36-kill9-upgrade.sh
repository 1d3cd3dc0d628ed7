#!/usr/bin/env bash
# Drives that a version of format 1 has left at a kill -9 under writes: this version brings the array back with every
# acknowledged write, leaves its format alone, and converts it when asked, also when the daemon is killed meanwhile.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

rounds=${UPGRADE_ROUNDS:-8}
seed=${STRAKE_SEED:-$RANDOM}
RANDOM=$seed
say "seed $seed (STRAKE_SEED=$seed repeats the choices, not the timing)"

client() { python3 "$e2e/_nbd.py" "$@" --socket "$work/nbd.sock" --export tank --model "$work/model"; }
format() { array_value tank "it['format']"; }
milliseconds() { echo $(($(date +%s%N) / 1000000)); }

# has_old_array ROUND: the drives of format 1 as they were found, and a daemon that serves them.
has_old_array() {
    state=$work/state$1
    tar -xJf "$e2e/format-1/crashed.tar.xz" -C "$work" --no-same-owner
    drives=("$work/d0" "$work/d1" "$work/d2")
    drive_list=$(IFS=,; echo "${drives[*]}")
    start_daemon
    expect 0 strake array import tank --drives "$drive_list"
    expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"
    expect 0 strake wait tank --for healthy --timeout 60s
    expect 0 client verify
    [[ $(format) == 1 ]] || fail "an import converted the array to format $(format)"
}

has_old_array 0
client crash --windows 0:2048 --after 300 --kill "$daemon_pid" --seed "$seed" >/dev/null
reap_daemon
start_daemon
restarted tank
expect 0 strake wait tank --for healthy --timeout 60s
expect 0 client verify
expect 0 strake array upgrade-format tank --dry-run
[[ $(format) == 1 ]] || fail "a start or a plan converted the array"
say "drives of format 1 serve as before, also after another kill -9"

# A client of NBD cannot be told to wait.
client idle --until "$work/until" --progress "$work/connected" &
child_pids+=($!)
within 10 "the client is connected" test -e "$work/connected"
expect 3 strake array upgrade-format tank
[[ $(format) == 1 ]] || fail "it was converted over a client"
began=$(milliseconds)
expect 0 strake array upgrade-format tank --force
takes=$(($(milliseconds) - began))
touch "$work/until"
[[ $(format) == 2 ]] || fail "it has format $(format) after it was converted"
expect 0 strake array upgrade-format tank
expect 0 client verify
stop_daemon

converted=0
for ((round = 1; round <= rounds; round++)); do
    has_old_array "$round"
    at=$((RANDOM % (takes + 1)))
    strake array upgrade-format tank >"$work/command.out" 2>"$work/command.err" &
    command=$! outcome=0
    sleep "$(printf '%d.%03d' $((at / 1000)) $((at % 1000)))"
    kill9_daemon
    wait "$command" || outcome=$?
    # Either it was told that it is done, or it cannot tell.
    [[ $outcome -eq 0 || $outcome -eq 4 ]] || { cat "$work/command.err" >&2; fail "converting ended with $outcome when the daemon was killed"; }
    start_daemon
    restarted tank
    expect 0 strake wait tank --for healthy --timeout 60s
    now=$(format)
    [[ $now == 1 || $now == 2 ]] || fail "round $round: it has format $now"
    [[ $outcome -ne 0 || $now == 2 ]] || fail "round $round: an array that was reported converted has format 1"
    if [[ $now == 2 ]]; then converted=$((converted + 1)); fi
    expect 0 client verify
    expect 0 strake array upgrade-format tank
    [[ $(format) == 2 ]] || fail "round $round: it is not converted when asked once more"
    expect 0 client verify
    stop_daemon
done

# What it records in the end is whole: a member less, and every byte.
start_daemon
restarted tank
expect 0 strake array scrub start tank --wait
expect 0 strake array fail tank --member 1 --accept redundancy --yes
expect 0 client verify
[[ $(format) == 2 ]] || fail "it has format $(format) after a restart"
say "$rounds times kill -9 while an array was converted: $converted had format 2 after it, all in the end, nothing was lost"
stop_daemon
