//! One test per fault. The names describe the visible effect.

use super::*;
use crate::{NullDevice, RamDevice};
use strake_block::{
    Completion, CompletionBatch, DeallocateReads, Durability, Io, Op, Readiness, SgMut, Token,
};
use strake_units::BlockSize;

const SIZE: BlockSize = BlockSize::B4096;
const BLOCKS: u64 = 64;

/// A faulty RAM drive with a queue, and its inner RAM drive for inspection.
struct Rig {
    ram: RamDevice,
    device: Faulty<RamDevice>,
    queue: Box<dyn IoQueue>,
    now: Nanos,
}

type Answer = (Op, Result<(), IoErrorKind>);

impl Rig {
    fn new(plan: FaultPlan) -> Self {
        Self::sized(plan, SIZE)
    }

    fn sized(plan: FaultPlan, size: BlockSize) -> Self {
        let ram = RamDevice::new(BLOCKS, size);
        let device = Faulty::new(ram.clone(), plan);
        let queue = device.open_queue(CoreIndex(0), 8).expect("the drive is there");
        Self { ram, device, queue, now: Nanos(0) }
    }

    fn plan(&self) -> &FaultPlan {
        self.device.plan()
    }

    fn reopen(&mut self) {
        self.queue = self.device.open_queue(CoreIndex(0), 8).expect("the drive is there");
    }

    fn send(&mut self, token: u64, op: Op) {
        self.queue.submit(Io { token: Token(token), op }).expect("the queue has room");
        self.queue.ring_doorbell(self.now);
    }

    fn poll(&mut self) -> Vec<Completion> {
        let mut batch = CompletionBatch::new(8);
        // A torn write needs a read and a write of the inner device, and therefore a second poll.
        (0..3).for_each(|_| self.queue.poll(self.now, &mut batch));
        batch.drain().collect()
    }

    fn run(&mut self, op: Op) -> Answer {
        self.send(5, op);
        let done = self.poll().pop().expect("it completes at once");
        assert_eq!((done.token, self.queue.readiness()), (Token(5), Readiness::Idle));
        (done.op, done.result.map_err(|error| error.kind))
    }

    fn write(&mut self, at: u64, byte: u8) -> Result<(), IoErrorKind> {
        let (op, result) = self.run(write(at, byte, 1));
        assert!(matches!(op, Op::Write { at: home, .. } if home == Lba(at)), "{op:?}");
        result
    }

    fn fua(&mut self, at: u64, byte: u8) -> Result<(), IoErrorKind> {
        let data = filled(byte, 4096);
        self.run(Op::Write { at: Lba(at), data, durability: Durability::Fua }).1
    }

    fn read(&mut self, at: u64) -> Vec<u8> {
        let (op, result) = self.run(read(at, 4096));
        assert_eq!(result, Ok(()));
        match op {
            Op::Read { at: home, data } if home == Lba(at) => data.parts()[0].as_slice().to_vec(),
            other => panic!("a read came back as {other:?}"),
        }
    }

    /// Returns the first byte of a block as the device returns it.
    fn shown(&mut self, at: u64) -> u8 {
        let bytes = self.read(at);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "block {at} is mixed");
        bytes[0]
    }

    /// Returns bytes of the medium, independently of the content that the device returns.
    fn medium(&self, byte: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.ram.read_at(byte, &mut bytes).expect("on the drive");
        bytes
    }
}

fn filled(byte: u8, len: usize) -> Sg {
    let mut buf = BufMut::alone(len);
    buf.as_mut_slice().fill(byte);
    Sg::from(buf.freeze())
}

fn write(at: u64, byte: u8, blocks: usize) -> Op {
    let data = filled(byte, blocks * 4096);
    Op::Write { at: Lba(at), data, durability: Durability::Normal }
}

fn read(at: u64, len: usize) -> Op {
    Op::Read { at: Lba(at), data: SgMut::from(BufMut::alone(len)) }
}

fn quiet() -> FaultPlan {
    FaultPlan::new(1)
}

