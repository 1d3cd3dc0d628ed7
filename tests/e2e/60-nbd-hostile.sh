#!/usr/bin/env bash
# NBD clients that send garbage, stop reading, announce what never comes, or disconnect in the middle of a write,
# while another client writes and verifies on the same array. The daemon stays up, the other client sees no
# error, and connections, file descriptors and memory are given free again.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

seed=${STRAKE_SEED:-$RANDOM}
say "seed $seed"

make_drives 6 64MiB
# The checks read the descriptors of the daemon, also as another user than root.
start_daemon --core-dumps permit
expect 0 strake array create tank --level 6 --drives "$drive_list" --strip 64KiB --block-size 4096
expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"

descriptors() { find "/proc/$daemon_pid/fd" -mindepth 1 | wc -l; }
memory_kib() { awk '/^VmRSS/ { print $2 }' "/proc/$daemon_pid/status"; }
turns() { cat "$work/steady" 2>/dev/null || echo 0; }

victim_lives() {
    kill -0 "$victim" 2>/dev/null || { cat "$work/victim.out" >&2; fail "the other client was disturbed"; }
}

turned_beyond() { victim_lives; [[ $(turns) -gt $1 ]]; }

# served WHEN: until the other client has got on.
served() { within 60 "the other client is served $1" turned_beyond "$(($(turns) + 20))"; }

# Runs one attack, and checks that the daemon and the other client take no notice.
attack() {
    expect 0 timeout 120 python3 "$e2e/_hostile.py" "$@" --socket "$work/nbd.sock" --export tank --seed "$seed"
    kill -0 "$daemon_pid" || fail "straked is gone after: $1"
    served "after $1"
    say "$1: survived$(sed 's/^/, /' "$work/out")"
}

few_descriptors() { [[ $(descriptors) -le $((descriptors_before + 4)) ]]; }

# The first half of the array is the other client's.
python3 "$e2e/_nbd.py" steady --socket "$work/nbd.sock" --export tank --windows 0:8192 --seed "$seed" \
    --progress "$work/steady" --until "$work/enough" >"$work/victim.out" 2>&1 &
victim=$!
child_pids+=("$victim")
served "before the attacks"
descriptors_before=$(descriptors)
memory_before=$(memory_kib)

attack noise
attack options
attack requests
attack midwrite
attack silence
attack crowd

# Clients that ask and never read hold what they may hold, and everybody else goes on.
python3 "$e2e/_hostile.py" unread --socket "$work/nbd.sock" --export tank \
    --progress "$work/unread" --until "$work/read-enough" >"$work/unread.out" 2>&1 &
greedy=$!
child_pids+=("$greedy")
within 60 "clients stop reading" test -e "$work/unread"
served "while others do not read"
served "while others still do not read"
memory_most=$(memory_kib)
touch "$work/read-enough"
wait "$greedy" || { cat "$work/unread.out" >&2; fail "the clients that stopped reading failed"; }
served "after others stopped reading"
say "unread: survived"

within 30 "descriptors of gone clients are closed ($(descriptors) open, $descriptors_before before)" few_descriptors
[[ $memory_most -lt $((memory_before + 512 * 1024)) ]] ||
    fail "memory grew from $memory_before to $memory_most KiB under clients that do not read"
touch "$work/enough"
wait "$victim" || { cat "$work/victim.out" >&2; fail "the other client saw an error"; }
expect 0 strake status
[[ $(array_value tank "it['states']") == '["online"]' ]] || fail "the array suffered: $(array_value tank "it['states']")"
say "the other client: $(<"$work/victim.out")"
say "memory $((memory_before / 1024)) MiB before, $((memory_most / 1024)) MiB at most, $(($(memory_kib) / 1024)) MiB after"
stop_daemon
