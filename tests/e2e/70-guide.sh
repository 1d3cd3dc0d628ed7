#!/usr/bin/env bash
# The operator's guide does what it says: every command of every page of docs/guide runs, prints what the page shows
# and ends with the code the page names; what clients wrote before is read back at the end of each.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

pages=("$e2e"/../../docs/guide/*.md)
walked=0
for page in "${pages[@]}"; do
    # The index has no commands of its own.
    [[ ${page##*/} != README.md ]] || continue
    [[ -z ${GUIDE_PAGE:-} || ${page##*/} == "$GUIDE_PAGE"* ]] || continue
    rm -rf "$work/page"
    mkdir "$work/page"
    run python3 "$e2e/_guide.py" "$page" --work "$work/page"
    if [[ $code -ne 0 ]]; then
        cat "$work/out" "$work/err" >&2
        for log in "$work"/page/*/straked.log; do tail -n 10 "$log" >&2; done
        fail "docs/guide/${page##*/}"
    fi
    say "${page##*/}: $(<"$work/out")"
    walked=$((walked + 1))
done
[[ $walked -gt 0 ]] || fail "no page was walked through"