#[test]
fn an_idle_plan_changes_nothing() {
    let mut rig = Rig::new(quiet());
    assert_eq!(rig.write(3, 7), Ok(()));
    assert_eq!((rig.shown(3), rig.shown(4)), (7, 0));
    assert_eq!(rig.device.info(), rig.ram.info());
    assert_eq!(rig.run(read(BLOCKS, 4096)).1, Err(IoErrorKind::OutOfRange));
    assert_eq!(rig.run(read(0, 100)).1, Err(IoErrorKind::Misaligned));
}

#[test]
fn errors_strike_where_and_as_often_as_ruled() {
    let mut rig = Rig::new(quiet());
    let range = LbaRange::new(Lba(10), 2);
    let rule = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium)).within(range).limit(2);
    let id = rig.plan().add(rule);
    let medium = Err(IoErrorKind::Medium);
    assert_eq!(rig.run(read(9, 4096)).1, Ok(()));
    assert_eq!(rig.write(10, 1), Ok(()));
    assert_eq!(rig.run(read(9, 8192)).1, medium);
    assert_eq!(rig.run(read(11, 4096)).1, medium);
    assert_eq!(rig.run(read(11, 4096)).1, Ok(()), "twice was the limit");
    assert_eq!(rig.plan().struck(id), Some(2));
    assert_eq!(rig.plan().remove(id), Some(2));
    assert_eq!((rig.plan().struck(id), rig.plan().remove(id)), (None, None));
}

#[test]
fn a_failed_write_is_not_done() {
    let mut rig = Rig::new(quiet());
    let nth = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device)).when(When::Nth(2));
    rig.plan().add(nth);
    let results: Vec<_> = (0..3).map(|i| rig.write(i, 9)).collect();
    assert_eq!(results, [Ok(()), Err(IoErrorKind::Device), Ok(())]);
    assert_eq!([0, 1, 2].map(|at| rig.shown(at)), [9, 0, 9]);
    rig.plan().clear();
    rig.plan().add(Rule::new(Ops::ANY, Effect::Fail(IoErrorKind::Device)).when(When::Every(2)));
    let failed = (0..10).filter(|_| rig.run(Op::Flush).1.is_err()).count();
    assert_eq!(failed, 5);
}

#[test]
fn chance_repeats_with_its_seed() {
    let pattern = |seed: u64| {
        let mut rig = Rig::new(FaultPlan::new(seed));
        let rule = Rule::new(Ops::FLUSH, Effect::Fail(IoErrorKind::Device));
        rig.plan().add(rule.when(When::PerMillion(300_000)));
        (0..200).map(|_| rig.run(Op::Flush).1.is_err()).collect::<Vec<bool>>()
    };
    let first = pattern(1);
    assert_eq!(first, pattern(1));
    assert_ne!(first, pattern(2));
    let struck = first.iter().filter(|failed| **failed).count();
    assert!((40..=80).contains(&struck), "{struck} of 200 is not about 3 in 10");
}

#[test]
fn a_slow_write_is_done_and_answered_late() {
    let mut rig = Rig::new(quiet());
    rig.plan().add(Rule::new(Ops::WRITE, Effect::Delay(Nanos::MILLI)));
    rig.now = Nanos(500);
    rig.send(1, write(0, 4, 1));
    rig.send(2, read(1, 4096));
    assert_eq!(rig.poll().iter().map(|d| d.token.0).collect::<Vec<_>>(), [2]);
    assert_eq!(rig.queue.readiness(), Readiness::At(Nanos(1_000_500)));
    assert_eq!(rig.medium(0, 1), [4]);
    rig.now = Nanos(1_000_499);
    assert!(rig.poll().is_empty());
    rig.now = Nanos(1_000_500);
    assert_eq!(rig.poll().len(), 1);
}

#[test]
fn a_hang_lasts_until_it_is_released() {
    let mut rig = Rig::new(quiet());
    rig.plan().add(Rule::new(Ops::WRITE, Effect::Hang).limit(1));
    rig.send(1, write(0, 4, 1));
    rig.now = Nanos(u64::MAX);
    assert!(rig.poll().is_empty());
    assert_eq!(rig.queue.readiness(), Readiness::Poll);
    assert_eq!(rig.medium(0, 1), [0]);
    rig.send(2, write(1, 5, 1));
    assert_eq!(rig.poll().len(), 1, "the limit was one");
    let plan = rig.plan().clone();
    std::thread::spawn(move || plan.release()).join().expect("handles work from any thread");
    assert_eq!(rig.poll().len(), 1);
    assert_eq!(rig.medium(0, 1), [4]);
}

