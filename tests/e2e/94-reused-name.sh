#!/usr/bin/env bash
# A name that was used again hides no destroyed array: undelete brings back the one that can be brought back, lists
# several, and says how to get at one whose name another array has now.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

make_drives 6 64MiB
all=("${drives[@]}")
first=${all[0]},${all[1]},${all[2]}
second=${all[3]},${all[4]},${all[5]}
start_daemon

# make DRIVES: an array called tank on them; its identity in `uuid`.
make() {
    expect 0 strake array create tank --level 5 --drives "$1"
    uuid=$(array_value tank "it['uuid']")
}

make "$first"
older=$uuid
expect 0 strake array destroy tank --yes
make "$second"
newer=$uuid
expect 3 strake array undelete tank
grep -q "$older" "$work/err" || fail "the older array is not named: $(<"$work/err")"
grep -q "rename" "$work/err" || fail "it is not said what to do: $(<"$work/err")"
say "while another array has the name, the destroyed one is named by its UUID"

expect 0 strake array destroy tank --yes
tr -s '[:space:]' ' ' <"$work/out" | grep -q "strake array undelete $newer" || fail "destroy promises by a name that stands for two arrays"
expect 3 strake array undelete tank
grep -q "$older" "$work/err" && grep -q "$newer" "$work/err" || fail "not both are listed: $(<"$work/err")"
expect 0 strake array undelete "$older"
expect 0 strake array rename tank older
expect 0 strake array undelete tank
[[ $(array_value tank "it['uuid']") == "$newer" ]] || fail "undelete brought back another array"
say "two of one name: both are listed, and each comes back"

# The drives of one of them have another use: its name stands for the other one.
expect 0 strake array destroy tank --yes
expect 0 strake array rename older tank
expect 0 strake array destroy tank --yes
for drive in "${all[@]:3}"; do garbage "$drive"; done
expect 0 strake array undelete tank
[[ $(array_value tank "it['uuid']") == "$older" ]] || fail "undelete brought back another array"
say "one whose drives were used since hides no other one"
