#!/usr/bin/env bash
# Linux's own NVMe/TCP host and nvme-cli, in a guest, use an array of this machine: discovery, four queues, every page
# that nvme-cli shows, commands that no kernel sends by itself, reservations, fio with verification and XFS, while
# namespaces come and go, two members fail and are rebuilt, the daemon is killed and started again, all without an I/O
# error. Ends with a line of JSON.
#
# Usage: tests/nightly/nvme-tcp-guest.sh
#
# RIG, RIG_KERNEL, STRAKE_BIN_DIR and KEEP are told of in _guest.sh (Debian: nvme-cli fio xfsprogs python3). Exit code 77: cannot
# run here.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/nightly/_guest.sh

guest_needs nvme fio mkfs.xfs xfs_repair
guest_programs strake-cli strake-daemon
guest_work
PATH="$programs:$PATH" python3 tests/nightly/_nvme_guest.py --rig "$rig" --kernel "$kernel" --work "$work" ||
    fail "see above"
