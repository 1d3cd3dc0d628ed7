#!/usr/bin/env bash
# An operator who errs, by seed, against the real daemon: random commands, mistakes, pulled and returned drives, kills
# and restarts under a verifying client. No acknowledged write is lost, no command silently lowers redundancy, there are
# never two arrays from one. More of the same in simulation: crates/sim.
# shellcheck source=tests/e2e/_lib.sh
. "$(dirname "$0")/_lib.sh"

seed=${STRAKE_SEED:-$RANDOM}
worlds=${OPERATOR_WORLDS:-4}
steps=${OPERATOR_STEPS:-60}
say "seeds from $seed (STRAKE_SEED=$seed repeats the choices, not the timing)"
for ((n = 0; n < worlds; n++)); do
    rm -rf "$work/world"
    mkdir "$work/world"
    run python3 "$e2e/_operator.py" --work "$work/world" --seed $((seed + n)) --steps "$steps"
    if [[ $code -ne 0 ]]; then
        cat "$work/err" >&2
        tail -n 30 "$work/world/straked.log" >&2
        fail "seed $((seed + n)) broke a promise"
    fi
    say "$(<"$work/out")"
done
