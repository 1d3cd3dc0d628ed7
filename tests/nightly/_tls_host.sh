# What the host in the guest of nvme-tls-guest.sh does: Linux's own, with nvme-cli, keyctl and tlshd; $PORT, $NQN and
# $HOSTNQN are given.
# shellcheck shell=bash disable=SC2317
. "$(dirname "${BASH_SOURCE[0]}")/_words.sh"
discovery=nqn.2014-08.org.nvmexpress.discovery
target=(-t tcp -a "$gateway" -s "$PORT" --hostnqn="$HOSTNQN" --hostid="${HOSTNQN##*:}")

# insert KEY VERSION: gives the kernel what nvme-cli makes of a key, with identities of this version.
insert() {
    local subsystem
    for subsystem in "$NQN" "$discovery"; do
        nvme check-tls-key --keydata="$1" --identity="$2" --hostnqn="$HOSTNQN" --subsysnqn="$subsystem" --insert ||
            return
    done
}

# insert_raw IDENTITY PSK: gives the kernel a key that is not to be derived, in hexadecimal digits; _ is a space.
insert_raw() { printf '%b' "$(sed 's/../\\x&/g' <<<"$2")" | keyctl padd psk "${1//_/ }" %:.nvme; }

forget() {
    local key
    for key in $(keyctl rlist %:.nvme); do keyctl unlink "$key" %:.nvme || return; done
}

new_key() { nvme gen-tls-key --hmac="$1" 2>/dev/null | grep -o 'NVMeTLSkey.*'; }
new_secret() { nvme gen-dhchap-key --hmac="$1" --nqn="$2"; }
identities() { keyctl list %:.nvme | grep -o 'NVMe[01][RG]0[12]' | sort -u | tr '\n' ' '; }

device() { find /dev -maxdepth 1 -name 'nvme*n1' | head -1; }
controller() { basename "$(dirname "$(grep -l -x "$NQN" /sys/class/nvme/nvme*/subsysnqn | head -1)")"; }

# Connections that the kernel encrypts by itself.
encrypted() { awk '$1 == "TlsCurrTxSw" { print $2 }' /proc/net/tls_stat; }

# within SECONDS COMMAND...: polls until it succeeds.
within() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do ((SECONDS < end)) || return; sleep 0.2; done
}
is_there() { [[ -b $(device) ]]; }

connect() {
    nvme connect "${target[@]}" -n "$NQN" --nr-io-queues=2 --keep-alive-tmo=5 --reconnect-delay=1 \
        --ctrl-loss-tmo=120 "$@"
}

# connects QUEUES [ARGUMENT...]: with so many connections that are encrypted, all of them or none.
connects() {
    local wanted=$1
    shift
    connect "$@" && within 30 is_there || { why; return 1; }
    dd if="$(device)" of=/dev/null bs=64k count=16 iflag=direct status=none || return
    [[ $(encrypted) == "$wanted" ]] || { echo "$(encrypted) connections are encrypted"; return 1; }
}

disconnect() { nvme disconnect -n "$NQN"; }

# refused [ARGUMENT...]: does not get a controller; says why not.
refused() {
    local said
    dmesg -c >/dev/null
    : >/tmp/tlshd.log
    if said=$(connect "$@" 2>&1); then echo "connected"; return 1; fi
    echo "$said; $(why)"
}

why() { dmesg | grep nvme | tail -3; tail -n 3 /tmp/tlshd.log; }

not() { ! "$@"; }
discovers() { nvme discover "${target[@]}" "$@" | grep -E 'subnqn|sectype|treq'; }

# fio that checks what it wrote, in the background until `verified`.
begin() {
    rm -f /tmp/fio.code
    {
        fio --name=verified --filename="$(device)" --ioengine=io_uring --iodepth=16 --direct=1 --verify=crc32c \
            --do_verify=1 --verify_fatal=1 --eta=never "$@"
        echo $? >/tmp/fio.code
    } >/tmp/fio.out 2>&1 </dev/null &
}
verified() {
    within 110 test -s /tmp/fio.code || { echo "fio does not end"; return 1; }
    [[ $(</tmp/fio.code) == 0 ]] || { cat /tmp/fio.out; return 1; }
    ! dmesg | grep -i 'I/O error'
}
reconnected() { dmesg | grep -q 'Successfully reconnected'; }

connect_link
printf '[debug]\nloglevel=1\ntls=1\nnl=0\n[authenticate]\nkeyrings=.nvme;\n[authenticate.client]\n[authenticate.server]\n' \
    >/tmp/tlshd.conf
tlshd -s -c /tmp/tlshd.conf >/tmp/tlshd.log 2>&1 &
keyctl link %:.nvme @s
# Which version of what, as words: name version name version.
versions() {
    echo "kernel $(uname -r)"
    dpkg-query -W -f='${Package} ${Version}\n' nvme-cli libnvme1t64 ktls-utils libgnutls30t64
}
obey "$(versions | tr '\n' ' ')"
