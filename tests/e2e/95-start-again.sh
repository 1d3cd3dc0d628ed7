#!/usr/bin/env bash
# Whoever finds no daemon is given the command that starts it as it was, with its state directory: with another one it
# would know nothing of the arrays and call its health ok.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

# hint: the command that the last error gives.
hint() { sed -n 's/.*with its state directory: //p' "$work/err"; }

state="$work/my state"
make_drives 3 64MiB
start_daemon
expect 0 strake array create tank --level 5 --drives "$drive_list"
kill9_daemon
expect 4 strake status
command=$(hint)
[[ $command == *"'$state'"* ]] || fail "the hint does not name the state directory: $(<"$work/err")"

# Somebody types it.
run bash -c "$command"
[[ $code -eq 0 ]] || fail "the command given does not work: $command"
daemon_pid=$(strake daemon status --output json | python3 -c 'import json, sys; print(json.load(sys.stdin)["pid"])')
[[ $(array_value tank "it['states'][0]") == online ]] || fail "the array is not back"
expect 0 strake daemon stop
daemon_pid=
expect 4 strake status
[[ $(hint) == "$command" ]] || fail "after an orderly stop another command is given: $(hint)"
say "$command"

# Options that only straked has are kept.
start_daemon --assemble-timeout never --log json
kill9_daemon
expect 4 strake array list
command=$(hint)
[[ $command == straked\ * && $command == *"--assemble-timeout never --log json"* ]] || fail "options are missing: $command"
launch bash -c "exec $command"
within 30 "straked answers" daemon_answers
within 60 "no array is being started any more" nothing_starts
[[ $(array_value tank "it['states'][0]") == online ]] || fail "the array is not back"
stop_daemon
say "${command:0:60}..."

# Where none ever listened, the usual advice.
expect 4 strake --socket "$work/none.sock" status
grep -q "state-dir" "$work/err" || fail "the advice does not mention the state directory"
