#!/usr/bin/env bash
# A drive that hangs on open, on getattr, on reads of its label and on writes: while an array is created on it, there on
# flushes too, and when the daemon starts after kill -9. The daemon answers, other arrays serve, the array serves
# without the drive where redundancy allows, and the drive is taken back when it answers again.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"
need nbdcopy

now_ms() { date +%s%3N; }
in_sync() { [[ $(array_value "$1" "[m['state'] for m in it['members']].count('in_sync')") -eq $2 ]]; }

# other_serves: reads from the array that has nothing to do with the drive that hangs.
other_serves() {
    expect 0 timeout 20 nbdcopy "nbd+unix:///other?socket=$work/other.sock" "$work/other.back"
    cmp -n "$(stat -c %s "$work/other.image")" "$work/other.image" "$work/other.back" || fail "the other array's data differs"
}

# answers_soon: prints how long a look at everything takes.
answers_soon() {
    local begun
    begun=$(now_ms)
    run timeout 20 strake status
    [[ $code -le 2 ]] || fail "status ended with $code while a drive hangs"
    echo $(($(now_ms) - begun))
}

# calm: until a crash of tank costs nothing. One that costs a member as well would leave regions in doubt otherwise,
# and the array is rightly not started without consent then. The pauses are the idle time in question.
calm() {
    local attempt
    for ((attempt = 1; attempt <= 6; attempt++)); do
        sleep 5
        kill9_daemon
        start_daemon
        restarted tank
        [[ $(array_value tank "it['resync_bytes_at_start']") -ne 0 ]] || return 0
        expect 0 strake wait tank --for resync --timeout 60s
    done
    fail "an idle array has regions in doubt"
}

start_fuse
make_drives 4 64MiB other
other_drives=$drive_list
make_fuse_drives 7 64MiB
members=$(IFS=,; echo "${drives[*]:0:4}")
start_daemon
expect 0 strake array create other --level 5 --drives "$other_drives"
expect 0 strake export create other --via nbd --listen "unix:$work/other.sock"
head -c 8M /dev/urandom >"$work/other.image"
expect 0 nbdcopy "$work/other.image" "nbd+unix:///other?socket=$work/other.sock"

# Created: the command ends with the drive's name, and nothing else waits for it.
for op in open getattr read write fsync; do
    expect 0 fuse_ctl hang "$op" f6
    begun=$(now_ms)
    timeout 120 strake array create late --level 5 --drives "$fuse/f4,$fuse/f5,$fuse/f6" \
        >"$work/create.out" 2>"$work/create.err" &
    create=$!
    child_pids+=("$create")
    took=$(answers_soon)
    other_serves
    code=0
    wait "$create" || code=$?
    [[ $code -ne 0 && $code -ne 124 ]] || fail "create on a drive that hangs on $op ended with $code"
    grep -q "$fuse/f6" "$work/create.err" || fail "create does not name the drive: $(cat "$work/create.err")"
    say "create, $op: status after $took ms, refused after $(($(now_ms) - begun)) ms"
    expect 0 fuse_ctl release
done
expect 0 strake array create tank --level 6 --drives "$members"
expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"
head -c 16M /dev/urandom >"$work/image"
expect 0 nbdcopy "$work/image" "nbd+unix:///tank?socket=$work/nbd.sock"
expect 0 strake wait tank --for resync --timeout 60s
expect 0 strake wait other --for resync --timeout 60s

# Started after kill -9.
for op in open getattr read write; do
    calm
    kill9_daemon
    expect 0 fuse_ctl hang "$op" f1
    begun=$(now_ms)
    launch straked --state-dir "$state" --socket "$STRAKE_SOCKET" --cores auto
    within 15 "straked answers while a drive hangs on $op" daemon_answers
    answered=$(($(now_ms) - begun))
    within 15 "the other array is offered while a drive hangs on $op" is_offered other
    other_serves
    within 40 "tank serves without the drive that hangs on $op" is_offered tank
    served=$(($(now_ms) - begun))
    expect 0 nbdcopy "nbd+unix:///tank?socket=$work/nbd.sock" "$work/back"
    cmp -n "$(stat -c %s "$work/image")" "$work/image" "$work/back" || fail "what was read back differs"
    in_sync tank 3 || fail "the drive that hangs on $op counts as in sync"
    took=$(answers_soon)
    expect 0 fuse_ctl release
    within 60 "the drive is taken back" in_sync tank 4
    say "start, $op: answered after $answered ms, served after $served ms, status $took ms, taken back"
done

stop_daemon
