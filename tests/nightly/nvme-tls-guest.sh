#!/usr/bin/env bash
# Linux's own NVMe/TCP host in a guest uses an array of this machine over TLS: the kernel encrypts, tlshd shakes hands, and
# nvme-cli makes of the key of `strake host add` what both prove. Keys of each kind, with identities of both versions;
# discovery; fio with verification while the daemon is killed and started again; TLS together with DH-HMAC-CHAP. A host
# without TLS, one with another key, and one that nobody knows are refused. Ends with a line of JSON.
#
# Usage: tests/nightly/nvme-tls-guest.sh
#
# RIG, RIG_KERNEL, RIG_ROOT, STRAKE_BIN_DIR and KEEP are told of in _guest.sh (Debian: debootstrap python3). Exit code 77:
# cannot run here.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/nightly/_guest.sh
guest_needs
guest_needs_newer
guest_programs strake-cli strake-daemon
STRAKE_BIN_DIR=$programs
# shellcheck source=tests/e2e/_lib.sh
. tests/e2e/_lib.sh

host=nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555
declare -A told=()

# knows ARGUMENT...: what the target knows of the host from here on.
knows() { expect 0 strake host add "$host" "$@"; }

make_drives 6 128MiB
start_daemon
expect 0 strake array create tank --level 6 --drives "$drive_list" --strip 64KiB --block-size 4096
expect 0 strake export create tank --via nvme-tcp --listen 127.0.0.1:0 --allow-host "$host"
address=$(export_value tank "['listen']")
nqn=$(export_value tank "['nqn']")

cat >"$work/guest.sh" <<WORDS
PORT=${address##*:} NQN=$nqn HOSTNQN=$host
. /host$PWD/tests/nightly/_tls_host.sh
WORDS
ROOT=$newer guest_boot "$work/guest.sh" nvme_tcp,nvme_fabrics,tls,hmac,sha256,sha384,sha512,gcm,aesni_intel,dh_generic
say "$answer"
read -ra versions <<<"$answer"
for ((n = 0; n + 1 < ${#versions[@]}; n += 2)); do told[${versions[n]}]=${versions[n + 1]}; done
umask 077

say "nobody has a key"
guest new_key 1
echo "$answer" >"$work/first.key"
guest connects 0
guest disconnect
guest insert "$(<"$work/first.key")" 0
guest refused --tls
say "refused: $answer"

# Keys of all kinds, and identities of both versions. nvme-cli makes none of kind 00, which is a key that is used as it is.
# What has 48 bytes goes with SHA-384, and GnuTLS before 3.8.11, as in the guest, proves any key with SHA-256.
for kind in 01 00 02; do
    for version in 0 1; do
        guest new_key "${kind/00/01}"
        echo "${answer/-1:??:/-1:$kind:}" >"$work/host.key"
        knows --tls-key-file "$work/host.key"
        guest forget
        guest insert "$(<"$work/host.key")" "$version"
        guest identities
        identity=$answer
        if [[ $kind == 02 ]]; then
            guest refused --tls
            say "$identity: refused: $answer"
            told[key_$kind]="refused"
            continue
        fi
        guest connects 3 --tls
        guest disconnect
        say "$identity: connected with a key of kind $kind"
        told[key_$kind]+="${told[key_$kind]:+ }$identity"
    done
done

# A key that we made, and a daemon that is killed under it.
knows --new-tls-key --output json
json "it['tls_key']" >"$work/host.key"
guest forget
guest insert "$(<"$work/host.key")" 1
guest discovers --tls
say "discovered: $answer"
[[ $answer == *"$nqn"* && $answer == *required* ]] || fail "discovery said: $answer"
guest connects 3 --tls
guest begin --rw=randrw --bs=4k-64k --size=12m --rate=1m
sleep 4
kill9_daemon
start_daemon
restarted tank
guest verified
guest reconnected
guest disconnect
told[kill]="no I/O error"

# nvme-cli leaves the lengths out of what it derives keys from; this is as the specification has it.
guest forget
guest insert_raw $(python3 tests/nightly/_psk.py "$host" "$nqn" <"$work/host.key")
guest connects 3 --tls
guest disconnect
told[key_as_specified]="NVMe1R01"

say "what is refused"
guest refused
say "without TLS: $answer"
guest not discovers
guest forget
guest refused --tls
say "without a key: $answer"
guest insert "$(<"$work/first.key")" 1
guest refused --tls
say "with another key: $answer"
told[refused]="no TLS, no key, another key"

say "the target asks for proof besides"
guest new_secret 1 "$host"
echo "$answer" >"$work/host.secret"
guest new_secret 1 "$nqn"
echo "$answer" >"$work/target.secret"
knows --tls-key-file "$work/host.key" --secret-file "$work/host.secret" --controller-secret-file "$work/target.secret"
guest forget
guest insert "$(<"$work/host.key")" 1
guest refused --tls
say "without a proof: $answer"
guest connects 3 --tls --dhchap-secret="$(<"$work/host.secret")" --dhchap-ctrl-secret="$(<"$work/target.secret")"
guest disconnect
told[proof]="both ways, within TLS"

guest_ends
stop_daemon
python3 -c 'import json, sys; print(json.dumps(dict(zip(sys.argv[1::2], sys.argv[2::2]), verdict="held")))' \
    $(for key in "${!told[@]}"; do printf '%s %s ' "$key" "${told[$key]// /_}"; done)
