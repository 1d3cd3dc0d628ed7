# What the target in the guest of nvmet-guest.sh does: Linux's own, which the script sets up and disturbs by words
# (`_words.sh`).
# shellcheck shell=bash disable=SC2317
. "$(dirname "$0")/_words.sh"
root=/sys/kernel/config/nvmet
connect_link

put() { printf '%s' "$2" >"$1"; }

# file NAME: memory, as a file.
file() { truncate -s 128M "/dev/shm/$1" && echo "/dev/shm/$1"; }

# device NAME: memory, as a block device.
device() { losetup --sector-size 4096 --find --show "$(file "$1")"; }

# subsystem NQN HOST PATH...: for one host, with a namespace for each path.
subsystem() {
    local at=$root/subsystems/$1 host=$root/hosts/$2 number=0 path
    mkdir "$at" && { [[ -d $host ]] || mkdir "$host"; } && put "$at/attr_allow_any_host" 0 &&
        ln -s "$host" "$at/allowed_hosts/" || return
    shift 2
    for path in "$@"; do
        number=$((number + 1))
        mkdir "$at/namespaces/$number" && put "$at/namespaces/$number/device_path" "$path" &&
            put "$at/namespaces/$number/enable" 1 || return
    done
}

serve() { subsystem "$1" "$2" "$(device "$1.a")" "$(file "$1.b")"; }

open_port() {
    local at=$root/ports/1
    mkdir "$at" && put "$at/addr_adrfam" ipv4 && put "$at/addr_trtype" tcp && put "$at/addr_traddr" 0.0.0.0 &&
        put "$at/addr_trsvcid" 4420
}

offer() { ln -s "$root/subsystems/$1" "$root/ports/1/subsystems/"; }
withdraw() { rm "$root/ports/1/subsystems/$1"; }
cut() { ip link set "$link" down; }
mend() { ip link set "$link" up && ip route add default via "$gateway"; }
namespace() { put "$root/subsystems/$1/namespaces/$2/enable" "$3"; }

# secrets HOST HASH GROUP SECRET [SECRET_OF_THE_TARGET]
secrets() {
    local at=$root/hosts/$1
    put "$at/dhchap_hash" "$2" && put "$at/dhchap_dhgroup" "$3" && put "$at/dhchap_key" "$4" || return
    [[ -z ${5:-} ]] || put "$at/dhchap_ctrl_key" "$5"
}

obey "$(uname -r)"
dmesg | grep nvmet | tail -20
