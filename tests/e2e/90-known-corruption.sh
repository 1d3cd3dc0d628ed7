#!/usr/bin/env bash
# What a scrub found wrong and left so is no good health: status, array list, doctor, metrics and exit codes say so, also
# after a restart and while the next scrub is under way, until a repair has put it right.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

# Where the data of a drive begins.
data=$((16 << 20))

# health CODE WORD: of all that tell it.
health() {
    local wanted=$1 word=$2
    expect "$wanted" strake status --output json
    [[ $(json "it['health']") == "$word" ]] || fail "status says $(json "it['health']") instead of $word"
    expect "$wanted" strake array show tank
    run strake doctor --output json
    [[ $(json "sum(c['name'] == 'array/tank contents' for c in it['checks'])") == "$wanted" ]] ||
        fail "doctor does not agree that the health is $word"
}

# Whether the scrub that was paused is taken up again.
is_paused() { [[ $(array_value tank "it['scrub']['state']") == paused ]]; }

# metric: the bytes that are corrupt.
metric() {
    python3 - "$work/metrics.sock" <<'PY'
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
text = b"".join(iter(lambda: s.recv(65536), b"")).decode()
print([line.split()[-1] for line in text.splitlines() if line.startswith("strake_array_corrupt_bytes{")][0])
PY
}

make_drives 6 96MiB
start_daemon --metrics "unix:$work/metrics.sock"
expect 0 strake array create tank --level 6 --drives "$drive_list" --strip 64KiB --block-size 4096
expect 0 strake wait tank --for resync --timeout 60s
health 0 ok
stop_daemon
printf 'spoiled' | dd of="${drives[2]}" bs=1 seek=$((data + 65536)) conv=notrunc status=none
start_daemon --metrics "unix:$work/metrics.sock"

expect 1 strake array scrub start tank --wait
grep -q "4 KiB corrupt" "$work/out" || fail "the scrub does not say that something is wrong"
health 1 degraded
expect 1 strake status
grep -q "4 KiB corrupt" "$work/out" || fail "status does not say what is wrong"
expect 0 strake array list
grep -q corrupt "$work/out" || fail "array list does not say that something is wrong"
[[ $(metric) == 4096 ]] || fail "the metric is $(metric) instead of 4096"
say "4096 bytes are corrupt: status, array list, show, doctor and the metric say so"

# A scrub that has not come that far yet is no news.
# It may be over before it can be paused.
paused_on_its_way() {
    run strake array scrub start tank
    run strake array scrub pause tank
    is_paused
}
within 30 "a scrub is paused on its way" paused_on_its_way
health 1 degraded
stop_daemon
start_daemon --metrics "unix:$work/metrics.sock"
health 1 degraded
kill9_daemon
start_daemon --metrics "unix:$work/metrics.sock"
health 1 degraded
within 30 "the scrub is taken up" is_paused
expect 0 strake array scrub stop tank
health 1 degraded
say "still so while the next scrub is paused, after a restart, after kill -9, and after that scrub was ended"

expect 0 strake array scrub start tank --repair --wait
health 0 ok
[[ $(metric) == 0 ]] || fail "the metric is $(metric) after the repair"
expect 0 strake wait tank --for healthy --timeout 30s
stop_daemon
start_daemon --metrics "unix:$work/metrics.sock"
health 0 ok
say "repaired: the health is ok, also after a restart"
