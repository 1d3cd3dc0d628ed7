#!/usr/bin/env bash
# Usability defect 8: `strake daemon start` with one member that hangs in a write did not answer within 10 s, and then
# waited for as long as the drive hung. Now the daemon answers within two seconds whatever a drive does, its array is
# served without that drive, `daemon stop` has an end that names the drive, and nothing is lost.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"
need nbdcopy

answers() { strake status >/dev/null 2>&1 || [[ $? -ne 4 ]]; }
in_sync() { [[ $(array_value "$1" "[m['state'] for m in it['members']].count('in_sync')") -eq $2 ]]; }

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
make_fuse_drives 6 64MiB
start_daemon
expect 0 strake array create tank --level 6 --drives "$drive_list"
expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"
head -c 32M /dev/urandom >"$work/image"
expect 0 nbdcopy "$work/image" "nbd+unix:///tank?socket=$work/nbd.sock"
expect 0 strake wait tank --for resync --timeout 60s
calm
kill9_daemon

expect 0 fuse_ctl hang write f2
begun=$(now_ms)
# Detached as a person starts it: the daemon is no child of this script then.
timeout 60 strake daemon start --state-dir "$state" >"$work/started" 2>"$work/starting" &
starter=$!
child_pids+=("$starter")
within 15 "the daemon answers although a member hangs in a write" answers
answered=$(($(now_ms) - begun))
expect 0 strake daemon status --output json
daemon=$(json "it['pid']")
child_pids+=("$daemon")
wait "$starter" || fail "daemon start ended with $?: $(cat "$work/starting")"
started=$(($(now_ms) - begun))
within 40 "the array is served without that member" is_offered tank
served=$(($(now_ms) - begun))
[[ $served -le 40000 ]] || fail "served after $served ms"
expect 0 nbdcopy "nbd+unix:///tank?socket=$work/nbd.sock" "$work/back"
cmp -n "$(stat -c %s "$work/image")" "$work/image" "$work/back" || fail "what was read back differs"
say "answered after $answered ms, daemon start ended after $started ms, served after $served ms"

expect 0 fuse_ctl release
within 60 "the member is taken back once it answers" in_sync tank 6
expect 0 strake wait tank --for healthy --timeout 60s
say "it is taken back when it answers again"

expect 0 strake daemon stop
daemon_pid=
say "daemon stop ends in order"
