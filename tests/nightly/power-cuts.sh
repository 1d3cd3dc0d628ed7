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
# RIG, RIG_KERNEL, STRAKE_BIN_DIR and KEEP are told of in _guest.sh (Debian: e2fsprogs libnbd-bin python3). EVERY=N looks
# at every so many flushes only. CONSISTENCY is the array's mode [default: safe]. STRAKE_SEED repeats which writes are lost.
# Exit code 77: cannot run here.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/nightly/_guest.sh

commits=${1:-2}
seed=${STRAKE_SEED:-$RANDOM}
guest_needs mkfs.ext4 e2fsck debugfs nbdcopy
guest_needs_sqlite
guest_programs strake-cli strake-daemon strake-xtask
guest_work
printf '%s: seed %s (STRAKE_SEED=%s repeats which writes are lost)\n' "$name" "$seed" "$seed"

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
/usr/bin/python3 /host$PWD/tests/nightly/_power_record.py --work $work --commits $commits --consistency ${CONSISTENCY:-safe}
GUEST
TIMEOUT=1200 MEM=1024 SMP=2 MODS=virtio_blk,nbd,ext4 LOG=$work/guest.log \
    "$rig/run-vm.sh" "$kernel" "$work/guest.sh" "${logged[@]}" | grep --line-buffered -v '^RIG-' ||
    fail "the guest"
rm -f "$work/drive"
PATH="$programs:$PATH" /usr/bin/python3 tests/nightly/_power_replay.py --work "$work" --xtask "$programs/strake-xtask" \
    --slice $slice --slices $slices --seed "$seed" --every "${EVERY:-1}"
