#!/usr/bin/env bash
# One host at a time uses a drive of another machine: a shelf serves two namespaces, and a daemon mirrors over them. A
# second daemon is refused, and takes them over while the first one stands still under writes. When that one goes on, none
# of its writes reaches the drives, its client is told so, and what the second one wrote stays.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

seed=${STRAKE_SEED:-$RANDOM}
say "seed $seed (STRAKE_SEED=$seed repeats the choices, not the timing)"
first=nqn.2014-08.org.nvmexpress:uuid:6f1bd6b4-4bd2-4d55-a3a5-8c3a4f0a7e11
second=nqn.2014-08.org.nvmexpress:uuid:0c8d6a2e-6c0f-4f0f-9d64-2b9c3f3f5a10
declare -A pids jobs
victim=

# on MACHINE COMMAND...: runs it where that machine's daemon is the one that is meant.
on() {
    local state=$work/$1 STRAKE_SOCKET=$work/$1.sock daemon_pid=${pids[$1]:-} daemon_job=${jobs[$1]:-} machine=$1
    export STRAKE_SOCKET
    shift
    "$@"
    pids[$machine]=$daemon_pid jobs[$machine]=$daemon_job
    # A script that fails ends what runs then.
    child_pids=($victim ${pids[*]})
}

remotes=()
listen=127.0.0.1:0
on shelf start_daemon
for n in 0 1; do
    make_drives 1 128MiB "shelf$n."
    on shelf expect 0 strake array create "lun$n" --level 0 --drives "$drive_list" --block-size 4096
    on shelf expect 0 strake export create "lun$n" --via nvme-tcp --listen "$listen" --allow-host "$first" --allow-host "$second"
    listen=$(on shelf export_value "lun$n" "['listen']")
    remotes+=("$(on shelf export_value "lun$n" "['uri']")")
done
drive_list=$(IFS=,; echo "${remotes[*]}")

# client MACHINE COMMAND...
model=$work/model
client() {
    local machine=$1
    shift
    expect 0 timeout 120 python3 "$e2e/_nbd.py" "$@" --socket "$work/$machine.nbd" --export tank --model "$model"
}
offer() { expect 0 strake export create tank --via nbd --listen "unix:$work/$1.nbd"; }

on front start_daemon
on spare start_daemon
for remote in "${remotes[@]}"; do
    on front expect 0 strake drive connect "$remote" --host-nqn "$first"
    on spare expect 2 strake drive connect "$remote" --host-nqn "$second"
    grep -q "another host uses the drive: .*6f1bd6b4-4bd2-4d55-a3a5-8c3a4f0a7e11" "$work/err" || fail "refused: $(<"$work/err")"
done
on spare expect 0 strake drive list --output json
[[ $(json "sum(d['kind'] == 'nvme-tcp' for d in it['drives'])") == 0 ]] || fail "what was refused is remembered: $(<"$work/out")"
on front expect 0 strake array create tank --level 1 --drives "$drive_list"
on front offer front
client front fill --windows 0:4096 --seed "$seed"

# The first machine stands still with a client that writes.
python3 "$e2e/_nbd.py" steady --socket "$work/front.nbd" --export tank --windows 8192:512 --seed "$seed" \
    --progress "$work/steady" --until "$work/never" >"$work/steady.out" 2>&1 &
victim=$!
child_pids+=("$victim")
served() { [[ $(cat "$work/steady" 2>/dev/null || echo 0) -gt 20 ]]; }
within 60 "the client is served" served
kill -STOP "${pids[front]}"

# The second one takes the drives over, and with them the array.
for remote in "${remotes[@]}"; do
    on spare expect 2 strake drive connect "$remote" --host-nqn "$second"
    on spare expect 0 strake drive connect "$remote" --host-nqn "$second" --take-over --output json
    [[ $(json "it['drive']['reservation']") == reserved ]] || fail "taken over: $(<"$work/out")"
done
on spare expect 0 strake array import tank --drives "$drive_list"
on spare offer spare
client spare verify
client spare fill --windows 0:4096 --seed "$((seed + 1))"

# The first one goes on, and gets nowhere.
kill -CONT "${pids[front]}"
disturbed() { ! kill -0 "$victim" 2>/dev/null; }
within 60 "the client of the first machine is told" disturbed
if wait "$victim"; then fail "the client of the first machine saw no error"; fi
victim=
taken_over() {
    on front expect 0 strake drive list --output json
    [[ $(json "sum('another host may have written to it' in d['note'] for d in it['drives'])") == 2 ]]
}
within 30 "the first machine says why" taken_over
client spare verify
say "after the first machine went on: $(<"$work/out")"

# It is killed and starts again: the drives are the second one's, until that one gives them back.
on front kill9_daemon
on front start_daemon
refused() {
    on front expect 0 strake drive list --output json
    [[ $(json "sum('another host uses the drive' in d['note'] for d in it['drives'])") == 2 ]]
}
within 30 "the first machine is refused" refused
on spare expect 0 strake export remove tank --force
on spare expect 0 strake array unload tank --yes
for remote in "${remotes[@]}"; do on spare expect 0 strake drive disconnect "$remote"; done
whole() { [[ $(on front array_value tank "' '.join(m['state'] for m in it['members'])") == "in_sync in_sync" ]]; }
within 60 "the array is the first machine's again" whole
# It was killed: the array waits until what it may have had under way is over.
on front restarted tank
client front verify
say "back at the first machine: $(<"$work/out")"
on front stop_daemon
on spare stop_daemon
on shelf stop_daemon
