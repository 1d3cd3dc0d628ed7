#!/usr/bin/env bash
# Volumes, snapshots and clones of a pool on RAID 6: what clients wrote is read back after a snapshot under load, a
# rollback, a destroyed clone, kill -9 and a restart. A full pool refuses writes with ENOSPC, and serves again after a
# destroy.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

# offer VOLUME NAME: exports it under that name.
offer() { expect 0 strake export create "$1" --name "$2" --via nbd --listen "unix:$work/$2.sock"; }

# withdraw NAME: removes the export.
withdraw() { expect 0 strake export remove "$1" --force; }

# client VERB NAME MODEL [ARGUMENT...]: _nbd.py on an export with a model of what its blocks hold.
client() {
    local verb=$1 name=$2 model=$3
    shift 3
    expect 0 python3 "$e2e/_nbd.py" "$verb" --socket "$work/$name.sock" --export "$name" --model "$work/$model" "$@"
}

# content NAME: the checksum of all bytes of an export.
content() {
    python3 - "$e2e" "$work/$1.sock" "$1" <<'PYTHON'
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from _nbd import Client
client, digest = Client(sys.argv[2], sys.argv[3]), hashlib.sha256()
for at in range(0, client.size, 1 << 20):
    digest.update(client.read(at, min(1 << 20, client.size - at)))
client.close()
print(digest.hexdigest())
PYTHON
}

# pool_value EXPRESSION: the same as array_value over the pool.
pool_value() {
    expect 0 strake pool show data --output json
    json "$1"
}

# space_returned BYTES: whether no destroyed volume holds space, and at most so much is used.
space_returned() { [[ $(pool_value "it['deleting'] == 0 and it['used_bytes'] <= $1") == true ]]; }

is_online() { strake pool show data >/dev/null 2>&1; }

make_drives 6 512MiB
start_daemon
expect 0 strake array create tank --level 6 --drives "$drive_list" --strip 64k
expect 0 strake pool create data tank
expect 0 strake volume create data/vm1 256M
expect 0 strake volume create data/vm2 256M --thick
empty=$(pool_value "it['used_bytes']")

# What has a pool is neither exported nor destroyed.
expect 3 strake export create tank --via nbd --listen "unix:$work/no.sock"
grep -q data "$work/err" || fail "the refusal does not name the pool"
expect 3 strake array destroy tank --yes
[[ $(pool_value "it['volumes']") == 2 ]] || fail "the pool lost a volume"

offer data/vm1 vm1
offer data/vm2 vm2
expect 3 strake volume destroy data/vm1 --yes
client fill vm1 model1 --windows 0:2048,16384:2048
client fill vm2 model2 --windows 0:1024
say "two volumes are written; what is in use is not destroyed"

# Snapshots of both volumes at the same time, while a client writes one of them and verifies what it reads.
python3 "$e2e/_nbd.py" steady --socket "$work/vm1.sock" --export vm1 --windows 32768:2048 --until "$work/enough" \
    --progress "$work/turns" --model "$work/steady" >"$work/steady.out" 2>&1 &
steady=$!
child_pids+=("$steady")
within 30 "the client writes" test -s "$work/turns"
expect 0 strake snapshot create data/vm1 before1 data/vm2 before2
touch "$work/enough"
wait "$steady" || fail "the client under the snapshot: $(<"$work/steady.out")"
say "snapshots under load: $(<"$work/steady.out")"

# A clone holds what its snapshot holds, and further writes change neither.
expect 0 strake volume clone data/before1 data/copy
offer data/before1 before1
offer data/copy copy
[[ $(export_value before1 "['read_only']") == true ]] || fail "a snapshot can be written"
before=$(content before1)
[[ $(content copy) == "$before" ]] || fail "the clone differs from its snapshot"
cp "$work/model1" "$work/model-before"
client fill vm1 model1 --windows 512:1024,40960:256
client fill copy model-copy --windows 60000:256
[[ $(content before1) == "$before" ]] || fail "a write to a volume or a clone changed the snapshot"
client verify before1 model-before
say "a snapshot and its clone are equal, and writes to the volume do not change the snapshot"

