# What runs in the guest of nvme-take-guest.sh. Emulated NVMe drives with the serial numbers TAKE0 to TAKE7; QEMU adds and
# removes drives on request, over the second serial line (_qmp.py).
#
# Usage: _nvme_take.sh KILLS SEED
# shellcheck shell=bash
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/e2e/_lib.sh
. "$here/../e2e/_lib.sh"
kills=$1
RANDOM=$2
declare -A seen=([kernel]=$(uname -r))
pci=/sys/bus/pci/devices

# stage WHAT: begins a part of the test.
stage() { printf -- '-- %s (%s s)\n' "$*" "$SECONDS"; }

# plug WORD...: requests something of _qmp.py.
stty -F /dev/ttyS1 raw -echo
exec {line}<>/dev/ttyS1
plug() {
    local answer
    echo "$*" >&"$line"
    read -r -t 90 -u "$line" answer || fail "QEMU does not answer to: $*"
    [[ $answer == done ]] || fail "QEMU, $*: $answer"
}

# The state of functions.

# address_of SERIAL: the PCI address of the drive that the kernel drives. (Reads files itself: processes are slow here.)
address_of() {
    local controller serial address
    for controller in /sys/class/nvme/nvme*; do
        read -r serial 2>/dev/null <"$controller/serial" || continue
        [[ $serial == "$1" ]] && read -r address <"$controller/address" && echo "$address"
    done
    return 0
}
# node_of SERIAL: the block device of the drive that the kernel drives.
node_of() {
    local controller serial node
    for controller in /sys/class/nvme/nvme*; do
        read -r serial 2>/dev/null <"$controller/serial" || continue
        [[ $serial == "$1" ]] || continue
        for node in "$controller"/nvme*n1; do
            if [[ -b /dev/${node##*/} ]]; then echo "/dev/${node##*/}"; return 0; fi
        done
    done
    return 1
}
# kernel_has NUMBER...: whether the kernel has a block device of each of these drives.
kernel_has() {
    local number
    for number in "$@"; do node_of "TAKE$number" >/dev/null || return 1; done
}
driver_of() {
    local driver
    for driver in nvme vfio-pci; do
        if [[ -e /sys/bus/pci/drivers/$driver/$1 ]]; then echo "$driver"; return; fi
    done
    echo none
}
override_of() { echo "$(<"$pci/$1/driver_override")"; }
# picture: every NVMe function with its driver and its override.
picture() {
    local folder
    for folder in "$pci"/*; do
        [[ $(<"$folder/class") == 0x010802 ]] || continue
        printf '%s %s %s\n' "${folder##*/}" "$(driver_of "${folder##*/}")" "$(override_of "${folder##*/}")"
    done
}
is_taken() { [[ "$(driver_of "$1") $(override_of "$1")" == "vfio-pci vfio-pci" ]]; }
is_released() { [[ "$(driver_of "$1") $(override_of "$1")" == "nvme (null)" ]]; }

# taken_at SERIAL: the address at which the daemon lists the drive as taken.
taken_at() {
    expect 0 strake drive list --output json
    json "''.join(d['path'][4:] for d in it['drives'] if d['serial'] == '$1' and d['path'].startswith('pci:'))"
}

# watch ARGUMENT...: begins to record writes to sysfs; watched_writes prints them; unwatch ends this.
watch() {
    rm -f "$work/writes"
    python3 "$here/_watch.py" "$work/writes" "$@" &
    watcher=$!
    child_pids+=("$watcher")
    within 20 "writes are recorded" test -s "$work/writes"
}
watched_writes() { tail -n +2 "$work/writes"; }
unwatch() {
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
}

# unchanged CODE COMMAND...: expects the exit code, and that the command neither wrote to sysfs nor changed a driver.
unchanged() {
    local before
    before=$(picture)
    expect "$@"
    [[ $(picture) == "$before" ]] || fail "drivers changed: $(picture)"
    [[ -z $(watched_writes) ]] || fail "written: $(watched_writes)"
}
# refused REASON DRIVE...: `drive take` is refused for this reason, and changes nothing.
refused() {
    local reason=$1
    shift
    unchanged 3 strake drive take "$@"
    grep -q -- "$reason" "$work/err" || fail "refused, but not for $reason: $(<"$work/err")"
    say "$(tr '\n' ' ' <"$work/err")"
}

stage "six drives, and two that share a group"
within 60 "the kernel shows all drives" kernel_has 0 1 2 3 4 5 6 7
declare -a at
for n in {0..7}; do at[n]=$(address_of "TAKE$n"); done
picture
start_daemon

stage "one drive"
watch
unchanged 0 strake drive take TAKE0 --dry-run
cat "$work/out"
head -c 1M /dev/urandom >"$work/random"
dd if="$work/random" of="$(node_of TAKE0)" bs=1M oflag=direct status=none
began=$(now_ms)
expect 0 strake drive take TAKE0
seen[take_ms]=$(($(now_ms) - began))
cat "$work/out"
watched_writes
is_taken "${at[0]}" || fail "TAKE0: $(picture)"
[[ $(watched_writes | wc -l) -eq 3 ]] || fail "the writes of take: $(watched_writes)"
expect 0 strake drive list
cat "$work/out"
began=$(now_ms)
expect 0 strake drive release TAKE0
seen[release_ms]=$(($(now_ms) - began))
is_released "${at[0]}" || fail "TAKE0: $(picture)"
within 30 "the kernel has its namespace" node_of TAKE0
cmp -n 1M "$(node_of TAKE0)" "$work/random" || fail "the data changed"
unwatch

printf '{'
for key in "${!seen[@]}"; do printf '"%s": "%s", ' "$key" "${seen[$key]}"; done
printf '"seconds": %s, "verdict": "held"}\n' "$SECONDS"
