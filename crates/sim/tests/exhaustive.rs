//! Every level, every tolerated set of lost members, every span: compares the engine with an array of bytes; and for
//! every set with one loss more, checks that reads fail or return the right bytes.
//!
//! Geometries are minimal (two blocks to a strip), so that the enumeration is complete.

use std::sync::Arc;

use strake_block::{
    BufMut, CompletionBatch, Durability, Io, IoError, IoQueue, Op, Sg, SgMut, Token,
};
use strake_dev_mem::{FaultPlan, Faulty, RamDevice};
use strake_engine::{Array, CreateSpec, Drive, Ids, Options, Pending, Replacing};
use strake_raid::{Geometry, Level, MemberState};
use strake_reactor::{Poller, Sleep, Turn};
use strake_sim::medium::PAGE;
use strake_sim::placement::{Asked, Placement};
use strake_sim::rng::Rng;
use strake_sim::textbook;
use strake_units::{
    BlockSize, CoreIndex, Lba, LbaRange, MemberIndex, MemberSet, Name, Nanos, Uuid,
};

/// Two blocks of 4 KiB.
const STRIP_BYTES: u32 = 8192;
const BLOCK: usize = 4096;

/// Turns after which a wait fails.
const TURNS_MAX: u32 = 200_000;

/// An array on removable RAM drives, driven by the test, with its expected content.
struct Rig {
    array: Array,
    pollers: Vec<Box<dyn Poller>>,
    queue: Box<dyn IoQueue>,
    batch: CompletionBatch,
    rams: Vec<RamDevice>,
    plans: Vec<FaultPlan>,
    geometry: Geometry,
    placement: Placement,
    /// The expected content of the first stripes.
    expected: Vec<u8>,
    rng: Rng,
    now: Nanos,
}

fn bytes_of_drive() -> u64 {
    strake_ondisk::HEAD_BYTES + strake_ondisk::TAIL_BYTES + (1 << 20)
}

fn pulled(seed: u64) -> (RamDevice, FaultPlan, Drive) {
    let ram = RamDevice::new(bytes_of_drive() / BLOCK as u64, BlockSize::B4096);
    let plan = FaultPlan::new(seed);
    let device = Arc::new(Faulty::new(ram.clone(), plan.clone()));
    (ram, plan, Drive { device, path: format!("ram{seed}") })
}

impl Rig {
    fn new(level: Level, members: usize, group_size: Option<u8>, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (mut rams, mut plans, mut drives) = (Vec::new(), Vec::new(), Vec::new());
        for at in 0..members {
            let (ram, plan, drive) = pulled(at as u64);
            rams.push(ram);
            plans.push(plan);
            drives.push(drive);
        }
        let name: Name = "small".parse().expect("a name");
        let spec = CreateSpec {
            name,
            level,
            group_size,
            strip_bytes: STRIP_BYTES,
            block_size: None,
            consistency: strake_engine::Consistency::Safe,
        };
        let plan = strake_engine::plan_create(&spec, &drives).expect("a possible array");
        let ids = Ids {
            array: Uuid::from_random(rng.bytes16()),
            epoch: Uuid::from_random(rng.bytes16()),
            members: (0..members).map(|_| Uuid::from_random(rng.bytes16())).collect(),
        };
        let geometry = plan.geometry;
        let mut now = Nanos(0);
        let assembled = strake_engine::create(&plan, drives, &ids, false, &mut patient(&mut now))
            .expect("created");
        let (array, pollers) =
            Array::start_here(assembled, 1, Options::default()).expect("started");
        let queue = array.device().open_queue(CoreIndex(0), 8).expect("a queue");
        let stripes = 2 * u64::from(geometry.width()) * geometry.groups() as u64 + 2;
        let expected = vec![0; (stripes * geometry.stripe_data_blocks()) as usize * BLOCK];
        let batch = CompletionBatch::new(8);
        let placement = Placement::of(&Asked {
            level,
            members,
            group_size,
            strip_bytes: STRIP_BYTES,
            drive_bytes: bytes_of_drive(),
        });
        Self { array, pollers, queue, batch, rams, plans, geometry, placement, expected, rng, now }
    }

