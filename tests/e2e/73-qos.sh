#!/usr/bin/env bash
# Limits of volumes, exports and pools: a limited volume serves at most its rate and its burst, another volume is not
# limited, a change applies to connected clients, limits nest, survive a restart, and end with their objects.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

# load NAME SECONDS OP [BYTES]: keeps 16 requests in flight at an export. Prints the number of completed requests, and
# the milliseconds between the first request and the last answer.
load() {
    python3 - "$e2e" "$work/$1.sock" "$@" <<'PYTHON'
import sys, time
sys.path.insert(0, sys.argv[1])
from _nbd import Client
socket, name, seconds, verb = sys.argv[2], sys.argv[3], float(sys.argv[4]), sys.argv[5]
size = int(sys.argv[6]) if len(sys.argv) > 6 else 4096
client = Client(socket, name)
command, data = (0, b"") if verb == "read" else (1, bytes(size))
blocks = client.size // size
begin, sent, done = time.monotonic(), 0, 0
def issue():
    global sent
    client.send(command, sent % blocks * size, size, data)
    sent += 1
for _ in range(16):
    issue()
while done < sent:
    client.reply()
    if verb == "read":
        client.exactly(size)
    done += 1
    if time.monotonic() - begin < seconds:
        issue()
print(done, int((time.monotonic() - begin) * 1000))
client.close()
PYTHON
}

# limited COUNT MS RATE BURST [COST]: whether so many requests are at most the budget of their time, and at least 70 % of
# what the rate permits. The times are those of the client, so a slow host changes neither bound.
limited() {
    local budget=$(($3 * $2 / 1000)) spent=$(($1 * ${5:-1}))
    # Two ticks of the budget may come early, and one request of a client may pass. A lease that a core spends while it is
    # taken back is charged later: it is at most the burst.
    ((spent <= budget + 2 * $4 + $3 / 500 + ${5:-1} + 16)) || fail "$spent of at most $budget + $4 in $2 ms"
    ((spent >= budget * 7 / 10)) || fail "only $spent of $budget in $2 ms"
}

# metric NAME KIND OBJECT LIMIT: a number of a limit.
limit_value() {
    expect 0 strake qos show "$1" "$2" --output json
    json "next(l['$4'] for l in it['limits'] if l['aspect'] == '$3')"
}

offer() { expect 0 strake export create "$1" --name "$2" --via nbd --listen "unix:$work/$2.sock"; }

is_online() { strake pool show data >/dev/null 2>&1; }

make_drives 3 256MiB
start_daemon
expect 0 strake array create tank --level 5 --drives "$drive_list" --strip 64k
expect 0 strake pool create data tank
expect 0 strake volume create data/vm1 64M
expect 0 strake volume create data/vm2 64M
offer data/vm1 vm1
offer data/vm2 vm2

# Refusals name what is wrong and change nothing.
expect 3 strake qos set volume data/vm1
expect 3 strake qos set volume data/vm1 --iops 0
expect 3 strake qos set volume data/none --iops 10
expect 0 strake qos set volume data/vm1 --iops 500 --dry-run
expect 0 strake qos list --output json
[[ $(json "it['objects']") == "[]" ]] || fail "a refused or planned change set a limit"

# A limited volume, beside one without a limit.
expect 0 strake qos set volume data/vm1 --iops 500
read -r done_free ms_free < <(load vm2 2 read)
read -r done ms < <(load vm1 3 read)
limited "$done" "$ms" 500 50
((done_free * 1000 / ms_free > 750)) || fail "the volume without a limit had $done_free requests in $ms_free ms"
[[ $(limit_value volume data/vm1 iops used) == "$done" ]] || fail "the limit did not count $done requests"
(($(limit_value volume data/vm1 iops throttled) > 0)) || fail "no request waited"
expect 0 strake volume show data/vm1
grep -q "iops 500/s" "$work/out" || fail "volume show does not have the limit"
say "500/s: $done requests in $ms ms; without a limit $done_free in $ms_free ms"

# Changes under load, twice, apply to the connected client.
load vm1 4 read >"$work/changed" &
changing=$!
child_pids+=("$changing")
expect 0 strake qos set volume data/vm1 --iops 2000
before=$(limit_value volume data/vm1 iops used)
counts_up() { (($(limit_value volume data/vm1 iops used) > before + 1000)); }
within 20 "the first change applies" counts_up
expect 0 strake qos set volume data/vm1 --iops 100
wait "$changing" || fail "the client under the changes failed"
read -r done ms <"$work/changed"
((done <= 2000 * ms / 1000 + 200 + 20)) || fail "$done requests in $ms ms under changes"
read -r done ms < <(load vm1 3 read)
limited "$done" "$ms" 100 10
say "two changes under load: then 100/s are $done requests in $ms ms"

# Bytes, of writes only; a large request of a client costs its size, however it is divided.
expect 0 strake qos clear volume data/vm1
expect 0 strake qos set volume data/vm1 --write-bandwidth 4MiB
read -r done ms < <(load vm1 2 write 65536)
limited "$done" "$ms" $((4 << 20)) $(((4 << 20) / 10)) 65536
read -r done_read ms_read < <(load vm1 1 read)
((done_read * 1000 / ms_read > 750)) || fail "a limit of writes limits reads: $done_read in $ms_read ms"
expect 0 strake qos clear volume data/vm1
expect 0 strake qos set export vm1 --iops 40
read -r done ms < <(load vm1 2 read 1048576)
limited "$done" "$ms" 40 4 4
say "4 MiB/s of writes, and requests of 1 MiB that cost four I/Os each"

# Limits nest: the pool's limit holds for both volumes together.
expect 0 strake qos clear export vm1
expect 0 strake qos set pool data --iops 400
load vm2 3 read >"$work/other" &
other=$!
child_pids+=("$other")
read -r done ms < <(load vm1 3 read)
wait "$other" || fail "the second client failed"
read -r done_other ms_other <"$work/other"
longer=$((ms > ms_other ? ms : ms_other))
limited $((done + done_other)) "$((longer + 1000))" 400 40
((done > 100 && done_other > 100)) || fail "a client starved: $done and $done_other"
say "400/s of a pool: $done and $done_other requests"

# A restart keeps the limits, and a removal does not wait for them.
expect 0 strake qos set volume data/vm1 --iops 1

kill9_daemon
start_daemon
within 60 "the pool is online" is_online
restarted vm1
restarted vm2
expect 0 strake qos list --output json
[[ $(json "[o['name'] for o in it['objects']]") == "['data', 'data/vm1']" ||
    $(json "[o['name'] for o in it['objects']]") == '["data", "data/vm1"]' ]] || fail "the limits are lost: $(<"$work/out")"
load vm1 1 read >"$work/drained" 2>&1 &
drained=$!
child_pids+=("$drained")
has_waiting() { (($(limit_value volume data/vm1 iops used) > 0)); }
within 20 "a client is served" has_waiting
within 20 "the export is removed beside waiting requests" strake export remove vm1 --force
wait "$drained" && fail "the client was not disconnected"
say "limits survive kill -9, and an export with waiting requests is removed"

# Limits end with their objects.
expect 0 strake volume destroy data/vm1 --yes
expect 0 strake qos list --output json
[[ $(json "len(it['objects'])") == 1 ]] || fail "the limit of a destroyed volume is left"
expect 0 strake export remove vm2 --force
expect 0 strake pool destroy data --force --yes
expect 0 strake qos list --output json
[[ $(json "len(it['objects'])") == 0 ]] || fail "the limit of a destroyed pool is left"
say "limits end with their objects"
