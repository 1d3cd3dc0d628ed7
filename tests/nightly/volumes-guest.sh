#!/usr/bin/env bash
# PostgreSQL, ext4 and XFS of a Linux host in the guest use volumes of a pool on RAID 6 over NVMe/TCP: a group snapshot
# of the data and the log of a database under load, clones on which a second instance starts, a rollback, fstrim,
# kill -9 of straked under load, volumes that were made larger, and a full pool. Ends with a line of JSON.
#
# Usage: tests/nightly/volumes-guest.sh [KILLS]      [default: 20]
#
# _guest.sh documents RIG, RIG_KERNEL, STRAKE_BIN_DIR and KEEP (Debian: nvme-cli e2fsprogs xfsprogs postgresql python3).
# PARTS selects some of the parts `database trim kills grow full`. Exit code 77: cannot run here.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/nightly/_guest.sh
guest_needs nvme mkfs.ext4 e2fsck resize2fs mkfs.xfs xfs_repair xfs_growfs fstrim blkdiscard setpriv
read -ra parts <<<"${PARTS:-database trim kills grow full}"
kills=${1:-20}
postgres=$(find /usr/lib/postgresql -name pg_amcheck -printf '%h\n' 2>/dev/null | sort -V | tail -n 1)
[[ " ${parts[*]} " != *" database "* || -n $postgres ]] || skip "PostgreSQL is not installed (Debian: postgresql)"
guest_programs strake-cli strake-daemon
STRAKE_BIN_DIR=$programs
# shellcheck source=tests/e2e/_lib.sh
. tests/e2e/_lib.sh

host=nqn.2014-08.org.nvmexpress:uuid:6f1bd6b4-4bd2-4d55-a3a5-8c3a4f0a7e12
nqn=nqn.2014-08.org.nvmexpress:volumes
declare -A told=()
listen=127.0.0.1:0

# offer NAME NSID: the volume or snapshot becomes a namespace.
offer() {
    expect 0 strake export create "data/$1" --name "$1" --via nvme-tcp --listen "$listen" --allow-host "$host" \
        --namespace "$2" --nqn "$nqn"
    listen=$(export_value "$1" "['listen']")
}
# volume NAME SIZE NSID [OPTION]: creates it, and offers it.
volume() { expect 0 strake volume create "data/$1" "$2" "${@:4}"; offer "$1" "$3"; }
withdraw() { expect 0 strake export remove "$1" --force; }
# drop VOLUME...: destroys volumes that are exported.
drop() { local it; for it in "$@"; do withdraw "$it"; expect 0 strake volume destroy "data/$it" --yes; done; }
used() { expect 0 strake pool show data --output json; json "it['used_bytes']"; }
uses_less() { [[ $(used) -le $1 ]]; }
step() { say "$(printf '%4d s' "$SECONDS"): $*"; }

make_drives 6 512MiB
start_daemon
expect 0 strake array create tank --level 6 --drives "$drive_list" --strip 64k --block-size 4096
expect 0 strake pool create data tank
# The subsystem, and with it the connection of the host, ends with its last namespace.
volume anchor 16M 32
cat >"$work/guest.sh" <<GUEST
export POSTGRES=$postgres
. /host$PWD/tests/nightly/_volume_host.sh
GUEST
guest_boot "$work/guest.sh" nvme_tcp,nvme_fabrics,xfs,ext4
told[kernel]=$answer
step "Linux $answer"
guest connect "${listen##*:}" "$nqn" "$host"

database() {
    local before at_snapshot after
    volume first 320M 1
    volume log 320M 2
    guest make ext4 1 data1
    guest make xfs 2 wal1
    patience=300 guest initialize 1
    patience=300 guest begin 1
    patience=300 guest fill 1 2
    guest load 1
    guest reaches 1 100
    guest count 1
    before=$answer
    step "a group snapshot under pgbench, after $before transactions"
    expect 0 strake snapshot create data/first first-at data/log log-at
    guest reaches 1 $((before + 100))
    expect 0 strake volume clone data/first-at data/first-copy
    expect 0 strake volume clone data/log-at data/log-copy
    offer first-copy 3
    offer log-copy 4
    guest at 3 data2
    guest at 4 wal2 nouuid
    patience=300 guest begin 2
    guest recovered 2
    guest count 2
    at_snapshot=$answer
    ((at_snapshot >= before)) || fail "the clone has $at_snapshot transactions, $before were committed before"
    patience=300 guest consistent 2
    guest load 2
    guest count 1
    guest reaches 1 $((answer + 100))
    guest count 1
    after=$answer
    step "a second instance on the clones has $at_snapshot transactions; the first has $after"
    guest unload
    guest finish 2
    patience=300 guest checksums 2
    guest leave data2
    guest leave wal2
    guest clean ext4 3
    guest clean xfs 4
    patience=300 guest consistent 1
    guest finish 1
    guest leave data1
    guest leave wal1
    drop first-copy log-copy
    withdraw first
    withdraw log
    guest gone 1
    expect 0 strake snapshot rollback data/first data/first-at --yes
    expect 0 strake snapshot rollback data/log data/log-at --yes
    offer first 1
    offer log 2
    guest at 1 data1
    guest at 2 wal1
    patience=300 guest begin 1
    guest count 1
    [[ $answer == "$at_snapshot" ]] || fail "$answer transactions after the rollback, $at_snapshot in the clone"
    patience=300 guest consistent 1
    guest finish 1
    patience=300 guest checksums 1
    guest leave data1
    guest leave wal1
    guest clean ext4 1
    guest clean xfs 2
    expect 0 strake snapshot destroy data/first-at --yes
    expect 0 strake snapshot destroy data/log-at --yes
    told[transactions]="$before,$at_snapshot,$after"
    step "a rollback brings the $at_snapshot transactions back"
}

