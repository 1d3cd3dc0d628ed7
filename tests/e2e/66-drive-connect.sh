#!/usr/bin/env bash
# Drives of other machines: two daemons serve six namespaces over NVMe/TCP, a third one makes a RAID 6 of them. The
# machine with two of them dies under writes that go on, comes back, and gets only what it lacks. The machine with the
# other four stands still until its connections are given up, which costs nothing. The daemon with the array is killed
# too, also while one of the machines is away, and finds its drives again by itself.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

seed=${STRAKE_SEED:-$RANDOM}
say "seed $seed (STRAKE_SEED=$seed repeats the choices, not the timing)"
host=nqn.2014-08.org.nvmexpress:uuid:6f1bd6b4-4bd2-4d55-a3a5-8c3a4f0a7e11
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

# serve MACHINE COUNT: arrays without redundancy on a machine, each offered to the host; their addresses in `remotes`.
serve() {
    local machine=$1 count=$2 listen=127.0.0.1:0 n
    on "$machine" start_daemon
    for ((n = 0; n < count; n++)); do
        make_drives 1 128MiB "$machine$n."
        on "$machine" expect 0 strake array create "lun$n" --level 0 --drives "$drive_list" --block-size 4096
        on "$machine" expect 0 strake export create "lun$n" --via nvme-tcp --listen "$listen" --allow-host "$host"
        listen=$(on "$machine" export_value "lun$n" "['listen']")
        remotes+=("$(on "$machine" export_value "lun$n" "['uri']")")
    done
}

# drive_value ADDRESS EXPRESSION: the expression over what the daemon with the array says of a drive.
drive_value() {
    expect 0 strake drive show "$1" --output json
    json "it$2"
}

member_states() { array_value tank "' '.join(m['state'] for m in it['members'])"; }
are() { [[ $(member_states) == "$1" ]]; }
in_sync="in_sync in_sync in_sync in_sync in_sync in_sync"
without_b="in_sync in_sync in_sync in_sync missing missing"

remotes=()
serve a 4
serve b 2
start_daemon

# Whoever is not allowed is refused, and told under which name it came; the same for what is no address.
expect 2 strake drive connect "${remotes[0]}"
grep -q "does not allow this host;.* we connect as nqn" "$work/err" || fail "a host that is not allowed: $(<"$work/err")"
expect 3 strake drive connect nvme-tcp://127.0.0.1:4420
expect 3 strake drive disconnect "${remotes[0]}"

# What a machine offers is what can be connected.
expect 0 strake drive discover "${remotes[0]%/*}" --host-nqn "$host" --output json
[[ $(json "' '.join(sorted(o['address'] for o in it['offers']))") == "$(printf '%s\n' "${remotes[@]:0:4}" | sort | xargs)" ]] ||
    fail "offered: $(<"$work/out")"
expect 2 strake drive discover "${remotes[0]%/*}"

for remote in "${remotes[@]}"; do
    # I/O is held back for the machine that stands still for as long as can be, and for the one that dies no longer than
    # has to be.
    hold=24
    [[ $remote == "${remotes[4]}" || $remote == "${remotes[5]}" ]] && hold=12
    expect 0 strake drive connect "$remote" --host-nqn "$host" --hold "$hold" --output json
    [[ $(json "[it['result'], it['drive']['kind'], it['drive']['state']]") == '["created", "nvme-tcp", "free"]' ]] ||
        fail "connected: $(<"$work/out")"
done
# NBD clients of a drive that the host has reserved cannot write to it.
on a expect 0 strake export create lun0 --via nbd --listen "unix:$work/lun0.sock" --name other
if timeout 60 python3 "$e2e/_nbd.py" fill --socket "$work/lun0.sock" --export other --model "$work/other" \
    --windows 0:8 --seed "$seed" >"$work/other.out" 2>&1; then
    fail "an NBD client wrote to a reserved drive"
fi
grep -qi "perm\|reserved\|error 1" "$work/other.out" || fail "an NBD client of a reserved drive: $(<"$work/other.out")"
on a expect 0 strake export remove other
expect 0 strake drive connect "${remotes[0]}" --output json
[[ $(json "it['result']") == unchanged ]] || fail "connected again: $(<"$work/out")"
expect 3 strake drive connect "${remotes[0]}" --hold 20
expect 0 strake drive discover "${remotes[0]%/*}" --host-nqn "$host" --output json
[[ $(json "sum(o['drives'] == [o['address']] for o in it['offers'])") == 4 ]] || fail "offered: $(<"$work/out")"
expect 0 strake drive list --output json
[[ $(json "sum(d['kind'] == 'nvme-tcp' for d in it['drives'])") == 6 ]] || fail "drives: $(<"$work/out")"

drive_list=$(IFS=,; echo "${remotes[*]}")
expect 0 strake array create tank --level 6 --drives "$drive_list" --strip 64KiB
expect 3 strake drive disconnect "${remotes[3]}"
initialized() { [[ $(array_value tank "'initializing' in it['states']") == false ]]; }
within 120 "the array is initialized" initialized
# Regions stay marked for a while after that; not beyond an orderly stop.
stop_daemon
start_daemon
within 30 "the array is there again" are "$in_sync"
expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"
model=$work/model
client() { expect 0 timeout 120 python3 "$e2e/_nbd.py" "$@" --socket "$work/nbd.sock" --export tank --model "$model"; }
client fill --windows 0:4096 --seed "$seed"

