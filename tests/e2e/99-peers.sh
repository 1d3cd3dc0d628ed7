#!/usr/bin/env bash
# scripts/peers.py with a program in place of SPDK's bdevperf, which few machines have. The program checks its drives and
# prints what bdevperf prints, so that the test sees ratios, pages and errors, but no speed of SPDK.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

[[ -x $STRAKE_BIN_DIR/strake-bench ]] || fail "$STRAKE_BIN_DIR holds no strake-bench; build it"
[[ $(cat /proc/sys/vm/nr_hugepages) == 0 ]] || skip "huge pages are reserved, and the test measures without them"
peers() { python3 "$e2e/../../scripts/peers.py" --programs "$STRAKE_BIN_DIR" --rounds 1 "$@"; }

# spdk ROW: a tree whose bdevperf prints ROW as its total.
spdk() {
    mkdir -p "$work/spdk/build/examples"
    cat >"$work/spdk/build/examples/bdevperf" <<PROGRAM
#!/usr/bin/env python3
import json, sys
if "--version" in sys.argv:
    sys.exit("SPDK of a test")
with open(sys.argv[sys.argv.index("--json") + 1]) as file:
    calls = json.load(file)["subsystems"][0]["config"]
made = [call["params"]["name"] for call in calls]
arrays = [call["params"] for call in calls if call["method"] == "bdev_raid_create"]
assert sys.argv[sys.argv.index("-T") + 1] in made, made
assert all(set(array["base_bdevs"]) <= set(made) for array in arrays), arrays
assert "--no-huge" in sys.argv, sys.argv
print("Running I/O for 1 seconds...\n\r Total                       : $1")
PROGRAM
    chmod +x "$work/spdk/build/examples/bdevperf"
}

say "a measured document, and its page"
spdk "1000.00 3.90 0.00 0.00 50.56 47.33 269.80"
peers --spdk "$work/spdk" --filter "raid1 x2" --note "a remark" --save "$work/peers" --json >"$work/printed.json"
python3 - "$work/printed.json" "$work/peers.json" <<'PYTHON'
import json, sys

printed, saved = (json.load(open(path)) for path in sys.argv[1:])
assert printed == saved
(row,) = saved["rows"]
assert row["goal"] == "G3" and row["peer"]["median"] == 1000 and row["goal_least"] == 2.5, row
assert row["ratio"]["median"] == row["strake"]["median"] / 1000 and row["meets"] == (row["ratio"]["median"] >= 2.5), row
assert saved["peer"] == "SPDK of a test" and not saved["machine"]["huge_pages"] and saved["differences"], saved
PYTHON
grep -q '^| G3 | raid1 x2 randwrite .* | 2.5x SPDK | ' "$work/peers.md" || fail "the page has no row"
grep -q '^- a remark$' "$work/peers.md" || fail "the page has no remark"
cp "$work/peers.md" "$work/first.md"
peers --page "$work/peers"
cmp "$work/first.md" "$work/peers.md" || fail "the page written again differs"

say "GB/s of large requests"
peers --spdk "$work/spdk" --filter "896KiB qd4 " >"$work/page.md"
grep -q '| raid5f 7+1 write 896KiB qd4 null cores=1 | 0.9 GB/s (0.9 to 0.9) | ' "$work/page.md" || fail "no bandwidth"

# refused TEXT ARGUMENT...: ends with 1 and an error that contains TEXT, without a traceback.
refused() {
    local code=0
    peers "${@:2}" >"$work/out" 2>"$work/err" || code=$?
    [[ $code == 1 ]] || fail "${*:2} ended with $code: $(cat "$work/err")"
    grep -qF -- "$1" "$work/err" || fail "${*:2} does not say '$1': $(cat "$work/err")"
    if grep -q Traceback "$work/err"; then fail "${*:2} printed a traceback: $(cat "$work/err")"; fi
}

say "errors"
refused "name a built SPDK tree with --spdk" --spdk "$work/none"
refused "no row has 'raid9' in its name" --spdk "$work/spdk" --filter raid9
refused "cannot start" --spdk "$work/spdk" --filter raid1 --programs "$work/none"
refused "is no saved document" --page "$work/none"
spdk "1000.00 3.90 7.00 0.00 50.56 47.33 269.80"
refused "printed no total without failed requests" --spdk "$work/spdk" --filter raid1
printf '#!/bin/sh\necho no raid5f >&2\nexit 1\n' >"$work/spdk/build/examples/bdevperf"
refused "./configure --with-raid5f" --spdk "$work/spdk" --filter "896KiB qd4 "

# hanging WHEN: a bdevperf that does not end while its arguments contain WHEN. It notes its start, and that it ended
# itself after SIGTERM.
hanging() {
    rm -f "$work/started" "$work/returned"
    cat >"$work/spdk/build/examples/bdevperf" <<PROGRAM
#!/usr/bin/env python3
import pathlib, signal, sys
if "$1" not in sys.argv:
    sys.exit("SPDK of a test")
def end(*_):
    pathlib.Path("$work/returned").touch()
    sys.exit(1)
signal.signal(signal.SIGTERM, end)
pathlib.Path("$work/started").touch()
while True:
    signal.pause()
PROGRAM
}

say "a bdevperf that does not end returns its huge pages before it is killed"
hanging --json
refused "did not end within 1 s" --spdk "$work/spdk" --filter raid1 --limit 1
[[ -e $work/returned ]] || fail "bdevperf was killed at once after the time limit"
hanging --json
python3 "$e2e/../../scripts/peers.py" --programs "$STRAKE_BIN_DIR" --spdk "$work/spdk" --filter raid1 2>"$work/err" &
pid=$!
until [[ -e $work/started ]]; do sleep 0.1; done
kill -TERM "$pid"
if wait "$pid"; then fail "an interrupted run ended with 0"; fi
grep -q "ended by a signal" "$work/err" || fail "an interrupted run does not say so: $(cat "$work/err")"
[[ -e $work/returned ]] || fail "bdevperf was killed at once after an interruption"

say "versions are read before the measurement, and not forever"
hanging --version
refused "--version\` did not end within 1 s" --spdk "$work/spdk" --filter raid1 --limit 1
[[ -e $work/returned ]] || fail "bdevperf --version was killed at once"
