# Common to the scripts that boot a guest. Source it, then call `guest_needs TOOL...`, and `guest_programs PACKAGE...` and
# `guest_work` where they are wanted.
#
# RIG is the folder of the rig's scripts (run-vm.sh, mkrig.sh) [default: ../shared/rig beside the checkout]; it needs
# qemu-system-x86_64 and downloads a kernel once, into RIG_KERNEL [default: build/rig], for which depmod, busybox and
# cpio have to be there (Debian: qemu-system-x86 kmod busybox-static cpio). The guest sees the files of this machine and
# runs its tools. RIG_ROOT [default: build/trixie] is the root of a guest that needs tools of a newer Debian; it is made
# once, with debootstrap. STRAKE_BIN_DIR holds programs that are built already. KEEP=1 keeps the working folder.
# shellcheck shell=bash disable=SC2034
PATH="$PATH:/usr/sbin:/sbin"
rig=${RIG:-$PWD/../shared/rig}
kernel=${RIG_KERNEL:-$PWD/build/rig}
newer=${RIG_ROOT:-$PWD/build/trixie}
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

# guest_needs_newer: makes the root with newer tools.
guest_needs_newer() {
    [[ -x $newer/usr/sbin/tlshd ]] && return
    command -v debootstrap >/dev/null || skip "debootstrap is not installed"
    "$rig/mkroot.sh" "$newer" trixie || skip "the guest's root could not be made"
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

# guest_boot SCRIPT MODULES [FORWARD]: starts a guest that does as it is told, and waits until it is ready; SCRIPT sources
# _words.sh. What it is, it says in `answer`. ROOT is its root, `vm` its process. For scripts that source _lib.sh, whose
# cleanup ends the guest.
guest_boot() {
    mkfifo "$work/guest.in" "$work/guest.out"
    exec {to_guest}<>"$work/guest.in" {from_guest}<>"$work/guest.out"
    TIMEOUT=2400 SMP=2 MEM=1280 MODS=virtio_net,$2 LOG=$work/guest.log "$rig/run-vm.sh" "$kernel" "$1" \
        -netdev "user,id=n0${3:+,hostfwd=$3}" -device virtio-net-pci,netdev=n0,romfile= -serial "pipe:$work/guest" \
        -pidfile "$work/guest.pid" >"$work/guest.said" 2>&1 &
    vm=$!
    # So that a script that fails ends the guest, instead of waiting for it before it says why.
    until [[ -s $work/guest.pid ]] || ! kill -0 "$vm" 2>/dev/null; do sleep 0.1; done
    if [[ -s $work/guest.pid ]]; then child_pids+=("$(<"$work/guest.pid")"); fi
    read -r -t 900 -u "$from_guest" answer || fail "the guest does not start: $(tail -n 5 "$work/guest.said")"
    [[ $answer == ready* ]] || fail "the guest began with: $answer"
    answer=${answer#ready }
}

# guest WORD...: has the guest do something, which must succeed within `patience` seconds [default: 120]; what it printed
# is in `answer`.
guest() {
    echo "$*" >&"$to_guest"
    read -r -t "${patience:-120}" -u "$from_guest" answer || fail "the guest does not answer to: $*"
    [[ $answer == done* ]] || fail "the guest, $*: $answer"
    answer=${answer#done }
}

# guest_ends: waits for its end.
guest_ends() {
    echo end >&"$to_guest"
    wait "$vm" || true
}
