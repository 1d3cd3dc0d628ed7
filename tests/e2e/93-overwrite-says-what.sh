#!/usr/bin/env bash
# Every command with --overwrite says what each drive holds before that is lost: in the plan that is shown first, in a
# dry run and in what was done.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"
need mkfs.ext4

make_drives 7 64MiB
all=("${drives[@]}")
start_daemon
expect 0 strake array create old --level 1 --drives "${all[1]},${all[2]}"
expect 0 strake array unload old
mkfs.ext4 -q "${all[0]}"
mkfs.ext4 -q "${all[5]}"

# says PATTERN WHAT: the last output.
says() { grep -Eq "$1" <(tr -s ' \n' ' ' <"$work/out") || fail "$2 does not say: $1"; }

list=${all[0]},${all[1]},${all[3]}
expect 3 strake array create new --level 5 --drives "$list"
grep -q ext4 "$work/err" || fail "the refusal does not say what is there"
expect 0 strake array create new --level 5 --drives "$list" --overwrite --dry-run
says "overwrite ${all[0]}, which holds .*ext4" "the plan of create"
says "overwrite ${all[1]}, which holds a member of array old" "the plan of create"
if grep -q "overwrite ${all[3]}" "$work/out"; then fail "an empty drive is said to be overwritten"; fi
expect 0 strake array create new --level 5 --drives "$list" --overwrite --yes
says "overwrite ${all[0]}, which holds .*ext4" "create"
says "overwrite ${all[1]}, which holds a member of array old" "create"
say "create names what it overwrites"

expect 0 strake array replace new --member 0 --with "${all[5]}" --overwrite --dry-run
says "overwrite ${all[5]}, which holds .*ext4" "the plan of replace"
expect 0 strake array fail new --member 0 --accept redundancy
expect 0 strake array add new --drive "${all[5]}" --overwrite --dry-run
says "overwrite ${all[5]}, which holds .*ext4" "the plan of add"
expect 0 strake array replace new --member 0 --with "${all[5]}" --overwrite --yes
says "overwrite ${all[5]}, which holds .*ext4" "replace"
say "so do replace and add"
