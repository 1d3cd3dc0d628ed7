#!/usr/bin/env bash
# `strake drive format`, `sanitize`, `firmware` and `telemetry` with the kernel of a guest and emulated NVMe drives: with
# the kernel driver, and taken. _nvme_maintain.py, which runs in the guest, lists what is shown. Ends with a line of
# JSON.
#
# Usage: tests/nightly/nvme-maintain-guest.sh
#
# RIG, RIG_KERNEL, STRAKE_BIN_DIR and KEEP are described in _guest.sh (Debian: python3 e2fsprogs). Exit code 77: cannot
# run here.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/nightly/_guest.sh

guest_needs python3 mkfs.ext4
guest_programs strake-cli strake-daemon
guest_work

devices=(-device intel-iommu,intremap=on,caching-mode=on)
port() { devices+=(-device "pcie-root-port,id=rp$1,bus=pcie.0,chassis=1,slot=$1"); }
medium() { # NAME SIZE
    truncate -s "$2" "$work/$1"
    devices+=(-blockdev "driver=file,node-name=f$1,filename=$work/$1,cache.no-flush=on"
        -blockdev "driver=raw,node-name=$1,file=f$1")
}
for n in 0 1 2 3 4 5; do port "$n"; done
# One namespace.
medium d0 64M
devices+=(-device nvme,id=nv0,bus=rp0,drive=d0,serial=MAINT0)
# Two namespaces of one controller.
medium d1 32M
medium d1b 32M
devices+=(-device nvme,id=nv1,bus=rp1,serial=MAINT1
    -device nvme-ns,bus=nv1,drive=d1,nsid=1 -device nvme-ns,bus=nv1,drive=d1b,nsid=2)
# Members.
for n in 2 3; do
    medium "d$n" 256M
    devices+=(-device "nvme,id=nv$n,bus=rp$n,drive=d$n,serial=MAINT$n")
done
# A namespace that no controller has attached. QEMU permits it only in a subsystem of several controllers.
medium d4 32M
medium d4b 32M
devices+=(-device nvme-subsys,id=sub4 -device nvme,id=nv4,bus=rp4,serial=MAINT4,subsys=sub4
    -device nvme-ns,bus=nv4,drive=d4,nsid=1 -device nvme-ns,bus=nv4,drive=d4b,nsid=2,detached=on)
# A drive whose writes are slow, so that a format takes seconds.
medium d5 64M
devices+=(-object throttle-group,id=slow,x-bps-write=2097152
    -blockdev driver=throttle,node-name=t5,throttle-group=slow,file=d5 -device nvme,id=nv5,bus=rp5,drive=t5,serial=MAINT5)

cat >"$work/guest.sh" <<GUEST
export PATH=/host$programs:\$PATH
/usr/bin/python3 -u /host$PWD/tests/nightly/_nvme_maintain.py
GUEST
code=0
TIMEOUT=${TIMEOUT:-900} MEM=1536 SMP=2 LOG=$work/log KARGS=intel_iommu=on MODS=nvme,vfio_iommu_type1,vfio_pci,ext4 \
    "$rig/run-vm.sh" "$kernel" "$work/guest.sh" "${devices[@]}" | grep --line-buffered -v '^RIG-' || code=$?
grep -q '"verdict": "held"' "$work/log" || fail "see above (code $code)"
