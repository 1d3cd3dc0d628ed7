//! The orders that a volume map must keep. Each is tested by enumerating scenarios in which a map without it fails.
//!
//! The scenarios are those of the model `volume_map.py` of the design. Blocks are tokens, clusters have two blocks.

use super::scenario::Scenario;
use super::world::Op;

const V: &str = "V";
const W: &str = "W";

fn base(clusters: u32, setup: Vec<Op>, ops: Vec<(Op, Vec<usize>)>) -> Scenario {
    let (cluster_blocks, leaf_entries, rings) = (2, 1, 2);
    let (more, then) = (Vec::new(), Vec::new());
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
}

fn now(op: Op) -> (Op, Vec<usize>) {
    (op, Vec::new())
}

fn after(op: Op, earlier: &[usize]) -> (Op, Vec<usize>) {
    (op, earlier.to_vec())
}

fn create(blocks: u64) -> Op {
    Op::Create(V, blocks)
}

fn create_w(blocks: u64) -> Op {
    Op::Create(W, blocks)
}

fn write(block: u64) -> Op {
    Op::Write(V, block, 1, 0, false)
}

fn write_on(volume: &'static str, block: u64, core: u8) -> Op {
    Op::Write(volume, block, 1, core, false)
}

fn full(volume: &'static str, cluster: u64) -> Op {
    Op::Write(volume, cluster * 2, 2, 0, false)
}

fn discard(volume: &'static str, block: u64) -> Op {
    Op::Discard(volume, block, 1)
}

fn unmap(volume: &'static str, cluster: u64) -> Op {
    Op::Discard(volume, cluster * 2, 2)
}

fn read(volume: &str, block: u64) -> Op {
    Op::Read(volume.into(), block)
}

fn fill(volume: &str) -> Op {
    Op::Fill(volume.into(), 0)
}

fn snap_as(snapshot: &str) -> Op {
    Op::Snap(vec![("V".into(), snapshot.into())])
}

fn snap() -> Op {
    snap_as("S")
}

fn group() -> Op {
    Op::Snap(vec![("V".into(), "S".into()), ("W".into(), "T".into())])
}

fn clone() -> Op {
    Op::Clone("S".into(), "C".into())
}

fn delete(volume: &str) -> Op {
    Op::Delete(volume.into())
}

fn roll() -> Op {
    Op::Roll("V".into(), "S".into())
}

fn size(blocks: u64) -> Op {
    Op::Size("V".into(), blocks)
}

/// Checks every interleaving and every crash of these scenarios.
fn hold(scenarios: impl IntoIterator<Item = Scenario>) {
    for scenario in scenarios {
        let states = scenario.exhaust();
        assert!(states > 3, "the scenario does something");
    }
}

#[test]
fn order_01_exhaustive_data_are_stable_before_their_record() {
    hold([base(3, vec![create(2)], vec![now(write(0)), now(write(1)), now(Op::Flush)])]);
}

#[test]
fn order_02_exhaustive_a_first_touch_is_answered_when_its_record_is_stable() {
    hold([base(3, vec![create(2)], vec![now(write(0)), after(read(V, 0), &[0])])]);
}

#[test]
fn order_03_exhaustive_a_freed_cluster_is_used_again_when_its_record_is_stable() {
    let setup = vec![create(2), create_w(2), full(V, 0), snap(), write(0), delete("S")];
    let ops = vec![now(fill(V)), now(write_on(W, 1, 0)), now(read(V, 1))];
    let whole = vec![now(unmap(V, 0)), now(write_on(W, 0, 0))];
    hold([base(2, setup, ops), base(1, vec![create(2), create_w(2), full(V, 0)], whole)]);
}

#[test]
fn order_04_exhaustive_a_freed_cluster_is_used_again_when_older_ios_are_back() {
    let ops = vec![now(unmap(V, 0)), now(read(V, 0)), now(write_on(W, 0, 0))];
    hold([base(1, vec![create(2), create_w(2), full(V, 0)], ops)]);
}

