#!/usr/bin/env bash
# The demo as a newcomer runs it, and as somebody who interrupts it; then the daemon started and stopped from the
# command line. Whatever happens, nothing stays behind that was not asked for.
for program in strake straked; do
    if [[ ! -x ${STRAKE_BIN_DIR:-$(dirname "$0")/../../target/debug}/$program ]]; then
        echo "skipped: no $program in STRAKE_BIN_DIR"
        exit 77
    fi
done
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

demo_dir=$work/d
mkdir "$demo_dir"

nothing_left() { [[ -z $(ls -A "$demo_dir") ]]; }

say "all of it, for scripts"
expect 0 strake demo --output json --dir "$demo_dir"
[[ $(wc -l <"$work/out") -eq 1 ]] || fail "the demo prints more than one line on standard output"
[[ $(json "it['ok'] is True and it['errors'] == 0 and it['rebuilt_members'] == 2") == true ]] ||
    fail "the demo did not work: $(cat "$work/out")"
[[ $(json "it['verified_bytes'] > 1 << 30") == true ]] || fail "the demo did too little: $(cat "$work/out")"
nothing_left || fail "the demo left something in $demo_dir"
say "verified $(json "it['verified_bytes'] >> 20") MiB in $(json "it['seconds']") s," \
    "$(json "it['resynchronized_bytes'] >> 20") MiB to resynchronize after the kill"

# start_demo ARGUMENT...: runs the demo in the background until it is under load; sets demo_pid.
start_demo() {
    # Not what the last one said.
    rm -f "$work/out" "$work/err"
    strake demo --output json --dir "$demo_dir" "$@" >"$work/out" 2>"$work/err" </dev/null &
    demo_pid=$!
    child_pids+=("$demo_pid")
    within 300 "the demo is under load" grep -qs "random reads and writes" "$work/err"
}

# interrupt SIGNAL: sends it to the demo, which must say that it did not finish.
interrupt() {
    code=0
    kill "-$1" "$demo_pid"
    wait "$demo_pid" || code=$?
    [[ $code -eq 4 ]] || fail "the demo ended with $code after SIG$1"
    [[ $(json "it['ok'] is False and it['error'] == 'interrupted'") == true ]] || fail "$(cat "$work/out")"
}

for signal in INT TERM; do
    say "interrupted by SIG$signal under load"
    start_demo
    interrupt "$signal"
    nothing_left || fail "an interrupted demo left something in $demo_dir"
done

say "interrupted and kept"
start_demo --keep
interrupt INT
kept=$(echo "$demo_dir"/strake-demo-*)
expect 0 strake --socket "$kept/straked.sock" array list --output json
[[ $(json "it['arrays'][0]['name']") == demo ]] || fail "the array was not kept"
expect 0 strake --socket "$kept/straked.sock" daemon stop
rm -r "$kept"

say "the daemon, started and stopped from the command line"
expect 3 strake daemon start --state-dir "$state" --cores nonsense
grep -q -- --cores "$work/err" || fail "the reason in the daemon's log is not told"
expect 4 strake status
expect 0 strake daemon start --state-dir "$state" --output json
daemon_pid=$(json "it['pid']")
expect 3 strake daemon start --state-dir "$state"
expect 0 strake status
expect 0 strake daemon stop
daemon_pid=
expect 4 strake daemon stop
