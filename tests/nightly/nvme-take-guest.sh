#!/usr/bin/env bash
# `strake drive take` and `strake drive release` with the kernel of a guest, its VFIO and an emulated IOMMU: six
# emulated NVMe drives are taken, become a RAID 6, are pulled and reset under load, and are given back. _nvme_take.py,
# which runs in the guest, lists what is shown. Ends with a line of JSON.
#
# Usage: tests/nightly/nvme-take-guest.sh [KILLS]      [default: 2, the kills of each command at random moments]
#
# RIG, RIG_KERNEL, STRAKE_BIN_DIR and KEEP are described in _guest.sh (Debian: pciutils python3 e2fsprogs dmsetup).
# STRAKE_SEED repeats the choices, not the timing. Exit code 77: cannot run here.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/nightly/_guest.sh

kills=${1:-2}
seed=${STRAKE_SEED:-$RANDOM}
guest_needs python3 setpci lspci mkfs.ext4 dmsetup
guest_programs strake-cli strake-daemon
guest_work
printf '%s: seed %s (STRAKE_SEED=%s repeats the choices, not the timing)\n' "$name" "$seed" "$seed"

# Drives 0 to 5 become members. 6 and 7 are two functions of one device, which share an IOMMU group. Two ports
# are empty.
devices=(-device intel-iommu,intremap=on,caching-mode=on)
port() { devices+=(-device "pcie-root-port,id=rp$1,bus=pcie.0,chassis=1,slot=$1"); }
medium() { # NUMBER SIZE
    truncate -s "$2" "$work/d$1"
    devices+=(-blockdev "driver=file,node-name=f$1,filename=$work/d$1,cache.no-flush=on"
        -blockdev "driver=raw,node-name=d$1,file=f$1")
}
for n in 0 1 2 3 4 5; do
    medium "$n" 256M
    port "$n"
    devices+=(-device "nvme,id=nv$n,bus=rp$n,drive=d$n,serial=TAKE$n")
done
for n in 6 7 8 9; do port "$n"; done
for n in 6 7 8; do medium "$n" 16M; done
devices+=(-device "nvme,id=nv8,bus=rp7,drive=d8,serial=TAKE8")
for n in 6 7; do
    devices+=(-device "nvme,id=nv$n,bus=rp6,addr=0.$((n - 6)),multifunction=on,drive=d$n,serial=TAKE$n")
done

cat >"$work/guest.sh" <<GUEST
export PATH=/host$programs:\$PATH
/usr/bin/python3 -u /host$PWD/tests/nightly/_nvme_take.py --kills $kills --seed $seed
GUEST
plugs=
cleanup() {
    [[ -z $plugs ]] || kill "$plugs" 2>/dev/null || true
    [[ -n ${KEEP:-} ]] || rm -rf "$work"
}
trap cleanup EXIT
mkfifo "$work/line.in" "$work/line.out"
# Held open, so that neither end sees the other's end.
exec {line_in}<>"$work/line.in" {line_out}<>"$work/line.out"
(
    until [[ -S $work/qmp ]]; do sleep 0.1; done
    exec python3 tests/nightly/_qmp.py "$work/qmp" "$work/line.out" "$work/line.in" >"$work/qmp.log" 2>&1
) &
plugs=$!
code=0
QMP=$work/qmp TIMEOUT=${TIMEOUT:-1200} MEM=1536 SMP=2 LOG=$work/log KARGS=intel_iommu=on \
    MODS=nvme,vfio_iommu_type1,vfio_pci,ext4,dm_mod "$rig/run-vm.sh" "$kernel" "$work/guest.sh" "${devices[@]}" \
    -serial "pipe:$work/line" | grep --line-buffered -v '^RIG-' || code=$?
grep -q '"verdict": "held"' "$work/log" || fail "see above (code $code)"
