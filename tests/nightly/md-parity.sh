#!/usr/bin/env bash
# Linux md makes RAID 5 and 6 arrays of several layouts in a guest, writes them full, and changes some blocks; then
# every parity strip on its drives is compared with ours: at least 100000 stripes.
#
# Usage: tests/nightly/md-parity.sh [FIXTURE]     FIXTURE is a file to write the beginnings of some stripes to
#
# RIG, RIG_KERNEL and KEEP are told of in _guest.sh; needs mdadm. Exit code 77: cannot run here.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/nightly/_guest.sh

fixture=${1:--}
guest_needs mdadm
cargo build --quiet --release -p strake-parity --example md_parity
compare=${CARGO_TARGET_DIR:-target}/release/examples/md_parity
guest_work
[[ $fixture == - ]] || : >"$fixture"

mib=72 used=$((64 << 20))
head -c 64M /dev/urandom >"$work/random"

# array LEVEL DRIVES CHUNK_KIB LAYOUT: md makes and fills it, we compare.
array() {
    local level=$1 drives=$2 chunk=$3 layout=$4 devices=() names=() images=() i
    for ((i = 0; i < drives; i++)); do
        truncate -s 0 "$work/d$i" && truncate -s ${mib}M "$work/d$i"
        images+=("$work/d$i")
        names+=("\$(drive MD$i)")
        devices+=(-drive "if=none,id=d$i,file=$work/d$i,format=raw,cache=unsafe" -device "nvme,drive=d$i,serial=MD$i")
    done
    cat >"$work/guest.sh" <<GUEST
set -e
# The kernel numbers drives in the order in which they answer; serial numbers stay.
drive() { for s in /sys/block/nvme*n1/device/serial; do if [ "\$(tr -d ' ' <\$s)" = \$1 ]; then s=\${s%/device/serial}; echo /dev/\${s##*/}; fi; done; }
mdadm --create /dev/md0 --run --level=$level --raid-devices=$drives --chunk=$chunk --layout=$layout \
    --assume-clean --metadata=1.0 --bitmap=none ${names[*]} >/dev/null 2>&1
# Whole stripes, then single blocks here and there: md computes parity in both of its ways.
for part in \$(seq 0 $((drives - 1 - (level - 4)))); do
    dd if=/host$work/random of=/dev/md0 bs=1M seek=\$((part * 64)) oflag=direct status=none 2>/dev/null || true
done
for at in \$(seq 1 311 4000); do
    dd if=/host$work/random of=/dev/md0 bs=4096 count=1 skip=\$((at * 3)) seek=\$at oflag=direct status=none
done
mdadm --stop /dev/md0 >/dev/null 2>&1
sync
GUEST
    TIMEOUT=600 MODS=nvme,raid456 LOG=$work/log "$rig/run-vm.sh" "$kernel" "$work/guest.sh" "${devices[@]}" >/dev/null ||
        { cat "$work/log"; fail "the guest"; }
    "$compare" "$level" $((chunk << 10)) "$layout" "$used" "$fixture" "${images[@]}" | tee -a "$work/told"
}

array 5 3 4 left-symmetric
array 5 5 4 left-asymmetric
array 5 4 4 right-symmetric
array 5 6 64 right-asymmetric
array 6 4 4 left-symmetric
array 6 6 4 left-asymmetric
array 6 5 4 right-symmetric
array 6 7 4 right-asymmetric
array 6 8 64 left-symmetric

total=$(awk '{ sum += $1 } END { print sum }' "$work/told")
printf 'md-parity: %s stripes compared, none differs\n' "$total"
[[ $total -ge 100000 ]] || fail "that is fewer than 100000"
