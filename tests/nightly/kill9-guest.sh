#!/usr/bin/env bash
# kill -9 of straked under fio with verification and under SQLite, on XFS and on ext4 over its NBD export, in a guest
# with emulated NVMe drives: half of the kills on each, on XFS in mode safe and on ext4 in mode strict. No acknowledged transaction is lost, fio finds what it wrote,
# the file system is clean and so is the database; healthy, degraded and rebuilding. Ends with a line of JSON.
#
# Usage: tests/nightly/kill9-guest.sh [KILLS]      [default: 50]
#
# RIG, RIG_KERNEL, STRAKE_BIN_DIR and KEEP are told of in _guest.sh (Debian: fio xfsprogs e2fsprogs python3). STRAKE_SEED
# repeats the choices, not the timing. Exit code 77: cannot run here.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/nightly/_guest.sh

kills=${1:-50}
seed=${STRAKE_SEED:-$RANDOM}
guest_needs fio mkfs.xfs xfs_repair mkfs.ext4 e2fsck
guest_needs_sqlite
guest_programs strake-cli strake-daemon
guest_work
printf '%s: seed %s (STRAKE_SEED=%s repeats the choices, not the timing)\n' "$name" "$seed" "$seed"

# on FILESYSTEM MODE KILLS: one guest with eight drives, six of which are members. What it told is in $work/FILESYSTEM.told.
on() {
    local devices=() i at=$work/$1
    mkdir "$at"
    for ((i = 0; i < 8; i++)); do
        truncate -s 128M "$at/d$i"
        devices+=(-drive "if=none,id=d$i,file=$at/d$i,format=raw,cache=unsafe" -device "nvme,drive=d$i,serial=KILL$i")
    done
    cat >"$at/guest.sh" <<GUEST
export PATH=/host$programs:\$PATH
/usr/bin/python3 /host$PWD/tests/nightly/_kill9.py --kills $3 --seed $seed --filesystem $1 --consistency $2
GUEST
    TIMEOUT=$((300 + $3 * 150)) MEM=1280 SMP=2 MODS=nvme,nbd,$1 LOG=$at/log \
        "$rig/run-vm.sh" "$kernel" "$at/guest.sh" "${devices[@]}" | grep --line-buffered -v '^RIG-' || true
    tr -d '\r' <"$at/log" | sed -n 's/^KILL9 //p' >"$at/told"
    grep -q '"verdict": "held"' "$at/told" || fail "on $1"
}

# A guest seldom keeps more than one core busy.
on xfs safe $(((kills + 1) / 2)) &
first=$!
code=0
(on ext4 strict $((kills / 2))) || code=1
wait "$first" || code=1
[[ $code -eq 0 ]] || exit 1
/usr/bin/python3 - "$work/xfs/told" "$work/ext4/told" <<'SUM'
import json, sys
runs = [json.load(open(path)) for path in sys.argv[1:]]
total = {key: sum(run[key] for run in runs) for key in ("kills", "held", "dropped", "lost_acks", "fio_errors", "fio_verified_kib", "acks", "fsck", "rebuilding")}
total["states"] = {state: sum(run["states"][state] for run in runs) for state in runs[0]["states"]}
print(json.dumps(dict(total, seed=runs[0]["seed"], filesystems=[run["filesystem"] for run in runs], modes=[run["consistency"] for run in runs], filesystem="clean", db="ok")))
SUM