#[test]
fn order_05_exhaustive_nothing_is_copied_before_writes_older_than_the_cut_are_back() {
    let ops = vec![now(write(0)), now(snap()), now(write(1)), after(fill(V), &[2])];
    let copy = vec![now(write(1)), now(discard(V, 0)), now(snap()), after(write(0), &[1])];
    hold([base(3, vec![create(2), full(V, 0)], ops), base(4, vec![create(2), full(V, 0)], copy)]);
}

#[test]
fn order_06_exhaustive_all_cores_hold_before_one_goes_on() {
    let setup = vec![create(2), create_w(4), full(V, 0), full(W, 1)];
    let one = vec![now(write(0)), after(write_on(W, 2, 1), &[0]), now(group())];
    let other = vec![now(write_on(W, 2, 1)), after(write(0), &[0]), now(group())];
    let records = base(4, vec![create(4)], vec![now(write(0)), now(snap())]);
    hold([base(5, setup.clone(), one), base(5, setup, other), records]);
}

#[test]
fn order_07_exhaustive_a_snapshot_is_reported_when_older_writes_are_back() {
    hold([base(3, vec![create(2), full(V, 0)], vec![now(write(0)), now(snap())])]);
}

#[test]
fn order_08_exhaustive_a_discarded_block_of_a_clone_is_zero() {
    let ops = vec![now(discard("C", 0)), after(Op::Flush, &[0]), after(read("C", 0), &[0])];
    hold([base(3, vec![create(2), full(V, 0), snap(), clone()], ops)]);
}

#[test]
fn order_09_exhaustive_the_log_is_trimmed_when_the_root_is_stable() {
    let ops = vec![now(snap()), after(write(0), &[0]), now(Op::Checkpoint)];
    hold([
        base(4, vec![create(2), full(V, 0)], ops),
        base(3, vec![create(2)], vec![now(write(0)), now(write(1)), now(Op::Checkpoint)]),
    ]);
}

#[test]
fn order_10_exhaustive_the_log_reaches_back_to_the_older_root() {
    let ops = vec![
        now(write(0)),
        after(Op::Flush, &[0]),
        after(Op::Checkpoint, &[0]),
        after(write(1), &[2]),
        after(Op::Checkpoint, &[3]),
    ];
    hold([base(3, vec![create(2)], ops)]);
}

#[test]
fn order_11_exhaustive_sharing_ends_when_its_record_is_stable() {
    let setup = vec![create(2), full(V, 0), snap(), clone(), delete("S"), write_on("C", 0, 0)];
    let ops = vec![now(fill("C")), now(write(1)), now(read("C", 1))];
    hold([base(3, setup, ops)]);
}

#[test]
fn order_12_exhaustive_sharing_ends_when_older_ios_are_back() {
    let setup = vec![create(2), full(V, 0), snap(), clone(), delete("S")];
    let by_write = vec![now(full("C", 0)), now(write(0)), now(read("C", 0))];
    let by_deletion = vec![now(delete("S")), now(write(0)), now(read("S", 0))];
    hold([base(3, setup, by_write), base(3, vec![create(2), full(V, 0), snap()], by_deletion)]);
}

#[test]
fn order_13_exhaustive_a_base_is_a_reference() {
    let setup = vec![create(2), full(V, 0), snap(), clone(), delete("S"), write(0)];
    let ops = vec![now(write_on("C", 1, 0)), now(read(V, 1))];
    hold([base(3, setup, ops)]);
}

#[test]
fn order_14_exhaustive_an_allocated_cluster_is_zero() {
    let setup = vec![create(2), full(V, 0), delete(V)];
    let ops = vec![now(Op::Create(W, 2)), after(Op::Allocate(W, 0), &[0]), after(read(W, 0), &[1])];
    hold([base(1, setup, ops)]);
}

#[test]
fn order_15_exhaustive_the_map_is_looked_up_again_before_the_record() {
    let ops = vec![now(write(0)), now(snap()), after(write(2), &[1])];
    let pair = base(4, vec![create(4), full(V, 1)], ops);
    let again = snap_as("Q");
    let setup = vec![create(2), full(V, 0), snap(), snap_as("R"), full(V, 0), again];
    let roll_back = base(4, setup, vec![now(write(0)), now(roll())]);
    hold([Scenario { leaf_entries: 2, ..pair }, roll_back]);
}

