#!/usr/bin/env bash
# fio with verify=crc32c, sequential and random, requests from 512 B to 2 MiB, through the life of an array at
# six levels: fail one member under load, fail a second, read everything, replace both, rebuild under load, read
# everything again, and once more with other members gone, which shows that what was rebuilt is right.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"
need fio
fio --enghelp 2>/dev/null | grep -qw nbd || skip "this fio has no nbd engine"

strip=64KiB
uri="nbd+unix:///tank?socket=$work/nbd.sock"

# Two sequential and two random areas that stay as they are once written, and one (from 64 MiB) under load.
sections() {
    cat <<JOBS
[global]
ioengine=nbd
uri=$uri
verify=crc32c
verify_fatal=1
verify_dump=0
group_reporting=1
randrepeat=1
iodepth=8
[sequential-large]
rw=write
bs=2m
offset=0
size=16m
[sequential-small]
rw=write
bs=4k
offset=16m
size=4m
[random-any]
rw=randwrite
bsrange=512-2m
offset=24m
size=24m
[random-tiny]
rw=randwrite
bs=512
offset=56m
size=1m
JOBS
}

load_section() {
    cat <<JOBS
[global]
ioengine=nbd
uri=$uri
verify=crc32c
verify_fatal=1
verify_dump=0
verify_backlog=64
iodepth=8
offset=64m
[load-random]
rw=randwrite
bssplit=512/20:4k/30:16k/30:128k/20
size=8m
randseed=$1
[load-sequential]
rw=write
bsrange=64k-1m
offset=76m
size=16m
randseed=$1
JOBS
}

fio_run() {
    fio --output="$work/fio.out" "$@" 2>"$work/err" || { cat "$work/fio.out" >&2; fail "fio $*"; }
    if grep -E 'err= *[1-9]' "$work/fio.out" >&2; then fail "fio reports errors"; fi
}

reread() { fio_run --verify_only=1 "$work/areas.fio"; }

# Verified load in rounds, until told to stop: however fast the machine, there is load when a member goes.
load() {
    local round=0
    while [[ ! -e $work/stop-load ]]; do
        round=$((round + 1))
        load_section "$round" >"$work/load.fio"
        fio --output="$work/load.out" "$work/load.fio" 2>>"$work/load.out" || { touch "$work/load-failed"; return 1; }
        echo "$round" >"$work/load-rounds"
    done
}

load_lives() { [[ ! -e $work/load-failed ]] || { cat "$work/load.out" >&2; fail "fio under load failed"; }; }

written() { export_value tank "['write_bytes']"; }

written_beyond() { load_lives; [[ $(written) -ge $1 ]]; }

# under_load WHAT: until the load has moved 2 MiB more, so that requests meet what was just done.
under_load() { within 60 "writes go on $1" written_beyond $(($(written) + (2 << 20))); }

# level NAME DRIVES FIRST SECOND OTHERS [ARGUMENT...]: FIRST and SECOND are failed under load (SECOND may be "-"),
# OTHERS (with spaces) once the rebuild is over.
level() {
    local level=$1 count=$2 first=$3 second=$4 others=$5 member started=$SECONDS
    shift 5
    make_drives "$count" "${size:-64MiB}"
    expect 0 strake array create tank --level "$level" --drives "$drive_list" --strip $strip --block-size 512 "$@"
    expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"
    sections >"$work/areas.fio"
    fio_run "$work/areas.fio"

    rm -f "$work/stop-load" "$work/load-failed" "$work/load-rounds"
    load &
    local load_pid=$!
    child_pids+=("$load_pid")
    under_load "before the first failure"
    expect 0 strake array fail tank --member "$first" --accept redundancy --yes
    under_load "with member $first failed"
    if [[ $second != - ]]; then
        expect 0 strake array fail tank --member "$second" --accept redundancy --yes
        under_load "with members $first and $second failed"
    fi
    reread
    expect 1 strake status
    for member in $first ${second#-}; do
        truncate -s "${size:-64MiB}" "$work/new$member"
        expect 0 strake array replace tank --member "$member" --with "$work/new$member"
    done
    wait_rebuilt tank
    under_load "after the rebuild"
    touch "$work/stop-load"
    wait "$load_pid" || load_lives
    reread
    for member in $others; do expect 0 strake array fail tank --member "$member" --accept redundancy --yes; done
    reread

    local errors degraded
    errors=$(export_value tank "['errors']")
    [[ $errors == 0 ]] || fail "level $level: the export counted $errors errors"
    degraded=$(array_value tank "it['counters']['degraded_reads']")
    # A mirror reads the other copy, which is no more work than before.
    [[ $level == 10 || $degraded -gt 0 ]] || fail "level $level: no read was ever degraded"
    say "level $level: failed $first ${second#-}, rebuilt, read without $others: 0 errors," \
        "$(<"$work/load-rounds") rounds of load, $(($(written) >> 20)) MiB written," \
        "$degraded degraded reads, $((SECONDS - started)) s"
    expect 0 strake array destroy tank --force --yes
    rm -f "${drives[@]}" "$work"/new*
}

start_daemon
level 5 5 1 - "3"
level 6 6 1 4 "0 5"
level 7.3 7 0 3 "1 2 6"
size=96MiB level 10 6 1 2 "0 3 5"
level n+4 9 2 7 "0 1 3 8"
level 60 8 1 2 "0 3 5 6" --group-size 4
stop_daemon
