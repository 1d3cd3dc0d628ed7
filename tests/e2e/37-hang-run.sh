#!/usr/bin/env bash
# Drives that stop answering while their arrays run: on a write, a read, a flush, a page of the bitmap, a payload of the
# log, and on everything during a rebuild. One array for each, all at the same time and with the usual limits: each
# answers every request within 20 s and serves without its drive, an array on other drives goes on, the daemon answers,
# and the drive is taken back when it answers again. Then the same while the daemon stops: that has an end, other arrays
# are clean, and the next daemon takes the drives back.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"
need fio nbdcopy
fio --enghelp 2>/dev/null | grep -qw nbd || skip "this fio has no nbd engine"

# What hangs of the drive of each array: areas of a member are in docs/on-disk.md.
declare -A hangs=([write]="write 16M-" [read]="read 16M-" [fsync]="fsync" [bitmap]="write 1M-4M" [log]="write 6M-16M" [rebuild]="all")
# The same while the daemon stops: what is written then is labels and pages of the bitmap.
declare -A stops=([write]="write 0-1M" [read]="read" [fsync]="fsync" [bitmap]="write 1M-4M" [log]="write 6M-16M" [rebuild]="all")
rows=(write read fsync bitmap log rebuild)

start_fuse
make_fuse_drives $((${#rows[@]} + 1)) 96MiB
served=("${drives[@]}")
start_daemon

# load NAME SECONDS: random reads, writes and flushes, with what fio says in $work/NAME.json. The nbd engine of fio
# repeats its error message forever if its server ends, so fio has a time limit.
load() {
    timeout -k 5 $(($2 + 90)) fio --name="$1" --ioengine=nbd --uri="nbd+unix:///$1?socket=$work/$1.sock" --rw=randrw --bs=4k --size=48M \
        --iodepth=4 --fsync=16 --time_based --runtime="$2" --output-format=json --output="$work/$1.json" 2>"$work/$1.err"
}

# latency NAME: whether all went well, the 99th percentile and the longest request in milliseconds.
latency() {
    python3 - "$work/$1.json" <<'PYTHON'
import json, sys
job = json.load(open(sys.argv[1]))["jobs"][0]
parts = [job[kind]["clat_ns"] for kind in ("read", "write")] + [job["sync"]["lat_ns"]]
p99 = max(part.get("percentile", {}).get("99.000000", 0) for part in parts) / 1e6
print(job["error"] == 0 and job["total_err"] == 0 if "total_err" in job else job["error"] == 0, f"{p99:.1f}", f"{max(part['max'] for part in parts) / 1e6:.0f}")
PYTHON
}

state_of() { array_value "$1" "[m['state'] for m in it['members']][$2]"; }
is_out() { [[ $(state_of "$1" 0) =~ ^(faulty|missing|rebuilding)$ ]]; }
is_back() { [[ $(state_of "$1" 0) == in_sync ]]; }

# Its clients wait for as long as its drive hangs: there is no other copy.
make_drives 1 96MiB lone
make_array lone 0 "${served[${#rows[@]}]}" "${drives[0]}"
make_drives 4 96MiB calm
make_array calm 5 "${drives[@]}"
for at in "${!rows[@]}"; do
    name=${rows[at]}
    make_drives 3 96MiB "$name"
    if [[ $name == rebuild ]]; then
        make_array "$name" 6 "${served[at]}" "${drives[@]}"
    else
        make_array "$name" 5 "${served[at]}" "${drives[@]:1}"
    fi
done
for name in calm "${rows[@]}"; do expect 0 strake wait "$name" --for resync --timeout 120s; done
expect 0 strake array set log --consistency strict
# More work than is done before the drive hangs.
expect 0 strake array fail rebuild --member 3 --accept redundancy --yes
truncate -s 96M "$work/spare"

load calm 5 || fail "fio on the array on other drives"
read -r well before _ < <(latency calm)
[[ $well == True ]] || fail "fio had errors before anything hung"

expect 0 strake array replace rebuild --member 3 --with "$work/spare"
hang_rows hangs
# Removing an export waits for requests in flight, and nothing else waits for that.
head -c 4M /dev/urandom >"$work/image"
expect 0 fuse_ctl hang write "f${#rows[@]}" 16M-
nbdcopy "$work/image" "nbd+unix:///lone?socket=$work/lone.sock" 2>/dev/null &
child_pids+=($!)
within 10 "a write to the lone array is held" is_held
strake export remove lone --force >"$work/removed" 2>&1 &
remover=$!
child_pids+=("$remover")
loads=()
for name in calm "${rows[@]}"; do
    load "$name" 25 &
    loads+=($!)
done
for name in "${rows[@]}"; do within 60 "array $name goes on without its drive" is_out "$name"; done
expect 1 timeout 10 strake status
for pid in "${loads[@]}"; do wait "$pid" || { cat "$work"/*.err >&2; fail "fio ended with an error"; }; done
for name in "${rows[@]}"; do
    read -r well p99 longest < <(latency "$name")
    [[ $well == True ]] || fail "requests of array $name failed"
    say "$name hung: p99 $p99 ms, longest $longest ms"
    ((longest < 20000)) || fail "array $name took $longest ms over a request"
done
read -r well after longest < <(latency calm)
[[ $well == True ]] || fail "requests of the array on other drives failed"
say "array on other drives: p99 $before ms before, $after ms beside seven loads and six drives that hang, longest $longest ms"
((longest < 8000)) || fail "the array on other drives waited $longest ms"

expect 0 fuse_ctl release
wait "$remover" || fail "removing an export whose drive hung ended with $?: $(cat "$work/removed")"
for name in "${rows[@]}"; do within 120 "array $name takes its drive back by itself" is_back "$name"; done
expect 0 strake event list --kind member_returned --output json
answered=$(json "sorted({e['object'] for e in it['events'] if 'answers again' in e['what']})")
[[ $(json "len({e['object'] for e in it['events'] if 'answers again' in e['what']})") == "${#rows[@]}" ]] ||
    fail "no event for each drive that answers again: $answered"
say "all drives are taken back by themselves"

# Stopped while all of them hang; what was just written leaves something to record at the stop.
expect 0 strake wait rebuild --for rebuild --timeout 120s
for name in calm "${rows[@]}"; do load "$name" 1 || fail "fio on array $name after its drive came back"; done
hang_rows stops
begun=$(now_ms)
has_stopped() { grep -q 'INFO stopped$' "$work/straked.log"; }
timeout 120 strake daemon stop >"$work/stop.out" 2>"$work/stop.err" &
stopper=$!
child_pids+=("$stopper")
longest=0
while asked=$(now_ms); run timeout 10 strake status; [[ $code -ne 4 ]]; do
    [[ $code -le 2 ]] || fail "status ended with $code while the daemon stops"
    took=$(($(now_ms) - asked))
    ((took <= longest)) || longest=$took
done
within 40 "the daemon has stopped beside six drives that hang" has_stopped
say "stopped after $(($(now_ms) - begun)) ms beside six drives that hang, longest status $longest ms"
grep -q 'not stopped cleanly' "$work/straked.log" && fail "the daemon did not stop in order"
# Its process may stay in the kernel for as long as a drive is silent; another daemon starts beside it.
stopped_job=$daemon_job
launch straked --state-dir "$state" --socket "$STRAKE_SOCKET" --cores auto
within 15 "the next daemon answers" daemon_answers
for name in calm "${rows[@]}"; do within 40 "array $name is offered again" is_offered "$name"; done
[[ $(array_value calm "it['resync_bytes_at_start']") -eq 0 ]] || fail "the array on other drives was not stopped in order"
expect 0 strake event list --kind daemon_unclean_start --output json
[[ $(json "len(it['events'])") -eq 0 ]] || fail "the stop was not in order"
expect 0 fuse_ctl release
for name in "${rows[@]}"; do within 120 "array $name takes its drive back after the restart" is_back "$name"; done
wait "$stopped_job" || true
# The process may stay in the kernel until its drives answer, and the command waits for it only for 45 s.
code=0
wait "$stopper" || code=$?
[[ $code -eq 0 ]] || { [[ $code -eq 4 ]] && grep -q "still runs after" "$work/stop.err"; } ||
    fail "daemon stop ended with $code: $(cat "$work/stop.err")"
say "stop, ${!stops[*]}: the next daemon has taken all drives back"
stop_daemon