#[test]
fn a_queue_may_be_dropped_with_hung_and_waiting_requests() {
    let mut rig = Rig::new(quiet());
    rig.plan().add(Rule::new(Ops::WRITE, Effect::Hang));
    let data = filled(1, 4096);
    let arena = std::sync::Arc::downgrade(data.parts()[0].arena());
    rig.send(1, Op::Write { at: Lba(0), data, durability: Durability::Normal });
    let unrung = Io { token: Token(2), op: Op::Flush };
    rig.queue.submit(unrung).expect("the queue has room");
    rig.reopen();
    assert!(arena.upgrade().is_none());
    rig.plan().release();
    assert!(rig.poll().is_empty());
    assert_eq!(rig.medium(0, 1), [0]);
}

/// Tears a write of `blocks` blocks of 0xff with many seeds, and returns the number of written bytes each time.
fn tears(
    size: BlockSize,
    unit: TearUnit,
    at: u64,
    blocks: u64,
    op: &dyn Fn(u64) -> Op,
) -> Vec<u64> {
    let (start, len) = (at << size.shift(), (blocks << size.shift()) as usize);
    let mut cuts: Vec<u64> = (0..200)
        .map(|seed| {
            let mut rig = Rig::sized(FaultPlan::new(seed), size);
            rig.ram.write_at(0, &vec![1; (BLOCKS << size.shift()) as usize]).expect("all of it");
            let end = TearEnd::Success;
            rig.plan().add(Rule::new(Ops::WRITE.and(Ops::ZEROES), Effect::Tear { unit, end }));
            assert_eq!(rig.run(op(at)).1, Ok(()));
            let bytes = rig.medium(start, len);
            let cut = bytes.iter().position(|b| *b == 1).expect("a torn write is not whole");
            assert!(bytes[cut..].iter().all(|b| *b == 1), "old bytes follow the new ones");
            assert_eq!(rig.medium(start + len as u64, 1), [1]);
            cut as u64
        })
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

#[test]
fn torn_writes_stop_at_every_multiple_of_their_unit() {
    let small = |blocks: usize| {
        move |at| {
            let data = filled(0xff, blocks * 512);
            Op::Write { at: Lba(at), data, durability: Durability::Normal }
        }
    };
    let large = |at| write(at, 0xff, 2);
    let zeroes =
        |at| Op::WriteZeroes { range: LbaRange::new(Lba(at), 2), durability: Durability::Normal };
    let b512 = BlockSize::B512;
    assert_eq!(tears(b512, TearUnit::B512, 3, 4, &small(4)), [0, 512, 1024, 1536]);
    assert_eq!(tears(b512, TearUnit::B4096, 3, 14, &small(14)), [0, 5 * 512, 5 * 512 + 4096]);
    assert_eq!(tears(b512, TearUnit::B512, 3, 1, &small(1)), [0]);
    assert_eq!(tears(SIZE, TearUnit::B4096, 3, 2, &large), [0, 4096]);
    let all: Vec<u64> = (0..16).map(|n| n * 512).collect();
    assert_eq!(tears(SIZE, TearUnit::B512, 3, 2, &large), all);
    assert_eq!(tears(SIZE, TearUnit::B512, 3, 2, &zeroes), [0, 4096]);
}

#[test]
fn a_torn_write_can_say_so() {
    let mut rig = Rig::new(quiet());
    let end = TearEnd::Error(IoErrorKind::Device);
    rig.plan().add(Rule::new(Ops::ANY, Effect::Tear { unit: TearUnit::B4096, end }));
    assert_eq!(rig.run(write(0, 1, 4)).1, Err(IoErrorKind::Device));
    assert_eq!(rig.run(read(0, 4096)).1, Ok(()), "only writes tear");
    assert_eq!(rig.run(Op::Flush).1, Ok(()));
}

#[test]
fn misdirected_requests_land_elsewhere_and_say_nothing() {
    let mut rig = Rig::new(quiet());
    assert_eq!(rig.write(20, 2), Ok(()));
    rig.plan().add(Rule::new(Ops::ANY, Effect::Misdirect { to: Lba(30) }).limit(2));
    assert_eq!(rig.write(20, 3), Ok(()));
    assert_eq!(rig.shown(20), 3, "a misdirected read finds the misdirected write");
    assert_eq!((rig.shown(20), rig.shown(30)), (2, 3));
    rig.plan().add(Rule::new(Ops::WRITE, Effect::Misdirect { to: Lba(BLOCKS) }));
    assert_eq!(rig.write(20, 9), Ok(()), "beyond the end it is lost");
    assert_eq!(rig.shown(20), 2);
}

#[test]
fn lost_writes_are_acknowledged_and_not_done() {
    let mut rig = Rig::new(quiet());
    assert_eq!(rig.write(1, 1), Ok(()));
    rig.plan().add(Rule::new(Ops::WRITE.and(Ops::DEALLOCATE), Effect::Lose));
    assert_eq!(rig.write(1, 2), Ok(()));
    assert_eq!(rig.run(Op::Deallocate { range: LbaRange::new(Lba(1), 1) }).1, Ok(()));
    assert_eq!(rig.shown(1), 1);
}

#[test]
fn corruption_flips_one_bit() {
    let ones = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
    let mut rig = Rig::new(quiet());
    rig.plan().add(Rule::new(Ops::READ, Effect::Corrupt).limit(1));
    assert_eq!(ones(&rig.read(0)), 1);
    assert_eq!(ones(&rig.read(0)), 0, "the medium was right");
    rig.plan().add(Rule::new(Ops::WRITE, Effect::Corrupt));
    let (op, result) = rig.run(write(0, 0, 1));
    assert_eq!(result, Ok(()));
    let Op::Write { data, .. } = op else { panic!("a write came back as {op:?}") };
    assert_eq!(ones(data.parts()[0].as_slice()), 0, "the caller's bytes are untouched");
    assert_eq!(ones(&rig.read(0)), 1);
    let mut list = SgMut::from(BufMut::alone(512));
    list.push(BufMut::alone(3584)).expect("two pieces");
    rig.plan().add(Rule::new(Ops::READ, Effect::Corrupt));
    let (op, _) = rig.run(Op::Read { at: Lba(9), data: list });
    let Op::Read { data, .. } = op else { panic!("a read came back as {op:?}") };
    assert_eq!(data.parts().iter().map(|part| ones(part.as_slice())).sum::<u32>(), 1);
}

#[test]
fn a_pulled_drive_answers_gone_and_comes_back_as_a_new_one() {
    let mut rig = Rig::new(quiet());
    assert_eq!(rig.write(1, 1), Ok(()));
    let hang = rig.plan().add(Rule::new(Ops::READ, Effect::Hang));
    let delay = rig.plan().add(Rule::new(Ops::WRITE, Effect::Delay(Nanos::SECOND)));
    rig.send(1, read(0, 4096));
    rig.send(2, write(2, 2, 1));
    rig.send(3, Op::Flush);
    rig.plan().vanish();
    let done = rig.poll();
    assert_eq!(done.len(), 3);
    assert!(done.iter().all(|d| d.result.map_err(|e| e.kind) == Err(IoErrorKind::Gone)));
    assert_eq!(rig.run(Op::Flush).1, Err(IoErrorKind::Gone));
    let refused = rig.device.open_queue(CoreIndex(0), 1).map(drop).expect_err("it is gone");
    assert_eq!(refused.kind, IoErrorKind::Gone);
    rig.plan().return_device();
    rig.plan().remove(hang).expect("still there");
    rig.plan().remove(delay).expect("still there");
    assert_eq!(rig.run(Op::Flush).1, Err(IoErrorKind::Gone), "the old queue stays dead");
    rig.reopen();
    assert_eq!((rig.shown(1), rig.shown(2)), (1, 2));
}

#[test]
fn a_drive_can_vanish_at_the_nth_write() {
    let mut rig = Rig::new(quiet());
    rig.plan().add(Rule::new(Ops::WRITE, Effect::Vanish).when(When::Nth(3)));
    let results: Vec<_> = (0..4).map(|at| rig.write(at, 1)).collect();
    let gone = Err(IoErrorKind::Gone);
    assert_eq!(results, [Ok(()), Ok(()), gone, gone]);
    assert_eq!([0, 1, 2, 3].map(|at| rig.medium(at * 4096, 1)[0]), [1, 1, 0, 0]);
}

#[test]
fn a_shrunk_drive_says_so_and_refuses_what_lies_beyond() {
    let mut rig = Rig::new(quiet());
    rig.plan().shrink_to(10);
    assert_eq!(rig.device.info().blocks, 10);
    assert_eq!(rig.write(9, 1), Ok(()));
    assert_eq!(rig.write(10, 1), Err(IoErrorKind::OutOfRange));
    rig.plan().unshrink();
    assert_eq!(rig.device.info().blocks, BLOCKS);
    assert_eq!(rig.write(10, 1), Ok(()));
}

#[test]
fn a_power_cut_takes_any_subset_of_what_was_not_flushed() {
    let mut seen = std::collections::BTreeSet::new();
    for subset in 0..8u32 {
        let mut rig = Rig::new(quiet().with_cache());
        assert_eq!(rig.device.info().cache, VolatileCache::Present);
        assert_eq!(rig.write(0, 1), Ok(()));
        assert_eq!(rig.run(Op::Flush).1, Ok(()));
        assert_eq!(rig.fua(1, 2), Ok(()));
        for at in 2..5 {
            assert_eq!(rig.write(at, 3), Ok(()));
        }
        assert_eq!([0, 1, 2, 3, 4, 5].map(|at| rig.shown(at)), [1, 2, 3, 3, 3, 0]);
        assert_eq!(rig.plan().unflushed(), 3);
        let keep = |n: usize| if subset >> n & 1 == 1 { Fate::Keep } else { Fate::Drop };
        rig.plan().power_cut_with(keep);
        assert_eq!(rig.run(Op::Flush).1, Err(IoErrorKind::Gone), "queues die with the power");
        rig.reopen();
        let left = [2, 3, 4].map(|at| rig.shown(at));
        assert_eq!(left, [0, 1, 2].map(|n| if keep(n) == Fate::Keep { 3 } else { 0 }));
        assert_eq!((rig.shown(0), rig.shown(1)), (1, 2), "what was stable stays");
        seen.insert(left);
    }
    assert_eq!(seen.len(), 8);
}

#[test]
fn a_seeded_power_cut_repeats_and_tears() {
    let after = |seed: u64, tear: Option<TearUnit>| {
        let mut rig = Rig::new(quiet().with_cache());
        (0..16).for_each(|at| assert_eq!(rig.write(at, 1), Ok(())));
        rig.plan().power_cut(seed, tear);
        rig.reopen();
        (0..16).flat_map(|at| rig.read(at)).collect::<Vec<u8>>()
    };
    let mixed =
        |bytes: &[u8]| bytes.chunks(4096).filter(|block| block[0] == 1 && block[4095] == 0).count();
    assert!(after(1, None) == after(1, None));
    assert!(after(1, None) != after(2, None));
    assert_eq!(mixed(&after(1, None)), 0);
    assert_eq!(mixed(&after(1, Some(TearUnit::B4096))), 0);
    assert!(mixed(&after(1, Some(TearUnit::B512))) > 0);
}

#[test]
fn a_flush_does_not_cover_writes_still_in_flight() {
    let mut rig = Rig::new(quiet().with_cache());
    rig.send(1, write(0, 1, 1));
    rig.send(2, Op::Flush);
    assert_eq!(rig.poll().len(), 2);
    assert_eq!(rig.plan().unflushed(), 1);
    assert_eq!(rig.run(Op::Flush).1, Ok(()));
    assert_eq!(rig.plan().unflushed(), 0);
}

#[test]
fn a_lying_flush_makes_nothing_stable() {
    let mut rig = Rig::new(quiet().with_cache());
    rig.plan().lie_about_flush(Flush::Lying);
    assert_eq!(rig.fua(0, 1), Ok(()));
    assert_eq!(rig.write(1, 1), Ok(()));
    assert_eq!(rig.run(Op::Flush).1, Ok(()));
    assert_eq!(rig.plan().unflushed(), 2);
    rig.plan().lie_about_flush(Flush::Honest);
    assert_eq!(rig.run(Op::Flush).1, Ok(()));
    assert_eq!(rig.plan().unflushed(), 0);
}

#[test]
fn a_cache_holds_zeroes_deallocations_and_torn_writes_too() {
    let mut rig = Rig::new(quiet().with_cache());
    rig.ram.write_at(0, &[7; 4 * 4096]).expect("on the drive");
    let one = |at| LbaRange::new(Lba(at), 1);
    let normal = Durability::Normal;
    assert_eq!(rig.run(Op::WriteZeroes { range: one(0), durability: normal }).1, Ok(()));
    assert_eq!(rig.run(Op::Deallocate { range: one(1) }).1, Ok(()));
    assert_eq!([0, 1, 2].map(|at| rig.shown(at)), [0, 0, 7]);
    let unit = TearUnit::B512;
    rig.plan().add(Rule::new(Ops::WRITE, Effect::Tear { unit, end: TearEnd::Success }));
    assert_eq!(rig.write(2, 9), Ok(()));
    let torn = rig.read(2);
    assert!(torn.ends_with(&[7; 512]) && torn.iter().all(|b| matches!(b, 7 | 9)));
    assert_eq!(rig.medium(0, 3 * 4096), [7; 3 * 4096], "nothing reached the medium");
    rig.plan().clear();
    rig.device.settle(&mut || Some(Nanos(0))).expect("RAM takes it");
    assert_eq!(rig.medium(0, 2 * 4096), [0; 2 * 4096]);
    assert_eq!(rig.medium(2 * 4096, 4096), torn);
    assert_eq!(rig.medium(3 * 4096, 4096), [7; 4096]);
    assert_eq!(rig.plan().unflushed(), 0);
}

#[test]
fn settling_moves_everything_below() {
    let mut rig = Rig::new(quiet().with_cache());
    for at in 0..BLOCKS {
        assert_eq!(rig.write(at, at as u8 + 1), Ok(()));
    }
    rig.device.settle(&mut || Some(Nanos(0))).expect("RAM takes it");
    for at in 0..BLOCKS {
        assert_eq!(rig.medium(at * 4096, 4096), [at as u8 + 1; 4096]);
        assert_eq!(rig.shown(at), at as u8 + 1);
    }
}

#[test]
fn faults_stack_on_any_device() {
    let spec =
        crate::MemSpec { deallocate: DeallocateReads::Unsupported, ..crate::MemSpec::new(8, SIZE) };
    let device = Faulty::new(NullDevice::with_spec(spec), quiet());
    let twice = Faulty::new(device, FaultPlan::new(2));
    twice.plan().add(Rule::new(Ops::FLUSH, Effect::Fail(IoErrorKind::Timeout)));
    let mut queue = twice.open_queue(CoreIndex(0), 2).expect("the drive is there");
    let mut batch = CompletionBatch::new(2);
    let range = LbaRange::new(Lba(0), 1);
    for op in [Op::Flush, Op::Deallocate { range }] {
        queue.submit(Io { token: Token(0), op }).expect("room for two");
    }
    let third = Io { token: Token(0), op: Op::Flush };
    assert!(queue.submit(third).is_err(), "room for two only");
    queue.ring_doorbell(Nanos(0));
    (0..3).for_each(|_| queue.poll(Nanos(0), &mut batch));
    let kinds: Vec<_> = batch.drain().map(|d| d.result.map_err(|e| e.kind)).collect();
    assert_eq!(kinds, [Err(IoErrorKind::Timeout), Err(IoErrorKind::Unsupported)]);
}
