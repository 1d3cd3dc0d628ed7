# What the host in the guest of nvme-tcp-guest.sh does; $PORT, $NQN, $HOSTNQN and $ASK are given. Lines that begin with
# NVMEHOST are kept by `_nvme_guest.py`.
# shellcheck shell=bash
set -u
gateway=10.0.2.2
target=(-t tcp -a "$gateway" -s "$PORT" --hostnqn="$HOSTNQN")

told() { echo "NVMEHOST $1=$2"; }
fail() { echo "guest: FAILED: $*"; dmesg | grep -i -E 'nvme|I/O error' | tail -15; exit 1; }
step() { read -r up _ </proc/uptime; echo "guest: $up: $*"; }

# ask WORD: has the other side do something, and waits until it is done.
ask() {
    local answer
    exec 3<>"/dev/tcp/$gateway/$ASK" || fail "nobody to ask"
    echo "$1" >&3
    read -r answer <&3
    exec 3>&-
    [[ $answer == done ]] || fail "$1: $answer"
}

# shows PATTERN COMMAND...: the command succeeds and prints something like it.
shows() {
    local pattern=$1 out
    shift
    out=$("$@" 2>&1) || fail "$*: $out"
    grep -q -E "$pattern" <<<"$out" || fail "$* does not show $pattern: $out"
}

# within SECONDS WHAT COMMAND...: polls until the command succeeds.
within() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@"; do
        ((SECONDS < end)) || fail "not in time: $what"
        sleep 0.2
    done
}

# verified NAME ARGUMENT...: fio that checks what it wrote.
verified() {
    local name=$1
    shift
    fio --name="$name" --filename="$device" --ioengine=io_uring --iodepth=16 --direct=1 --verify=crc32c \
        --do_verify=1 --verify_fatal=1 --eta=never --output="/tmp/$name" "$@" || fail "fio $name: $(cat "/tmp/$name")"
    told "fio_$name" "$(grep -c 'err= 0' "/tmp/$name")"
}

step "kernel $(uname -r), $(nvme version | head -1)"
told kernel "$(uname -r)"
told nvme_cli "$(nvme version | sed -n 's/^nvme version \([^ ]*\).*/\1/p')"
link=$(find /sys/class/net -mindepth 1 -not -name lo -printf '%f\n' | head -1)
ip addr add 10.0.2.15/24 dev "$link"
ip link set "$link" up
ip route add default via "$gateway"

step "discovers, and stays connected to discovery"
shows "subnqn: +$NQN" nvme discover "${target[@]}" -p -k 30
grep -q -r discovery /sys/class/nvme/*/subsysnqn || fail "no persistent discovery controller"

step "connects with four queues"
nvme connect "${target[@]}" -n "$NQN" --nr-io-queues=4 --keep-alive-tmo=5 --reconnect-delay=1 --ctrl-loss-tmo=120 \
    --hdr-digest --data-digest || fail "connect"
find_controller() {
    controller=$(grep -l -x "$NQN" /sys/class/nvme/nvme*/subsysnqn | head -1)
    controller=$(basename "$(dirname "$controller")")
    device=$(find /dev -maxdepth 1 -name 'nvme*n1' | head -1)
    [[ -b $device ]]
}
within 30 "a block device" find_controller
queues=$(<"/sys/class/nvme/$controller/queue_count")
[[ $queues == 5 ]] || fail "$queues queues instead of five"
told queues "$queues"

step "looks at everything"
char=/dev/$controller
shows "Strake array" nvme list
shows "live" nvme list-subsys
shows "subnqn +: $NQN" nvme id-ctrl "$char"
shows "^nsze +: 0x[1-9a-f]" nvme id-ns "$char" -n 1
shows "uuid" nvme ns-descs "$char" -n 1
shows "0x1" nvme list-ns "$char"
shows "critical_warning" nvme smart-log "$char"
nvme io-passthru "$char" --opcode=2 --namespace-id=1 --data-len=4096 --read --cdw10=0xffffffff --cdw11=1 >/dev/null 2>&1 &&
    fail "a read from behind the end"
shows "LBA Out of Range" nvme error-log "$char" -e 4
shows "^num_err_log_entries[[:space:]]*: [1-9]" nvme smart-log "$char"
nvme verify "$device" -s 0 -c 15 || fail "verify"
nvme read "$device" -s 0 -c 0 -z 4096 -d /tmp/block || fail "read"
nvme compare "$device" -s 0 -c 0 -z 4096 -d /tmp/block || fail "compare"
tr '\0' x </tmp/block >/tmp/another
shows "Compare Failure" bash -c "! nvme compare $device -s 0 -c 0 -z 4096 -d /tmp/another"
for feature in 1 2 4 5 0xa; do
    shows "Current value" nvme get-feature "$char" -f "$feature"
