#!/usr/bin/env bash
# The containment of the daemon, tested from inside: a hook, which inherits it, attempts what the daemon gave up. Every
# attempt also runs without containment, where the kernel does not deny it. Then the rules of files, and core dumps.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"
[[ -x /usr/bin/python3 ]] || skip "/usr/bin/python3 is not installed; programs elsewhere may not be executed"

mkdir "$work/hooks"
cp "$e2e/_contained.py" "$work/hooks/attempts"
chmod 755 "$work/hooks/attempts"

say "attempts without containment"
"$work/hooks/attempts" free

say "attempts of a hook"
start_daemon --hook-dirs "$work/hooks"
expect 0 strake hook add attempts --exec "$work/hooks/attempts" --severity info
expect 0 strake hook test attempts
python3 - "$work/hooks" <<'PYTHON' || fail "the containment is not as promised"
import json, sys
free, contained = (json.load(open(f"{sys.argv[1]}/{name}")) for name in ("free", "contained"))
wrong = []
denied = {"EPERM", "EACCES"}
# The attempts of root in _contained.py.
ATTEMPTS = 20
# The calls that a kernel may lack: kexec, modules, AF_ALG, and one more.
LACKING_MAX = 4
state, _ = contained.pop("/"), free.pop("/")
exact = {"clone3": "ENOSYS", "io_uring": "EFAULT"}
for name, want in exact.items():
    if contained.pop(name) != want:
        wrong.append(f"{name} is not {want}")
    free.pop(name)
skipped = [name for name in free if free[name] in denied | {"ENOSYS", "EAFNOSUPPORT"}]
for name, found in contained.items():
    if found not in denied:
        wrong.append(f"{name}: {found}, without containment {free[name]}")
want = {"session": True, "core": 0, "files": 1024, "no_new_privs": "1", "descriptors": [0, 1, 2, 3],
        "environment": ["PATH", "STRAKE_EVENT_KIND", "STRAKE_EVENT_OBJECT", "STRAKE_EVENT_SEVERITY"]}
wrong += [f"{name} is {state[name]}" for name in want if state[name] != want[name]]
print(f"   {len(contained) - len(skipped)} attempts denied", f"; not possible on this host: {skipped}" if skipped else "")
if state["all_rights"]:
    # Root with all capabilities that matter: every attempt must be possible, unless the kernel lacks the call itself.
    impossible = [name for name in skipped if free[name] in denied]
    if impossible or len(contained) != ATTEMPTS or len(skipped) > LACKING_MAX:
        wrong.append(f"{len(contained)} of {ATTEMPTS} attempts; not possible without containment: {impossible}")
elif len(skipped) > len(contained) // 2:
    wrong.append("too few attempts are possible on this host")
sys.exit("\n".join(wrong) or 0)
PYTHON

say "programs that hooks may not have"
expect 3 strake hook add shell --exec /bin/sh
grep -q "execute the event as commands" "$work/err" || fail "the reason is missing: $(<"$work/err")"
cp /usr/bin/true "$work/elsewhere"
expect 3 strake hook add elsewhere --exec "$work/elsewhere"
grep -q "no folder with programs of hooks" "$work/err" || fail "the reason is missing: $(<"$work/err")"

say "the state is reported"
run strake doctor --json
for measure in "core dumps" "new privileges" "file access" "system calls"; do
    [[ $(json "[c['state'] for c in it['checks'] if c['name'] == 'daemon $measure']") == '["ok"]' ]] \
        || fail "doctor does not report: $measure"
done
# With the default of write-dirs, the folder of the hook can be written.
[[ $(json "[c['what'] for c in it['checks'] if c['name'] == 'daemon writable programs']") == *"$work/hooks"* ]] \
    || fail "doctor does not name the folder that is written and has programs"
grep -q "WARN.*$work/hooks" "$work/straked.log" || fail "the log does not name this folder"
for line in 'NoNewPrivs:[[:space:]]1' 'Seccomp:[[:space:]]2'; do
    grep -q "^$line\$" "/proc/$daemon_pid/status" || fail "the daemon lacks $line"
done
stop_daemon

say "a recorded hook that would not run"
chmod 644 "$work/hooks/attempts"
start_daemon --hook-dirs "$work/hooks"
run strake doctor --json
[[ $(json "[c['what'] for c in it['checks'] if c['name'] == 'hook attempts']") == *"make it one with: chmod"* ]] \
    || fail "doctor does not warn of the hook"
grep -q "WARN.*would not run" "$work/straked.log" || fail "the log does not warn of the hook"
stop_daemon

say "folders that do not exist, or contain system folders"
for options in "--write-dirs $work/absent" "--hook-dirs $work/absent" "--write-dirs /"; do
    # shellcheck disable=SC2086 # these are two words
    expect 3 timeout 20 straked --state-dir "$work/state" --socket "$STRAKE_SOCKET" $options
    grep -q "of ${options:2:4}" "$work/err" || fail "the option is missing: $(<"$work/err")"
done

say "writes only to named folders"
elsewhere=$(mktemp -d /var/tmp/strake-e2e.XXXXXX)
trap 'rm -rf "$elsewhere"; cleanup' EXIT
truncate -s 64M "$elsewhere"/a "$elsewhere"/b
start_daemon --write-dirs none
expect 3 strake array create tank --level 1 --drives "$elsewhere/a,$elsewhere/b"
grep -q "write-dirs" "$work/err" || fail "the remedy is missing: $(<"$work/err")"
stop_daemon
start_daemon --write-dirs "$elsewhere"
expect 0 strake array create tank --level 1 --drives "$elsewhere/a,$elsewhere/b"
expect 0 strake export create tank --via nbd --listen "unix:$elsewhere/sock"
stop_daemon

say "permitted core dumps are a warning"
start_daemon --core-dumps permit
run strake doctor --json
[[ $(json "[c['state'] for c in it['checks'] if c['name'] == 'daemon core dumps']") == '["warning"]' ]] \
    || fail "doctor does not warn of core dumps"
grep -q "WARN.*core" "$work/straked.log" || fail "the log does not warn of core dumps"
stop_daemon
