# What guests begin with that do as a script on this machine tells them (`guest_boot` of _guest.sh). Sourced; what there
# is to do are the functions of whoever sources it.
# shellcheck shell=bash
set -u
# This machine, as the guest sees it.
gateway=10.0.2.2

connect_link() {
    link=$(find /sys/class/net -mindepth 1 -not -name lo -printf '%f\n' | head -1)
    ip addr add 10.0.2.15/24 dev "$link"
    ip link set "$link" up
    ip route add default via "$gateway"
}

# obey WORD...: says that it is ready, and with WORD what it is; then does what comes by the second serial line, words of
# a command in each line. Each is answered with "done" and what it printed, or with what went wrong.
obey() {
    local -a words
    local said
    stty -F /dev/ttyS1 raw -echo
    exec 3<>/dev/ttyS1
    echo "ready $*" >&3
    while read -ru 3 -a words; do
        echo "guest: ${words[*]}"
        [[ ${words[0]} != end ]] || break
        if said=$("${words[@]}" 2>&1 3>&-); then said="done $said"; else said="failed: $said"; fi
        echo "${said//$'\n'/ }" >&3
    done
}