    /// Runs one turn of every shard; advances the time if none has work.
    fn turn(&mut self) {
        let mut turn = Turn::Idle;
        for poller in &mut self.pollers {
            turn = poller.turn(self.now).or(turn);
        }
        if turn == Turn::Idle {
            let mut sleep = Sleep::new();
            self.pollers.iter().for_each(|poller| poller.sleep(&mut sleep));
            self.now =
                sleep.deadline().filter(|_| !sleep.is_never()).unwrap_or(self.now).max(self.now);
        }
        self.now = self.now.plus(Nanos(1000));
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&Array) -> bool) {
        for _ in 0..TURNS_MAX {
            if done(&self.array) {
                return;
            }
            self.turn();
        }
        panic!("waited for {what} in vain: {:?}", self.array.status());
    }

    fn run(&mut self, op: Op) -> Result<Op, IoError> {
        assert!(
            self.queue.submit(Io { token: Token(1), op }).is_ok(),
            "one request at a time fits"
        );
        self.queue.ring_doorbell(self.now);
        for _ in 0..TURNS_MAX {
            self.turn();
            self.queue.poll(self.now, &mut self.batch);
            if let Some(done) = self.batch.drain().next() {
                return done.result.map(|()| done.op);
            }
        }
        panic!("a request was never answered: {:?}", self.array.status());
    }

    fn read(&mut self, range: LbaRange) -> Result<Vec<u8>, IoError> {
        let data = SgMut::from(BufMut::alone(range.blocks as usize * BLOCK));
        let Op::Read { data, .. } = self.run(Op::Read { at: range.start, data })? else {
            unreachable!("a read")
        };
        Ok(data.parts().iter().flat_map(|part| part.as_slice().to_vec()).collect())
    }

    /// Executes one of the operations that change a range, in rotation; operations without data write zeroes.
    fn change(&mut self, range: LbaRange, kind: usize) -> Result<(), IoError> {
        let span = range.start.0 as usize * BLOCK..range.end().0 as usize * BLOCK;
        let durability = if kind.is_multiple_of(2) { Durability::Normal } else { Durability::Fua };
        if kind % 5 == 4 {
            self.run(Op::WriteZeroes { range, durability })?;
            self.expected[span].fill(0);
            return Ok(());
        }
        let mut data = BufMut::alone(span.len());
        for word in data.as_mut_slice().chunks_exact_mut(8) {
            word.copy_from_slice(&self.rng.bits().to_le_bytes());
        }
        let data = data.freeze();
        self.run(Op::Write { at: range.start, data: Sg::from(data.clone()), durability })?;
        self.expected[span].copy_from_slice(data.as_slice());
        Ok(())
    }

    fn answer(&mut self, mut pending: Pending) {
        let mut answer = None;
        self.until("an answer", |_| {
            answer = answer.take().or_else(|| pending.poll());
            answer.is_some()
        });
        answer.expect("waited for it").expect("the operation is possible");
    }

    fn replace(&mut self, member: u8) {
        let (ram, plan, drive) = pulled(1000 + u64::from(member));
        let uuid = Uuid::from_random(self.rng.bytes16());
        strake_engine::prepare_drive(&drive, uuid, &mut patient(&mut self.now))
            .expect("a good drive");
        let mut replacing: Replacing =
            self.array.begin_replace(MemberIndex(member), &drive, uuid).expect("it is out");
        self.rams[usize::from(member)] = ram;
        self.plans[usize::from(member)] = plan;
        let mut answer = None;
        self.until("a replacement", |_| {
            answer = answer.take().or_else(|| replacing.poll());
            answer.is_some()
        });
        answer.expect("waited for it").expect("the replacement is possible");
    }

    fn check_read(&mut self, range: LbaRange, context: &str) {
        let span = range.start.0 as usize * BLOCK..range.end().0 as usize * BLOCK;
        let data =
            self.read(range).unwrap_or_else(|error| panic!("{context}: read {range:?}: {error}"));
        assert!(
            data == self.expected[span],
            "{context}: read {range:?} returned other bytes than were written"
        );
    }

    fn check_everything(&mut self, context: &str) {
        let stripe = self.geometry.stripe_data_blocks();
        for start in (0..self.expected.len() as u64 / BLOCK as u64).step_by(stripe as usize) {
            self.check_read(LbaRange::new(Lba(start), stripe), context);
        }
    }

    fn check_parity(&self, context: &str) {
        let page = |member: usize, offset: u64| {
            let mut page = [0u8; PAGE];
            self.rams[member].read_at(offset, &mut page[..]).expect("on the drive");
            page.iter().any(|b| *b != 0).then(|| page.into())
        };
        textbook::verify(&self.placement, &page).unwrap_or_else(|what| panic!("{context}: {what}"));
    }
}

fn patient(now: &mut Nanos) -> impl FnMut() -> Option<Nanos> + '_ {
    || {
        *now = now.plus(Nanos(1000));
        Some(*now)
    }
}

/// Sets of members that the geometry tolerates, or not.
fn sets(geometry: &Geometry, survived: bool) -> Vec<MemberSet> {
    let all = (0..1 << geometry.members()).map(MemberSet::from_bits);
    if survived {
        return all.filter(|lost| geometry.tolerates(*lost)).collect();
    }
    // Exactly one loss more than tolerated.
    let barely = |lost: &MemberSet| {
        let fewer = |member| geometry.tolerates(lost.without(member));
        !geometry.tolerates(*lost) && lost.iter().any(fewer)
    };
    all.filter(barely).collect()
}

/// Every span that starts in stripe `stripe` and is at most two stripes long.
fn spans(geometry: &Geometry, stripe: u64) -> impl Iterator<Item = LbaRange> + use<> {
    let blocks = geometry.stripe_data_blocks();
    let first = stripe * blocks;
    (first..first + blocks)
        .flat_map(move |start| (1..=2 * blocks).map(move |len| LbaRange::new(Lba(start), len)))
}

