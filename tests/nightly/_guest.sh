# Common to the scripts that boot a guest. Source it, then call `guest_needs TOOL...`, and `guest_programs PACKAGE...` and
# `guest_work` where they are wanted.
#
# RIG is the folder of the rig's scripts (run-vm.sh, mkrig.sh) [default: ../shared/rig beside the checkout]; it needs
# qemu-system-x86_64 and downloads a kernel once, into RIG_KERNEL [default: build/rig], for which depmod, busybox and
# cpio have to be there (Debian: qemu-system-x86 kmod busybox-static cpio). The guest sees the files of this machine and
# runs its tools. STRAKE_BIN_DIR holds programs that are built already. KEEP=1 keeps the working folder.
# shellcheck shell=bash disable=SC2034
PATH="$PATH:/usr/sbin:/sbin"
rig=${RIG:-$PWD/../shared/rig}
kernel=${RIG_KERNEL:-$PWD/build/rig}
name=$(basename "$0" .sh)

skip() { printf '%s: skipped: %s\n' "$name" "$*"; exit 77; }
fail() { printf '%s: failed: %s\n' "$name" "$*"; exit 1; }

# guest_needs TOOL...: skips the script where the rig or a tool is missing, and fetches the kernel.
guest_needs() {
    local tool
    [[ -x $rig/run-vm.sh ]] || skip "no rig at $rig; name it with RIG"
    for tool in qemu-system-x86_64 "$@"; do
        command -v "$tool" >/dev/null || skip "$tool is not installed"
    done
    # What the kernel is made ready with.
    for tool in depmod busybox cpio; do
        [[ -e $kernel/initrd.gz ]] || command -v "$tool" >/dev/null || skip "$tool is not installed"
    done
    [[ -e $kernel/initrd.gz ]] || "$rig/mkrig.sh" "$kernel" trixie || skip "the guest's kernel could not be fetched"
}

# guest_needs_sqlite: skips the script where the guest's Python has no SQLite.
guest_needs_sqlite() {
    /usr/bin/python3 -c 'import sqlite3' 2>/dev/null || skip "/usr/bin/python3 with SQLite is not installed"
}

# guest_programs PACKAGE...: builds them unless they are there; `programs` is their folder then.
guest_programs() {
    local packages=("${@/#/-p}")
    [[ -n ${STRAKE_BIN_DIR:-} ]] || cargo build --quiet --release "${packages[@]}"
    programs=$(cd "${STRAKE_BIN_DIR:-${CARGO_TARGET_DIR:-target}/release}" && pwd)
}

# guest_work: makes `work`, a folder that goes away with the script.
guest_work() {
    work=$(mktemp -d -p "${TMPDIR:-/tmp}")
    [[ -n ${KEEP:-} ]] || trap 'rm -rf "$work"' EXIT
}
