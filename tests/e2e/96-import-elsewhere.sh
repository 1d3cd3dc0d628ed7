#!/usr/bin/env bash
# What was acknowledged is on the members before an orderly stop ends, and another machine opens no listener by itself:
# an import says which exports the members record, and how to offer them.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

make_drives 4 64MiB
start_daemon
expect 0 strake array create tank --level 6 --drives "$drive_list"
expect 0 strake export create tank --name first --via nbd --listen "unix:$work/first.sock"
expect 0 strake export create tank --name second --via nbd --listen "unix:$work/second.sock" --read-only
# Until the members know of both.
strings_of() { cat "${drives[@]}" | grep -aoc "second.sock" || true; }
members_know() { [[ $(strings_of) -gt 0 ]]; }
within 30 "the members know of the exports" members_know
expect 0 strake export remove first
stop_daemon

state=$work/elsewhere
start_daemon
expect 0 strake array import tank --drives "$drive_list"
[[ ! -e $work/first.sock && ! -e $work/second.sock ]] || fail "the import opened a listener"
if grep -q "export first" "$work/err"; then fail "an export that was removed is still recorded by the members"; fi
grep -q "export second on unix:$work/second.sock, which this daemon does not offer" "$work/err" || fail "the export is not named: $(<"$work/err")"
command=$(tr '\n' ' ' <"$work/err" | tr -s ' ' | sed -n 's/.*to offer this export: \(strake export create [^;]*\);.*/\1/p')
expect 0 strake export list --output json
[[ $(json "len(it['exports'])") == 0 ]] || fail "there is an export"
say "removed just before the stop: the members do not record it; the other one is named and not offered"

# Not lost by waiting: a third machine learns of it as well.
stop_daemon
state=$work/third
start_daemon
expect 0 strake array import tank --drives "$drive_list"
expect 0 bash -c "$command"
[[ $(export_value second "['read_only']") == true || $(export_value second "['read_only']") == True ]] || fail "it is not read-only any more"
say "offered by the command given: $command"
stop_daemon
state=$work/fourth
start_daemon
expect 0 strake array import tank --drives "$drive_list" --exports
[[ $(export_value second "['state']") == online ]] || fail "--exports does not offer it"
[[ -S $work/second.sock ]] || fail "nothing listens"
say "or with --exports"
