#!/usr/bin/env bash
# Takes long: a daemon is started and stopped for nearly every example.
# Runs every example in the help of every command against a real daemon on files, as a person at a terminal would
# type it. An example that is new runs with the array "tank" in place and must end with 0; where it needs something
# else, `situation` says what.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

[[ -x $STRAKE_BIN_DIR/strake-bench ]] || fail "$STRAKE_BIN_DIR holds no strake-bench, which strake bench starts; build it"

# Drives are files named like devices, in the working directory; programs and folders of examples are below $root.
root=$work/root
mkdir -p "$root/usr/local/bin" "$work/bin"
printf '#!/bin/sh\ncat >/dev/null\n' | tee "$root/usr/local/bin/strake-event" >"$work/bin/mount"
chmod +x "$root/usr/local/bin/strake-event" "$work/bin/mount"
PATH="$work/bin:$PATH"
export STRAKE_STATE_DIR=$work/state
cd "$work"

tank=(strake array create tank --level 6 --drives ./nvme1n1,./nvme2n1,./nvme3n1,./nvme4n1)

# --- situations: each is made from nothing ---

# fresh [SIZE]: a daemon and free drives.
fresh() {
    if [[ -n $daemon_pid ]]; then stop_daemon; fi
    rm -rf "$work"/nvme?n1 "$state" strake.json
    truncate -s "${1:-64MiB}" "$work"/nvme{1,2,3,4,5,6,9}n1
    start_daemon --hook-dirs "$root/usr/local/bin"
}

none() { if [[ -n $daemon_pid ]]; then stop_daemon; fi; }

tank() { fresh "$@"; expect 0 "${tank[@]}"; }