# The machine of two members dies while a client goes on.
python3 "$e2e/_nbd.py" steady --socket "$work/nbd.sock" --export tank --windows 8192:512 --seed "$seed" \
    --progress "$work/steady" --until "$work/enough" >"$work/steady.out" 2>&1 &
victim=$!
child_pids+=("$victim")
turns() { cat "$work/steady" 2>/dev/null || echo 0; }
turned_beyond() {
    kill -0 "$victim" 2>/dev/null || { cat "$work/steady.out" >&2; fail "the client was disturbed"; }
    [[ $(turns) -gt $1 ]]
}
within 60 "the client is served" turned_beyond 0
on b kill9_daemon
within 90 "the members of the machine that died are missing" are "$without_b"
within 60 "the client goes on without them" turned_beyond "$(($(turns) + 40))"
say "without the machine: $(turns) writes"

# It comes back: its members get what they lack, which is a region or two and not all of it.
on b start_daemon
within 90 "the members of the machine that came back are in sync" are "$in_sync"

# A host that is disconnected connects again, and loses no member.
before=$(turns)
on b expect 0 strake host disconnect "$host" --output json
[[ $(json "it['result']") == changed ]] || fail "disconnected: $(<"$work/out")"
within 60 "the client goes on" turned_beyond "$((before + 40))"
are "$in_sync" || fail "members after a disconnect: $(member_states)"

# A host that is no longer allowed loses its drives, and gets them back when it is allowed again.
allow() {
    local n
    for n in 0 1; do on b expect 0 strake export set "lun$n" --allow-host "$1" --deny-host "$2"; done
}
nobody=nqn.2014-08.org.example:nobody
allow "$nobody" "$host"
within 90 "the members on the machine that denies the host are missing" are "$without_b"
allow "$host" "$nobody"
within 90 "the members on the machine that allows the host again are in sync" are "$in_sync"

# The other machine stands still until its connections are given up, with writes that it has answered and nobody has
# flushed. They are still there afterwards, it says, so that the array loses no member: of these it could not do without.
kill -STOP "${pids[a]}"
given_up() {
    expect 0 strake drive list --output json
    [[ $(json "sum('connection is lost' in d['note'] for d in it['drives'])") == 4 ]]
}
within 12 "the connections to the machine that stands still are given up" given_up
kill -CONT "${pids[a]}"
before=$(turns)
within 60 "the client goes on" turned_beyond "$((before + 40))"
are "$in_sync" || fail "members after a standstill: $(member_states)"
touch "$work/enough"
wait "$victim" || { cat "$work/steady.out" >&2; fail "the client saw an error"; }
victim=
say "$(<"$work/steady.out")"
expect 0 strake event list --output json
copied=$(json "[e['cause'] for e in it['events'] if e['kind'] == 'member_returned']")
say "members came back: $copied"
[[ $(json "len([e for e in it['events'] if e['kind'] == 'member_returned'])") == 4 ]] || fail "returned: $copied"
[[ $copied =~ ", and "([0-9]+)" MiB are copied to it" && ${BASH_REMATCH[1]} -le 32 ]] || fail "more than a region: $copied"
[[ $(drive_value "${remotes[4]}" "['note']") == "" ]] || fail "a drive that is back: $(<"$work/out")"
client verify

# The daemon with the array is killed, and finds everything by itself.
kill9_daemon
start_daemon
restarted tank
within 60 "all members are there again" are "$in_sync"
client verify
say "after kill -9 of the daemon with the array: $(<"$work/out")"

# It is started while a machine is away: that holds up nothing but the array, which waits for its drives.
stop_daemon
on b kill9_daemon
start_daemon
waits() { [[ $(array_value tank "' '.join(it['states'])") == offline ]]; }
within 30 "the array waits" waits
[[ $(drive_value "${remotes[5]}" "['state']") == failed ]] || fail "a drive that is away: $(<"$work/out")"
on b start_daemon
restarted tank
are "$in_sync" || fail "assembled of $(member_states)"
client verify

# Parity is right as well: everything is read again without two members that were there all the time.
expect 0 strake wait tank --for resync --timeout 60s
expect 0 strake array fail tank --member 0 --accept redundancy --yes
expect 0 strake array fail tank --member 2 --accept redundancy --yes
client verify
say "without two other members: $(<"$work/out")"

# What nothing uses is let go, and forgotten.
expect 0 strake export remove tank --force
expect 3 strake drive disconnect "${remotes[0]}"
expect 0 strake array unload tank --yes
for remote in "${remotes[@]}"; do expect 0 strake drive disconnect "$remote"; done
expect 0 strake drive list --output json
[[ $(json "sum(d['kind'] == 'nvme-tcp' for d in it['drives'])") == 0 ]] || fail "drives: $(<"$work/out")"
stop_daemon
on a stop_daemon
on b stop_daemon
