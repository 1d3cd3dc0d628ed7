#!/usr/bin/env bash
# Three roles by groups: a viewer sees and changes nothing, an operator keeps arrays healthy and overwrites nothing, an
# administrator does everything. Each command and each denied call is in the audit log with its caller. The log is in
# order after kill -9 and after a restart; a changed, a removed and an emptied log are found.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"
[[ $(id -u) -eq 0 ]] || skip "only root can run commands as other users"

# Groups that no user of this host has, by their numbers.
operators=64901 viewers=64902
roles=(--operator-group "$operators" --viewer-group "$viewers")
make_drives 6 96MiB
start_daemon "${roles[@]}"
chmod 755 "$work"
chmod 666 "${drives[@]}"
cp "$STRAKE_BIN_DIR/strake" "$work/strake"
by() { setpriv --reuid "$1" --regid "$1" --groups "$2" "$work/strake" "${@:3}"; }
admin() { by 64910 0 "$@"; }
operator() { by 64911 "$operators" "$@"; }
viewer() { by 64912 "$viewers" "$@"; }
stranger() { by 64913 64999 "$@"; }

# denied ROLE NEEDS COMMAND...: the command is denied for the role that it needs, and changes nothing.
denied() {
    local before
    before=$(strake config show --json)
    expect 3 "$1" "${@:3}"
    grep -q "is an* $1 here" "$work/err" || fail "$*: the role is not named: $(<"$work/err")"
    grep -q "requires the role $2" "$work/err" || fail "$*: the role that it needs is not named: $(<"$work/err")"
    [[ $(strake config show --json) == "$before" ]] || fail "$*: it changed something"
}

expect 0 admin array create tank --level 6 --drives "${drives[0]},${drives[1]},${drives[2]},${drives[3]}" --strip 64k
expect 0 strake wait tank --for resync --timeout 60s
for who in viewer operator; do
    for command in "status" "array list" "array show tank" "drive list" "event list" "export list" "job list" "spare list" \
        "host list" "hook list" "config show" "log list" "daemon status" "doctor"; do
        # shellcheck disable=SC2086
        run "$who" $command
        [[ $code -le 2 ]] || fail "$who: $command ended with $code: $(<"$work/err")"
    done
done
expect 0 operator daemon status
grep -q "your role *operator" "$work/out" || fail "the role is not shown: $(<"$work/out")"
for command in "status" "array list" "array destroy tank --yes" "daemon stop"; do
    # shellcheck disable=SC2086
    expect 3 stranger $command
    for words in "user 64913 has no role" "64901 (role operator)" "64902 (role viewer)"; do
        grep -qF "$words" "$work/err" || fail "stranger: $command: the error lacks $words: $(<"$work/err")"
    done
done

denied viewer operator array rebuild tank
denied viewer operator array scrub start tank
denied viewer operator spare add "${drives[5]}"
denied viewer admin array destroy tank --yes
denied viewer admin daemon stop
denied operator admin array destroy tank --yes
denied operator admin array fail tank --member 1 --accept redundancy --yes
denied operator admin array create other --level 1 --drives "${drives[4]},${drives[5]}"
denied operator admin hook add mine --exec /bin/true
denied operator admin export create tank --via nbd --listen "unix:$work/nbd.sock"
denied operator admin daemon stop

expect 0 admin array fail tank --member 1 --accept redundancy --yes
printf 'a file system' | dd of="${drives[4]}" conv=notrunc status=none
denied operator admin array replace tank --member 1 --with "${drives[4]}" --overwrite --yes
denied operator admin spare add "${drives[5]}"
expect 0 admin spare add "${drives[5]}"
expect 0 strake wait tank --for healthy --timeout 60s
expect 0 operator array scrub start tank
expect 0 strake wait tank --for scrub --timeout 60s
say "viewer, operator and administrator may do what their role says"

# logged USER WORDS: whether a command of this user with these words and this result is in the log.
logged() {
    strake log list --last 500 --uid "$1" --json >"$work/log.json"
    grep -q "$2" "$work/log.json" || fail "the log has no $2 of user $1: $(<"$work/log.json")"
}
logged 64910 '"command": *"array create tank'
logged 64911 '"command": *"array scrub start'
logged 64911 '"phase": *"denied"'
logged 64912 '"role": *"viewer"'
expect 0 viewer log verify
grep -q "^unchanged: " "$work/out" || fail "the check does not say that nothing was changed: $(<"$work/out")"
kept=$(sed -n 's/^newest entry: //p' "$work/out")

# Commands in progress when the daemon is killed have at least their begin in the log.
kill9_daemon
start_daemon "${roles[@]}"
expect 0 strake log verify --entry "$kept"
expect 0 admin array rename tank pool
stop_daemon
start_daemon "${roles[@]}"
expect 0 strake log verify --entry "$kept"
expect 0 strake event list --kind audit_changed --json
[[ $(json "len(it['events'])") -eq 0 ]] || fail "an unchanged log is reported"

# A user who can write the file removes a command, and then the rest.
sed -i '/array scrub start/d' "$state/audit.log"
expect 2 strake log verify
grep -q "^CHANGED: " "$work/out" || fail "the removal is not found: $(<"$work/out")"
grep -q "does not follow entry" "$work/out" || fail "the place of the removal is not named: $(<"$work/out")"
expect 0 admin array rename pool tank
expect 0 strake event list --kind audit_changed --json
[[ $(json "len(it['events'])") -eq 1 ]] || fail "the removal is not reported by the next command"
stop_daemon
: >"$state/audit.log"
start_daemon "${roles[@]}"
expect 0 strake event list --kind audit_changed --json
[[ $(json "len(it['events'])") -eq 2 ]] || fail "the emptied log is not reported by the next start"
expect 2 strake log verify --entry "$kept"
stop_daemon
say "every command is in the audit log, and changes of the log are found"