exported() { tank; expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"; }

exported_nvme() {
    tank
    expect 0 strake export create tank --via nvme-tcp --listen 127.0.0.1:0 \
        --allow-host nqn.2014-08.com.example:db1 --allow-host nqn.2014-08.com.example:db2
}

out() { tank; expect 0 strake array fail tank --member 3 --accept redundancy --yes; }

# Its drive is under another path now.
moved() { out; mv nvme4n1 nvme9n1; }

# A member is out, and nothing takes its place by itself.
idle() {
    tank
    expect 0 strake array set tank --auto-replace off
    expect 0 strake array fail tank --member 3 --accept redundancy --yes
    expect 0 strake spare add ./nvme9n1
}

# One member was not there when the daemon started.
waits() {
    tank
    stop_daemon
    mv nvme4n1 away
    start_daemon --assemble-timeout never
    mv away nvme4n1
}

absent() { waits; mv nvme4n1 away; }

unloaded() { tank; expect 0 strake array unload tank; }

destroyed() { tank; expect 0 strake array destroy tank --yes; }

# A label of an array that was destroyed, and of one that is elsewhere.
used() { fresh; expect 0 strake array create old --level 0 --drives ./nvme9n1; expect 0 strake array destroy old --yes; }
foreign() { fresh; expect 0 strake array create old --level 0 --drives ./nvme9n1; expect 0 strake array unload old; }

spare() { tank; expect 0 strake spare add ./nvme9n1; }

# Jobs are over soon on files: they run on larger ones, and rest.
rebuilds() {
    tank 1GiB
    expect 0 strake array fail tank --member 3 --accept redundancy --yes
    expect 0 strake array replace tank --member 3 --with ./nvme9n1
}
copies() {
    tank 1GiB
    expect 0 strake array replace tank --member 3 --with ./nvme9n1
    expect 0 strake job pause tank/replace
}
rests() { rebuilds; expect 0 strake job pause tank/rebuild; }
pager() { tank; expect 0 strake hook add pager --exec "$root/usr/local/bin/strake-event"; }

# Addresses with secrets in them, which are no arguments.
secrets() {
    tank
    echo https://example.com/hooks/secret > chat.url
    echo smtps://raid:secret@mail.example.com > mail.url
    echo DHHC-1:00:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwfLJNij: > host.key
    echo NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ: > host.tls
    chmod 600 host.key host.tls
}

known() { secrets; expect 0 strake host add nqn.2014-08.com.example:db1 --secret-file host.key; }

referred() { tank; expect 0 strake export referral add nvme-tcp://192.0.2.8:4420; }

numbers() { expect 0 strake bench run G1 --repeats 1 --milliseconds 10 --save numbers; }

# An array for a pool, one that was written, a pool, and what is in it. The volume of a rollback differs from its snapshot.
roomy() { tank 1GiB; }
written() {
    roomy
    expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"
    expect 0 python3 "$e2e/_nbd.py" fill --socket "$work/nbd.sock" --export tank --model "$work/model" --windows 0:64
    expect 0 strake export remove tank --force
}
pool() { roomy; expect 0 strake pool create data tank; }
volumes() {
    pool
    expect 0 strake volume create data/vm1 10G
    expect 0 strake volume create data/vm2 64M
}
# Objects with limits.
limited() {
    volumes
    expect 0 strake export create data/vm1 --name vm1 --via nbd --listen "unix:$work/vm1.sock"
}
# The space of a thick volume must be free.
small() { pool; expect 0 strake volume create data/vm1 64M; }
snapshots() { volumes; expect 0 strake snapshot create data/vm1 before; }

backup() { tank; expect 0 strake config backup strake.json; }

# Seconds after which an example counts as hung. It is no measure of speed: the longest one computes for 20 s on a whole
# core, and shares the machine with other scripts.
hung_s=300

# situation EXAMPLE: sets `needs`, `codes` (exit codes that are fine) and `spoils` (nothing, where it changes nothing).
situation() {
    needs=tank codes=0 spoils=yes
    case $1 in
        *--dry-run* | *" list"* | *" show "* | *--watch* | *" errors"* | *" smart "* | *status* | *follow* | *" wait "* | *backup* | *importable* | \
            *"config show"* | "strake bench"* | *completions* | *" man "*) spoils= ;;
    esac
    case $1 in
        # 00-demo.sh runs it.
        "strake demo"*) needs=elsewhere ;;
        # 66-drive-connect.sh runs them: there are no other machines here.
        "strake drive connect"* | "strake drive disconnect"* | "strake drive discover"*) needs=elsewhere ;;
        # A machine may have drives at these addresses, which no test may take.
        "strake drive take"* | "strake drive release"*) needs=elsewhere ;;
        # 98-habits.sh runs it on a terminal.
        "strake top"*) needs=elsewhere ;;
        # ../nightly/package.sh runs it: there is no service here.
        "strake config check"*) needs=elsewhere ;;
        "strake array create"*) needs=fresh ;;
        "strake array add"* | "strake array replace"*) needs=out ;;
        "strake array readd"*--drive*) needs=moved ;;
        "strake array readd"*) needs=out ;;
        "strake array rebuild"*) needs=idle ;;
        "strake array import"*--degraded) needs=absent ;;
        "strake array import"*--drives*) needs=unloaded ;;
        "strake array import"*) needs=waits ;;
        "strake array unload"*--force | "strake array destroy"*--force*) needs=exported ;;
        "strake array undelete"*) needs=destroyed ;;
        "strake export remove"* | "strake export show"*) needs=exported ;;
        "strake export release"* | "strake export set"* | "strake host disconnect"*) needs=exported_nvme ;;
        "strake export referral remove"*) needs=referred ;;
        "strake bench load"*nvme*) needs=fresh ;;
        "strake bench report"*) needs=numbers ;;
        # The scrub of so small an array is over, or none has been asked for.
        "strake array scrub pause"* | "strake array scrub resume"* | "strake array scrub stop"*) codes="0 3" ;;
        # Files have no lights.
        "strake drive locate"*) codes=3 ;;
        # Files report no health, and what a machine has at the PCI address is not for a test to say.
        "strake drive smart"*pci:*) codes="0 1 3 4" ;;
        "strake drive smart"*) codes=3 ;;
        "strake drive telemetry"*pci:*) codes="0 2 3" ;;
        "strake drive telemetry"*) codes=3 ;;
        # Files have no admin commands.
        "strake drive format"* | "strake drive sanitize"* | "strake drive firmware"*) codes=3 ;;
        "strake drive clean"*--accept-loss*) needs=foreign ;;
        "strake drive clean"*) needs=used ;;
        "strake pool create"*--overwrite*) needs=written ;;
        "strake pool create"*) needs=roomy ;;
        "strake pool destroy"*--force*) needs=volumes ;;
        "strake pool "*data*) needs=pool ;;
        "strake volume create"*) needs=pool ;;
        "strake volume set"*--thick*) needs=small ;;
        "strake volume clone"* | "strake volume rename data/before"* | "strake snapshot "*before*) needs=snapshots ;;
        "strake volume "*data* | "strake snapshot "*data* | *"create data/vm1 --via"*) needs=volumes ;;
        "strake qos "*data* | "strake qos "*export*) needs=limited ;;
        "strake spare remove"*) needs=spare ;;
        "strake job pause"*) needs=rebuilds ;;
        "strake job resume"* | "strake job set"*) needs=rests ;;
        "strake job cancel"*) needs=copies ;;
        "strake hook remove"* | "strake hook test"*) needs=pager ;;
        "strake hook add"*-file*) needs=secrets ;;
        "strake host add"*) needs=secrets ;;
        "strake host remove"* | "strake host key"*) needs=known ;;
        "strake config restore"*) needs=backup ;;
        # What it thinks of this machine is not for a test to say.
        "strake doctor"*) codes="0 1" ;;
        "strake daemon start"*) needs=none ;;
    esac
}

