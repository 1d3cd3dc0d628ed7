# shellcheck shell=bash
# What the end-to-end scripts share: a folder that goes away, a daemon of their own, and checks that say what
# they wanted. Sourced, never run. README.md here explains how to run one script by hand.
#
# Only processes started here are ever signalled, by their numbers.

set -euo pipefail
# Debian keeps mkfs and losetup here, and an ordinary user's PATH may not have it.
PATH="$PATH:/usr/sbin:/sbin"

e2e=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${STRAKE_BIN_DIR:=$e2e/../../target/debug}"
STRAKE_BIN_DIR=$(cd "$STRAKE_BIN_DIR" 2>/dev/null && pwd) || { echo "STRAKE_BIN_DIR is no folder" >&2; exit 1; }
PATH="$STRAKE_BIN_DIR:$PATH"

daemon_pid=
daemon_job=
child_pids=()
mounts=()
loops=()

say() { printf '   %s\n' "$*"; }

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

# skip REASON: this machine cannot run the script.
skip() {
    printf 'skipped: %s\n' "$*"
    exit 77
}

# need TOOL...: skips when one is missing.
need() {
    local tool
    for tool in "$@"; do
        command -v "$tool" >/dev/null 2>&1 || skip "$tool is not installed (scripts/setup.sh test installs it)"
    done
}

# takes_direct DIR: whether files in DIR can be opened with O_DIRECT.
takes_direct() {
    local probe
    probe=$(mktemp "$1/strake-probe.XXXXXX" 2>/dev/null) || return 1
    local answer=0
    dd if=/dev/zero of="$probe" bs=4096 count=1 oflag=direct conv=notrunc status=none 2>/dev/null || answer=1
    rm -f "$probe"
    return "$answer"
}

