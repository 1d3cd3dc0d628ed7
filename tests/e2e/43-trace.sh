#!/usr/bin/env bash
# `strake trace`: the stages of slow requests under load, a read that a hanging drive delays and that names this drive, a
# file for ui.perfetto.dev, and spans for an OpenTelemetry collector: once, continuously over a restart of the daemon, and
# refused by the collector.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"
need fio
fio --enghelp 2>/dev/null | grep -qw nbd || skip "this fio has no nbd engine"

# collector NAME [MODE]: starts a collector, sets `port`; its requests are in $work/NAME.
collector() {
    : >"$work/$1"
    python3 "$e2e/_collector.py" serve "$work/$1" "${@:2}" >"$work/$1.port" &
    child_pids+=($!)
    within 10 "the collector listens" test -s "$work/$1.port"
    port=$(<"$work/$1.port")
}
check() { python3 "$e2e/_collector.py" "$@" || fail "_collector.py $*"; }

start_fuse
make_fuse_drives 1 96MiB
hanging=${drives[0]}
make_drives 4 96MiB
start_daemon
make_array tank 6 "$hanging" "${drives[@]}"
expect 0 strake wait tank --for resync --timeout 120s

# load SECONDS [RW]: random requests.
load() {
    timeout -k 5 90 fio --name=load --ioengine=nbd --uri="nbd+unix:///tank?socket=$work/tank.sock" --rw="${2:-randrw}" \
        --bs=4k --size=64M --iodepth=8 --fsync=32 --time_based --runtime="$1" --output="$work/fio" 2>&1 ||
        fail "fio: $(<"$work/fio")"
}

load 3
expect 0 strake trace tank --json
[[ $(json "all(sum(s['took_ns'] for s in t['stages']) <= t['took_ns'] for t in it['traces'])") == true ]] ||
    fail "the stages of a request are longer than the request"
[[ $(json "{'read', 'write'} <= {s['stage'] for t in it['traces'] for s in t['stages']}") == true ]] ||
    fail "no request has read or written"
[[ $(json "[t['took_ns'] for t in it['traces']] == sorted((t['took_ns'] for t in it['traces']), reverse=True)") == true ]] ||
    fail "the requests that took longest are not first"
expect 0 strake trace tank --slowest --count 3
grep -q '^20.* slowest ' "$work/out" || fail "no row for the slowest request: $(<"$work/out")"
[[ $(grep -c '^20' "$work/out") -le 3 ]] || fail "more than 3 rows"

# A drive hangs on reads. The request is answered from the other drives, and its record names the drive.
expect 0 fuse_ctl hang read f0 16M-
load 6 randread
expect 0 fuse_ctl release
expect 0 strake trace tank --slowest --json
[[ $(json "any(s['stage'] == 'retried' and s.get('member') == 0 for t in it['traces'] for s in t['stages'])") == true ]] ||
    fail "no record names the drive that hung: $(json "it['traces'][:3]")"
expect 0 strake trace tank --slowest --count 0
grep -q 'retried .*(member 0)' "$work/out" || fail "the table does not name the drive: $(<"$work/out")"

# A file for another program. An existing file is not overwritten.
expect 0 strake trace tank --perfetto "$work/tank.json"
recorded=$(check timeline "$work/tank.json")
[[ $recorded -ge 5 ]] || fail "the file has only $recorded requests"
cp "$work/tank.json" "$work/kept.json"
expect 3 strake trace tank --perfetto "$work/tank.json"
cmp -s "$work/tank.json" "$work/kept.json" || fail "the file was overwritten"
expect 3 strake trace tank --perfetto "$work/none/tank.json"

# Spans: each request once, its stages within it.
collector once
expect 0 strake trace tank --otlp "http://127.0.0.1:$port"
read -r requests stages < <(check spans "$work/once")
[[ $requests -ge 5 && $stages -ge $requests ]] || fail "$requests requests with $stages stages were sent"
collector follow
strake trace tank --follow --otlp "http://127.0.0.1:$port" >"$work/follow.out" 2>&1 &
follower=$!
child_pids+=("$follower")
load 3
has_spans() { [[ -s $work/follow ]]; }
within 20 "spans are sent" has_spans
kill9_daemon
start_daemon
within 60 "the array serves again" is_offered tank
read -r before _ < <(check spans "$work/follow")
load 2
grew() { [[ $(check spans "$work/follow" | cut -d' ' -f1) -gt $before ]]; }
within 20 "spans are sent after the restart" grew
kill -INT "$follower"
wait "$follower" || fail "strake trace --follow ended with $?: $(<"$work/follow.out")"

# A collector that is not there yet: the command waits for it, and nothing is lost.
free=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
strake trace tank --follow --otlp "http://127.0.0.1:$free" >"$work/later.out" 2>&1 &
follower=$!
child_pids+=("$follower")
load 2
waits_for_it() { grep -q 'trying again' "$work/later.out"; }
within 20 "the command waits for the collector" waits_for_it
: >"$work/later"
python3 "$e2e/_collector.py" serve "$work/later" ok "$free" >/dev/null &
child_pids+=($!)
came() { [[ -s $work/later ]]; }
within 20 "the spans come later" came
kill -INT "$follower"
wait "$follower" || fail "strake trace --follow ended with $?: $(<"$work/later.out")"

# The lines of --follow.
strake trace tank --follow --utc >"$work/lines" 2>&1 &
follower=$!
child_pids+=("$follower")
load 3
has_lines() { grep -q 'core [0-9]* s.* took ' "$work/lines"; }
within 20 "lines are printed" has_lines
kill -INT "$follower"
wait "$follower" || fail "strake trace --follow ended with $?"

# A collector that refuses, rejects, or is not there; arguments that make no sense; arrays that do not run.
for mode in fail reject; do
    collector "$mode" "$mode"
    expect 2 strake trace tank --otlp "http://127.0.0.1:$port"
done
grep -q 'rejects 2 spans: too old' "$work/err" || fail "the reason is not printed: $(<"$work/err")"
expect 2 strake trace tank --otlp "http://127.0.0.1:1"
expect 3 strake trace tank --otlp "https://127.0.0.1"
expect 3 strake trace tank --otlp localhost
expect 3 strake trace tank --otlp http://127.0.0.1:99999
expect 3 strake trace tank --follow --perfetto "$work/x.json"
expect 3 strake trace none
expect 0 strake export remove tank
expect 0 strake array unload tank
expect 3 strake trace tank
stop_daemon