#[test]
fn order_16_exhaustive_writes_use_a_changed_entry_when_its_record_is_stable() {
    let ops = vec![now(write(0)), now(write(0)), after(Op::Flush, &[1])];
    hold([base(3, vec![create(2)], ops)]);
}

#[test]
fn order_17_exhaustive_a_discard_is_answered_when_its_record_is_stable() {
    let ops = vec![now(discard(V, 0)), after(write(0), &[0]), after(Op::Flush, &[1])];
    let cloned = vec![now(discard("C", 0)), after(Op::Flush, &[0]), after(read("C", 0), &[0])];
    hold([
        base(3, vec![create(2), full(V, 0)], ops),
        base(3, vec![create(2), full(V, 0), snap(), clone()], cloned),
    ]);
}

#[test]
fn order_18_exhaustive_a_cut_holds_the_records_of_older_writes() {
    let setup = vec![create(4), full(V, 0), full(V, 1), snap_as("R")];
    let first = base(6, setup.clone(), vec![now(write(0)), now(snap())]);
    let cut = base(6, setup.clone(), vec![now(write(2)), now(snap())]);
    let checkpoint = base(6, setup, vec![now(write(0)), now(snap()), now(Op::Checkpoint)]);
    hold([first, cut, checkpoint]);
}

#[test]
fn order_19_exhaustive_writes_are_released_when_the_record_is_stable() {
    let mut setup = vec![create(8), full(V, 0), full(V, 1), full(V, 2), full(V, 3), snap()];
    setup.extend([write(2), write(6)]);
    let newer = base(9, setup, vec![now(roll()), now(write_on(V, 7, 1))]);
    let setup = vec![create(6), full(V, 0), full(V, 1), full(V, 2), snap(), write(2), write(4)];
    let older = base(8, setup, vec![now(write(0)), now(roll())]);
    hold([Scenario { leaf_entries: 2, ..newer }, Scenario { leaf_entries: 2, ..older }]);
}

#[test]
fn order_20_exhaustive_numbers_go_on_above_every_cut() {
    let scenario = base(4, vec![create(4)], vec![now(write(2)), now(snap())]);
    hold([Scenario { then: vec![write(3)], ..scenario }]);
}

#[test]
fn order_21_exhaustive_rollbacks_deletions_and_resizes_carry_cuts() {
    let scenario = base(4, vec![create(4), full(V, 1), snap()], vec![now(roll())]);
    let rolled = Scenario { more: vec![write(2)], then: vec![write(3)], ..scenario };
    // Leaves of ring 1 are given up before the leader records the size or the end.
    let whole = || vec![create(4), full(V, 0), full(V, 1)];
    let deleted = base(3, whole(), vec![now(delete(V)), now(read(V, 2))]);
    let smaller = base(3, whole(), vec![now(size(2)), now(write(0))]);
    // A write of ring 1 precedes the larger size.
    let larger = base(4, vec![create(4)], vec![now(write(2)), after(size(6), &[0])]);
    hold([rolled, deleted, smaller, larger]);
}

#[test]
fn order_22_exhaustive_drives_are_flushed_before_a_snapshot_is_reported() {
    let ops = vec![now(write(0)), after(snap(), &[0])];
    hold([base(3, vec![create(2), full(V, 0)], ops)]);
}

#[test]
fn order_23_exhaustive_leaves_are_given_up_when_the_deletion_is_stable() {
    let setup = vec![create(4), create_w(2), full(V, 0), full(V, 1)];
    hold([base(3, setup, vec![now(delete(V)), now(write_on(W, 0, 0))])]);
}

#[test]
fn order_24_exhaustive_a_smaller_size_is_recorded_after_the_tail_is_freed() {
    let ops = vec![now(size(1)), after(size(4), &[0]), after(write(0), &[0])];
    let scenario = base(3, vec![create(4), full(V, 0), full(V, 1)], ops);
    hold([Scenario { then: vec![size(4)], ..scenario }]);
}

