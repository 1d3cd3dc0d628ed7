#!/usr/bin/env bash
# Other programs use volumes over NBD: qemu-img converts, checks and compares images, nbdcopy and nbdinfo copy volumes
# and find what is allocated, and ext4 images stay clean. A backup that is made from the differences of snapshots
# restores bit for bit. Discarded space returns to the pool.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"
need qemu-img qemu-io nbdcopy nbdinfo mkfs.ext4 e2fsck debugfs

# volume NAME SIZE [OPTION]: creates it and offers it.
volume() {
    expect 0 strake volume create "data/$1" "$2" "${@:3}"
    offer "$1"
}
offer() { expect 0 strake export create "data/$1" --name "$1" --via nbd --listen "unix:$work/$1.sock"; }
uri() { printf 'nbd+unix:///%s?socket=%s' "$1" "$work/$1.sock"; }
used() { expect 0 strake pool show data --output json; json "it['used_bytes']"; }
uses_at_most() { [[ $(used) -le $1 ]]; }
client() {
    local verb=$1 name=$2
    shift 2
    expect 0 python3 "$e2e/_nbd.py" "$verb" --socket "$work/$name.sock" --export "$name" --model "$work/$name.model" "$@"
}
# trim NAME OFFSET LENGTH: an NBD_CMD_TRIM.
trim() {
    expect 0 python3 -c 'import sys
sys.path.insert(0, sys.argv[1])
from _nbd import FLUSH, Client
client = Client(sys.argv[2], sys.argv[3])
client.call(4, int(sys.argv[4]), int(sys.argv[5]))
client.call(FLUSH)
client.close()' "$e2e" "$work/$1.sock" "$1" "$2" "$3"
}

make_drives 6 256MiB
start_daemon
expect 0 strake array create tank --level 6 --drives "$drive_list" --strip 64k
expect 0 strake pool create data tank

# An image with a file system and files, as qcow2. Its volume has another size than its array.
truncate -s 64M "$work/image"
expect 0 mkfs.ext4 -q -F "$work/image"
head -c 7000001 /dev/urandom >"$work/file"
expect 0 debugfs -w -R "write $work/file file" "$work/image"
expect 0 e2fsck -fn "$work/image"
expect 0 qemu-img convert -O qcow2 "$work/image" "$work/image.qcow2"
volume vm1 64M
before=$(used)
expect 0 qemu-img convert -n -f qcow2 -O raw "$work/image.qcow2" "$(uri vm1)"
expect 0 qemu-img compare -f qcow2 -F raw "$work/image.qcow2" "$(uri vm1)"
expect 0 nbdcopy "$(uri vm1)" "$work/copied"
expect 0 cmp "$work/image" "$work/copied"
expect 0 e2fsck -fn "$work/copied"
thin=$((($(used) - before) >> 20))
((thin < 40)) || fail "an image with 7 MiB uses $thin MiB: zeroes are allocated"
say "qemu-img: the converted image is equal, and uses $thin MiB"

# A qcow2 image on the volume itself, which qemu-img writes, checks and grows.
volume qcow 128M
expect 0 qemu-img create -q -f qcow2 "$(uri qcow)" 64M
expect 0 qemu-img convert -n -O qcow2 "$work/image" "$(uri qcow)"
expect 0 qemu-img check -f qcow2 "$(uri qcow)"
expect 0 qemu-img compare -f raw -F qcow2 "$work/image" "$(uri qcow)"
expect 0 qemu-img snapshot -c inner "$(uri qcow)"
expect 0 qemu-io -f qcow2 -c "write -P 7 1M 3M" "$(uri qcow)"
expect 0 strake snapshot create data/qcow qcow-at
expect 0 qemu-img snapshot -a inner "$(uri qcow)"
kill9_daemon
start_daemon
restarted qcow
restarted vm1
expect 0 qemu-img check -f qcow2 "$(uri qcow)"
expect 0 qemu-img compare -f raw -F qcow2 "$work/image" "$(uri qcow)"
expect 0 strake volume clone data/qcow-at data/qcow-copy
offer qcow-copy
expect 0 qemu-img check -f qcow2 "$(uri qcow-copy)"
expect 0 qemu-io -f qcow2 -c "read -P 7 1M 3M" "$(uri qcow-copy)"
say "a qcow2 image on a volume and on its clone is clean, also after kill -9"

# What is allocated, as nbdinfo sees it.
expect 0 nbdinfo --size "$(uri vm1)"
[[ $(<"$work/out") == $((64 << 20)) ]] || fail "nbdinfo: size $(<"$work/out")"
expect 0 nbdinfo --can trim "$(uri vm1)"
expect 0 nbdinfo --can zero "$(uri vm1)"

# A backup: all of the first snapshot, then only what differs, onto a volume of the same size.
client fill vm1 --windows 0:300,9000:500
expect 0 strake snapshot create data/vm1 monday
offer monday
volume restored 64M
expect 0 nbdcopy "$(uri monday)" "$(uri restored)"
total=0
previous=monday
for day in tuesday wednesday thursday; do
    client fill vm1 --windows "$((RANDOM % 4000)):3,$((RANDOM % 8000 + 4000)):77,16000:5" --seed "$RANDOM"
    trim vm1 $((RANDOM % 2000 * 8192)) 1572864
    [[ $day != wednesday ]] || trim vm1 0 $((64 << 20))
    expect 0 strake snapshot create data/vm1 "$day"
    offer "$day"
    expect 0 strake snapshot diff "data/$previous" "data/$day" --json
    cp "$work/out" "$work/ranges"
    expect 0 python3 "$e2e/_restore.py" --ranges "$work/ranges" --source "$work/$day.sock:$day" \
        --destination "$work/restored.sock:restored"
    total=$((total + $(<"$work/out")))
    expect 0 qemu-img compare -f raw -F raw "$(uri "$day")" "$(uri restored)"
    previous=$day
done
expect 0 nbdcopy "$(uri thursday)" "$work/thursday"
expect 0 nbdcopy "$(uri restored)" "$work/restored.raw"
expect 0 cmp "$work/thursday" "$work/restored.raw"
say "a backup of three days from differences ($((total >> 10)) KiB) restores bit for bit"

# Discarded space returns, also of a whole volume, and reads as zeroes.
volume scratch 64M
before=$(used)
client fill scratch --windows 0:16384
full=$(used)
trim scratch $((16 << 20)) $((32 << 20))
within 30 "a discard returns space" uses_at_most $((full - (30 << 20)))
part=$(used)
trim scratch 0 $((64 << 20))
within 30 "a discard of the volume returns its space" uses_at_most $((before + (1 << 20)))
expect 0 nbdcopy "$(uri scratch)" "$work/zeroes"
expect 0 cmp -n $((64 << 20)) "$work/zeroes" /dev/zero
say "used: $((before >> 20)) MiB, $((full >> 20)) MiB written, $((part >> 20)) MiB and $(($(used) >> 20)) MiB after discards"
stop_daemon
