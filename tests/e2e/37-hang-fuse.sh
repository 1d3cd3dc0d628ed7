#!/usr/bin/env bash
# The file system whose files hang on demand, which the scripts about drives that hang use: a held request waits alone,
# also through SIGKILL of who made it, and an array over such files works.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"
need dd fallocate nbdcopy

held_is() { [[ $(fuse_ctl held) -eq $1 ]]; }

# one OP [FROM]: writes or reads 4 KiB at 1 MiB, or at FROM KiB, past the page cache.
one() {
    case $1 in
        write) dd if=/dev/zero of="$fuse/f0" bs=4k seek=$((${2:-1024} / 4)) count=1 oflag=direct conv=notrunc status=none ;;
        read) dd if="$fuse/f0" of=/dev/null bs=4k skip=$((${2:-1024} / 4)) count=1 iflag=direct status=none ;;
        fsync) python3 -c 'import os, sys; os.fsync(os.open(sys.argv[1], os.O_RDWR))' "$fuse/f0" ;;
        open) : <"$fuse/f0" ;;
        getattr) stat "$fuse/f0" >/dev/null ;;
        fallocate) fallocate -p -o 1M -l 4K "$fuse/f0" ;;
        *) fail "no such operation: $1" ;;
    esac
}

start_fuse
make_fuse_drives 6 64MiB

for op in write read fsync open getattr fallocate; do
    expect 0 one "$op"
    expect 0 fuse_ctl hang "$op" f0
    one "$op" &
    child=$!
    child_pids+=("$child")
    within 10 "the $op is held" held_is 1
    # Others are served meanwhile.
    expect 0 stat "$fuse/f1"
    expect 0 fuse_ctl release "$op"
    wait "$child" || fail "the $op failed when it was answered"
done

expect 0 fuse_ctl hang write f0 1M-2M
expect 0 one write 512
expect 0 one write 2048
expect 0 one read
one write 1536 &
child=$!
child_pids+=("$child")
within 10 "the write within the range is held" held_is 1
# It is in the kernel: neither its end nor a signal ends it before it is answered.
kill -KILL "$child"
expect 0 fuse_ctl held
[[ $(<"$work/out") -eq 1 ]] || fail "a held write ended with its process"
expect 0 fuse_ctl release
wait "$child" 2>/dev/null || true
say "write, read, fsync, open, getattr and fallocate are held and answered, each alone"

start_daemon
expect 0 strake array create tank --level 6 --drives "$drive_list"
expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"
head -c 48M /dev/urandom >"$work/image"
expect 0 nbdcopy "$work/image" "nbd+unix:///tank?socket=$work/nbd.sock"
expect 0 nbdcopy "nbd+unix:///tank?socket=$work/nbd.sock" "$work/back"
cmp -n "$(stat -c %s "$work/image")" "$work/image" "$work/back" || fail "what was read back differs"
say "a RAID 6 over such files keeps what is written"
stop_daemon

# How long a drive may take is what was asked for at the start, for drives of its kind: usually 15 s for a file.
start_daemon --io-timeout file=6
restarted tank
expect 0 fuse_ctl hang all f0
truncate -s 4M "$work/zeroes"
nbdcopy --allocated "$work/zeroes" "nbd+unix:///tank?socket=$work/nbd.sock" &
child=$!
child_pids+=("$child")
given_up() { [[ $(array_value tank "[m['state'] for m in it['members']][0]") =~ ^(faulty|missing)$ ]]; }
within 12 "the drive that hangs is given up after the 6 s that were asked for" given_up
wait "$child" || fail "writes failed while one of six drives hung"
expect 0 fuse_ctl release
say "a drive that hangs is given up after the time that was asked for"
stop_daemon
