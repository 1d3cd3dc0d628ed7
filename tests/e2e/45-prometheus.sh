#!/usr/bin/env bash
# The rules and the dashboard of the package with a real Prometheus: each alert fires and resolves in its test; a drive
# that is pulled from a running array, or while the daemon does not run, fires alerts within 30 s; they fire again after
# kill -9, for a Prometheus that has just started, and resolve after the drives are replaced; every query of the dashboard
# is answered.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

need promtool prometheus nbdcopy
packaging=$(cd "$e2e/../../packaging" && pwd)
rules=$packaging/prometheus/strake.rules.yml

# Time from the loss of a drive to its alert.
limit=30

expect 0 promtool check rules "$rules"
promtool test rules "$packaging/prometheus/strake.test.yml" >"$work/trials" 2>&1 &
trials=$!

# free_port: a port that no program uses now.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
metrics_port=$(free_port)
port=$(free_port)

# ask COMMAND...: as the head of _prometheus.py says.
ask() { python3 "$e2e/_prometheus.py" "$port" "$@"; }

# is_settled: whether the server of this script answers, or has ended. Another server may answer on a port that was
# taken, so the log counts too.
is_settled() {
    kill -0 "$prometheus_pid" 2>/dev/null || return 0
    grep -q 'Server is ready to receive web requests' "$work/prometheus.log" 2>/dev/null && ask ready 2>/dev/null
}

# start_prometheus: a server without history, with the documented interval. Another program may take the port before the
# server does; then the server starts again on another port.
start_prometheus() {
    cat >"$work/prometheus.yml" <<YML
rule_files: ["$rules"]
scrape_configs:
  - job_name: strake
    scrape_interval: 5s
    static_configs:
      - targets: ["127.0.0.1:$metrics_port"]
YML
    expect 0 promtool check config "$work/prometheus.yml"
    local attempt
    for attempt in 1 2 3 4 5; do
        rm -rf "$work/tsdb"
        prometheus --config.file "$work/prometheus.yml" --storage.tsdb.path "$work/tsdb" \
            --web.listen-address "127.0.0.1:$port" >"$work/prometheus.log" 2>&1 &
        prometheus_pid=$!
        child_pids+=("$prometheus_pid")
        within 30 "Prometheus answers or ends" is_settled
        if kill -0 "$prometheus_pid" 2>/dev/null; then return; fi
        grep -q 'address already in use' "$work/prometheus.log" ||
            fail "Prometheus ended while it was starting: $(tail -n 3 "$work/prometheus.log")"
        say "attempt $attempt: port $port is in use"
        port=$(free_port)
    done
    fail "Prometheus found no free port in $attempt attempts"
}

stop_prometheus() {
    kill -TERM "$prometheus_pid"
    wait "$prometheus_pid" || true
}

# note_firing: writes the names of firing alerts to $work/firing.
note_firing() { ask firing >"$work/firing" 2>"$work/err"; }

# fires NAME...: whether all of these alerts fire.
fires() {
    local name
    note_firing || return 1
    for name in "$@"; do grep -qx "$name" "$work/firing" || return 1; done
}

# is_quiet: whether no alert fires, except the one about the start of the daemon, which resolves after five minutes.
is_quiet() { note_firing && [[ $(grep -vx StrakeDaemonRestarted "$work/firing") == "" ]]; }

# alarmed WHAT NAME...: until these alerts fire, which they must within the limit from now.
alarmed() {
    local what=$1 from
    shift
    from=$(now_ms)
    within "$limit" "$what: $* fire" fires "$@"
    say "$what: $* after $((($(now_ms) - from) / 100))00 ms"
}

# start: the daemon and a Prometheus that start together, as at boot.
start() {
    start_daemon --metrics "127.0.0.1:$metrics_port"
    start_prometheus
}

make_drives 6 64MiB
start
make_array tank 6 "${drives[@]:0:4}"
expect 0 strake wait tank --for resync --timeout 60s
expect 0 strake array scrub start tank --wait
dd if=/dev/urandom of="$work/data" bs=1M count=8 status=none
expect 0 nbdcopy "$work/data" "nbd+unix:///tank?socket=$work/tank.sock"
within 30 "the start of the daemon is reported" fires StrakeDaemonRestarted
is_quiet || fail "alerts fire for a healthy array: $(tr '\n' ' ' <"$work/firing")"

wait "$trials" || fail "promtool test rules: $(<"$work/trials")"
say "promtool: $(grep -c -- '- alert:' "$rules") alerts, each fires and resolves in its test"

mv "${drives[1]}" "$work/pulled"
alarmed "a drive is pulled" StrakeArrayDegraded StrakeMemberMissing

stop_prometheus
kill9_daemon
start
alarmed "kill -9 while degraded" StrakeArrayDegraded StrakeMemberMissing

stop_daemon
stop_prometheus
mv "${drives[2]}" "$work/pulled too"
from=$(now_ms)
start
alarmed "another drive is pulled before the start" StrakeArrayOffline StrakeMemberMissing
(($(now_ms) - from <= limit * 1000)) || fail "the alarm came later than $limit s after the start"
expect 0 strake array import tank --degraded
alarmed "the array starts without both" StrakeArrayNoRedundancy StrakeMemberMissing

# Files have no paths, no queues and no health pages.
empty=(strake_array_job strake_array_wait_seconds strake_drive_path strake_drive_reconnects strake_drive_queues
    strake_drive_held_requests strake_drive_wear_ratio strake_drive_spare_ratio strake_drive_temperature_celsius
    strake_drive_media_errors strake_drive_warning strake_drive_failure_predicted strake_hook
    strake_pool_ strake_limit_)
# The server shows an alert a moment before its series.
is_answered() { ask dashboard "$packaging/grafana/strake.json" "${empty[@]}" >"$work/out" 2>"$work/err"; }
within 10 "every query of the dashboard is answered" is_answered
say "dashboard: $(<"$work/out")"

expect 0 strake array replace tank --member 1 --with "${drives[4]}" --yes
expect 0 strake array replace tank --member 2 --with "${drives[5]}" --yes
wait_rebuilt tank
within 30 "the alerts resolve after the rebuild" is_quiet
say "the alerts resolved after the drives were replaced"