# here EXAMPLE: the same with files for drives, and nothing outside of $work.
here() {
    sed -E -e "s# /(usr|etc|srv|run|var)/# $root/\1/#g; s#unix:/#unix:$root/#g" \
        -e 's#(^|[ ,])(nvme[0-9]n1)#\1./\2#g' -e 's#--cores 2,3#--cores 0#' <<<"$1"
}

# example LINE: runs it in its situation.
example() {
    local line before=$now
    situation "$1"
    if [[ $needs == elsewhere ]]; then return; fi
    if [[ $needs != "$before" ]]; then
        "$needs"
        now=$needs
    fi
    line=$(here "$1")
    mkdir -p "$root/etc/bash_completion.d" "$root/usr/share/zsh/site-functions" "$root/run/strake" "$root/srv"
    if [[ $line == "strake daemon start"* ]]; then
        starts "$line"
    elif [[ $line == *[\<\>\&]* ]]; then
        run timeout "$hung_s" bash -c "$line"
    else
        # shellcheck disable=SC2086 # the words of an example are separate arguments
        run timeout "$hung_s" "$e2e/_examples.py" run $line
    fi
    [[ " $codes " == *" $code "* ]] || { cat "$work/out" >&2; fail "ended with $code: $line (in the situation $needs)"; }
    if [[ $1 == "strake daemon restart"* ]]; then
        wait "$daemon_job" || true
        expect 0 strake daemon stop
        daemon_pid=
    fi
    if [[ $1 == "strake daemon stop"* ]]; then
        wait "$daemon_job" || true
        daemon_pid=
    fi
    if [[ -n $spoils ]]; then now=; fi
    count=$((count + 1))
}

# starts LINE: a daemon that is started by an example is stopped again.
starts() {
    if [[ $1 == *--foreground* ]]; then
        # shellcheck disable=SC2086 # as above
        launch $1
        within 30 "straked answers" daemon_answers
        code=0
        stop_daemon
    else
        # shellcheck disable=SC2086 # as above
        run $1
        expect 0 strake daemon stop
    fi
}

count=0
now=
python3 "$e2e/_examples.py" list >"$work/examples"
# In the order of what they need, so that those that change nothing share it.
while IFS=$'\t' read -r _ line; do
    situation "$line"
    printf '%s\t%s\t%s\n' "$needs" "${spoils:-a}" "$line"
done <"$work/examples" | sort -s -k1,2 >"$work/ordered"
while IFS=$'\t' read -r _ _ line; do example "$line"; done <"$work/ordered"
[[ $count -gt 70 ]] || fail "only $count examples were found in the help"
say "$count examples of the help did what they say"
