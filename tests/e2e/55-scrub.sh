#!/usr/bin/env bash
# Bytes of a drive change while nobody looks. A scrub finds and names them, a repair puts them right and a second scrub is
# clean; a scrub that is killed goes on where it was. With one parity nothing says which strip is wrong: the place is
# told, nothing is changed, and what to do about it is said and works.
# Parity also fits what a client sends that changes its buffer meanwhile.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

# Where the data of a drive begins.
data=$((16 << 20))

client() {
    local array=$2
    expect 0 python3 "$e2e/_nbd.py" "$1" --socket "$work/$array.sock" --export "$array" --model "$work/$array.model" "${@:3}"
}

# spoil FILE OFFSET BYTES: they become others; the daemon is down.
spoil() {
    python3 - "$@" <<'PY'
import sys
path, offset, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(path, "r+b") as drive:
    drive.seek(offset)
    old = drive.read(count)
    drive.seek(offset)
    drive.write(bytes(b ^ 0x5A for b in old))
PY
}

# scrub_value ARRAY EXPRESSION: of the last scrub.
scrub_value() {
    run strake array scrub show "$1" --output json
    [[ $code -le 2 ]] || fail "array scrub show $1 ended with $code"
    json "$2"
}

make_drives 6 256MiB d
tank=("${drives[@]}")
start_daemon
expect 0 strake array create tank --level 6 --drives "$drive_list" --strip 64KiB --block-size 4096
expect 0 strake export create tank --via nbd --listen "unix:$work/tank.sock"
make_drives 4 128MiB v
vault=("${drives[@]}")
expect 0 strake array create vault --level 5 --drives "$drive_list" --strip 64KiB --block-size 4096
expect 0 strake export create vault --via nbd --listen "unix:$work/vault.sock"
for array in tank vault; do
    client fill "$array" --windows 0:2048
    expect 0 strake wait "$array" --for resync --timeout 60s
done
stop_daemon

# Three places on three members, one of them in no file of any client.
spoil "${tank[1]}" $((data + (128 << 10))) 4096
spoil "${tank[4]}" $((data + (640 << 10) + 8192)) 8192
spoil "${tank[2]}" $((data + (100 << 20) + 4096)) 1
start_daemon
restarted tank

expect 1 strake array scrub start tank --wait
grep -q corrupt "$work/out" || fail "the scrub does not say that something is wrong"
found=$(scrub_value tank "sorted((f['member'], int(f['drive_offset_bytes']), int(f['member_length_bytes'])) for f in it['findings'])")
want="[[1, $((data + (128 << 10))), 4096], [2, $((data + (100 << 20) + 4096)), 4096], [4, $((data + (640 << 10) + 8192)), 8192]]"
[[ $found == "$want" ]] || fail "the scrub found $found instead of $want"
[[ $(scrub_value tank "it['repaired_bytes']") == 0 ]] || fail "a check repaired something"
expect 0 strake array scrub start tank --repair --wait
[[ $(scrub_value tank "it['repaired_bytes']") == 16384 ]] || fail "not everything was repaired"
expect 0 strake array scrub start tank --wait
[[ $(scrub_value tank "len(it['findings'])") == 0 ]] || fail "a second scrub is not clean"
client verify tank
say "three places on three members found, named and repaired; the next scrub is clean; $(<"$work/out")"

# Killed in the middle, by chance of when the pause comes.
total=$(array_value tank "it['size_bytes']")
halfway() {
    run strake array scrub start tank
    run strake array scrub pause tank
    while [[ $code -eq 0 && $(scrub_value tank "it['state']") == paused ]]; do
        done_bytes=$(scrub_value tank "it['done_bytes']")
        # The pause was recorded before it was acknowledged. Only whole regions are recorded.
        if ((done_bytes < total)) && grep -q '"state":"paused".*"done":\[\[' "$state"/scrub-*.json; then return 0; fi
        run strake array scrub resume tank
        run strake array scrub pause tank
    done
    # It was over before it could be paused.
    return 1
}
within 60 "a scrub is paused halfway" halfway
kill9_daemon
recorded=$(grep -oP '"checked":\K\d+' "$state"/scrub-*.json)
start_daemon
restarted tank
within 10 "the scrub is taken up" eval '[[ $(scrub_value tank "it[\"state\"]") == paused ]]'
again=$(scrub_value tank "it['done_bytes']")
((again > 0 && again == recorded)) || fail "the scrub is at $again after kill -9, its record at $recorded"
expect 0 strake array scrub resume tank
expect 0 strake wait tank --for scrub --timeout 60s
[[ $(scrub_value tank "it['checked_bytes']") == "$total" ]] || fail "it has not been over everything, or twice over something"
say "kill -9 at $((done_bytes >> 20)) of $((total >> 20)) MiB: it went on at $((again >> 20)) MiB, and was over everything once"

# A client changes its buffer while it is being sent: what was taken of it goes to data and parity alike.
python3 - "$e2e" "$work/tank.sock" <<'PY'
import struct, sys, threading
sys.path.insert(0, sys.argv[1])
import _nbd
client = _nbd.Client(sys.argv[2], "tank")
buffer, stop = bytearray(1 << 20), threading.Event()

def change():
    n = 0
    while not stop.is_set():
        n += 1
        buffer[n * 4099 % len(buffer)] = n & 255
        buffer[n * 8209 % len(buffer)] = n >> 3 & 255

thread = threading.Thread(target=change)
thread.start()
for nth in range(64):
    client.handle += 1
    at = (32 << 20) + nth % 8 * (1 << 19)
    head = struct.pack(">IHHQQI", _nbd.MAGIC_REQUEST, 0, _nbd.WRITE, client.handle, at, len(buffer))
    client.sock.sendall(head)
    client.sock.sendall(buffer)
    error, handle = client.reply()
    assert (error, handle) == (0, client.handle), (error, handle)
stop.set()
thread.join()
client.close()
PY
expect 0 strake array scrub start tank --wait
say "a client that changed its buffer while it was sent left parity that fits"

# One parity: the place, and no more.
stop_daemon
spoil "${vault[2]}" $((data + (64 << 10))) 4096
dd if="${vault[2]}" of="$work/spoiled" bs=4096 skip=$(((data + (64 << 10)) / 4096)) count=1 status=none
start_daemon
restarted vault
expect 1 strake array scrub start vault --repair --wait
grep -q "wrong strip unknown" "$work/out" || fail "it is not said that the wrong strip is not known"
tr -s ' \n' ' ' <"$work/out" | grep -q "strake array scrub start vault --trust-data" || fail "the remedy is not said"
verdicts=$(scrub_value vault "[(f['verdict'], f.get('member')) for f in it['findings']]")
[[ $verdicts == '[["parity_differs", null]]' ]] || fail "the scrub said $verdicts"
dd if="${vault[2]}" bs=4096 skip=$(((data + (64 << 10)) / 4096)) count=1 status=none | cmp - "$work/spoiled" ||
    fail "a strip was changed though nobody knows whether it is wrong"
# From the backup, which is the client here; then parity is made to fit.
client fill vault --windows 0:2048
expect 0 strake array scrub start vault --trust-data --yes --wait
expect 0 strake array scrub start vault --wait
client verify vault
say "RAID 5: the place was told, nothing was changed; written anew and trusted, it is clean; $(<"$work/out")"
stop_daemon
