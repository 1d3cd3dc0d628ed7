#!/usr/bin/env bash
# The latency of an array whose drives answer, beside arrays of which one drive each hangs. In each phase the same load
# runs twice: first every drive answers, then six drives hang. In `create` the windows differ more: arrays on drives that
# answer are created and initialized, those on drives that hang are refused. Ends with a line of JSON: the 99th
# percentile of each window in milliseconds, the medians of all rounds, and their ratio. A benchmark: only a failure to
# measure fails.
#
# Usage: tests/nightly/hang-neighbour.sh [ROUNDS]     rounds of each phase [default: 5]
#
# RATE is the load on each array in reads and in writes of 4 KiB per second [default: 50]: all arrays together must
# leave the cores idle most of the time, or the windows differ by chance. WINDOW is the length of a window in seconds
# [default: 12]. STRAKE_BIN_DIR and KEEP: see tests/e2e/README.md. Exit code 77: cannot run here.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/../e2e/_lib.sh"
need fio
fio --enghelp 2>/dev/null | grep -qw nbd || skip "this fio has no nbd engine"

rounds=${1:-5} rate=${RATE:-50} window=${WINDOW:-12}
# What hangs in each phase: areas of a member are in docs/on-disk.md. A start reads labels, bitmaps and logs.
rows=(write read fsync bitmap log rebuild)
declare -A run_hangs=([write]="write 16M-" [read]="read 16M-" [fsync]="fsync" [bitmap]="write 1M-4M" [log]="write 6M-16M" [rebuild]="all")
declare -A start_hangs=([write]="write 0-1M" [read]="read 0-1M" [fsync]="fsync" [bitmap]="read 1M-4M" [log]="read 6M-16M" [rebuild]="open")

