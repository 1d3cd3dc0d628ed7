//! Enumerates a scenario: every interleaving of its operations, and a crash in every state.

use std::collections::BTreeSet;

use strake_fuzz::Chance;

use super::oracle::Set;
use super::world::{Op, World};
use crate::Shape;

/// The initial state, the concurrent operations, and the operations after each crash.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) clusters: u32,
    pub(crate) cluster_blocks: u16,
    pub(crate) leaf_entries: u16,
    /// Operations before: stable, and in the root.
    pub(crate) setup: Vec<Op>,
    /// Operations before: stable, and in the log.
    pub(crate) more: Vec<Op>,
    /// Concurrent operations, each with the indices of those that must have been acknowledged before.
    pub(crate) ops: Vec<(Op, Vec<usize>)>,
    /// Operations after each crash.
    pub(crate) then: Vec<Op>,
    /// The number of rings after each crash.
    pub(crate) rings: u8,
    /// Bytes of one piece of a root.
    pub(crate) root_piece: usize,
}

/// Maximum states of a scenario; every one of them is visited.
const STATES_MAX: usize = 12_000;
/// Maximum crashes of each state.
const CRASHES_MAX: usize = 12;
/// The first operation of a scenario; earlier ones prepare it.
const FIRST: usize = 40;

impl Scenario {
    pub(crate) fn prepared(&self) -> World {
        let (clusters, rings) = (self.clusters, 2);
        let (cluster_blocks, leaf_entries) = (self.cluster_blocks, self.leaf_entries);
        let mut world = World::new(Shape { clusters, cluster_blocks, leaf_entries, rings });
        for (at, op) in self.setup.iter().enumerate() {
            if matches!(op, Op::Create(..)) {
                world.make_next_even();
            }
            world.run(1 + at, op.clone());
        }
        world.make_next_even();
        world.flush();
        world.oracle.durable |= world.oracle.acked;
        world.run(0, Op::Checkpoint);
        world.run(0, Op::Checkpoint);
        for (at, op) in self.more.iter().enumerate() {
            world.run(20 + at, op.clone());
        }
        world.root_piece = self.root_piece;
        world
    }

    /// Runs the operations one after the other, and returns the world after them.
    pub(crate) fn run_in_order(&self) -> World {
        let mut world = self.prepared();
        for (at, (op, _)) in self.ops.iter().enumerate() {
            world.run(FIRST + at, op.clone());
        }
        world
    }

    /// Visits every interleaving, equal states once, with crashes in every state. Returns the number of states.
    pub(crate) fn exhaust(&self) -> usize {
        self.exhaust_failing(0)
    }

    /// Does the same with failures: in every state each released step may fail, at most `faults` of them.
    pub(crate) fn exhaust_failing(&self, faults: u8) -> usize {
        let mut world = World { faults, ..self.prepared() };
        for (at, (op, after)) in self.ops.iter().enumerate() {
            let after = after.iter().fold(0, |set: Set, at| set | 1 << (FIRST + at));
            world.add(FIRST + at, op.clone(), after);
        }
        let mut chance = Chance::new(1);
        let (mut seen, mut crashed) = (BTreeSet::from([world.key()]), BTreeSet::new());
        let mut open = vec![world];
        while let Some(world) = open.pop() {
            if crashed.insert(world.remains()) {
                self.crash_everywhere(&world, &mut chance);
            }
            world.check_counts();
            let mut has_moved = false;
            for at in 0..world.moves() {
                let mut next = world.clone();
                if next.step(at) {
                    has_moved = true;
                    if seen.insert(next.key()) {
                        open.push(next);
                    }
                }
            }
            if !has_moved {
                self.rest(world, &mut seen, &mut open);
            }
            assert!(seen.len() <= STATES_MAX, "the scenario is too large");
        }
        seen.len()
    }

    fn rest(&self, mut world: World, seen: &mut BTreeSet<u64>, open: &mut Vec<World>) {
        if world.tasks.is_empty() {
            world.kept = world.oracle.acked;
            world.check();
            assert!(world.map.state.is_idle(), "an operation holds something after its end");
        } else {
            assert!(world.give_up_space(), "stuck: {:?}", world.tasks);
            if seen.insert(world.key()) {
                open.push(world);
            }
        }
    }

    fn crash_everywhere(&self, world: &World, chance: &mut Chance) {
        let choices = world.crash_choices();
        let all: usize = choices.iter().product();
        let pick = |mut number: usize| -> Vec<usize> {
            let digit = |count: &usize| {
                let digit = number % count;
                number /= count;
                digit
            };
            choices.iter().map(digit).collect()
        };
        let picks: Vec<Vec<usize>> = if all <= CRASHES_MAX {
            (0..all).map(pick).collect()
        } else {
            let mut draw = || choices.iter().map(|count| chance.below(*count)).collect();
            (0..CRASHES_MAX).map(|_| draw()).collect()
        };
        for pick in &picks {
            for is_kill in [false, true] {
                self.crash(world, pick, is_kill);
            }
        }
    }

    fn crash(&self, world: &World, pick: &[usize], is_kill: bool) {
        let crash = world.crash_of(pick, is_kill);
        let started = world.start(&crash, self.rings);
        let mut after = started.unwrap_or_else(|error| panic!("{crash:?}: {error}"));
        after.check();
        if self.then.is_empty() {
            return;
        }
        after.adopt();
        if after.map.state.roots_due > 0 {
            let at_once = after.start(&after.crash_of(&after.first_pick(), true), self.rings);
            at_once.expect("a start before the roots").check();
            let mut once = after.clone();
            once.run(0, Op::Checkpoint);
            let mut crash = once.crash_of(&once.first_pick(), true);
            crash.is_newest_lost = true;
            let between = once.start(&crash, self.rings);
            between.expect("a start between the roots").check();
            after.write_roots();
        }
        for (at, op) in self.then.iter().enumerate() {
            after.run(70 + at, op.clone());
        }
        for lost in [false, true] {
            let mut crash = after.crash_of(&after.first_pick(), true);
            crash.is_newest_lost = lost;
            let again = after.start(&crash, self.rings);
            again.unwrap_or_else(|error| panic!("then {crash:?}: {error}")).check();
        }
    }
}

impl World {
    /// Makes the first leaf of the next volume belong to ring 0, as in the model.
    fn make_next_even(&mut self) {
        let next = self.map.state.tables.next_volume;
        if next % 2 == 1 {
            let names = ["D1", "D3", "D5", "D7", "D9", "D11"];
            self.run(0, Op::Create(names[next as usize / 2], 1));
        }
    }

    /// Returns the crash that loses no record of the log.
    pub(crate) fn first_pick(&self) -> Vec<usize> {
        let choices = self.crash_choices();
        let rings = self.map.state.rings.len();
        let pick = choices.iter().enumerate();
        pick.map(|(at, count)| if at < rings { count - 1 } else { 0 }).collect()
    }
}
