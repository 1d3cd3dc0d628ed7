#!/usr/bin/env bash
# A member is lost in the middle of the resync after a crash: the event tells, the regions are listed, and after an orderly
# stop the array is refused until the loss is accepted. The same array in mode strict: every byte is right, and it starts.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

seed=${STRAKE_SEED:-$RANDOM}
say "seed $seed (STRAKE_SEED=$seed repeats the choices, not the timing)"
start_daemon

# client VERB ARGUMENT...: on the export of array $name.
client() { expect 0 timeout 120 python3 "$e2e/_nbd.py" "$@" --socket "$work/$name.nbd" --export "$name" --model "$work/$name.model"; }

# crashed NAME MODE: an array whose daemon was killed under writes, started again, with its resync held back.
crashed() {
    name=$1
    make_drives 4 128MiB "$name."
    expect 0 strake array create "$name" --level 5 --drives "$drive_list" --consistency "$2"
    expect 0 strake wait "$name" --for initialize --timeout 60s
    expect 0 strake export create "$name" --via nbd --listen "unix:$work/$name.nbd"
    client fill --windows 0:4096 --seed "$seed"
    client crash --windows 0:4096 --seed "$seed" --after 200 --kill "$daemon_pid"
    reap_daemon
    # As if a person had paused the resync in the moment it began.
    python3 - "$state/state.json" <<'PYTHON'
import json, sys
with open(sys.argv[1]) as file:
    it = json.load(file)
for array in it["arrays"]:
    array["settings"]["paused"] = True
with open(sys.argv[1], "w") as file:
    json.dump(it, file)
PYTHON
    start_daemon
    restarted "$name"
}
member_lost() {
    expect 0 strake array fail "$name" --member 1 --accept redundancy
    stop_daemon
    start_daemon
}

crashed tank safe
[[ $(array_value tank "'resyncing' in it['states']") == true ]] || fail "no resync is under way: $(<"$work/out")"
[[ $(array_value tank "'in_doubt' in it['states']") == false ]] || fail "in doubt too early: $(<"$work/out")"
expect 0 strake array fail tank --member 1 --accept redundancy
expect 0 strake event list --output json
[[ $(json "sum(e['kind'] == 'in_doubt' for e in it['events'])") == 1 ]] || fail "no event: $(<"$work/out")"
bytes=$(array_value tank "it['in_doubt_bytes']")
[[ $(array_value tank "'in_doubt' in it['states'] and len(it['in_doubt_ranges']) > 0") == true ]] || fail "not listed: $(<"$work/out")"
run strake array show tank
grep -q "in doubt" "$work/out" || fail "not shown: $(<"$work/out")"
run strake doctor
grep -q "may contain wrong blocks" "$work/out" || fail "the doctor says nothing: $(<"$work/out")"
say "$bytes bytes are in doubt"
stop_daemon
start_daemon
is_refused() { array_value tank "it.get('reason', '')" | grep -q "lost a member during the resync"; }
within 10 "it is refused after an orderly stop" is_refused
expect 3 strake array import tank
expect 3 strake array import tank --degraded
stop_daemon
start_daemon
within 10 "it is refused again" is_refused
expect 0 strake array import tank --degraded --accept-loss
[[ $(array_value tank "'in_doubt' in it['states']") == false ]] || fail "accepted, and still in doubt: $(<"$work/out")"
stop_daemon
start_daemon
restarted tank
expect 0 strake export remove tank
expect 0 strake array destroy tank --yes

crashed strict strict
[[ $(array_value strict "'resyncing' in it['states']") == false ]] || fail "strict resynchronizes: $(<"$work/out")"
client verify
member_lost
restarted strict
[[ $(array_value strict "it['in_doubt_bytes'] if 'in_doubt_bytes' in it else 0") == 0 ]] || fail "strict is in doubt: $(<"$work/out")"
client verify
say "strict: $(<"$work/out")"
stop_daemon