done
for feature in 0x82 0x83; do
    shows "Current value" nvme get-feature "$device" -f "$feature"
done
shows "Host Identifier" nvme get-feature "$char" -f 0x81 --cdw11=1 --data-len=16
shows "ACS2 .*Get Log Page" nvme effects-log "$char" --csi=0
shows "frs1" nvme fw-log "$char"
shows "optimized" nvme ana-log "$char"
shows "^0000: (00 ){8}01 00" nvme get-log "$char" --log-id=5 --log-len=64
shows "0x00000006|Volatile Write Cache" nvme get-feature "$char" -f 6
shows "Number of Queues" nvme get-feature "$char" -f 7
shows "Async" nvme get-feature "$char" -f 0xb
shows "Keep Alive" nvme get-feature "$char" -f 0xf

step "copies, zeroes and discards"
head -c 32768 /dev/urandom >/tmp/eight
head -c 16384 /dev/zero >/tmp/zeroes
# same BLOCK FILE: the blocks from there on hold what the file does, as the target and as the host see it.
same() {
    local blocks=$(($(stat -c %s "$2") / 4096)) read=/tmp/read
    nvme compare "$device" -s "$1" -c $((blocks - 1)) -z $((blocks * 4096)) -d "$2" || fail "compare at $1"
    rm -f "$read"
    nvme read "$device" -s "$1" -c $((blocks - 1)) -z $((blocks * 4096)) -d "$read" || fail "read at $1"
    cmp "$read" "$2" || fail "something else at $1"
}
nvme write "$device" -s 64 -c 7 -z 32768 -d /tmp/eight || fail "write"
nvme copy "$device" --sdlba=1024 --slbs=64,68 --blocks=3,3 --format=0 || fail "copy"
same 1024 /tmp/eight
nvme write-zeroes "$device" -s 1024 -c 3 || fail "write-zeroes"
same 1024 /tmp/zeroes
nvme write-zeroes "$device" -s 1028 -c 3 --deac || fail "write-zeroes, deallocating"
same 1028 /tmp/zeroes
nvme dsm "$device" --ad --slbs=1024,1030 --blocks=4,2 || fail "dsm"
nvme verify "$device" -s 1024 -c 7 || fail "verify what was discarded"
nvme flush "$device" -n 1 || fail "flush"
same 64 /tmp/eight
blkdiscard -o 1MiB -l 1MiB "$device" || fail "blkdiscard"
blkdiscard -z -o 2MiB -l 1MiB "$device" || fail "blkdiscard -z"
told commands "copy, write-zeroes, dsm, verify, compare, flush"

step "reserves"
reserved() { shows "rtype +: 1" nvme resv-report "$device" --eds; }
nvme resv-register "$device" --nrkey=17 --rrega=0 --cptpl=3 || fail "resv-register"
nvme resv-acquire "$device" --crkey=17 --rtype=1 --racqa=0 || fail "resv-acquire"
reserved
shows "regctl +: 1" nvme resv-report "$device" --eds

step "sees another namespace come"
ask add
second=${device%1}2
there() { [[ -b $second ]]; }
gone() { [[ ! -e $second ]]; }
within 30 "the second namespace" there
fio --name=second --filename="$second" --rw=write --bs=64k --size=1m --direct=1 --verify=crc32c --do_verify=1 \
    --eta=never --output=/tmp/second || fail "fio on the second namespace: $(</tmp/second)"

step "writes and verifies, with two members failed on the way"
verified mixed --rw=randrw --bs=4k-128k --size=8m &
writer=$!
ask fail
wait "$writer" || fail "the failures were seen"

step "writes while the daemon is killed"
verified killed --rw=randwrite --bs=4k-64k --size=12m --offset=16m --rate=2m &
writer=$!
sleep 4
ask kill
wait "$writer" || fail "the kill was seen"
dmesg | grep -q 'Successfully reconnected' || fail "it was not connected anew"

step "has its reservation yet, and gives it up"
reserved
nvme resv-release "$device" --crkey=17 --rtype=1 --rrela=0 || fail "resv-release"
nvme resv-register "$device" --crkey=17 --rrega=1 || fail "resv-register"
shows "regctl +: 0" nvme resv-report "$device" --eds
told reservations "kept over the kill"

step "holds on to a namespace whose array is not there"
inaccessible() { grep -q -x inaccessible /sys/class/nvme/"$controller"/nvme*n2/ana_state; }
within 30 "an inaccessible namespace" inaccessible
there || fail "it gave the device up"
ask remove
within 30 "the second namespace is gone" gone
told namespaces "come, inaccessible, gone"

