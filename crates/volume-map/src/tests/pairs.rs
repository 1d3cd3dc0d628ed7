//! Pairs of operations on pools with whole, partial and based clusters, each with every interleaving and crash.

use strake_fuzz::{Chance, runs};

use super::scenario::Scenario;
use super::world::Op;

/// Number of pairs; the variable STRAKE_FUZZ_RUNS sets a larger number.
const PAIRS: u64 = 24;

fn write(volume: &'static str, block: u64, core: u8) -> Op {
    Op::Write(volume, block, 1, core, false)
}

fn full(volume: &'static str, cluster: u64) -> Op {
    Op::Write(volume, cluster * 2, 2, 0, false)
}

fn snap(volume: &str, snapshot: &str) -> Op {
    Op::Snap(vec![(volume.into(), snapshot.into())])
}

fn clone(copy: &str) -> Op {
    Op::Clone("S".into(), copy.into())
}

fn pools() -> [Vec<Op>; 3] {
    let new = || vec![Op::Create("V", 4), Op::Create("W", 4)];
    let copies = || vec![snap("V", "S"), clone("C")];
    let whole = [full("V", 0), full("V", 1)].into_iter().chain(copies());
    let partial = [write("V", 0, 0)].into_iter().chain(copies());
    let based = [full("V", 0)].into_iter().chain(copies());
    [
        new().into_iter().chain(whole).chain([full("W", 0)]).collect(),
        new().into_iter().chain(partial).chain([write("C", 1, 0), write("W", 1, 0)]).collect(),
        new()
            .into_iter()
            .chain(based)
            .chain([write("C", 0, 0), write("V", 1, 0), write("V", 2, 0)])
            .collect(),
    ]
}

fn menu() -> Vec<Op> {
    let group = vec![("V".into(), "P".into()), ("W".into(), "Q".into())];
    vec![
        write("V", 0, 0),
        write("V", 1, 0),
        write("V", 2, 1),
        write("V", 4, 0),
        write("C", 0, 0),
        write("C", 1, 0),
        write("W", 0, 0),
        full("V", 0),
        full("C", 0),
        Op::Discard("V", 0, 1),
        Op::Discard("C", 0, 1),
        Op::Discard("C", 1, 1),
        Op::Discard("V", 0, 2),
        Op::Discard("C", 0, 2),
        Op::Read("V".into(), 0),
        Op::Read("C".into(), 1),
        Op::Snap(group),
        snap("C", "P"),
        clone("D"),
        Op::Delete("S".into()),
        Op::Delete("C".into()),
        Op::Delete("V".into()),
        Op::Roll("V".into(), "S".into()),
        Op::Size("V".into(), 1),
        Op::Size("V".into(), 6),
        Op::Fill("V".into(), 0),
        Op::Fill("C".into(), 0),
        Op::Checkpoint,
    ]
}

/// True for operations on whole volumes. The oracle permits one at a time.
fn is_of_volumes(op: &Op) -> bool {
    matches!(op, Op::Snap(_) | Op::Clone(..) | Op::Delete(_) | Op::Roll(..) | Op::Size(..))
}

#[test]
fn random_pairs_of_operations_hold_in_every_interleaving() {
    let (pools, menu) = (pools(), menu());
    runs(PAIRS, |seed| {
        let mut chance = Chance::new(seed);
        let setup = pools[chance.below(pools.len())].clone();
        let (one, other) = (&menu[chance.below(menu.len())], &menu[chance.below(menu.len())]);
        if is_of_volumes(one) && is_of_volumes(other) {
            return;
        }
        let ops = vec![(one.clone(), Vec::new()), (other.clone(), Vec::new())];
        let leaf_entries = 1 + chance.below(2) as u16;
        let (clusters, cluster_blocks, rings) = (7, 2, 2);
        let (more, then) = (Vec::new(), vec![write("W", 1, 0)]);
        Scenario {
            clusters,
            cluster_blocks,
            leaf_entries,
            setup,
            more,
            ops,
            then,
            rings,
            root_piece: usize::MAX,
        }
        .exhaust();
    });
}
