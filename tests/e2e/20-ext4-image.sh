#!/usr/bin/env bash
# An ext4 image with real files lives on a RAID 6: copied in by nbdcopy and by qemu-img, every pair of drives
# destroyed in turn, drives that fail by themselves, kill -9. Each time the image read back is identical and
# e2fsck finds nothing to mend.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"
need mkfs.ext4 e2fsck debugfs nbdcopy qemu-img

size=64MiB
uri="nbd+unix:///tank?socket=$work/nbd.sock"
image=$work/image

# An image of 96 MiB that holds the repository's own text, and enough else to be worth reading.
make_image() {
    mkdir "$work/tree"
    cp -r "$e2e/../../crates" "$e2e/../../docs" "$work/tree/"
    [[ ! -d /usr/include/linux ]] || cp -rL /usr/include/linux "$work/tree/include"
    head -c 24M /dev/urandom >"$work/tree/noise"
    truncate -s 96M "$image"
    mkfs.ext4 -q -b 4096 -N 16384 -d "$work/tree" "$image"
    files=$(find "$work/tree" -type f | wc -l)
    e2fsck -fn "$image" >/dev/null 2>&1 || fail "the image is not clean to begin with"
}

# same HOW: the image on the array is the image, and a clean file system with the files it should have.
same() {
    local back=$work/back
    rm -f "$back"
    case $1 in
        nbdcopy) expect 0 nbdcopy "$uri" "$back" ;;
        qemu-img) expect 0 qemu-img convert -f raw -O raw "$uri" "$back" ;;
        *) fail "no such reader: $1" ;;
    esac
    truncate -s 96M "$back"
    cmp "$image" "$back" || fail "the image read back with $1 differs"
    expect 0 e2fsck -fn "$back"
    expect 0 debugfs -R "dump /noise $work/noise" "$back"
    cmp "$work/tree/noise" "$work/noise" || fail "a file in the image read back differs"
}

# destroy MEMBER...: fails the members and overwrites their files.
destroy() {
    local member
    for member in "$@"; do
        expect 0 strake array fail tank --member "$member" --accept redundancy --yes
        garbage "${drives[member]}"
    done
}

# renew MEMBER...: puts new files in their places and rebuilds.
renew() {
    local member
    for member in "$@"; do
        renewed=$((renewed + 1))
        rm -f "${drives[member]}"
        drives[member]=$work/new$renewed
        truncate -s $size "${drives[member]}"
        expect 0 strake array replace tank --member "$member" --with "${drives[member]}"
    done
    wait_rebuilt tank
}

state_of() { array_value tank "it['members'][$1]['state']"; }

is_out() { [[ $(state_of "$1") == faulty || $(state_of "$1") == missing ]]; }

renewed=0
make_image
make_drives 5 $size
start_daemon
expect 0 strake array create tank --level 6 --drives "$drive_list" --strip 64KiB
expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"

expect 0 nbdcopy --flush "$image" "$uri"
same qemu-img
say "nbdcopy in, $files files: identical and clean"

pairs=0
for ((first = 0; first < 5; first++)); do
    for ((second = first + 1; second < 5; second++)); do
        destroy "$first" "$second"
        if ((pairs % 2)); then same nbdcopy; else same qemu-img; fi
        renew "$first" "$second"
        pairs=$((pairs + 1))
    done
done
same nbdcopy
say "each of the $pairs pairs of drives destroyed, read back, rebuilt: identical and clean"

# Other content through the other tool, while two drives are gone.
destroy 1 3
cp "$image" "$work/image2"
rm -rf "$work/tree/noise" "$image"
head -c 20M /dev/urandom >"$work/tree/noise"
truncate -s 96M "$image"
mkfs.ext4 -q -b 4096 -N 16384 -d "$work/tree" "$image"
expect 0 qemu-img convert -n -f raw -O raw "$image" "$uri"
same nbdcopy
renew 1 3
same qemu-img
say "qemu-img in while two drives are gone, rebuilt: identical and clean"

# A drive that shrinks under the daemon fails by itself; a second one is destroyed.
truncate -s 4MiB "${drives[0]}"
same nbdcopy
within 10 "member 0 fails by itself" is_out 0
destroy 4
same qemu-img
say "one drive failed by itself ($(array_value tank "it['members'][0]['cause']")), one destroyed: identical and clean"

kill9_daemon
start_daemon
restarted tank
same nbdcopy
for member in 0 4; do
    is_out $member || fail "member $member is $(state_of $member) after the restart"
done
say "kill -9 with two drives gone, restart: identical and clean"
renew 0 4
kill9_daemon
start_daemon
restarted tank
same qemu-img
stop_daemon
start_daemon
restarted tank
same nbdcopy
stop_daemon
say "rebuilt, kill -9, restart, clean stop, restart: identical and clean"
