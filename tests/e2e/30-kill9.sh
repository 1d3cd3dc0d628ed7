#!/usr/bin/env bash
# Twenty times kill -9 of the daemon while a client has 16 writes in flight. Each time the array and its export
# come back by themselves, no acknowledged write is lost, what was cut off is old or new block by block, and only
# dirty regions are resynchronized: how many bytes is printed. At the end two members are taken away and
# everything is read again, which shows that parity is right as well.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

rounds=20
seed=${STRAKE_SEED:-$RANDOM}
model=$work/model
say "seed $seed (STRAKE_SEED=$seed repeats the choices, not the timing)"

client() { expect 0 python3 "$e2e/_nbd.py" "$@" --socket "$work/nbd.sock" --export tank --model "$model"; }

# The write-intent bitmap of an array counts in regions of 16 MiB.
region=$((16 << 20))

make_drives 6 512MiB
start_daemon
expect 0 strake array create tank --level 6 --drives "$drive_list" --strip 64KiB --block-size 4096
expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"
size=$(array_value tank "it['size_bytes']")
blocks=$((size / 4096))

# Two windows of 4 MiB in each round, somewhere else in every one. A region stays dirty for a few seconds after
# its last write, so that rounds in quick succession add up.
declare -A touched
worst=0
for ((round = 1; round <= rounds; round++)); do
    RANDOM=$((seed + round))
    near=$((RANDOM % (blocks / 1024) * 1024))
    far=$((RANDOM % (blocks / 1024) * 1024))
    touched[$((near * 4096 / region))]=1
    touched[$((far * 4096 / region))]=1
    windows=$near:1024
    [[ $near -eq $far ]] || windows+=,$far:1024
    client crash --windows "$windows" --seed $((seed + round)) --after $((50 + RANDOM % 400)) --kill "$daemon_pid"
    wrote=$(<"$work/out")
    reap_daemon
    start_daemon
    restarted tank
    resynced=$(array_value tank "it['resync_bytes_at_start']")
    [[ $resynced -le $((${#touched[@]} * region)) && $resynced -lt $size ]] ||
        fail "round $round: $resynced of $size bytes were resynchronized, but ${#touched[@]} regions ever written to"
    [[ $resynced -gt 0 ]] || fail "round $round: writes were cut off and nothing was resynchronized"
    told=$(array_value tank "it['recovery']")
    [[ $told == "it was not shut down cleanly; "*"regions to resynchronize: "* ]] ||
        fail "round $round: of the crash is told: $told"
    ((resynced <= worst)) || worst=$resynced
    client verify
    say "$round: $wrote; resynchronized $((resynced >> 20)) of $((size >> 20)) MiB; $(<"$work/out")"
    # Every other crash comes while the resynchronization of the last one may still be under way.
    if ((round % 2)); then expect 0 strake wait tank --for resync --timeout 60s; fi
done

# Once nothing has been written for a while, a crash costs nothing. The pauses are the idle time in question.
expect 0 strake wait tank --for resync --timeout 60s
for ((attempt = 1; attempt <= 4; attempt++)); do
    sleep 5
    kill9_daemon
    start_daemon
    restarted tank
    resynced=$(array_value tank "it['resync_bytes_at_start']")
    [[ $resynced -ne 0 ]] || break
done
[[ $resynced -eq 0 ]] || fail "an idle array still resynchronized $resynced bytes after kill -9"
client verify
say "kill -9 while idle: nothing resynchronized; $(<"$work/out")"

expect 0 strake array fail tank --member 1 --accept redundancy --yes
expect 0 strake array fail tank --member 4 --accept redundancy --yes
client verify
say "members 1 and 4 taken away: $(<"$work/out")"
errors=$(export_value tank "['errors']")
[[ $errors == 0 ]] || fail "the export counted $errors errors"
stop_daemon
say "$rounds times kill -9: no acknowledged write lost; at most $((worst >> 20)) of $((size >> 20)) MiB resynchronized"
