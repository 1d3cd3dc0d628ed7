#!/usr/bin/env bash
# Two paths to a drive of another machine: one of them dies under writes, which go on without the array losing a member,
# and is back by itself. A path is taken away, and the daemon finds its drives over what is left.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

seed=${STRAKE_SEED:-$RANDOM}
say "seed $seed (STRAKE_SEED=$seed repeats the choices, not the timing)"
host=nqn.2014-08.org.nvmexpress:uuid:6f1bd6b4-4bd2-4d55-a3a5-8c3a4f0a7e12
here=$STRAKE_SOCKET
there_pid='' portal='' writer=''
keep_pids() { child_pids=($there_pid $portal $writer); }

# The other machine: two arrays without redundancy, each offered to the host.
state=$work/there STRAKE_SOCKET=$work/there.sock
start_daemon
there_pid=$daemon_pid there_job=$daemon_job
remotes=()
listen=127.0.0.1:0
for n in 0 1; do
    make_drives 1 128MiB "there$n."
    expect 0 strake array create "lun$n" --level 0 --drives "$drive_list" --block-size 4096
    expect 0 strake export create "lun$n" --via nvme-tcp --listen "$listen" --allow-host "$host"
    listen=$(export_value "lun$n" "['listen']")
    remotes+=("$(export_value "lun$n" "['uri']")")
done

# A portal of that machine that can die alone.
open_portal() {
    python3 "$e2e/_portal.py" "$1" "$listen" "$work/portal" &
    portal=$!
    keep_pids
    within 10 "the portal is open" test -s "$work/portal"
}
open_portal 127.0.0.1:0
place=$(<"$work/portal")
first=${remotes[0]/$listen/$place}

state=$work/state STRAKE_SOCKET=$here
start_daemon
keep_pids
for remote in "$first" "${remotes[0]}" "${remotes[1]}"; do
    expect 0 strake drive connect "$remote" --host-nqn "$host"
done
# paths: what the daemon says of the paths to the drive.
paths() {
    expect 0 strake drive show "$first" --output json
    json "' '.join(p['state'] + ('*' if p['used'] else '') for p in it['paths'])"
}
paths_are() { [[ $(paths) == "$1" ]]; }
paths_are "live* live" || fail "paths: $(<"$work/out")"
expect 0 strake array create tank --level 1 --drives "$first,${remotes[1]}"
expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"

# The path in use dies under writes.
python3 "$e2e/_nbd.py" steady --socket "$work/nbd.sock" --export tank --windows 0:512 --seed "$seed" \
    --progress "$work/steady" --until "$work/enough" >"$work/steady.out" 2>&1 &
writer=$!
keep_pids
turns() { cat "$work/steady" 2>/dev/null || echo 0; }
turned_beyond() {
    kill -0 "$writer" 2>/dev/null || { cat "$work/steady.out" >&2; fail "the client was disturbed"; }
    [[ $(turns) -gt $1 ]]
}
within 60 "the client is served" turned_beyond 0
kill -KILL "$portal"
wait "$portal" || true
portal=''
within 10 "the other path is used" paths_are "lost live*"
within 30 "the client goes on" turned_beyond "$(($(turns) + 40))"
rm "$work/portal"
open_portal "$place"
within 15 "the path is back, and the other one still used" paths_are "live live*"
touch "$work/enough"
wait "$writer" || { cat "$work/steady.out" >&2; fail "the client saw an error"; }
writer=''
[[ $(array_value tank "' '.join(m['state'] for m in it['members'])") == "in_sync in_sync" ]] || fail "members: $(<"$work/out")"
# The event follows the state with the daemon's next look at the path.
only_the_path_was_lost() {
    expect 0 strake event list --output json
    [[ $(json "' '.join(e['kind'] for e in it['events'] if e['kind'] in ('drive_lost', 'member_missing', 'drive_path_lost', 'drive_path_back'))") == \
        "drive_path_lost drive_path_back" ]]
}
within 10 "events of the path alone" only_the_path_was_lost

# A path that was added is taken away, and the one that the drive is named by is not.
expect 3 strake drive disconnect "$first"
expect 0 strake drive disconnect "${remotes[0]}"
within 10 "the path is the only one" paths_are "live*"
expect 0 strake drive connect "${remotes[0]}"

# The daemon is started while the first path is closed.
kill -KILL "$portal"
wait "$portal" || true
portal=''
kill9_daemon
start_daemon
keep_pids
restarted tank
within 10 "the other path is used" paths_are "lost live*"
stop_daemon
STRAKE_SOCKET=$work/there.sock daemon_pid=$there_pid daemon_job=$there_job
stop_daemon
