#!/usr/bin/env bash
# A dry run of undelete plans what the real run does and is refused where that is, and destroy promises no more than
# undelete keeps.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

# both CODE ARGUMENT...: undelete, first as a dry run: with the same end.
both() {
    local wanted=$1
    shift
    expect "$wanted" strake array undelete "$@" --dry-run
    cp "$work/err" "$work/dry"
    expect "$wanted" strake array undelete "$@"
    [[ $wanted -eq 0 ]] || cmp -s "$work/err" "$work/dry" ||
        fail "the dry run says something else than the real one: $(<"$work/dry") / $(<"$work/err")"
}

make_drives 6 64MiB
all=("${drives[@]}")
start_daemon
expect 0 strake array create tank --level 6 --drives "$(IFS=,; echo "${all[*]:0:5}")"
expect 0 strake export create tank --via nbd --listen "unix:$work/tank.sock"
expect 0 strake array destroy tank --force --dry-run
grep -q "undelete tank" "$work/out" || fail "destroy does not say how it is undone"
expect 0 strake array destroy tank --force --yes
grep -q "undelete tank" "$work/out" || fail "destroy does not say how it was undone"
both 0 tank
[[ $(export_value tank "['state']") == online ]] || fail "the export is not back"
say "brought back as planned"

# Its export has another's name by now: the plan says so beforehand.
expect 0 strake array destroy tank --force --yes
expect 0 strake array create other --level 0 --drives "${all[5]},ram:64MiB"
expect 0 strake export create other --name tank --via nbd --listen "unix:$work/other.sock"
expect 0 strake array undelete tank --dry-run --output json
[[ $(json "len(it['warnings'])") == 1 ]] || fail "the plan does not say that the export is not offered"
expect 0 strake array undelete tank
expect 0 strake export list
say "an export that cannot be offered again is in the plan"

# Three of five drives have another use: neither the plan nor the real run.
expect 0 strake array destroy tank --force --yes
for n in 0 1 2; do garbage "${all[$n]}"; done
both 3 tank
grep -q "cannot be undeleted" "$work/err" || fail "the refusal gives no reason: $(<"$work/err")"
say "refused alike: $(head -n 1 "$work/err")"

# What was in memory is gone, and so is what was degraded too far: nobody promises anything.
expect 0 strake array create mem --level 5 --drives ram:64MiB,ram:64MiB,ram:64MiB
expect 0 strake array destroy mem --yes
if grep -q "strake array undelete" "$work/out"; then fail "the destroyed array in memory is promised back"; fi
grep -q "destroyed permanently" "$work/out" || fail "it is not said that nothing brings it back"
both 3 mem
say "an array in memory is promised back by nobody"