#[test]
fn order_25_exhaustive_a_checkpoint_is_one_instant_of_each_ring() {
    let setup = vec![create(4), full(V, 0), full(V, 1), snap(), clone(), delete("S")];
    let ops = vec![now(write(0)), after(full("C", 1), &[0]), now(Op::Checkpoint)];
    let whole = Scenario { leaf_entries: 2, ..base(5, setup, ops) };
    // Every change may come between the pieces of the root.
    hold([Scenario { root_piece: 80, ..whole.clone() }, whole]);
}

#[test]
fn order_26_exhaustive_a_root_is_written_when_every_ring_is_stable_up_to_its_floor() {
    let setup = vec![create(2), full(V, 0), snap()];
    let scenario = base(3, setup, vec![now(delete("S")), now(Op::Checkpoint)]);
    hold([Scenario { then: vec![read(V, 0)], ..scenario }]);
}

#[test]
fn order_27_exhaustive_a_leaf_and_its_copies_have_one_owner() {
    let setup = vec![create(2), full(V, 0), snap(), clone(), delete("S")];
    hold([base(4, setup, vec![now(write_on("C", 0, 0)), now(full(V, 0))])]);
}

#[test]
fn order_28_exhaustive_a_cluster_goes_to_another_ring_below_the_floors() {
    let scenario = base(1, vec![create(4)], vec![now(unmap(V, 1)), after(write(1), &[0])]);
    let without = Scenario { more: vec![write(2)], ..scenario };
    let roots = |last: usize| {
        let mut ops = vec![now(unmap(V, 1))];
        ops.extend((0..last).map(|at| after(Op::Checkpoint, &[at])));
        ops.push(after(write(1), &[last]));
        ops
    };
    let with = |last| Scenario { ops: roots(last), ..without.clone() };
    let scenarios = [with(1), with(2)];
    let world = scenarios[1].run_in_order();
    assert_eq!(world.failed, [], "after two roots, the cluster goes to the other ring");
    hold([without.clone()].into_iter().chain(scenarios));
}

#[test]
fn order_29_exhaustive_a_start_with_other_owners_writes_roots_first() {
    let scenario = base(4, vec![create(4)], vec![now(write(2))]);
    let fewer = Scenario { then: vec![full(V, 1)], rings: 1, ..scenario };
    hold([fewer.clone(), Scenario { rings: 3, ..fewer }]);
}

#[test]
fn order_30_exhaustive_what_waits_is_in_no_epoch() {
    let queue = vec![now(write(1)), now(snap()), now(write(0))];
    let smaller = vec![now(write(2)), now(size(1))];
    hold([base(4, vec![create(2), write(0)], queue), base(3, vec![create(4)], smaller)]);
}

#[test]
fn order_31_exhaustive_what_waits_for_space_is_in_no_epoch() {
    let setup = vec![create(4), create_w(2), full(V, 0), full(W, 0)];
    let one = base(2, setup, vec![now(write(2)), now(unmap(W, 0))]);
    let setup = vec![create(2), full(V, 0), snap(), clone(), delete("S"), full(V, 0)];
    let ops = vec![now(discard("C", 0)), now(write(0)), now(write_on("C", 0, 0))];
    hold([one, base(2, setup, ops)]);
}

#[test]
fn order_32_exhaustive_an_io_enters_its_epoch_before_it_looks_at_the_map() {
    let cut = base(3, vec![create(2), full(V, 0)], vec![now(write(0)), now(snap())]);
    let setup = vec![create(2), create_w(2), full(V, 0)];
    let reuse = vec![now(unmap(V, 0)), now(write(0)), now(full(W, 0))];
    let reads = vec![now(unmap(V, 0)), now(read(V, 0)), now(full(W, 0))];
    hold([cut, base(1, setup.clone(), reuse), base(1, setup, reads)]);
}

#[test]
fn exhaustive_a_new_volume_is_written_when_its_record_is_stable() {
    let setup = vec![create(2), full(V, 0), snap()];
    let cloned = vec![now(clone()), now(write_on("C", 0, 1))];
    hold([base(4, setup, cloned), base(4, Vec::new(), vec![now(create(4)), now(write(2))])]);
}

#[test]
fn exhaustive_nothing_holds_a_cluster_while_it_waits_for_a_cut() {
    let setup = vec![create(4), full(V, 0), snap(), write(1)];
    hold([base(6, setup, vec![now(size(1)), now(fill(V))])]);
}