# The comparison names every block that was written since.
expect 0 strake snapshot diff data/before1 data/vm1 --output json
covers() { json "any(r['offset_bytes'] <= $1 * 4096 and ($1 + $2) * 4096 <= r['offset_bytes'] + r['length_bytes'] for r in it['ranges'])"; }
[[ $(covers 512 1024) == true && $(covers 40960 256) == true ]] || fail "the comparison lacks written blocks"
[[ $(covers 17000 1) == false ]] || fail "the comparison has blocks that were never written since"

# Nothing of it is lost by kill -9, also under writes.
client crash vm1 model1 --windows 0:2048 --kill "$daemon_pid" --seed 71 --after 200
reap_daemon
start_daemon
within 60 "the pool is online" is_online
for name in vm1 vm2 before1 copy; do restarted "$name"; done
client verify vm1 model1
client verify vm2 model2
client verify copy model-copy
[[ $(content before1) == "$before" ]] || fail "kill -9 changed the snapshot"
say "after kill -9, every volume and snapshot holds what was acknowledged"

# A rollback needs a volume without clients.
expect 3 strake snapshot rollback data/vm1 data/before1 --yes
withdraw vm1
expect 0 strake snapshot rollback data/vm1 data/before1 --yes
offer data/vm1 vm1
[[ $(content vm1) == "$before" ]] || fail "after the rollback, the volume differs from the snapshot"
kill9_daemon
start_daemon
within 60 "the pool is online" is_online
restarted vm1
[[ $(content vm1) == "$before" ]] || fail "kill -9 undid the rollback"
say "a rollback gives the volume the content of its snapshot"

# Members fail, and the volumes serve on.
expect 0 strake array fail tank --member 1 --accept redundancy --yes
client verify vm2 model2
expect 0 strake array readd tank --member 1
wait_rebuilt tank

# The space of what is destroyed returns.
for name in before1 copy vm1 vm2; do withdraw "$name"; done
expect 0 strake volume destroy data/copy --yes
expect 0 strake snapshot destroy data/before1 --yes
expect 0 strake snapshot destroy data/before2 --yes
expect 0 strake volume destroy data/vm1 --yes
expect 0 strake volume destroy data/vm2 --yes
within 60 "the space returns" space_returned "$empty"
say "the space of destroyed volumes returns"

# More is promised than there is. A full pool refuses writes with ENOSPC (28), and serves again after a destroy.
expect 0 strake volume create data/big 8G
expect 0 strake volume create data/other 64M --thick
offer data/big big
offer data/other other
python3 - "$e2e" "$work/big.sock" >"$work/full" <<'PYTHON'
import sys
sys.path.insert(0, sys.argv[1])
from _nbd import Client, Refused
client, at = Client(sys.argv[2], "big"), 0
try:
    while at < client.size:
        client.write(at, b"\x71" * (1 << 20))
        at += 1 << 20
except Refused as refused:
    assert "error 28" in str(refused), refused
    assert client.read(0, 4096) == b"\x71" * 4096, "a full pool does not serve reads"
    print(f"ENOSPC after {at >> 20} MiB")
else:
    raise SystemExit("8 GiB were written to a pool of 2 GiB")
client.close()
PYTHON
say "a full pool: $(<"$work/full")"
# Space that is reserved for a thick volume is still there.
client fill other model-other --windows 0:16384
withdraw big
expect 0 strake volume destroy data/big --yes
within 60 "a full pool gets its space back" space_returned $((1 << 30))
expect 0 strake volume create data/next 256M
offer data/next next
client fill next model-next --windows 0:4096
client verify next model-next
client verify other model-other
say "after a destroy, the pool takes writes again"

# A clean restart, and the end of the pool.
stop_daemon
start_daemon
within 60 "the pool is online" is_online
restarted next
client verify next model-next
expect 3 strake pool destroy data --force --yes
withdraw next
withdraw other
expect 3 strake pool destroy data --yes
expect 0 strake pool destroy data --force --yes
expect 0 strake export create tank --via nbd --listen "unix:$work/tank.sock"
say "a destroyed pool leaves the array free"
