#!/usr/bin/env bash
# An array over NVMe/TCP: a host of our own connects, identifies, reads and writes in every way the transport has, with
# and without digests, is refused what must be refused, keeps its data and what hosts reserved through kill -9 and an
# orderly restart, and sees namespaces come and go.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

seed=${STRAKE_SEED:-$RANDOM}
say "seed $seed"
host=nqn.2014-08.org.nvmexpress:uuid:6f1bd6b4-4bd2-4d55-a3a5-8c3a4f0a7e11

make_drives 6 64MiB
start_daemon
expect 0 strake array create tank --level 6 --drives "$drive_list" --strip 64KiB --block-size 4096

# Nobody may connect who was not named.
expect 3 strake export create tank --via nvme-tcp --listen 127.0.0.1:0
expect 3 strake export create tank --via nvme-tcp --listen "unix:$work/nvme.sock" --allow-host "$host"
expect 3 strake export create tank --via nvme-tcp --listen 127.0.0.1:0 --allow-host somebody
expect 3 strake export create tank --via nbd --listen "unix:$work/nbd.sock" --allow-host "$host"
# An address on a network: names of hosts are not enough, even with --insecure.
expect 3 strake export create tank --via nvme-tcp --listen 0.0.0.0:0 --allow-host "$host"
expect 3 strake export create tank --via nvme-tcp --listen 0.0.0.0:0 --allow-host "$host" --insecure

expect 0 strake export create tank --via nvme-tcp --listen 127.0.0.1:0 --allow-host "$host"
address=$(export_value tank "['listen']")
nqn=$(export_value tank "['nqn']")
[[ $(export_value tank "['uri']") == "nvme-tcp://$address/$nqn" ]] || fail "another URI: $(export_value tank "['uri']")"

client() { expect 0 timeout 120 python3 "$e2e/_nvme.py" "$@" --address "$address" --nqn "$nqn" --host "$host"; }

# The same again is no change; another port cannot be asked for with the same words, so it is said in full.
expect 0 strake export create tank --via nvme-tcp --listen "$address" --allow-host "$host" --output json
[[ $(json "it['result']") == unchanged ]] || fail "the same export again: $(json "it['result']")"
expect 3 strake export create tank --name second --via nvme-tcp --listen 127.0.0.1:0 --allow-host "$host"

client check --seed "$seed"
say "$(<"$work/out")"
[[ $(export_value tank "['writes']") -gt 0 && $(export_value tank "['reads']") -gt 0 ]] || fail "nothing was counted"

unused() { [[ $(export_value tank "['connections']") == 0 ]]; }
within 30 "connections of gone hosts are closed" unused

# What was written stays, through kill -9 and through an orderly restart; the export comes back at its address.
client fill --windows 0:1024,8192:1024 --model "$work/model"
kill9_daemon
start_daemon
restarted tank
client verify --model "$work/model" --digests 3
stop_daemon
start_daemon
restarted tank
[[ $(export_value tank "['listen']") == "$address" && $(export_value tank "['nqn']") == "$nqn" ]] ||
    fail "after a restart the export is another one"
client verify --model "$work/model"
say "after kill -9 and after a restart: $(<"$work/out")"

# What two hosts agreed on outlasts kill -9; an operator ends it when they do not.
client reserve
kill9_daemon
start_daemon
restarted tank
client reserved
expect 0 strake export show tank
grep -q "exclusive-access, also after a restart" "$work/out" || fail "the reservation is not shown: $(<"$work/out")"
expect 3 strake export release tank
expect 0 strake export release tank --yes --output json
[[ $(json "it['result']") == changed ]] || fail "the reservation was not ended: $(<"$work/out")"
client free
expect 0 strake export release tank --yes --output json
[[ $(json "it['result']") == unchanged ]] || fail "there was something left: $(<"$work/out")"

# Two members fail under a host that goes on.
python3 "$e2e/_nvme.py" steady --address "$address" --nqn "$nqn" --host "$host" --windows 2048:4096 --seed "$seed" \
    --progress "$work/steady" --until "$work/enough" >"$work/steady.out" 2>&1 &
victim=$!
child_pids+=("$victim")
turns() { cat "$work/steady" 2>/dev/null || echo 0; }
turned_beyond() {
    kill -0 "$victim" 2>/dev/null || { cat "$work/steady.out" >&2; fail "the host was disturbed"; }
    [[ $(turns) -gt $1 ]]
}
within 60 "the host is served" turned_beyond 0
expect 0 strake array fail tank --member 1 --accept redundancy --yes
expect 0 strake array fail tank --member 4 --accept redundancy --yes
within 60 "the host is served by what is left" turned_beyond "$(($(turns) + 20))"

# An export in use goes only when told to.
expect 3 strake export remove tank
touch "$work/enough"
wait "$victim" || { cat "$work/steady.out" >&2; fail "the host saw an error"; }
say "two members failed: $(<"$work/steady.out")"
expect 0 strake export remove tank --force

# Read-only is what it says, and the port is free again.
expect 0 strake export create tank --via nvme-tcp --listen "$address" --allow-host "$host" --read-only \
    --nqn nqn.2014-08.org.nvmexpress:uuid:ffffffff-0000-4000-8000-000000000001
nqn=$(export_value tank "['nqn']")
client verify --model "$work/model"
expect 1 timeout 60 python3 "$e2e/_nvme.py" fill --address "$address" --nqn "$nqn" --host "$host" --windows 0:8 \
    --model "$work/none"
grep -q "status 0x20" "$work/err" || fail "a write to a read-only namespace: $(<"$work/err")"

# Another array joins the subsystem under the eyes of a host. Its drives are memory: after a restart it is not there, and
# hosts are told that it cannot be reached for now.
expect 0 strake array create beside --level 1 --drives ram:64MiB,ram:64MiB
python3 "$e2e/_nvme.py" namespaces --address "$address" --nqn "$nqn" --host "$host" --progress "$work/asked" \
    >"$work/told" 2>&1 &
watcher=$!
child_pids+=("$watcher")
within 30 "a host asks to be told" test -e "$work/asked"
expect 3 strake export create beside --via nvme-tcp --listen 127.0.0.1:0 --allow-host "$host" --nqn "$nqn"
expect 0 strake export create beside --via nvme-tcp --listen "$address" --allow-host "$host" --nqn "$nqn"
wait "$watcher" || { cat "$work/told" >&2; fail "a host was not told"; }
grep -q "told 0x40002, changed \[2\]" "$work/told" || fail "a host was told something else: $(<"$work/told")"
grep -q "namespaces: 1 optimized, 2 optimized" "$work/told" || fail "another array: $(<"$work/told")"
kill9_daemon
start_daemon
restarted tank
client namespaces
grep -q "namespaces: 1 optimized, 2 inaccessible" "$work/out" || fail "after the restart: $(<"$work/out")"
client verify --model "$work/model"
expect 0 strake export remove beside
client namespaces
grep -q "namespaces: 1 optimized$" "$work/out" || fail "one is left: $(<"$work/out")"
stop_daemon