# Sets `work`: a new folder, on a file system with O_DIRECT when there is one.
make_work() {
    local dir
    for dir in "${TMPDIR:-/tmp}" /var/tmp "$STRAKE_BIN_DIR"; do
        # Unix socket addresses end at 107 bytes (unix(7)).
        if [[ ${#dir} -le 60 ]] && takes_direct "$dir"; then
            work=$(mktemp -d "$dir/strake-e2e.XXXXXX")
            return
        fi
    done
    say "no folder with O_DIRECT found: drives go through the page cache"
    work=$(mktemp -d /tmp/strake-e2e.XXXXXX)
}

# kernel_waits PID: where the threads of a process wait in the kernel, and the stacks of its workers (root only). It
# distinguishes a request that the kernel does not complete from one that the engine does not submit.
kernel_waits() {
    local task name at
    for task in "/proc/$1/task"/*; do
        name=$(<"$task/comm")
        at=$(<"$task/wchan")
        printf '%s: %s\n' "$name" "$at"
        # An idle worker waits in this function.
        if [[ $name == iou-wrk* && $at != io_wq_worker ]]; then head -n 12 "$task/stack"; fi
    done 2>/dev/null | uniq -c | head -n 60
}

# warnings LOG: its last warnings and errors, and what is no event, such as a panic.
warnings() { grep -E '^[^0-9]|^[^ ]+ +(WARN|ERROR) ' "$1" | tail -n 12 | cut -c 1-240; }

cleanup() {
    local code=$? pid at
    trap - EXIT
    set +e
    if [[ $code -ne 0 && $code -ne 77 && -n $daemon_pid ]]; then
        printf -- '-- where the daemon waits in the kernel\n' >&2
        kernel_waits "$daemon_pid" >&2
    fi
    for pid in "${child_pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done
    if [[ -n $daemon_pid ]]; then kill -KILL "$daemon_pid" 2>/dev/null; fi
    wait 2>/dev/null
    for at in "${mounts[@]}"; do umount "$at" 2>/dev/null || umount -l "$at" 2>/dev/null; done
    for at in "${loops[@]}"; do losetup -d "$at" 2>/dev/null; done
    if [[ $code -ne 0 && $code -ne 77 ]]; then
        if [[ -s $work/err ]]; then printf -- '-- last error output\n' >&2; tail -n 15 "$work/err" >&2; fi
        if [[ -s $work/straked.log ]]; then
            printf -- '-- last warnings of the daemon\n' >&2
            warnings "$work/straked.log" >&2
        fi
    fi
    if [[ -n ${KEEP:-} ]]; then
        say "kept: $work"
    else
        rm -rf "$work"
    fi
    exit "$code"
}

need python3 timeout
for program in strake straked; do
    [[ -x $STRAKE_BIN_DIR/$program ]] || fail "$STRAKE_BIN_DIR holds no $program; build it, or set STRAKE_BIN_DIR"
done
work=
make_work
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
export STRAKE_SOCKET=$work/straked.sock
state=$work/state
unset STRAKE_STATE_DIR RUST_LOG

# within SECONDS WHAT COMMAND...: polls until COMMAND succeeds; fails naming WHAT when it does not in time.
within() {
    local limit=$1 what=$2 end
    shift 2
    end=$((SECONDS + limit))
    until "$@"; do
        if ((SECONDS >= end)); then fail "not within $limit s: $what"; fi
        sleep 0.05
    done
}

daemon_answers() {
    kill -0 "$daemon_pid" 2>/dev/null || fail "straked ended while it was starting"
    local code=0
    strake status >/dev/null 2>&1 || code=$?
    # 4 is "could not tell": nobody answered yet.
    [[ $code -ne 4 ]]
}

# launch COMMAND...: runs it in the background with its output in the daemon log; sets daemon_pid. It is a child
# of a shell in between, because bash announces every child of its own that was killed.
launch() {
    rm -f "$work/pid"
    (
        "$@" >>"$work/straked.log" 2>&1 &
        echo $! >"$work/pid.new"
        mv "$work/pid.new" "$work/pid"
        wait $!
    ) 2>/dev/null &
    daemon_job=$!
    within 10 "$1 is started" test -e "$work/pid"
    daemon_pid=$(<"$work/pid")
}

# start_daemon [ARGUMENT...]: starts straked on $state and waits until it answers.
start_daemon() {
    launch straked --state-dir "$state" --socket "$STRAKE_SOCKET" --cores auto "$@"
    within 30 "straked answers" daemon_answers
    within 60 "no array is being started any more" nothing_starts
}

# nothing_starts: whether every array runs, or has been tried: the daemon answers before that.
nothing_starts() {
    strake array list --output json >"$work/starts" 2>/dev/null && ! grep -q '"starting"' "$work/starts"
}

# Ends the daemon by SIGTERM, which it must survive in good order.
stop_daemon() {
    local code=0
    kill -TERM "$daemon_pid"
    wait "$daemon_job" || code=$?
    daemon_pid=
    [[ $code -eq 0 ]] || fail "straked ended with $code after SIGTERM"
}

# Ends the daemon the hard way, and has it gone.
kill9_daemon() {
    kill -KILL "$daemon_pid"
    reap_daemon
}

# Waits for a daemon that was killed.
reap_daemon() {
    wait "$daemon_job" || true
    daemon_pid=
}

# run COMMAND...: runs it with its output in $work/out and $work/err and its code in `code`.
run() {
    code=0
    "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
}

# expect CODE COMMAND...: runs it and fails on any other exit code. Errors must say something on stderr.
expect() {
    local wanted=$1
    shift
    run "$@"
    [[ $code -eq $wanted ]] || fail "exit code $code instead of $wanted: $*"
    if [[ $wanted -ge 3 && ! -s $work/err ]]; then fail "nothing on stderr: $*"; fi
}

# json EXPRESSION: evaluates Python over $work/out, which is `it`, and prints the result.
json() {
    python3 -c 'import json, sys
it = json.load(open(sys.argv[1]))
value = eval(sys.argv[2])
print(json.dumps(value) if isinstance(value, (dict, list, bool)) else value)' "$work/out" "$1"
}

# restarted NAME: until the export of that name is back by itself after a restart.
is_offered() { [[ $(export_value "$1" "['state']") == online ]]; }

restarted() { within 30 "export $1 is back by itself" is_offered "$1"; }

# array_value NAME EXPRESSION: the same over `strake array show`, whatever its health.
array_value() {
    run strake array show "$1" --output json
    [[ $code -le 2 ]] || fail "array show $1 ended with $code"
    json "$2"
}

# export_value NAME EXPRESSION: the same over the export of that name.
export_value() {
    expect 0 strake export list --output json
    json "[e for e in it['exports'] if e['name'] == '$1'][0]$2"
}

# make_drives COUNT SIZE [PREFIX]: sparse files; their paths in `drives`, with commas in `drive_list`.
make_drives() {
    local count=$1 size=$2 prefix=${3:-d} n
    drives=()
    for ((n = 0; n < count; n++)); do
        truncate -s "$size" "$work/$prefix$n"
        drives+=("$work/$prefix$n")
    done
    drive_list=$(IFS=,; echo "${drives[*]}")
}

# make_array NAME LEVEL DRIVE...: an array with an NBD export of its own name.
make_array() {
    local name=$1 level=$2
    shift 2
    expect 0 strake array create "$name" --level "$level" --drives "$(IFS=,; echo "$*")"
    expect 0 strake export create "$name" --via nbd --listen "unix:$work/$name.sock"
}

# wait_rebuilt NAME: until the array is whole again.
wait_rebuilt() {
    expect 0 strake wait "$1" --for rebuild --timeout 120s
    local bad
    bad=$(array_value "$1" "[m['position'] for m in it['members'] if m['state'] != 'in_sync']")
    [[ $bad == "[]" ]] || fail "after the rebuild of $1 members $bad are not in sync"
}

# start_fuse: serves the files of $backing at $fuse by a file system whose files hang on demand (_fuse.py says what
# can hang). Skips where this machine cannot. It ends with the script, and what it holds then ends with an error.
start_fuse() {
    local why
    why=$(python3 "$e2e/_fuse.py" probe) || skip "$why"
    backing=$work/backing fuse=$work/fuse
    mkdir -p "$backing" "$fuse"
    python3 "$e2e/_fuse.py" serve "$backing" "$fuse" "$work/fuse.control" 2>"$work/fuse.err" &
    child_pids+=($!)
    mounts+=("$fuse")
    within 10 "the FUSE file system is mounted" test -S "$work/fuse.control"
}

# fuse_ctl COMMAND...: hang, release, held and count, as the head of _fuse.py says.
fuse_ctl() { python3 "$e2e/_fuse.py" ctl "$work/fuse.control" "$@"; }

# hang_rows RULES [FIRST]: the FUSE drive number FIRST (0) and those behind it hang, one for each of the array `rows`, on
# what the associative array named RULES holds for it.
hang_rows() {
    local -n of=$1
    local first=${2:-0} at
    for at in "${!rows[@]}"; do
        # shellcheck disable=SC2086
        set -- ${of[${rows[at]}]}
        expect 0 fuse_ctl hang "$1" "f$((first + at))" ${2:+"$2"}
    done
}

# now_ms: the time in milliseconds.
now_ms() { date +%s%3N; }

# is_held: whether a request is held now.
is_held() { [[ $(fuse_ctl held) -gt 0 ]]; }

# make_fuse_drives COUNT SIZE [PREFIX]: as make_drives, seen through the FUSE file system.
make_fuse_drives() {
    local count=$1 size=$2 prefix=${3:-f} n
    drives=()
    for ((n = 0; n < count; n++)); do
        truncate -s "$size" "$backing/$prefix$n"
        drives+=("$fuse/$prefix$n")
    done
    drive_list=$(IFS=,; echo "${drives[*]}")
}

# garbage FILE: overwrites every byte of FILE, without changing its size.
garbage() {
    dd if=/dev/urandom of="$1" bs=1M count=$(($(stat -c %s "$1") >> 20)) conv=notrunc,fsync status=none
}
