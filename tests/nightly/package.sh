#!/usr/bin/env bash
# The Debian package in fresh systems: installation, service, first array, export over NBD, restart by the watchdog,
# upgrade, removal, purge. Afterwards the systems have the same files as before.
#
# Usage: tests/nightly/package.sh [SUITE...]      default: bookworm trixie
#
# STRAKE_BIN_DIR has the built programs (default: target/release). STRAKE_ROOTS keeps the base systems (debootstrap) for
# further runs. The systems boot with their own systemd in a container (systemd-nspawn) without a network, so the unit
# is started as on a host. The container does not permit device lists: DeviceAllow= has no effect in it.
# Exit code 77: cannot run here.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH="$PATH:/usr/sbin:/sbin"

skip() { printf 'skipped: %s\n' "$*"; exit 77; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
say() { printf '   %s\n' "$*"; }

[[ $(id -u) -eq 0 ]] || skip "only root can start a container"
for tool in debootstrap systemd-nspawn systemd-analyze nsenter dpkg-deb dpkg-shlibdeps rpmbuild cargo-cyclonedx qemu-io; do
    command -v "$tool" >/dev/null 2>&1 ||
        skip "$tool is missing: run scripts/setup.sh dist, and apt-get install debootstrap systemd-container qemu-utils"
done
suites=("$@")
[[ ${#suites[@]} -gt 0 ]] || suites=(bookworm trixie)
programs=${STRAKE_BIN_DIR:-${CARGO_TARGET_DIR:-target}/release}
work=$(mktemp -d /var/tmp/strake-pkg.XXXXXX)
container='' leader=''
cleanup() {
    local code=$?
    trap - EXIT
    if [[ -n $leader && $code -ne 0 && $code -ne 77 ]]; then
        inside journalctl -u straked --no-pager -n 30 >&2 || true
    fi
    if [[ -n $container ]]; then
        kill -KILL "$container" 2>/dev/null || true
        wait 2>/dev/null || true
    fi
    if [[ -n ${KEEP:-} ]]; then say "kept: $work"; else rm -rf "$work"; fi
    exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# within SECONDS WHAT COMMAND...: polls until COMMAND succeeds.
within() {
    local limit=$1 what=$2 end
    shift 2
    end=$((SECONDS + limit))
    until "$@" >"$work/within" 2>&1; do
        if ((SECONDS >= end)); then fail "not within $limit s: $what: $(<"$work/within")"; fi
        sleep 0.2
    done
}

# inside COMMAND...: runs it in the container, as root.
inside() {
    nsenter --target "$leader" --all --root --wd env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C \
        DEBIAN_FRONTEND=noninteractive "$@"
}

# did WHAT COMMAND...: runs COMMAND in the container, its output in $work/said; fails naming WHAT.
did() {
    local what=$1
    shift
    inside "$@" >"$work/said" 2>&1 </dev/null || fail "$what: $(<"$work/said")"
}

# said TEXT: whether the last command printed TEXT.
said() { grep -qF -- "$1" "$work/said" || fail "not printed: $1: $(<"$work/said")"; }

# refused COMMAND...: COMMAND in the container ends with 3.
refused() {
    local code=0
    inside "$@" >"$work/said" 2>&1 </dev/null || code=$?
    [[ $code -eq 3 ]] || fail "exit code $code instead of 3: $*: $(<"$work/said")"
}

# base SUITE: the base system of SUITE as $root, from a tar file that was made once. It has OpenSSL already.
base() {
    local tar=${STRAKE_ROOTS:-$work}/$1.tar new=$work/new library=libssl3t64
    [[ $1 != bookworm ]] || library=libssl3
    if [[ ! -s $tar ]]; then
        if ! debootstrap --variant=minbase --include="systemd,$library" "$1" "$new" http://deb.debian.org/debian \
            >"$work/debootstrap.log" 2>&1; then
            tail -n 3 "$work/debootstrap.log"
            skip "no base system of $1: is a mirror of Debian reachable?"
        fi
        tar -C "$new" --one-file-system -cf "$tar.part" .
        mv "$tar.part" "$tar"
        rm -rf "$new"
    fi
    root=$work/$1
    mkdir "$root"
    tar -C "$root" -xpf "$tar"
}

# boots: whether the container has booted.
boots() {
    kill -0 "$container" 2>/dev/null || { tail -n 5 "$work/boot.log"; skip "systemd-nspawn cannot boot here"; }
    leader=$(ps -o pid= --ppid "$container" | head -n 1 | tr -d ' ')
    [[ -n $leader ]] && inside systemctl is-system-running --quiet
}

boot() {
    systemd-nspawn --directory "$root" --boot --register=no --keep-unit --private-network --console=pipe \
        </dev/null >"$work/boot.log" 2>&1 &
    container=$!
    within 120 "the system boots" boots
    boots
}

# The orderly end of the system, with the service.
shut_down() {
    did "shutdown" systemctl --no-block poweroff
    wait "$container" || true
    container='' leader=''
}

# files: every path of the system with owner and mode. Left out: what dpkg, apt, timers and the tools for users rewrite
# whatever the package.
files() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./run -o -path ./tmp \
        -o -path ./var/tmp -o -path ./var/lib/dpkg -o -path ./var/backups -o -path ./var/cache -o -path ./var/log \
        -o -path ./var/lib/apt -o -path ./var/lib/systemd/timers -o -path './strake-*.deb' \) -prune \
        -o -printf '%p %u %g %m\n' | grep -vE '^\./etc/((passwd|group|shadow|gshadow|subuid|subgid)-|\.pwd\.lock) ' |
        sort)
}

# package VERSION: builds the package with this version as $work/VERSION.deb.
package() {
    STRAKE_DEB_VERSION=$1 scripts/dist.sh "$programs" "$work/$1" >/dev/null
    mv "$work/$1"/*.deb "$work/$1.deb"
    cat "$work/$1"/*.rpm "$work/$1"/*.cdx.json >"$work/$1.others"
}

# property NAME: of the service.
property() { inside systemctl show straked --property "$1" --value; }

is_active() { [[ $(property ActiveState) == active ]]; }

# io COMMAND...: commands of qemu-io on the export.
io() {
    local command commands=()
    for command in "$@"; do commands+=(-c "$command"); done
    qemu-io -f raw "${commands[@]}" "nbd+unix:///tank?socket=/proc/$leader/root/run/strake/tank.sock" \
        >"$work/io" 2>&1 || fail "I/O over NBD: $(<"$work/io")"
    ! grep -qiE 'fail|error' "$work/io" || fail "I/O over NBD: $(<"$work/io")"
}

# serves: whether the export answers.
serves() { inside test -S /run/strake/tank.sock && inside strake status; }

# The unit is what systemd accepts, the service runs as its user, and its exposure is as documented.
check_service() {
    inside systemd-analyze verify --man=no straked.service >"$work/said" 2>&1 || fail "unit: $(<"$work/said")"
    [[ ! -s $work/said ]] || fail "unit: $(<"$work/said")"
    did "exposure" systemd-analyze security --no-pager --threshold=20 straked.service
    say "$(tail -n 1 "$work/said")"
    within 60 "the service is active after the installation" is_active
    did "status" strake status
    [[ $(property StatusText) == Serving* ]] || fail "status text: $(property StatusText)"
    local pid status
    pid=$(property MainPID)
    status=$(inside cat "/proc/$pid/status")
    grep -qE '^CapEff:\s+0+$' <<<"$status" || fail "the daemon has capabilities: $status"
    grep -qE '^NoNewPrivs:\s+1$' <<<"$status" || fail "the daemon may get privileges: $status"
    [[ $(inside stat -c %U "/proc/$pid") == strake ]] || fail "the daemon does not run as strake"
    did "the service is enabled" systemctl is-enabled straked
}

# What an operator may get wrong in the configuration file.
check_config() {
    did "strake config check" strake config check
    said 'cores = "auto"  # default'
    said 'state-dir = "/var/lib/strake"'
    inside sh -c 'printf "cores = \"0\"\ncore = 1\n" >/tmp/wrong.toml'
    refused strake config check /tmp/wrong.toml
    said '/tmp/wrong.toml: line 2: unknown key core; the keys are state-dir'
    # A service with such a file does not start, says why, and tries again.
    inside sh -c 'cp /etc/strake/straked.toml /tmp/right.toml && echo "cores = true" >>/etc/strake/straked.toml'
    inside systemctl restart straked 2>/dev/null && fail "the service started with a wrong file"
    [[ $(property ActiveState) == activating ]] || fail "state: $(property ActiveState)"
    did "journal" journalctl -u straked --no-pager
    said 'cores: a text in quotes or a decimal whole number is needed, and this is a truth value'
    inside cp /tmp/right.toml /etc/strake/straked.toml
    did "restart" systemctl restart straked
}

# The first array: a RAID 6 on files, written over NBD.
first_array() {
    local n drives=()
    for n in 0 1 2 3 4; do
        did "a file" setpriv --reuid strake --regid strake --clear-groups truncate -s 64M "/var/lib/strake/d$n"
        drives+=("/var/lib/strake/d$n")
    done
    did "array" strake array create tank --level 6 --drives "$(IFS=,; echo "${drives[*]}")"
    did "export" strake export create tank --via nbd --listen unix:/run/strake/tank.sock
    io "write -P 0x5a 0 8M" flush
}

# A daemon that does nothing for a watchdog period is replaced.
check_watchdog() {
    local pid
    inside sh -c 'mkdir -p /run/systemd/system/straked.service.d &&
        printf "[Service]\nWatchdogSec=4\n" >/run/systemd/system/straked.service.d/test.conf && systemctl daemon-reload &&
        systemctl restart straked'
    within 60 "the export after a restart" serves
    pid=$(property MainPID)
    inside sh -c "kill -STOP $pid"
    within 60 "the watchdog replaces the daemon" restarted "$pid"
    within 60 "the export after the watchdog" serves
    io "read -P 0x5a 0 8M"
    within 60 "the status names the array" status_is 'Serving 1 array, all online'
    inside sh -c 'rm -r /run/systemd/system/straked.service.d && systemctl daemon-reload && systemctl restart straked'
    within 60 "the export after a restart" serves
}

status_is() { [[ $(property StatusText) == "$1" ]] || { property StatusText && return 1; }; }

restarted() { [[ $(property NRestarts) == 1 && $(property MainPID) != "$1" ]] && is_active; }

upgrade() {
    local pid
    pid=$(property MainPID)
    inside sh -c 'printf "assemble-timeout = 45\n" >>/etc/strake/straked.toml'
    did "upgrade" dpkg -i /strake-2.deb
    said 'systemctl restart straked'
    [[ $(property MainPID) == "$pid" ]] || fail "the upgrade restarted the daemon"
    io "read -P 0x5a 0 8M"
    did "restart" systemctl restart straked
    within 60 "the export after the upgrade" serves
    [[ $(property MainPID) != "$pid" ]] || fail "the same daemon after the restart"
    io "read -P 0x5a 0 8M" "write -P 0x77 0 1M" flush
    did "the changed configuration is kept" strake config check
    said 'assemble-timeout = 45  # /etc/strake/straked.toml, line '
}

remove() {
    did "removal" dpkg -r strake
    [[ ! -e $root/usr/bin/straked && -s $root/var/lib/strake/state.json && -s $root/etc/strake/straked.toml ]] ||
        fail "a removal keeps state and configuration, and removes the programs"
    [[ ! -e $root/var/lib/strake/running ]] || fail "the removal did not stop the daemon in order"
    # The drives in the state directory are not files of the daemon.
    did "purge" dpkg -P strake
    said d4
    [[ $(echo "$root"/var/lib/strake/*) == $(echo "$root"/var/lib/strake/d{0,1,2,3,4}) ]] ||
        fail "the purge did not keep the drives, or kept more: $(ls -A "$root/var/lib/strake")"
}

# The array is found again from its drives.
again() {
    did "second installation" dpkg -i /strake-2.deb
    within 60 "the service is active" is_active
    did "import" strake array import --drives "$(echo /var/lib/strake/d{0,1,2,3,4} | tr ' ' ,)"
    did "export" strake export create tank --via nbd --listen unix:/run/strake/tank.sock
    io "read -P 0x77 0 1M" "read -P 0x5a 1M 7M"
    did "destroy" strake export remove tank --force
    did "destroy" strake array destroy tank --yes
    did "the drives are removed" rm /var/lib/strake/d0 /var/lib/strake/d1 /var/lib/strake/d2 /var/lib/strake/d3 \
        /var/lib/strake/d4
    did "purge" dpkg -P strake
    ! inside getent passwd strake || fail "the purge left the user"
    ! inside getent group strake || fail "the purge left the group"
    files >"$work/after"
    diff "$work/before" "$work/after" >"$work/left" || fail "left by the purge: $(<"$work/left")"
    say "after the purge, the system has the same files as before"
}

lifecycle() {
    local installed=$SECONDS
    did "installation" dpkg -i /strake-1.deb
    check_service
    first_array
    say "from the installation to data on the first array: $((SECONDS - installed)) s"
    check_config
    within 60 "the export after a restart" serves
    check_watchdog
    upgrade
    remove
    again
}

# A commit meanwhile does not change the time of the packages.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
package 1.0-1
mv "$work/1.0-1.deb" "$work/first.deb"
mv "$work/1.0-1.others" "$work/first.others"
package 1.0-1
cmp "$work/first.deb" "$work/1.0-1.deb" || fail "two packages of the same programs differ"
cmp "$work/first.others" "$work/1.0-1.others" || fail "two RPM packages or SBOMs of the same programs differ"
say "two builds of the package are byte-identical, $(stat -c %s "$work/first.deb") bytes"
# The next version, not compressed.
dpkg-deb --raw-extract "$work/1.0-1.deb" "$work/next"
sed -i 's/^Version: .*/Version: 1.0-2/' "$work/next/DEBIAN/control"
dpkg-deb --root-owner-group -Znone --build "$work/next" "$work/1.0-2.deb" >/dev/null
for suite in "${suites[@]}"; do
    say "$suite"
    base "$suite"
    cp "$work/1.0-1.deb" "$root/strake-1.deb"
    cp "$work/1.0-2.deb" "$root/strake-2.deb"
    boot
    files >"$work/before"
    lifecycle
    shut_down
    rm -rf "$root"
done
printf 'package: %s\n' "${suites[*]}"