start_fuse
make_fuse_drives ${#rows[@]} 96MiB
served=("${drives[@]}")
start_daemon

# load NAME: reads and writes at a fixed rate for one window; the report is $work/NAME.json.
load() {
    timeout -k 5 $((window + 90)) fio --name="$1" --ioengine=nbd --uri="nbd+unix:///$1?socket=$work/$1.sock" --rw=randrw --bs=4k --size=48M \
        --iodepth=4 --rate_iops="$rate" --unified_rw_reporting=1 --time_based --runtime="$window" \
        --output-format=json --output="$work/$1.json" 2>"$work/$1.err"
}

# p99 NAME: the 99th percentile of all its requests in milliseconds.
p99() {
    python3 - "$work/$1.json" <<'PYTHON'
import json, sys
job = json.load(open(sys.argv[1]))["jobs"][0]
assert job["error"] == 0
print(f"{job['mixed']['clat_ns']['percentile']['99.000000'] / 1e6:.3f}")
PYTHON
}

all_in_sync() {
    local name
    for name in "${rows[@]}"; do
        [[ $(array_value "$name" "[m['state'] for m in it['members'] if m['state'] != 'in_sync']") == "[]" ]] || return 1
    done
}

# measure PHASE WINDOW: runs the loads, and records the latency of the array whose drives answer.
measure() {
    local name loads=() pid
    for name in calm "${rows[@]}"; do
        load "$name" &
        loads+=($!)
    done
    for pid in "${loads[@]}"; do wait "$pid" || { cat "$work"/*.err >&2; fail "fio ended with an error"; }; done
    echo "$1 $2 $(p99 calm)" >>"$work/windows"
    say "$1, $2: p99 $(p99 calm) ms"
}

# all_back: whether every member is in sync. A member that hung three times within an hour needs a command.
all_back() {
    local name state
    for name in "${rows[@]}"; do
        state=$(array_value "$name" "[m['state'] for m in it['members']][0]")
        [[ ! $state =~ ^(faulty|missing)$ ]] || run strake array readd "$name" --member 0
    done
    all_in_sync
}

settle() {
    expect 0 fuse_ctl release
    within 120 "all members are in sync" all_back
}

# hang_in_window RULES: the drives hang on what RULES names; with "none" they all answer.
hang_in_window() { [[ $1 == none ]] || hang_rows "$1"; }

# The phases: what is done before the loads begin, with the drives that hang in it.
phase_run() { hang_in_window "$1"; }

phase_rebuild() {
    local name
    for name in "${rows[@]}"; do
        expect 0 strake array fail "$name" --member 1 --accept redundancy --yes
        expect 0 strake array readd "$name" --member 1
    done
    hang_in_window "$1"
}

phase_start() {
    local name
    stop_daemon
    hang_in_window "$1"
    launch straked --state-dir "$state" --socket "$STRAKE_SOCKET" --cores auto
    within 30 "straked answers" daemon_answers
    for name in calm "${rows[@]}"; do within 60 "array $name is offered" is_offered "$name"; done
}

phase_create() {
    local at
    hang_in_window "$1"
    for at in "${!rows[@]}"; do
        rm -f "$backing/new$at" "$work/new$at"-*
        truncate -s 64M "$backing/new$at" "$work/new$at-0" "$work/new$at-1"
        [[ $1 == none ]] || expect 0 fuse_ctl hang write "new$at" 0-1M
        timeout 120 strake array create "new$at" --level 5 --drives "$fuse/new$at,$work/new$at-0,$work/new$at-1" \
            >"$work/new$at.out" 2>&1 &
        creating+=($!)
        child_pids+=($!)
    done
}

# after_create RULES: each create has succeeded, or is refused because its drive hangs. Removes what was created.
after_create() {
    local at code
    for at in "${!rows[@]}"; do
        code=0
        wait "${creating[at]}" || code=$?
        if [[ $1 == none ]]; then
            [[ $code -eq 0 ]] || fail "create ended with $code: $(cat "$work/new$at.out")"
            expect 0 strake array destroy "new$at" --yes
        else
            [[ $code -ne 0 && $code -ne 124 ]] || fail "create on a drive that hangs ended with $code"
        fi
    done
    creating=()
}

creating=()
make_drives 4 96MiB calm
make_array calm 5 "${drives[@]}"
for at in "${!rows[@]}"; do
    make_drives 3 96MiB "${rows[at]}"
    make_array "${rows[at]}" 6 "${served[at]}" "${drives[@]}"
done
for name in calm "${rows[@]}"; do expect 0 strake wait "$name" --for resync --timeout 120s; done
expect 0 strake array set log --consistency strict
measure warmup answer

for phase in run rebuild start create; do
    for ((round = 0; round < rounds; round++)); do
        for hangs in none run_hangs; do
            [[ $phase != start || $hangs == none ]] || hangs=start_hangs
            "phase_$phase" "$hangs"
            if [[ $hangs == none ]]; then measure "$phase" answer; else measure "$phase" hang; fi
            [[ $phase != create ]] || after_create "$hangs"
            settle
        done
    done
done
stop_daemon

python3 - "$work/windows" "$rounds" "$rate" "$window" <<'PYTHON'
import json, os, statistics, sys
windows = {}
for line in open(sys.argv[1]):
    phase, drives, value = line.split()
    windows.setdefault(phase, {}).setdefault(drives, []).append(float(value))
windows.pop("warmup")
phases = {}
for phase, of in windows.items():
    answer, hang = (statistics.median(of[drives]) for drives in ("answer", "hang"))
    phases[phase] = {"p99_ms": of, "median_answer_ms": answer, "median_hang_ms": hang, "ratio": round(hang / answer, 2)}
print(json.dumps({"bench": "hang-neighbour", "cores": os.cpu_count(), "arrays": 7, "drives_that_hang": 6, "depth": 4,
                  "rounds": int(sys.argv[2]), "rate_iops": 2 * int(sys.argv[3]), "window_s": int(sys.argv[4]),
                  "checksums": "none", "protection": "raid5", "phases": phases}))
PYTHON
