#!/usr/bin/env bash
# A member that is rebuilt from stripes which a scrub found inconsistent may hold wrong data: to fail it needs consent, the
# bytes are listed, and a later scrub, which finds nothing, does not clear them. After a crash in mode none, the redundancy
# of an array is not verified until a scrub has been over all of it.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

# Where the data of a drive begins.
data=$((16 << 20))

# health ARRAY CODE STATE: the exit code of `array show`, and whether it has the state.
health() {
    expect "$2" strake array show "$1" --output json
    [[ $(json "'$3' in it['states']") == "$4" ]] || fail "array $1: state $3 is not $4"
}

make_drives 4 96MiB v
vault=("${drives[@]}")
start_daemon
three="${vault[0]},${vault[1]},${vault[2]}"
expect 0 strake array create vault --level 5 --drives "$three" --strip 64KiB --block-size 4096
expect 0 strake wait vault --for resync --timeout 60s
stop_daemon
printf 'spoiled' | dd of="${vault[1]}" bs=1 seek=$((data + 65536)) conv=notrunc status=none
start_daemon
expect 1 strake array scrub start vault --wait
health vault 1 suspect false

expect 3 strake array fail vault --member 0 --accept redundancy --yes
grep -q -- "--accept redundancy,data" "$work/err" || fail "the refusal does not name the consent"
expect 0 strake array fail vault --member 0 --accept redundancy,data --yes
health vault 1 suspect true
[[ $(array_value vault "it['suspect_bytes']") == 4096 ]] || fail "more is suspect than the block on member 0"
expect 1 strake array scrub start vault --trust-data --yes --wait
grep -q "nothing was checked" "$work/out" || fail "a scrub without redundancy claims to have checked something"
expect 0 strake array replace vault --member 0 --with "${vault[3]}" --yes
grep -q "may be reconstructed wrongly" "$work/out" || fail "the plan of the rebuild does not name the risk"
expect 0 strake wait vault --for rebuild --timeout 60s
expect 0 strake array scrub start vault --wait
grep -q "nothing wrong found" "$work/out" || fail "the stripes are not consistent after the rebuild"
kill9_daemon
start_daemon
health vault 1 suspect true
expect 1 strake status
grep -q "may be wrong" "$work/out" || fail "status does not say what may be wrong"
run strake doctor
grep -q "may be wrong" "$work/out" || fail "doctor does not say what may be wrong"
expect 0 strake event list --kind suspect
grep -q "vault" "$work/out" || fail "no event says what may be wrong"
say "4 KiB that were rebuilt from inconsistent stripes stay listed over scrubs, kill -9 and a start"
expect 0 strake array scrub start vault --trust-data --yes --wait
health vault 0 suspect false

make_drives 4 96MiB n
expect 0 strake array create scratch --level 6 --drives "$drive_list" --strip 64KiB --consistency none --yes
expect 0 strake wait scratch --for resync --timeout 60s
health scratch 0 unverified false
stop_daemon
start_daemon
health scratch 0 unverified false
kill9_daemon
start_daemon
health scratch 1 unverified true
expect 1 strake array show scratch
grep -q "not verified" "$work/out" || fail "the redundancy is claimed"
expect 1 strake status
stop_daemon
start_daemon
health scratch 1 unverified true
expect 0 strake array scrub start scratch --trust-data --yes --wait
health scratch 0 unverified false
say "after a crash in mode none the redundancy is not verified, until a scrub has been over all of it"