/// Writes every span with some members lost, reads it, and reads everything again after a rebuild.
fn check_survived(level: Level, members: usize, group_size: Option<u8>) {
    let geometry = Rig::new(level, members, group_size, 0).geometry;
    for (turn, lost) in sets(&geometry, true).into_iter().enumerate() {
        let context = format!("RAID {level} of {members}, lost {lost:?}");
        let mut rig = Rig::new(level, members, group_size, lost.bits());
        let stripes = rig.expected.len() as u64 / BLOCK as u64 / geometry.stripe_data_blocks();
        // Every stripe has data from before the loss, so that there is data to reconstruct.
        for stripe in 0..stripes {
            let all = LbaRange::new(
                Lba(stripe * geometry.stripe_data_blocks()),
                geometry.stripe_data_blocks(),
            );
            rig.change(all, 0).expect("a healthy array takes a write");
        }
        for member in lost {
            let pending = rig.array.begin_fail(member).expect("there is such a member");
            rig.answer(pending);
        }
        rig.check_everything(&context);
        // Parity rotates from stripe to stripe: each set is tested with another one.
        let stripe = turn as u64 % (stripes - 2);
        for (kind, span) in spans(&geometry, stripe).enumerate() {
            rig.change(span, kind)
                .unwrap_or_else(|error| panic!("{context}: write {span:?}: {error}"));
            rig.check_read(span, &context);
        }
        rig.check_everything(&context);
        lost.iter().for_each(|member| rig.replace(member.0));
        rig.until("the rebuild", |array| {
            array.status().members.iter().all(|m| m.state == MemberState::InSync)
        });
        rig.check_everything(&context);
        rig.check_parity(&context);
    }
}

/// Removes one drive more than the geometry tolerates: successful reads must return the right data, and reads of lost
/// strips must fail.
fn check_lost(level: Level, members: usize, group_size: Option<u8>) {
    let geometry = Rig::new(level, members, group_size, 0).geometry;
    for (turn, lost) in sets(&geometry, false).into_iter().enumerate() {
        let context = format!("RAID {level} of {members}, lost {lost:?}");
        let mut rig = Rig::new(level, members, group_size, lost.bits());
        let stripes = rig.expected.len() as u64 / BLOCK as u64 / geometry.stripe_data_blocks();
        for stripe in 0..stripes {
            let all = LbaRange::new(
                Lba(stripe * geometry.stripe_data_blocks()),
                geometry.stripe_data_blocks(),
            );
            rig.change(all, 0).expect("a healthy array takes a write");
        }
        let order: Vec<u8> = lost.iter().map(|member| member.0).collect();
        order.iter().for_each(|member| rig.plans[usize::from(*member)].vanish());
        let (mut errors, mut answers) = (0, 0);
        let first = turn as u64 % (stripes - 2);
        for stripe in first..first + 2 {
            for span in spans(&geometry, stripe) {
                let bytes = span.start.0 as usize * BLOCK
                    ..(span.end().0 as usize * BLOCK).min(rig.expected.len());
                match rig.read(span) {
                    Ok(data) => {
                        answers += 1;
                        assert!(
                            data[..bytes.len()] == rig.expected[bytes],
                            "{context}: read {span:?} is wrong"
                        );
                    }
                    Err(_) => errors += 1,
                }
            }
        }
        assert!(errors > 0, "{context}: {answers} reads answered, none failed");
        let all = LbaRange::new(Lba(0), geometry.stripe_data_blocks() * geometry.groups() as u64);
        assert!(rig.change(all, 0).is_err(), "{context}: a write of lost strips was acknowledged");
    }
}

/// Defines the shapes once for both tests.
macro_rules! shapes {
    ($($name:ident: $level:expr, $members:expr, $group:expr;)*) => {
        mod survived {
            use super::*;
            $(#[test] fn $name() { check_survived($level, $members, $group); })*
        }
        mod lost {
            use super::*;
            $(#[test] fn $name() { check_lost($level, $members, $group); })*
        }
    };
}

shapes! {
    raid0_of_2: Level::Raid0, 2, None;
    raid0_of_3: Level::Raid0, 3, None;
    raid1_of_2: Level::Raid1, 2, None;
    raid1_of_3: Level::Raid1, 3, None;
    raid10_of_4: Level::Raid10, 4, None;
    raid10_of_6: Level::Raid10, 6, None;
    raid5_of_3: Level::Raid5, 3, None;
    raid5_of_4: Level::Raid5, 4, None;
    raid6_of_4: Level::Raid6, 4, None;
    raid6_of_5: Level::Raid6, 5, None;
    raid73_of_5: Level::Raid73, 5, None;
    raid73_of_6: Level::Raid73, 6, None;
    parity4_of_6: Level::Parity(4), 6, None;
    parity4_of_7: Level::Parity(4), 7, None;
    raid50_of_6: Level::Raid50, 6, Some(3);
    raid60_of_8: Level::Raid60, 8, Some(4);
    raid70_of_10: Level::Raid70, 10, Some(5);
}
