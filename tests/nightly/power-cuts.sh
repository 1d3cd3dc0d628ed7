#!/usr/bin/env bash
# The power goes at every flush: SQLite on ext4 on a RAID 6 runs in a guest whose drives are slices of one logged drive
# (QEMU's blklogwrites), whole, with one and with two members out, rebuilding and rebuilt. Then, for every flush in the
# log, the drives are made as they were at it, and for every fourth of them again with a drawn half of what was written
# up to the next. Each time the array assembles by itself, a scrub finds nothing after the resynchronization, e2fsck
# finds nothing after the journal, and every transaction that had been acknowledged is in the database.
# Ends with a line of JSON.
#
# Usage: tests/nightly/power-cuts.sh [COMMITS]     transactions in each of the six stages [default: 2]
#
# RIG, RIG_KERNEL, STRAKE_SEED, STRAKE_BIN_DIR and exit code 77 as in kill9-guest.sh; needs nbdcopy and debugfs as well
# (Debian: libnbd-bin e2fsprogs). EVERY=N looks at every so many flushes only. KEEP=1 keeps the folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH="$PATH:/usr/sbin:/sbin"

commits=${1:-2}
seed=${STRAKE_SEED:-$RANDOM}
rig=${RIG:-$PWD/../shared/rig}
kernel=${RIG_KERNEL:-$PWD/build/rig}
skip() { printf 'power-cuts: skipped: %s\n' "$*"; exit 77; }
[[ -x $rig/run-vm.sh ]] || skip "no rig at $rig; name it with RIG"
for tool in qemu-system-x86_64 mkfs.ext4 e2fsck debugfs nbdcopy; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
done
/usr/bin/python3 -c 'import sqlite3' 2>/dev/null || skip "/usr/bin/python3 with SQLite is not installed"
[[ -e $kernel/vmlinuz ]] || "$rig/mkrig.sh" "$kernel" trixie || skip "the guest's kernel could not be fetched"

[[ -n ${STRAKE_BIN_DIR:-} ]] || cargo build --quiet --release -p strake-cli -p strake-daemon -p strake-xtask
programs=$(cd "${STRAKE_BIN_DIR:-${CARGO_TARGET_DIR:-target}/release}" && pwd)
work=$(mktemp -d -p "${TMPDIR:-/tmp}")
[[ -n ${KEEP:-} ]] || trap 'rm -rf "$work"' EXIT
printf 'power-cuts: seed %s (STRAKE_SEED=%s repeats which writes are lost)\n' "$seed" "$seed"

# Five members, a drive to rebuild onto, and the diary.
slices=7 slice=$((40 << 20))
truncate -s $((slices * slice)) "$work/drive" && : >"$work/log"
logged=(-blockdev "driver=file,node-name=f0,filename=$work/drive,cache.no-flush=on"
    -blockdev "driver=file,node-name=l0,filename=$work/log,cache.no-flush=on"
    -blockdev "driver=blklogwrites,node-name=w0,file=f0,log=l0,log-sector-size=512")
for ((i = 0; i < slices; i++)); do
    serial=LOG$i
    [[ $i -lt $((slices - 1)) ]] || serial=DIARY
    logged+=(-blockdev "driver=raw,node-name=s$i,file=w0,offset=$((i * slice)),size=$slice"
        -device "virtio-blk-pci,drive=s$i,serial=$serial,share-rw=on")
done
cat >"$work/guest.sh" <<GUEST
export PATH=/host$programs:\$PATH
/usr/bin/python3 /host$PWD/tests/nightly/_power_record.py --work $work --commits $commits
GUEST
TIMEOUT=1200 MEM=1024 SMP=2 MODS=virtio_blk,nbd,ext4 LOG=$work/guest.log \
    "$rig/run-vm.sh" "$kernel" "$work/guest.sh" "${logged[@]}" | grep --line-buffered -v '^RIG-' ||
    { printf 'power-cuts: the guest failed\n'; exit 1; }
rm -f "$work/drive"
PATH="$programs:$PATH" /usr/bin/python3 tests/nightly/_power_replay.py --work "$work" --xtask "$programs/strake-xtask" \
    --slice $slice --slices $slices --seed "$seed" --every "${EVERY:-1}"
