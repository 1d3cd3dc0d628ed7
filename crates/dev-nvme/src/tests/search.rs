//! A random search for a change of blocks after its failure was reported.
//!
//! The model executes fetched commands at random, in parts and out of order, also while it does not answer, and until
//! it is not ready. A write that was answered as failed must not change a block later.

use super::world::{World, bytes_of};
use crate::lifecycle::Phase;
use strake_block::{BufPool, Completion, Durability, Op, Sg, Token};
use strake_nvme_model::{Fault, NamespaceSpec, PERMANENT, Pace, Spec};
use strake_testkit::Chance;
use strake_units::{Lba, Nanos};

/// Blocks of a write, and the number of writes in a world.
const BLOCKS: u64 = 4;
const WRITES: u64 = 12;
/// The number of seeds of an ordinary run. `STRAKE_NVME_SEEDS` sets another number.
const SEEDS: u64 = 600;

/// Possible faults of a world, in any combination.
const FAULTS: [Fault; 12] = [
    Fault::LostCompletion,
    Fault::RepeatedCompletion,
    Fault::UnknownCid,
    Fault::WrongTurn,
    Fault::StalePhase,
    Fault::TornCompletion,
    Fault::SilentIo,
    Fault::Silent,
    Fault::NeverDisabled,
    Fault::FatalInReset,
    Fault::ResetRefused,
    Fault::NeverReady,
];

/// The state of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Waits,
    Succeeded,
    /// The write failed, with this content in its blocks.
    Failed(Vec<u8>),
}

fn content(world: &World, write: u64) -> Vec<u8> {
    let model = world.drive.model();
    let blocks = (0..BLOCKS).flat_map(|block| model.block(1, write * BLOCKS + block).to_vec());
    blocks.collect()
}

/// Returns the first byte of the data of a write.
const fn byte(write: u64) -> u8 {
    write as u8 + 1
}

/// Records a completion. The buffer belongs to the client again, so the client fills it with other data.
fn note(world: &mut World, fates: &mut [Fate], done: Completion) {
    let write = done.token.0;
    fates[write as usize] = match done.result {
        Ok(()) => Fate::Succeeded,
        Err(_) => Fate::Failed(content(world, write)),
    };
    let Op::Write { data, .. } = done.op else { panic!("only writes are sent") };
    for part in data.into_parts() {
        let mut buf = part.reclaim().expect("nothing else has it");
        buf.as_mut_slice().fill(0xdd);
        world.pool.put(buf);
    }
}

/// Runs one world with writes, faults and a long time. Returns the number of failed writes.
fn world_of(seed: u64) -> usize {
    let mut chance = Chance::new(seed);
    let seconds =
        |chance: &mut Chance, most: usize| Nanos::MILLI.times(chance.below(most * 1000) as u64);
    let spec = Spec {
        namespaces: vec![NamespaceSpec::new(WRITES * BLOCKS, 9)],
        disable_time: seconds(&mut chance, 10),
        ready_time: seconds(&mut chance, 3),
        queues_max: 2,
        entries_max: 8,
        write_cache: false,
        ..Spec::new(0)
    };
    let pool = BufPool::new(WRITES as usize, 4096);
    let mut world = World::with_pool(spec, Pace::Prompt, pool).expect("it can be used");
    world.step = Nanos(100 * Nanos::MILLI.0);
    world.run_until("ready", |world| world.phase() == Phase::Live);
    world.drive.model().set_pace(Pace::random(seed));
    for _ in 0..=chance.below(3) {
        let occasions = if chance.one_in(2) { PERMANENT } else { 1 + chance.below(3) as u32 };
        world.drive.model().arm(chance.pick(&FAULTS), occasions);
    }
    let mut client = world.open(16);
    let mut fates = vec![Fate::Waits; WRITES as usize];
    for write in 0..WRITES {
        let data = Sg::from(world.filled(byte(write), BLOCKS as usize * 512).freeze());
        let op = Op::Write { at: Lba(write * BLOCKS), data, durability: Durability::Normal };
        client.submit(Token(write), op);
    }
    let calm_at = 100 + chance.below(500);
    for turn in 0..900 {
        if turn == calm_at {
            FAULTS.iter().for_each(|fault| world.drive.model().arm(*fault, 0));
        }
        if turn == calm_at + 250 && world.phase() == Phase::Unfenced {
            // An operator cuts the power. The model has no cache to lose.
            world.drive.lose_power();
        }
        world.turn_with(&mut client);
        for done in std::mem::take(&mut client.done) {
            note(&mut world, &mut fates, done);
        }
        if turn > calm_at && !fates.contains(&Fate::Waits) {
            break;
        }
    }
    judge(&world, &fates, seed);
    fates.iter().filter(|fate| matches!(fate, Fate::Failed(_))).count()
}

fn judge(world: &World, fates: &[Fate], seed: u64) {
    for (write, fate) in (0..).zip(fates) {
        let now = content(world, write);
        match fate {
            Fate::Waits => {
                panic!("seed {seed}: write {write} is never answered: {:?}", world.keeper.reason())
            }
            Fate::Succeeded => {
                let is_there = now.iter().all(|is| *is == byte(write));
                assert!(is_there, "seed {seed}: write {write} has not happened, or changed later");
            }
            Fate::Failed(then) => {
                assert!(
                    *then == now,
                    "seed {seed}: write {write} changed blocks after it had failed"
                );
            }
        }
    }
    world.assert_clean();
}

#[test]
fn random_faults_never_let_a_write_happen_after_its_failure() {
    let seeds = std::env::var("STRAKE_NVME_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let failed: usize = (0..seeds.unwrap_or(SEEDS)).map(world_of).sum();
    assert!(failed > 50, "only {failed} writes failed: the search shows nothing");
}

/// Reads, writes and flushes in any order of completion, without faults: each is answered once, with its own data.
#[test]
fn random_orders_of_completion_are_distinguished() {
    for seed in 0..100 {
        let mut chance = Chance::new(seed);
        let mut world =
            World::ready(Spec { entries_max: 2 + chance.below(9) as u16, ..Spec::new(32) });
        world.drive.model().set_pace(Pace::random(seed));
        let mut client = world.open(32);
        for at in 0..16 {
            let op = world.write(at, at as u8 + 1, 4096);
            client.submit(Token(at), op);
        }
        world.run_with(&mut client, 16);
        for at in 0..16 {
            let op = world.read(at, 4096);
            client.submit(Token(100 + at), op);
        }
        world.run_with(&mut client, 32);
        for done in client.done.drain(..) {
            done.result.expect("all work");
            if matches!(done.op, Op::Read { .. }) {
                let byte = (done.token.0 - 100) as u8 + 1;
                assert!(bytes_of(done.op).iter().all(|is| *is == byte), "seed {seed}");
            }
        }
        assert_eq!(client.queue.readiness(), strake_block::Readiness::Idle);
        world.assert_clean();
    }
}