trim() {
    local filesystem empty full after
    volume raw 128M 5
    volume trimmed 320M 6
    for filesystem in ext4 xfs; do
        guest make "$filesystem" 6 trimmed
        empty=$(used)
        guest write trimmed 96
        full=$(used)
        ((full >= empty + (90 << 20))) || fail "$filesystem: a file of 96 MiB uses $((full - empty)) bytes"
        guest trim trimmed
        within 60 "$filesystem: fstrim returns space" uses_less $((full - (88 << 20)))
        after=$(used)
        told[trim_${filesystem}_mib]="$((empty >> 20)),$((full >> 20)),$((after >> 20))"
        step "$filesystem: used $((empty >> 20)) MiB, $((full >> 20)) MiB with a file, $((after >> 20)) MiB after fstrim"
        guest leave trimmed
        guest clean "$filesystem" 6
    done
    empty=$(used)
    guest there 5
    guest raw 5 96
    full=$(used)
    guest discard 5
    within 60 "blkdiscard returns space" uses_less $((empty + (2 << 20)))
    told[blkdiscard_mib]="$((empty >> 20)),$((full >> 20)),$(($(used) >> 20))"
    step "blkdiscard: ${told[blkdiscard_mib]} MiB"
    drop raw trimmed
}

# replayed NUMBER: clones of both file systems, taken under load, replay their journals and have every file.
replayed() {
    guest mark ext
    guest mark xfs
    expect 0 strake snapshot create data/ext ext-at data/xfs xfs-at
    expect 0 strake volume clone data/ext-at data/ext-copy
    expect 0 strake volume clone data/xfs-at data/xfs-copy
    offer ext-copy 9
    offer xfs-copy 10
    guest at 9 ext-copy
    guest at 10 xfs-copy nouuid
    guest has ext-copy ext.marked
    guest has xfs-copy xfs.marked
    guest leave ext-copy
    guest leave xfs-copy
    guest clean ext4 9
    guest clean xfs 10
    drop ext-copy xfs-copy
    expect 0 strake snapshot destroy data/ext-at --yes
    expect 0 strake snapshot destroy data/xfs-at --yes
    guest gone 9
    guest gone 10
}

kills() {
    local n
    volume ext 320M 7
    volume xfs 320M 8
    guest make ext4 7 ext
    guest make xfs 8 xfs
    guest writes ext
    guest writes xfs
    sleep 1
    for ((n = 1; n <= kills; n++)); do
        guest goes_on ext 3
        guest goes_on xfs 3
        kill9_daemon
        start_daemon
        restarted ext
        restarted xfs
        guest goes_on ext 3
        guest goes_on xfs 3
        if ((n % 5 == 0)); then
            replayed
            step "$n kills: clones taken under load are clean and complete"
        fi
    done
    guest stop_writers
    guest mark ext
    told[files]=$answer
    guest has ext ext
    guest has xfs xfs
    guest leave ext
    guest leave xfs
    guest clean ext4 7
    guest clean xfs 8
    guest at 7 ext
    guest at 8 xfs
    guest has ext ext
    guest has xfs xfs
    guest leave ext
    guest leave xfs
    told[kills]=$kills
    step "$kills kills: ext4 and XFS are clean, ${told[files]} files on ext4"
    drop ext xfs
}

# An export keeps the size that its volume had when it was created.
grow() {
    volume larger 320M 11
    local filesystem size=320
    for filesystem in ext4 xfs; do
        guest make "$filesystem" 11 larger
        guest write larger 64
        guest leave larger
        withdraw larger
        guest gone 11
        size=$((size + 128))
        expect 0 strake volume resize data/larger "${size}M"
        offer larger 11
        guest at 11 larger
        guest size 11 $((size << 20))
        guest grow "$filesystem" 11 larger
        guest write larger $((size - 128))
        guest leave larger
        guest clean "$filesystem" 11
    done
    told[grown]=$size
    step "ext4 and XFS grow after their volume, to $size MiB"
    drop larger
}

full() {
    volume ballast 512M 12
    volume reserved 320M 13 --thick
    volume huge 4G 14
    guest make ext4 13 reserved
    guest make ext4 14 huge
    guest there 12
    patience=400 guest raw 12 500
    patience=500 guest overfill huge
    told[full]="$answer"
    step "the pool is full: $answer"
    guest write reserved 200
    step "a thick volume is written while the pool is full"
    drop ballast
    guest leave huge
    guest mend 14
    guest clean ext4 14
    guest at 14 huge
    guest write huge 64
    guest leave huge
    guest leave reserved
    guest clean ext4 13
    guest clean ext4 14
    step "with space again, both file systems are clean"
    drop reserved huge
}

for part in "${parts[@]}"; do "$part"; done
guest_ends
stop_daemon
start_daemon
within 60 "the pool is online" strake pool show data
expect 0 strake array scrub start tank --wait --output json
[[ $(json "it['wrong_bytes'] + it['unsure_bytes'] + it['unreadable_bytes']") == 0 ]] || fail "scrub: $(<"$work/out")"
python3 -c 'import json, sys; print(json.dumps(dict(zip(sys.argv[1::2], sys.argv[2::2]), verdict="held")))' \
    $(for key in "${!told[@]}"; do printf '%s %s ' "$key" "${told[$key]// /_}"; done)
