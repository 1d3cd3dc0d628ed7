#!/usr/bin/env bash
# kill -9 of the daemon in the middle of commands: create, export, fail, replace, unload and destroy, at random
# moments. After each restart the command is done or not done, doing it again works, the drives are usable, and
# an array beside it that has data keeps every byte.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

rounds=5
seed=${STRAKE_SEED:-$RANDOM}
RANDOM=$seed
say "seed $seed (STRAKE_SEED=$seed repeats the choices, not the timing)"

client() { expect 0 python3 "$e2e/_nbd.py" "$@" --socket "$work/nbd.sock" --export tank --model "$work/model"; }

is_known() {
    expect_health strake array list --output json
    [[ $(json "any(a['name'] == '$1' for a in it['arrays'])") == true ]]
}

# expect_health COMMAND...: any health will do, not being able to tell will not.
expect_health() {
    run "$@"
    [[ $code -le 2 ]] || fail "exit code $code: $*"
}

killed=0
done_first=0

# An array that loses a member by hand a moment after it was written, and its daemon right then, cannot tell an idle
# region from one in doubt: it refuses to start and says so (docs/decisions/0005). Nothing was being written here, so
# accepting is right, and everything is verified afterwards all the same.
refuses_dirty() { [[ $(array_value "$1" "it['reason']" 2>/dev/null) == *"stopped without warning"* ]]; }
back_or_refusing() { is_offered "$1" || refuses_dirty "$1"; }
accepted=0
returned() {
    within 30 "array $1 is back by itself, or says why not" back_or_refusing "$1"
    if ! is_offered "$1"; then
        run strake array import "$1" --degraded --accept-loss
        [[ $code -le 1 ]] || { cat "$work/err" >&2; fail "import --accept-loss ended with $code"; }
        accepted=$((accepted + 1))
        restarted "$1"
    fi
}

# killed_during COMMAND...: starts it and kills the daemon up to 16 ms later, the time that most take, then starts the daemon again.
killed_during() {
    "$@" >"$work/command.out" 2>"$work/command.err" &
    local command=$! outcome=0
    sleep "$(printf '0.%04d' $((RANDOM % 160)))"
    kill9_daemon
    wait "$command" || outcome=$?
    # Either it was told that it is done, or it cannot tell.
    case $outcome in
        0) done_first=$((done_first + 1)) ;;
        4) ;;
        *) cat "$work/command.err" >&2; fail "a command ended with $outcome when the daemon was killed: $*" ;;
    esac
    killed=$((killed + 1))
    acknowledged=$([[ $outcome -eq 0 ]] && echo yes || echo no)
    # A drive that was being given to the array when the daemon was killed may carry no label yet, and is waited for.
    start_daemon --assemble-timeout 5
    returned tank
}

make_drives 5 64MiB
start_daemon
expect 0 strake array create tank --level 6 --drives "$drive_list" --strip 64KiB --block-size 4096
expect 0 strake export create tank --via nbd --listen "unix:$work/nbd.sock"
client crash --windows 0:2048 --after 300 --kill "$daemon_pid" --seed "$seed"
reap_daemon
start_daemon
restarted tank
client verify

tank=("${drives[@]}")
make_drives 4 64MiB other
for ((round = 1; round <= rounds; round++)); do
    create=(strake array create second --level 5 --drives "$drive_list" --strip 64KiB)
    killed_during "${create[@]}"
    if ! is_known second; then
        [[ $acknowledged == no ]] || fail "round $round: an array that was reported created is gone"
        # Labels of an array that nobody recorded may be left; they are named, and can be given up.
        run "${create[@]}"
        [[ $code -eq 0 ]] || expect 0 "${create[@]}" --overwrite --yes
    fi
    expect 0 strake array show second

    killed_during strake export create second --via nbd --listen "unix:$work/second.sock"
    expect 0 strake export create second --via nbd --listen "unix:$work/second.sock"
    expect 0 python3 "$e2e/_nbd.py" info --socket "$work/second.sock" --export second

    member=$((round % 5))
    killed_during strake array fail tank --member "$member" --accept redundancy --yes
    expect 0 strake array fail tank --member "$member" --accept redundancy --yes
    client verify
    truncate -s 64MiB "$work/new$round"
    replace=(strake array replace tank --member "$member" --with "$work/new$round")
    killed_during "${replace[@]}"
    run "${replace[@]}"
    [[ $code -eq 0 ]] || expect 0 "${replace[@]}" --overwrite --yes
    rm -f "${tank[member]}"
    tank[member]=$work/new$round
    wait_rebuilt tank
    client verify

    if ((round % 2)); then
        killed_during strake array unload second --force --yes
        if is_known second; then expect 0 strake array unload second --force --yes; fi
        expect 0 strake array import second --drives "$drive_list"
        expect 0 strake array destroy second --force --yes
    else
        killed_during strake array destroy second --force --yes
        if is_known second; then expect 0 strake array destroy second --force --yes; fi
    fi
    # Whatever was left halfway, the drives are free now, if need be by saying so.
    run strake array create third --level 5 --drives "$drive_list"
    [[ $code -eq 0 ]] || expect 0 strake array create third --level 5 --drives "$drive_list" --overwrite --yes
    expect 0 strake array destroy third --yes
done
expect 0 strake wait tank --for healthy --timeout 60s
expect 0 strake array fail tank --member 0 --accept redundancy --yes
expect 0 strake array fail tank --member 2 --accept redundancy --yes
client verify
waited=$(grep -c 'waits for member' "$work/straked.log") || true
say "$waited of the restarts waited for a drive without a label"
say "$accepted of them refused to start degraded right after writes, and were told to"
say "$killed times kill -9 during commands ($done_first were done before): each done or not done, $(<"$work/out")"
stop_daemon
