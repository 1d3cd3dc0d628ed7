#!/usr/bin/env bash
# What an idle daemon does: eight drives, an export, one client that is connected and says nothing. For ten seconds the
# threads that carry data do not run at all, and the others wake up rarely: both are counts, which no other work on the
# machine changes. The processor time is printed, and fails only when something spins; strake bench run G12 measures it.
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

measured=$(python3 - "$daemon_pid" <<'PYTHON'
import os, sys, time

def threads():
    """Of every thread: its name, how often it ran, how often it went to sleep by itself, and for how long it ran."""
    seen = {}
    for task in os.listdir(f"/proc/{sys.argv[1]}/task"):
        at = f"/proc/{sys.argv[1]}/task/{task}"
        ran, _, times = open(f"{at}/schedstat").read().split()
        lines = dict(line.split(":", 1) for line in open(f"{at}/status"))
        name = open(f"{at}/comm").read().strip()
        seen[task] = (name, int(times), int(lines["voluntary_ctxt_switches"]), int(ran) / 1e9)
    return seen

begin, before = time.monotonic(), threads()
time.sleep(10)
seconds, after = time.monotonic() - begin, threads()
assert any(name.startswith("strake-core") for name, *_ in after.values()), "no thread carries data"
new = ("", 0, 0, 0.0)
carriers = sum(
    times - before.get(task, new)[1]
    for task, (name, times, *_) in after.items()
    if name.startswith(("strake-core", "strake-nbd"))
)
wakes = sum(sleeps - before.get(task, new)[2] for task, (_, _, sleeps, _) in after.items()) / seconds
share = sum(ran - before.get(task, new)[3] for task, (*_, ran) in after.items()) / seconds * 100
well = carriers == 0 and wakes < 100 and share < 50
print(f"{well} {carriers} runs of threads that carry data, {wakes:.0f} wakes a second of the others, {share:.2f} % of a core")
PYTHON
)
touch "$work/enough"
wait "$client_pid" || fail "the silent client was not left alone"
stop_daemon
say "idle daemon: ${measured#* }"
[[ $measured == True* ]] || fail "an idle daemon does not rest"
