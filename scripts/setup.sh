#!/usr/bin/env bash
# Installs what building, the demo or the tests need and this machine lacks. Says what and why before it does.
#
# Usage: scripts/setup.sh build|dist|demo|test
#
# With everything in place it only looks and prints one line. It installs Debian packages through apt-get when
# it runs as root or sudo asks no questions; otherwise it prints the exact command and stops.
#
# STRAKE_DENY=0 leaves cargo-deny out (it takes about two minutes to build, once); its checks are then skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

# Debian keeps the file system tools here, and an ordinary user's PATH may not have it.
PATH="$PATH:/usr/sbin:/sbin"
rust_minor_min=90
deny_version=0.20.2
cyclonedx_version=0.5.9
missing_packages=()
wanted_packages=()
updated=no

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# need TOOL PACKAGE WHY: notes PACKAGE as missing when TOOL is not there.
need() {
    command -v "$1" >/dev/null 2>&1 && return 0
    say "$1 is missing ($2): $3"
    [[ " ${missing_packages[*]} " == *" $2 "* ]] || missing_packages+=("$2")
}

# want TOOL PACKAGE WHY: like need where there is such a package; without it a test leaves something out and says so.
want() {
    command -v "$1" >/dev/null 2>&1 && return 0
    wanted_packages+=("$2")
    say "$1 is missing ($2): $3"
}

needs_of_build() {
    need cc gcc "links the programs"
    # A compiler without the C library's headers finds no stdio.h when a dependency compiles C code.
    [[ -e /usr/include/stdio.h ]] || need stdio.h libc6-dev "the C library that programs are linked with"
    need pkg-config pkg-config "finds OpenSSL"
    [[ -e /usr/include/openssl/ssl.h ]] || need openssl/ssl.h libssl-dev "OpenSSL 3: TLS with pre-shared keys of NVMe/TCP"
}

needs_of_dist() {
    needs_of_build
    need strip binutils "removes debug information from the programs"
    need dpkg-shlibdeps dpkg-dev "finds the packages that the programs need"
    need rpmbuild rpm "makes the RPM package"
}

needs_of_demo() {
    needs_of_build
    need qemu-io qemu-utils "writes to the array over NBD and verifies what it reads"
    need nbdcopy libnbd-bin "copies the array over NBD"
}

needs_of_test() {
    needs_of_demo
    need nbdinfo libnbd-bin "shows what our NBD server negotiates"
    need nbdkit nbdkit "an NBD server to compare ours with"
    need fio fio "random I/O with verification"
    need openssl openssl "TLS from another hand, in tests"
    need mkfs.ext4 e2fsprogs "makes a file system on an array"
    need e2fsck e2fsprogs "checks it after faults"
    need python3 python3 "reads JSON in the end-to-end tests"
    want promtool prometheus "runs the rules of alerts (its service is not needed: systemctl disable --now prometheus)"
    want valgrind valgrind "counts the instructions of a read and a write"
    need timeout coreutils "stops a test that hangs"
    # Not needed: without it the comparison of our parity with ISA-L's is left out.
    [[ -e /usr/lib/$(uname -m)-linux-gnu/libisal.so.2 ]] || want libisal libisal2 "its P and Q are compared with ours"
    wants_of_signatures
}

# Makers of what a drive may hold, which crates/control/tests/signatures.rs has them make.
wants_of_signatures() {
    local pair
    for pair in mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs mkfs.f2fs:f2fs-tools mkfs.ntfs:ntfs-3g \
        mkfs.exfat:exfatprogs mkfs.vfat:dosfstools mkfs.udf:udftools mkfs.nilfs2:nilfs-tools mkfs.jfs:jfsutils \
        mkfs.erofs:erofs-utils mksquashfs:squashfs-tools genisoimage:genisoimage sfdisk:fdisk \
        cryptsetup:cryptsetup-bin pvcreate:lvm2 make-bcache:bcache-tools; do
        want "${pair%%:*}" "${pair##*:}" "makes what a drive may hold, to see that Strake refuses it by name"
    done
}

install_packages() {
    local install=(apt-get install -y --no-install-recommends "$@")
    command -v apt-get >/dev/null 2>&1 ||
        fail "no apt-get here: install what is named above with this system's package manager, then run again"
    local as_root=()
    if [[ $(id -u) -ne 0 ]]; then
        sudo -n true 2>/dev/null || fail "not root: run  sudo apt-get update && sudo ${install[*]}  and then again"
        as_root=(sudo -n)
    fi
    say "installing $*"
    if [[ $updated == no ]]; then
        "${as_root[@]}" apt-get update -q || say "apt-get update failed; trying with the lists that are there"
    fi
    updated=yes
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}"
}

# One package after another: one that this system does not have must not keep the others away.
install_wanted() {
    local package
    for package in "${wanted_packages[@]}"; do
        # In a shell of its own, which a failure ends; what is installed already costs apt-get a moment.
        (install_packages "$package") >/dev/null 2>&1 ||
            say "$package could not be installed: the test that uses it leaves something out"
    done
}

setup_rust() {
    command -v cargo >/dev/null 2>&1 || PATH="$HOME/.cargo/bin:$PATH"
    command -v cargo >/dev/null 2>&1 ||
        fail "cargo is missing: run  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh  and then again"
    local minor
    minor=$(rustc --version | sed -n 's/^rustc 1\.\([0-9]*\).*/\1/p')
    if [[ ${minor:-0} -lt $rust_minor_min ]]; then
        command -v rustup >/dev/null 2>&1 ||
            fail "$(rustc --version) is too old: 1.$rust_minor_min is needed; install it from https://rustup.rs"
        say "$(rustc --version) is older than 1.$rust_minor_min: updating"
        rustup update stable
    fi
}

# rust_component COMMAND COMPONENT WHY
rust_component() {
    cargo "$1" --version >/dev/null 2>&1 && return 0
    command -v rustup >/dev/null 2>&1 || fail "cargo $1 is missing: install the $2 of this Rust; it $3"
    say "installing $2: it $3"
    rustup component add "$2"
}

setup_deny() {
    cargo deny --version >/dev/null 2>&1 && return 0
    if [[ ${STRAKE_DENY:-1} == 0 ]]; then
        say "cargo-deny is missing and STRAKE_DENY=0: its checks will be skipped"
        return 0
    fi
    say "building cargo-deny, which checks licences and sources of dependencies: about two minutes, once"
    cargo install --quiet --locked --version "$deny_version" cargo-deny ||
        say "cargo-deny could not be built: its checks will be skipped"
}

case "${1:-}" in
    build | dist | demo | test) ;;
    *) fail "usage: scripts/setup.sh build|dist|demo|test" ;;
esac
"needs_of_$1"
if [[ ${#missing_packages[@]} -gt 0 ]]; then
    install_packages "${missing_packages[@]}"
    missing_packages=()
    "needs_of_$1"
    [[ ${#missing_packages[@]} -eq 0 ]] || fail "installed, and what is named above is still not there"
fi
[[ ${#wanted_packages[@]} -eq 0 ]] || install_wanted
setup_rust
if [[ $1 == test ]]; then
    rust_component fmt rustfmt "checks the formatting"
    rust_component clippy clippy "checks for mistakes that compile"
    setup_deny
fi
if [[ $1 == dist ]] && ! cargo cyclonedx --help >/dev/null 2>&1; then
    say "building cargo-cyclonedx, which lists the crates in the programs: about a minute, once"
    cargo install --quiet --locked --version "$cyclonedx_version" cargo-cyclonedx
fi
say "all that '$1' needs is here"