step "resets the controller"
nvme reset "$char" || fail "reset"
live() { [[ $(<"/sys/class/nvme/$controller/state") == live ]]; }
within 30 "live again" live

step "puts a file system on it, while the members are rebuilt"
ask rebuild &
rebuild=$!
mkfs.xfs -q -f "$device" || fail "mkfs.xfs"
mkdir -p /tmp/mnt
mount "$device" /tmp/mnt || fail "mount"
for ((n = 0; n < 60; n++)); do
    mkdir -p "/tmp/mnt/$((n % 7))"
    head -c "$((n * 1531 + 1))" /dev/urandom >"/tmp/mnt/$((n % 7))/$n.new"
    mv "/tmp/mnt/$((n % 7))/$n.new" "/tmp/mnt/$((n % 7))/$n"
    ((n % 3)) || rm "/tmp/mnt/$((n % 7))/$n"
done
fio --name=files --directory=/tmp/mnt --nrfiles=16 --rw=randwrite --bs=4k-32k --size=4m --verify=crc32c --do_verify=1 \
    --fsync=16 --eta=never --output=/tmp/files || fail "fio on files: $(</tmp/files)"
before=$(cd /tmp/mnt && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)
umount /tmp/mnt || fail "umount"
wait "$rebuild" || fail "the rebuild"
xfs_repair -n "$device" >/tmp/repair 2>&1 || fail "xfs_repair: $(</tmp/repair)"
mount "$device" /tmp/mnt || fail "mount after the rebuild"
after=$(cd /tmp/mnt && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)
[[ $before == "$after" ]] || fail "files changed"

# What those who write file systems torture them with: https://git.kernel.org/pub/scm/fs/xfs/xfstests-dev.git, ltp/.
if [[ -n $XFSTESTS ]]; then
    step "tortures the file system, with two members failed and rebuilt on the way"
    mkdir /tmp/mnt/stress
    "/host$XFSTESTS/ltp/fsstress" -d /tmp/mnt/stress -p 4 -n "$STRESS" -s 7 >/tmp/fsstress 2>&1 &
    stress=$!
    "/host$XFSTESTS/ltp/fsx" -q -N "$STRESS" -S 7 -l 1048576 /tmp/mnt/fsx >/tmp/fsx 2>&1 &
    exerciser=$!
    ask fail
    ask rebuild
    began=$SECONDS
    wait "$stress" || fail "fsstress: $(tail -5 /tmp/fsstress)"
    wait "$exerciser" || fail "fsx: $(tail -20 /tmp/fsx)"
    told fsstress "4 processes, $STRESS operations each"
    told fsx "$(tail -1 /tmp/fsx)"
    step "was tortured for $((SECONDS - began)) s after the rebuild"
    umount /tmp/mnt || fail "umount"
    xfs_repair -n "$device" >/tmp/repair 2>&1 || fail "xfs_repair: $(</tmp/repair)"
else
    umount /tmp/mnt
fi
told xfs clean

step "sees the array grow under files that are written"
mount "$device" /tmp/mnt || fail "mount before the growth"
rm -rf /tmp/mnt/stress /tmp/mnt/fsx*
size=$(blockdev --getsize64 "$device")
fio --name=busy --directory=/tmp/mnt --nrfiles=8 --rw=randrw --bs=4k-32k --size=8m --rate=1m --verify=crc32c \
    --do_verify=1 --fsync=16 --eta=never --output=/tmp/busy &
writer=$!
sleep 2
ask grow
larger() { (($(blockdev --getsize64 "$device") > size)); }
within 30 "the new size" larger
told grown "$size to $(blockdev --getsize64 "$device")"
room() { stat -f -c %b /tmp/mnt; }
blocks=$(room)
xfs_growfs /tmp/mnt >/tmp/growfs 2>&1 || fail "xfs_growfs: $(</tmp/growfs)"
(($(room) > blocks)) || fail "the file system has no more room"
wait "$writer" || fail "the growth was seen: $(</tmp/busy)"
# More than had room before.
head -c "$size" /dev/zero | tr '\0' g >/tmp/mnt/large || fail "no room for what is larger than the array was"
sync
after=$(head -c "$size" /dev/zero | tr '\0' g | cmp - /tmp/mnt/large && echo same)
[[ $after == same ]] || fail "the large file is another"
umount /tmp/mnt || fail "umount"
xfs_repair -n "$device" >/tmp/repair 2>&1 || fail "xfs_repair after the growth: $(</tmp/repair)"

[[ -z $(dmesg | grep -i 'I/O error') ]] || fail "the kernel saw errors"
nvme disconnect -n "$NQN" || fail "disconnect"
step "done"
