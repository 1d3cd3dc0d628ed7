#!/usr/bin/env bash
# A target that is slow to notice that its host is gone: a mirror stands on a drive of another machine, whose target holds
# a write W1 while the daemon is killed and started again. W1 is carried out six seconds later. What was acknowledged since
# (W2) is never undone, on either member; the array waits meanwhile and says so.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

host=nqn.2014-08.org.nvmexpress:uuid:6f1bd6b4-4bd2-4d55-a3a5-8c3a4f0a7e13
here=$STRAKE_SOCKET
there_pid='' proxy=''
keep_pids() { child_pids=($there_pid $proxy); }

# The other machine: two namespaces, the first of them behind the slow target.
state=$work/there STRAKE_SOCKET=$work/there.sock
start_daemon
there_pid=$daemon_pid there_job=$daemon_job
remotes=()
listen=127.0.0.1:0
for n in 0 1; do
    make_drives 1 128MiB "there$n."
    expect 0 strake array create "lun$n" --level 0 --drives "$drive_list" --block-size 4096
    expect 0 strake export create "lun$n" --via nvme-tcp --listen "$listen" --allow-host "$host"
    listen=$(export_value "lun$n" "['listen']")
    remotes+=("$(export_value "lun$n" "['uri']")")
done
slow=$work/slow
mkdir "$slow"
python3 "$e2e/_holding.py" 127.0.0.1:0 "$listen" "$slow" 6 &
proxy=$!
keep_pids
within 10 "the slow target is open" test -s "$slow/place"
remotes[0]=${remotes[0]/$listen/$(<"$slow/place")}

state=$work/state STRAKE_SOCKET=$here
start_daemon
keep_pids
for remote in "${remotes[@]}"; do expect 0 strake drive connect "$remote" --host-nqn "$host"; done
drive_list=$(IFS=,; echo "${remotes[*]}")
expect 0 strake array create tank --level 1 --drives "$drive_list"
expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"
[[ -s $state/associations.json ]] || fail "the use of remote drives is not recorded"

# block VERB [NUMBER]: writes block 100 as write NUMBER, or only sends that, or prints which write it holds.
block() {
    timeout 120 python3 - "$e2e" "$work/nbd.sock" "$@" <<'PYTHON'
import os, sys, time
sys.path.insert(0, sys.argv[1])
import _nbd
client, verb = _nbd.Client(sys.argv[2], "tank"), sys.argv[3]
at = 100 * _nbd.BLOCK
if verb == "read":
    found = client.read(at, _nbd.BLOCK)
    writes = [w for w in range(8) if found == _nbd.pattern(w, 100, 1)]
    print(writes[0] if writes else "torn")
else:
    data = _nbd.pattern(int(sys.argv[4]), 100, 1)
    if verb == "write":
        client.write(at, data)
    else:
        client.send(_nbd.WRITE, at, len(data), data)
        end = time.monotonic() + 60
        while not os.path.exists(sys.argv[5] + "/held") and time.monotonic() < end:
            time.sleep(0.01)
PYTHON
}
holds() {
    local found
    found=$(block read)
    [[ $found == "$1" ]] || fail "$2: the block holds write $found instead of $1"
}
both_hold() {
    local n
    # The members as the other machine has them, each alone; a mirror reads either.
    for n in 1 0; do
        expect 0 strake array fail tank --member "$n" --accept redundancy
        holds "$1" "$2, without member $n"
        expect 0 strake array readd tank --member "$n"
        wait_rebuilt tank
    done
}

# W1 is held, and the daemon killed.
block write 1
touch "$slow/hold"
block send 2 "$slow"
test -e "$slow/held" || fail "the write did not come to the slow target"
kill9_daemon
rm "$slow/hold"

# A start at once. The array waits, and says for what.
start_daemon
keep_pids
says_so() { [[ $(array_value tank "it.get('reason', '')") == "waiting until requests of the previous daemon have expired ("* ]]; }
[[ ${UNGUARDED:-} ]] || within 10 "the array says what it waits for" says_so
restarted tank
block write 3
holds 3 "before W1 landed, if it did not"
within 30 "W1 was carried out" test -e "$slow/landed"
holds 3 "after W1 landed"
expect 0 strake wait tank --for resync --timeout 60s
both_hold 3 "after W1 landed"

stop_daemon
[[ ! -e $state/associations.json ]] || fail "after an orderly stop there is nothing to wait for"
STRAKE_SOCKET=$work/there.sock daemon_pid=$there_pid daemon_job=$there_job
stop_daemon
