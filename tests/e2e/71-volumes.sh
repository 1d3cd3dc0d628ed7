#!/usr/bin/env bash
# Volumes: created, exported, written and read back over NBD; their data survive a clean restart and kill -9, a snapshot
# keeps its content, and a rollback brings it back. A renamed volume keeps its export. What would lose the data of
# clients is refused.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

make_drives 4 256MiB
start_daemon
expect 0 strake array create tank --level 6 --drives "$drive_list" --strip 64KiB

# client VERB ARGUMENT...: a client of the export v.
client() { expect 0 python3 "$e2e/_nbd.py" "$1" --socket "$work/v.sock" --export v --model "$work/model" "${@:2}"; }

expect 0 strake pool create p tank --yes
expect 0 strake volume create p/v 64MiB
expect 0 strake export create p/v --via nbd --listen "unix:$work/v.sock"
client fill --windows 0:2048 --seed 1
client verify
say "a volume is written and read back over NBD"

stop_daemon
start_daemon
restarted v
client verify
kill9_daemon
start_daemon
restarted v
client verify
say "its data and its export survive a restart and kill -9"

expect 3 strake volume destroy p/v --yes
expect 3 strake array destroy tank --yes
expect 3 strake export create tank --via nbd --listen "unix:$work/t.sock"
grep -q "pool p" "$work/err" || fail "the pool is not named: $(<"$work/err")"
expect 3 strake pool destroy p --force --yes
say "what would lose the data of clients is refused"

expect 0 strake snapshot create p/v before
cp "$work/model" "$work/model.before"
client fill --windows 0:2048 --seed 2
client verify
expect 0 strake export remove v
expect 0 strake snapshot rollback p/v p/before --yes
expect 0 strake export create p/v --via nbd --listen "unix:$work/v.sock"
cp "$work/model.before" "$work/model"
client verify
say "a rollback brings the content of a snapshot back"

expect 3 strake volume rename p/v before
expect 0 strake volume rename p/v w
expect 0 strake volume rename p/before p/after
client verify
expect 3 strake volume show p/v
expect 0 strake snapshot show p/after
stop_daemon
start_daemon
restarted v
client verify
expect 0 strake array show tank
grep -q "^pool *p" "$work/out" || fail "the pool is not named: $(<"$work/out")"
say "a renamed volume keeps its export"

expect 0 strake export remove v
expect 0 strake pool destroy p --force --yes
expect 0 strake export create tank --via nbd --listen "unix:$work/t.sock"
stop_daemon
say "a destroyed pool leaves its array free"
