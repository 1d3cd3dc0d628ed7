# What the host in the guest of volumes-guest.sh does: PostgreSQL, ext4 and XFS on volumes, which it uses over NVMe/TCP.
# The script controls it by words (`_words.sh`). $POSTGRES is the folder of PostgreSQL's programs.
# shellcheck shell=bash disable=SC2317
. "$(dirname "${BASH_SOURCE[0]}")/_words.sh"
connect_link
ledger=/tmp/ledger

# connect PORT NQN HOST: connects to the subsystem. The kernel reconnects for ten minutes.
connect() {
    nvme connect -t tcp -a "$gateway" -s "$1" -n "$2" --hostnqn="$3" --nr-io-queues=2 --keep-alive-tmo=5 \
        --reconnect-delay=1 --ctrl-loss-tmo=600 2>&1
}

# device NSID: the block device of a namespace.
device() {
    local file
    for file in /sys/block/nvme*n*/nsid; do
        [[ -e $file && $(<"$file") == "$1" ]] || continue
        file=${file%/nsid}
        [[ ! -b /dev/${file##*/} ]] || { echo "/dev/${file##*/}"; return; }
    done
    return 1
}

# poll WHAT COMMAND...: repeats the command until it succeeds, for at most 90 s.
poll() {
    local end=$((SECONDS + 90)) what=$1
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || { echo "not in time: $what"; return 1; }
        sleep 0.2
    done
}

there() { poll "namespace $1" device "$1" || { dmesg | grep -i nvme | tail -n 8; return 1; }; }
absent() { ! device "$1"; }
gone() { poll "namespace $1 is gone" absent "$1"; }

# at NSID DIR [OPTIONS]: mounts it.
at() { there "$1" && mkdir -p "/tmp/$2" && mount ${3:+-o "$3"} "$(device "$1")" "/tmp/$2" 2>&1; }

# make FILESYSTEM NSID DIR: makes a file system and mounts it.
make() {
    there "$2" || return
    if [[ $1 == xfs ]]; then mkfs.xfs -q -f "$(device "$2")"; else mkfs.ext4 -q -F "$(device "$2")"; fi 2>&1 &&
        at "$2" "$3"
}
leave() { umount "/tmp/$1" 2>&1; }

# clean FILESYSTEM NSID: the file system, which is not mounted, has no error.
clean() {
    if [[ $1 == xfs ]]; then xfs_repair -n "$(device "$2")"; else e2fsck -fn "$(device "$2")"; fi >/tmp/check 2>&1 ||
        { tail -n 5 /tmp/check; return 1; }
}

# PostgreSQL: `pg N` is the instance whose data are in /tmp/dataN and whose log is in /tmp/walN.
as() { setpriv --reuid=postgres --regid=postgres --clear-groups -- "$@"; }
sql() { as "$POSTGRES/psql" -X -q -A -t -h /tmp -p "543$1" -c "$2" postgres; }

initialize() {
    mkdir "/tmp/data$1/pg" "/tmp/wal$1/pg" && chown postgres: "/tmp/data$1/pg" "/tmp/wal$1/pg" &&
        as "$POSTGRES/initdb" -k -N -A trust -X "/tmp/wal$1/pg" -D "/tmp/data$1/pg" >/tmp/initdb 2>&1 && sync ||
        { tail -n 5 /tmp/initdb; return 1; }
}
# begin N: starts the instance. A clone's log is beside the clone, and its data directory names the other's process.
begin() {
    ln -sfn "/tmp/wal$1/pg" "/tmp/data$1/pg/pg_wal" && rm -f "/tmp/data$1/pg/postmaster.pid" &&
        as "$POSTGRES/pg_ctl" -D "/tmp/data$1/pg" -l "/tmp/pg$1.log" -w -t 300 \
            -o "-p 543$1 -k /tmp -c listen_addresses= -c shared_buffers=16MB -c max_wal_size=64MB" start \
            >/tmp/ctl 2>&1 || { tail -n 8 /tmp/ctl "/tmp/pg$1.log"; return 1; }
}
finish() { as "$POSTGRES/pg_ctl" -D "/tmp/data$1/pg" -w -t 120 -m fast stop 2>&1; }
fill() {
    as "$POSTGRES/pgbench" -i -s "$2" -h /tmp -p "543$1" postgres >/tmp/fill 2>&1 || { tail -n 5 /tmp/fill; return 1; }
}
load() {
    as "$POSTGRES/pgbench" -n -c 4 -T 3000 -h /tmp -p "543$1" postgres </dev/null >/tmp/load 2>&1 &
    echo $! >/tmp/load.pid
}
unload() { kill -0 "$(</tmp/load.pid)" && kill "$(</tmp/load.pid)"; }
count() { sql "$1" 'select count(*) from pgbench_history'; }
more() { [[ $(count "$1") -ge $2 ]]; }
reaches() { poll "$2 transactions" more "$1" "$2"; }

# consistent N: no balance differs from the sum of its changes; every table and index is intact.
consistent() {
    local sums
    sums=$(sql "$1" 'select (select sum(abalance) from pgbench_accounts) = h and (select sum(tbalance) from
        pgbench_tellers) = h and (select sum(bbalance) from pgbench_branches) = h from (select coalesce(sum(delta), 0) h
        from pgbench_history) s')
    [[ $sums == t ]] || { echo "balances differ from their history: $sums"; return 1; }
    as "$POSTGRES/pg_amcheck" -h /tmp -p "543$1" --install-missing --heapallindexed postgres >/tmp/amcheck 2>&1 ||
        { tail -n 5 /tmp/amcheck; return 1; }
}
checksums() {
    as "$POSTGRES/pg_checksums" -c -D "/tmp/data$1/pg" >/tmp/sums 2>&1 || { tail -n 5 /tmp/sums; return 1; }
}
recovered() { grep -q 'redo done' "/tmp/pg$1.log"; }

# writes DIR: in the background, writes files and removes some. The ledger of DIR has the checksum of each file that
# fsync was successful for, and that is never removed.
writes() {
    (
        n=0
        while [[ ! -e /tmp/enough ]]; do
            n=$((n + 1))
            mkdir -p "/tmp/$1/$((n % 5))"
            head -c "$((n % 60 * 1531 + 1))" /dev/urandom >"/tmp/$1/$((n % 5))/$n" || break
            sync "/tmp/$1/$((n % 5))/$n" "/tmp/$1/$((n % 5))" || break
            if ((n % 3)); then sha256sum "/tmp/$1/$((n % 5))/$n" >>"$ledger.$1"; else rm "/tmp/$1/$((n % 5))/$n"; fi
        done
        [[ -e /tmp/enough ]] || echo "the writer of $1 failed" >>/tmp/failures
    ) </dev/null >/dev/null 2>>/tmp/failures &
}
written() { [[ $(wc -l <"$ledger.$1") -ge $2 ]]; }
goes_on() { poll "files are written to $1" written "$1" $(($(wc -l <"$ledger.$1") + $2)); }
stop_writers() { touch /tmp/enough; sleep 3; [[ ! -s /tmp/failures ]] || { cat /tmp/failures; return 1; }; }
mark() { cp "$ledger.$1" "$ledger.$1.marked"; wc -l <"$ledger.$1"; }
# has DIR LEDGER: every file that the ledger of LEDGER lists is in DIR.
has() { sed "s|/tmp/[^/]*/|/tmp/$1/|" "$ledger.$2" | sha256sum --quiet -c 2>&1 | tail -n 3; return "${PIPESTATUS[1]}"; }

# write DIR MIB: a file of random bytes.
write() { head -c "$(($2 << 20))" /dev/urandom >"/tmp/$1/large" && sync "/tmp/$1/large" 2>&1; }
trim() { rm "/tmp/$1/large" && sync && fstrim "/tmp/$1" 2>&1; }
discard() { blkdiscard "$(device "$1")" 2>&1 && cmp -n 67108864 "$(device "$1")" /dev/zero 2>&1; }
raw() { dd if=/dev/urandom of="$(device "$1")" bs=1M count="$2" oflag=direct status=none 2>&1; }
is_size() { [[ $(blockdev --getsize64 "$(device "$1")") == "$2" ]]; }
size() { poll "size $2 of namespace $1" is_size "$1" "$2"; }
room() { stat -f -c %b "/tmp/$1"; }
grow() {
    local before
    before=$(room "$3")
    if [[ $1 == xfs ]]; then xfs_growfs "/tmp/$3"; else resize2fs "$(device "$2")"; fi >/tmp/grow 2>&1 &&
        (($(room "$3") > before)) || { tail -n 4 /tmp/grow; return 1; }
}
# overfill DIR: writes until there is no space left in the pool.
overfill() {
    local said
    said=$(dd if=/dev/urandom of="/tmp/$1/huge" bs=1M conv=fsync status=none 2>&1) && { echo "no error"; return 1; }
    grep -q -i -E 'No space left|Input/output' <<<"$said" || { echo "$said"; return 1; }
    echo "$said"
}
mend() { e2fsck -p -f "$(device "$1")" >/tmp/mend 2>&1; [[ $? -le 1 ]] || { tail -n 5 /tmp/mend; return 1; }; }
kernel_errors() { dmesg | grep -i -E 'I/O error|EXT4-fs error|XFS.*(corrupt|shutdown)' | tail -n 3; }

obey "$(uname -r)"
dmesg | grep -i -E 'nvme|error' | tail -20
