#!/usr/bin/env bash
# What an idle daemon costs: eight drives, an export, one client that is connected and says nothing. Prints the
# processor time of ten seconds. The promise is less than 1 % of a core; only more than that fails.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

client_connected() { [[ $(export_value tank "['connections']") -ge 1 ]]; }

make_drives 8 64MiB
start_daemon
expect 0 strake array create tank --level 6 --drives "$drive_list"
expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"
python3 "$e2e/_nbd.py" idle --socket "$work/nbd.sock" --export tank --progress "$work/connected" --until "$work/enough" &
client_pid=$!
child_pids+=("$client_pid")
within 10 "the client is connected" client_connected

# Fields 14 and 15 of /proc/PID/stat, counted behind the name in parentheses: user and system time in ticks.
measured=$(python3 - "$daemon_pid" <<'PYTHON'
import os, sys, time

def used():
    fields = open(f"/proc/{sys.argv[1]}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

def nanoseconds():
    """Finer than ticks: the scheduler's own account of every thread."""
    total = 0
    for task in os.listdir(f"/proc/{sys.argv[1]}/task"):
        total += int(open(f"/proc/{sys.argv[1]}/task/{task}/schedstat").read().split()[0])
    return total

begin, ticks, exact = time.monotonic(), used(), nanoseconds()
time.sleep(10)
seconds = time.monotonic() - begin
ticks, exact = used() - ticks, (nanoseconds() - exact) / 1e9
worst = max(ticks, exact) / seconds * 100
print(f"{worst < 1} {ticks * 1000:.0f} ms by ticks, {exact * 1000:.1f} ms by the scheduler, in {seconds:.1f} s: {worst:.2f} % of a core")
PYTHON
)
touch "$work/enough"
wait "$client_pid" || fail "the silent client was not left alone"
stop_daemon
say "idle daemon: ${measured#* }"
[[ $measured == True* ]] || fail "an idle daemon uses more than 1 % of a core"
