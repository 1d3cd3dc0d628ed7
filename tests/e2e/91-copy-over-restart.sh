#!/usr/bin/env bash
# A copy to another drive (replace --with a member that serves) is not lost by an orderly restart, nor by kill -9: it is
# a job again at once and goes on when its drive is here. It goes on on that very drive, whatever is at its path.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

make_drives 6 256MiB
all=("${drives[@]}")

# job EXPRESSION: of the copy; "None" when there is none.
job() {
    expect 0 strake job list --output json
    json "next((j for j in it['jobs'] if j['kind'] == 'replace'), {}).get('$1')"
}
job_is() { [[ $(job state) == "$1" ]]; }
is_member() { [[ $(array_value big "it['members'][1]['path']") == "$1" ]]; }

start_daemon
expect 0 strake array create big --level 6 --drives "$(IFS=,; echo "${all[*]:0:4}")"
expect 0 strake export create big --via nbd --listen "unix:$work/big.sock"
expect 0 python3 "$e2e/_nbd.py" fill --socket "$work/big.sock" --export big --model "$work/big.model" --windows 0:1024
expect 0 strake wait big --for resync --timeout 60s
# begin DRIVE: a copy to it, held up where it is.
begin() {
    expect 0 strake array replace big --member 1 --with "$1"
    expect 0 strake job pause big/replace
    job_is paused || fail "the copy is $(job state)"
}
# One that is paused runs on nothing; the pause is a setting that outlasts restarts.
expect 0 strake array set big --rebuild-priority 0
begin "${all[4]}"
stop_daemon
start_daemon
[[ $(job kind) == replace ]] || fail "after an orderly restart there is no such job"
expect 1 timeout 20 strake wait big --for replace --timeout 1s
within 30 "the copy goes on" job_is paused
kill9_daemon
start_daemon
[[ $(job kind) == replace ]] || fail "after kill -9 there is no such job"
within 30 "the copy goes on" job_is paused
say "a job again after an orderly restart and after kill -9"

# Another drive at its path: nothing is copied to it.
stop_daemon
mv "${all[4]}" "$work/moved"
truncate -s 256MiB "${all[4]}"
before=$(sha256sum <"${all[4]}")
start_daemon
strange() { [[ $(array_value big "it['members'][1]['replacement_waits']") == *"another drive"* ]]; }
within 30 "the stranger is noticed" strange
job_is waiting || fail "the copy is $(job state) with another drive at its path"
expect 1 strake status
grep -q "waits" "$work/out" || fail "status does not say that the copy waits"
[[ $(sha256sum <"${all[4]}") == "$before" ]] || fail "something was written to the drive at its path"
# It is promised: nobody else gets the real one.
expect 3 strake spare add "$work/moved"
rm "${all[4]}"
mv "$work/moved" "${all[4]}"
within 30 "the copy goes on" job_is paused
say "another drive at its path is left alone; with its own it goes on"

expect 0 strake job resume big/replace
expect 0 strake wait big --for replace --timeout 120s
within 30 "the new drive has the place" is_member "${all[4]}"
expect 0 strake status
expect 0 python3 "$e2e/_nbd.py" verify --socket "$work/big.sock" --export big --model "$work/big.model"
kill9_daemon
start_daemon
within 30 "the array is back" is_member "${all[4]}"
[[ $(job kind) == None ]] || fail "a copy that ended is begun again"
say "it ends, the data is right, and nothing is begun again"

# One that was called off stays so, also one that waits.
begin "${all[5]}"
kill9_daemon
mv "${all[5]}" "$work/away"
start_daemon
within 30 "the array is back" is_member "${all[4]}"
job_is waiting || fail "the copy is $(job state) without its drive"
expect 0 strake job cancel big/replace
mv "$work/away" "${all[5]}"
[[ $(job kind) == None ]] || fail "the copy is there after it was called off"
stop_daemon
start_daemon
within 30 "the array is back" is_member "${all[4]}"
[[ $(job kind) == None ]] || fail "the copy is back after it was called off"
expect 0 strake spare add "${all[5]}"
say "called off while it waited: it stays so, and its drive is free"
