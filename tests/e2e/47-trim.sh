#!/usr/bin/env bash
# What clients discard goes back to block devices: over NBD and over NVMe/TCP, files behind loop devices shrink, what was
# discarded reads as zeroes, the rest is as it was, and a scrub finds parity and data in agreement, also with a member
# missing and after it was rebuilt.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"
need losetup
host=nqn.2014-08.org.nvmexpress:uuid:6f1bd6b4-4bd2-4d55-a3a5-8c3a4f0a7e11

[[ $(id -u) -eq 0 ]] || skip "loop devices need root"
make_drives 4 96MiB
files=("${drives[@]}")
drives=()
for file in "${files[@]}"; do
    # Ends with the script, at cleanup.
    device=$(losetup --find --show "$file" 2>"$work/err") || skip "no loop device: $(<"$work/err")"
    loops+=("$device")
    drives+=("$device")
done
[[ $(cat "/sys/block/$(basename "${drives[0]}")/queue/discard_max_bytes") -gt 0 ]] ||
    skip "the file system of $work cannot punch holes"

start_daemon
expect 0 strake array create tank --level 5 --drives "$(IFS=,; echo "${drives[*]:0:3}")" --strip 64KiB
! grep -q resync_started "$work/straked.log" || fail "drives that read as zeroes are initialized again"
expect 0 strake export create tank --via nbd --listen "unix:$work/tank.sock"
expect 0 strake export create tank --name net --via nvme-tcp --listen 127.0.0.1:0 --allow-host "$host"
address=$(export_value net "['listen']")
nqn=$(export_value net "['nqn']")

cat >"$work/trim.py" <<'PY'
import sys
sys.path.insert(0, sys.argv[1])
import _nbd, _nvme
door, first, count, socket, address, nqn, name = sys.argv[2:]
first, count, total = int(first) << 20, int(count) << 20, 32 << 20
if door == "nbd":
    client = _nbd.Client(socket, "tank")
    if not client.flags & 1 << 5:
        raise SystemExit("the export does not offer to trim")
    discard = lambda: client.call(4, first, count)
else:
    client = _nvme.Host(address, nqn, name)
    discard = lambda: client.deallocate([(first, count // 2), (first + count // 2, count // 2)])
data = bytearray(_nbd.pattern(7, 0, total // 4096))
for at in range(0, total, 1 << 20):
    client.write(at, bytes(data[at : at + (1 << 20)]))
client.call(_nbd.FLUSH)
if count:
    discard()
    client.call(_nbd.FLUSH)
    data[first : first + count] = bytes(count)
for at in range(0, total, 1 << 20):
    if client.read(at, 1 << 20) != data[at : at + (1 << 20)]:
        raise SystemExit(f"MiB {at >> 20} is not what it should be after a discard of {count >> 20} from {first >> 20}")
client.close()
print("compared")
PY

# trim DOOR FIRST COUNT: writes 32 MiB, discards COUNT MiB from FIRST of it, flushes and compares everything.
trim() {
    expect 0 python3 "$work/trim.py" "$e2e" "$@" "$work/tank.sock" "$address" "$nqn" "$host"
    grep -q compared "$work/out" || fail "nothing was compared"
}

# KiB that the files of the array take up.
used() { du -c --block-size=1024 "${files[@]}" | tail -n 1 | cut -f 1; }

# clean WHEN: a scrub finds nothing.
clean() {
    expect 0 strake array scrub start tank --wait
    expect 0 strake array scrub show tank --output json
    [[ $(json "len(it['findings'])") == 0 ]] || fail "a scrub $1 is not clean"
}

for door in nbd nvme; do
    before=$(used)
    trim "$door" 0 0
    full=$(used)
    trim "$door" 4 24
    after=$(used)
    # 24 MiB of data are 36 MiB on three members with one parity.
    ((after <= full - 35 * 1024)) || fail "$door: the files take $after KiB after a discard, $full before, $before empty"
    clean "after a discard over $door"
    say "$door: $full KiB before a discard of 24 MiB, $after after; a scrub is clean"
done

# Discarded while a member is missing: what it holds is old, and its rebuild makes it fit.
expect 0 strake array fail tank --member 1 --accept redundancy --yes
trim nbd 8 16
expect 0 strake array replace tank --member 1 --with "${drives[3]}"
wait_rebuilt tank
clean "after a rebuild"
trim nvme 2 12
clean "after the last discard"
say "a discard of a degraded array: rebuilt, and a scrub is clean"
stop_daemon
