#!/usr/bin/env bash
# Drives that stop answering while their arrays run: on a write, a read, a flush, a page of the bitmap, a payload of the
# log, and on everything during a rebuild. One array for each, all at the same time and with the usual limits: each
# answers every request within 20 s and serves without its drive, an array on other drives goes on, the daemon answers,
# and the drive can be taken back when it answers again.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"
need fio
fio --enghelp 2>/dev/null | grep -qw nbd || skip "this fio has no nbd engine"

# What hangs of the drive of each array: areas of a member are in docs/on-disk.md.
declare -A hangs=([write]="write 16M-" [read]="read 16M-" [fsync]="fsync" [bitmap]="write 1M-4M" [log]="write 6M-16M" [rebuild]="all")
rows=(write read fsync bitmap log rebuild)

start_fuse
make_fuse_drives ${#rows[@]} 96MiB
served=("${drives[@]}")
start_daemon

# make_array NAME LEVEL DRIVE...: an array with an export of its own name.
make_array() {
    local name=$1 level=$2
    shift 2
    expect 0 strake array create "$name" --level "$level" --drives "$(IFS=,; echo "$*")"
    expect 0 strake export create "$name" --via nbd --listen "unix:$work/$name.sock"
}

# load NAME SECONDS: random reads, writes and flushes, with what fio says in $work/NAME.json.
load() {
    fio --name="$1" --ioengine=nbd --uri="nbd+unix:///$1?socket=$work/$1.sock" --rw=randrw --bs=4k --size=48M \
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

for at in "${!rows[@]}"; do
    # shellcheck disable=SC2086
    set -- ${hangs[${rows[at]}]}
    [[ ${rows[at]} != rebuild ]] || expect 0 strake array replace rebuild --member 3 --with "$work/spare"
    expect 0 fuse_ctl hang "$1" "f$at" ${2:+"$2"}
done
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
# A drive that failed is not taken back without being asked for; one that still owes answers is refused.
readded() { run strake array readd "$1" --member 0; [[ $code -eq 0 ]]; }
for name in "${rows[@]}"; do within 60 "array $name takes its drive back" readded "$name"; done
for name in "${rows[@]}"; do within 120 "the drive of array $name is in sync" is_back "$name"; done
say "all drives are taken back"
stop_daemon
