#!/usr/bin/env bash
# What people type out of habit: the drive of a member in place of its position, a path or localhost as an address. A
# wait and a watch outlast a restart of the daemon, and an error of a file on this side is not taken for one of the daemon.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

make_drives 5 96MiB
start_daemon
expect 0 strake array create tank --level 6 --drives "${drives[0]},${drives[1]},${drives[2]},${drives[3]}" --strip 64k
expect 0 strake wait tank --for resync --timeout 60s

expect 0 strake export create tank --via nbd --listen "$work/nbd.sock" --read-only
expect 0 strake export list
grep -q "tank *tank *nbd *ro" "$work/out" || fail "the list does not show the protocol and the access"
expect 0 strake export create tank --via nbd --listen localhost:0 --name other
expect 0 strake export list
grep -q "other *tank *nbd *rw.* 127.0.0.1:" "$work/out" || fail "localhost is not understood"

expect 3 strake array fail tank --member "${drives[4]}" --yes
grep -q "has no member on ${drives[4]}" "$work/err" || fail "the refusal does not name the drive"
expect 0 strake array fail tank --member "${drives[1]}" --accept redundancy --yes
[[ $(array_value tank "it['members'][1]['state']") == faulty ]] || fail "another member was failed"
expect 0 strake job list

# Without a spare, no rebuild begins: the wait is still there when the daemon comes back.
strake event follow --output json >"$work/followed" 2>"$work/follow.err" &
follower=$!
within 10 "the events are followed" test -e "$work/followed"
strake array show tank --watch --output json >"$work/watched" 2>"$work/watch.err" &
watcher=$!
within 10 "the array is watched" test -s "$work/watched"
strake wait tank --for healthy >"$work/waited" 2>"$work/wait.err" &
waiter=$!
within 10 "the wait has begun" test -s "$work/wait.err"
python3 "$(dirname "$0")/_top.py" "$STRAKE_BIN_DIR/strake" >"$work/top.out" 2>"$work/top.err" &
top=$!
within 30 "the array is on the screen" grep -q ready "$work/top.out"
stop_daemon
within 30 "the screen says that the daemon is away" grep -q away "$work/top.out"
for who in follow watch wait; do
    within 30 "$who waits for the daemon" grep -q "waiting for it" "$work/$who.err"
done
start_daemon
wait "$top" || fail "strake top: $(<"$work/top.err")"
expect 0 strake array replace tank --member 1 --with "${drives[4]}"
wait "$waiter" || fail "the wait ended with $?: $(<"$work/wait.err")"
within 30 "the rebuild is followed" grep -q rebuild_finished "$work/followed"
within 30 "the rebuild is watched" grep -q "${drives[4]}" "$work/watched"
kill "$follower" "$watcher"
wait "$follower" "$watcher" || fail "a watch ended with $?"
say "a wait, a watch and a reader of events outlast a restart of the daemon"

expect 3 strake config restore "$work/none.json"
expect 3 strake config backup "$work/none/x.json"
stop_daemon

# A restart has the options and variables of the former start, also of a daemon that has ended.
export STRAKE_METRICS=unix:$work/metrics.sock
start_daemon
unset STRAKE_METRICS
pid_of() { expect 0 strake daemon status --output json; json "it['pid']"; }
before=$(pid_of)
expect 0 strake daemon restart
wait "$daemon_job" || fail "the former daemon ended with $?"
daemon_pid=$(pid_of)
[[ $daemon_pid != "$before" ]] || fail "it is the same process"
expect 0 strake daemon status --output json
[[ $(json "it['state_dir']") == "$state" ]] || fail "another state directory: $(<"$work/out")"
[[ -S $work/metrics.sock ]] || fail "the variable of the former start is lost"
[[ $(array_value tank "it['members'][1]['state']") == in_sync ]] || fail "the array is not served"
expect 0 strake daemon stop
daemon_pid=
expect 4 strake status
expect 0 strake daemon restart
daemon_pid=$(pid_of)
chmod g+w "$STRAKE_SOCKET.again"
expect 3 strake daemon restart
grep -q "Only a record that no other user can write" "$work/err" || fail "the record is executed: $(<"$work/err")"
[[ $(pid_of) == "$daemon_pid" ]] || fail "a refused restart stopped the daemon"
say "a restart keeps options and variables"

# An array that does not run is listed with the command that starts or restores it.
listed() { expect 0 strake array importable --json; json "[(a['name'], a['states']) for a in it['arrays']]"; }
expect 0 strake export remove tank
expect 0 strake export remove other
expect 0 strake array unload tank
expect 0 strake array importable --drives "$drive_list"
grep -q "next: strake array import tank --drives" "$work/out" || fail "no command to import: $(<"$work/out")"
expect 0 strake array import tank --drives "$drive_list"
expect 0 strake array destroy tank --yes
# Its former member on another drive is no array.
[[ $(listed) == '[["tank", ["destroyed"]]]' ]] || fail "listed: $(listed)"
expect 0 strake array undelete tank
[[ $(listed) == "[]" ]] || fail "listed: $(listed)"
expect 0 strake daemon stop
daemon_pid=
say "arrays that do not run are listed with the commands that start them"

# Members of the group of the socket may use it, by a supplementary group as well. Nobody else may.
if [[ $(id -u) -eq 0 ]]; then
    start_daemon
    chmod 755 "$work"
    cp "$STRAKE_BIN_DIR/strake" "$work/strake"
    stranger() { setpriv --reuid 65534 --regid 65534 "$@" "$work/strake" status; }
    expect 4 stranger --clear-groups
    grep -q "no permission" "$work/err" || fail "the refusal does not name the reason: $(<"$work/err")"
    expect 0 stranger --groups 0
    stop_daemon
    say "a member of the group of the socket may use it"
fi

# A restore that cannot do all steps does not succeed.
start_daemon
expect 0 strake config backup "$work/backup.json"
stop_daemon
mkdir "$work/away"
mv "${drives[@]}" "$work/away"
state=$work/elsewhere
start_daemon
expect 1 strake config restore "$work/backup.json"
grep -q "not done" "$work/err" || fail "the restore does not name the step: $(<"$work/err")"
say "a restore names the steps that are not done"
