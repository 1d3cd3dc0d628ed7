#!/usr/bin/env bash
# Linux's own NVMe/TCP host and nvme-cli, in a guest, use an array of this machine: discovery, four queues, every page
# that nvme-cli shows, commands that no kernel sends by itself, reservations, fio with verification and XFS, while
# namespaces come and go, two members fail and are rebuilt, the daemon is killed and started again and the array grows,
# all without an I/O error. Ends with a line of JSON.
#
# Usage: tests/nightly/nvme-tcp-guest.sh
#
# RIG, RIG_KERNEL, STRAKE_BIN_DIR and KEEP are told of in _guest.sh (Debian: nvme-cli fio xfsprogs python3). With XFSTESTS,
# the folder of an xfstests that somebody has built, its fsstress and fsx torture the file system while two members fail
# and are rebuilt, with STRESS operations each [default: 3000]. Exit code 77: cannot run here.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/nightly/_guest.sh

guest_needs nvme fio mkfs.xfs xfs_repair xfs_growfs
guest_programs strake-cli strake-daemon
guest_work
torture=()
if [[ -n ${XFSTESTS:-} ]]; then
    [[ -x $XFSTESTS/ltp/fsstress && -x $XFSTESTS/ltp/fsx ]] || skip "no ltp/fsstress and ltp/fsx in $XFSTESTS"
    torture=(--xfstests "$(cd "$XFSTESTS" && pwd)" --stress "${STRESS:-3000}")
else
    printf '%s: without fsstress and fsx: name a built xfstests with XFSTESTS\n' "$name"
fi
PATH="$programs:$PATH" python3 tests/nightly/_nvme_guest.py --rig "$rig" --kernel "$kernel" --work "$work" \
    "${torture[@]}" || fail "see above"
