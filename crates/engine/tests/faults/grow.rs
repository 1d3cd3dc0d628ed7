//! Tests of arrays that grow to the size of their members.

mod upgrade;

use std::sync::{Arc, Mutex};

use strake_block::{
    BlockDevice, Completion, CompletionBatch, DeviceError, DeviceInfo, Io, IoError, IoErrorKind,
    IoQueue, Op, Readiness,
};
use strake_dev_mem::RamDevice;
use strake_engine::{
    ArrayError, ArrayErrorKind, AssemblePolicy, Change, Consistency, Drive, GrowPlan, MemberIo,
    Outcome, grow, plan_change,
};
use strake_ondisk::{AreaLayout, Copy, RING_SLOTS, SLOT_BYTES};
use strake_raid::{Level, MemberState};
use strake_units::{BlockSize, CoreIndex, MemberIndex, MemberSet, Nanos};

use crate::stage::{DATA, DEGRADED, STRICTLY, Set, Stage};

/// The content of blocks that were never written.
const GARBAGE: u8 = 0xa5;

/// Every level, with its minimum number of members.
const LEVELS: [(Level, usize, Option<u8>); 8] = [
    (Level::Raid0, 2, None),
    (Level::Raid1, 2, None),
    (Level::Raid10, 4, None),
    (Level::Raid5, 3, None),
    (Level::Raid6, 4, None),
    (Level::Raid73, 5, None),
    (Level::Raid50, 6, Some(3)),
    (Level::Raid60, 8, Some(4)),
];

fn ticking() -> impl FnMut() -> Option<Nanos> {
    let mut now = 0;
    move || {
        now += 1_000_000;
        Some(Nanos(now))
    }
}

/// Moves a member of a stopped array to a drive of `bytes` bytes with the same content and garbage after it.
fn enlarge(stage: &mut Stage, member: usize, bytes: u64) {
    let old = stage.disks[member].ram.clone();
    let old_bytes = old.info().bytes();
    (stage.set.disk_bytes, stage.set.garbage) = (bytes, Some(GARBAGE));
    let disk = stage.spare();
    let mut piece = vec![0; 1 << 20];
    for at in (0..old_bytes).step_by(piece.len()) {
        let length = piece.len().min((old_bytes - at) as usize);
        old.read_at(at, &mut piece[..length]).expect("inside");
        disk.ram.write_at(at, &piece[..length]).expect("inside");
    }
    stage.disks[member] = disk;
}

fn zero(drive: &Drive, (offset, bytes): (u64, u64)) -> Result<(), ArrayError> {
    let mut wait = ticking();
    let mut io = MemberIo::open(drive, &mut wait)?;
    io.zero(offset, bytes)?;
    io.settle()
}

/// Grows a stopped array without starting it.
fn grow_offline(stage: &mut Stage, policy: AssemblePolicy) -> Result<GrowPlan, ArrayError> {
    let refused = |what| Err(ArrayError::new(ArrayErrorKind::State, what));
    let assembled = match stage.find_any(policy) {
        Some(Outcome::Ready(assembled)) => *assembled,
        Some(Outcome::Waiting { what, .. } | Outcome::Refused { what, .. }) => {
            return refused(what);
        }
        None => return refused("no drive can be read".to_owned()),
    };
    let plan = plan_change(Change::Grow, assembled.label(), &assembled.drives())?;
    // As in a serving array, all of the area except the positions of its labels.
    let rows = assembled.label().members.iter();
    let tail = |bytes| AreaLayout::of(bytes).expect("a member").tail_range();
    let tails: Vec<Vec<(u64, u64)>> = rows.map(|row| vec![tail(row.bytes)]).collect();
    for (disk, tails) in stage.disks.iter().zip(&tails) {
        for area in plan.new_area_without(tails) {
            zero(&disk.drive, area)?;
        }
    }
    grow(assembled, &plan, &tails, &mut ticking())?;
    Ok(plan)
}

/// Compares the data that clients wrote, checks that the following blocks are zeroes, and checks parity.
fn check(stage: &mut Stage, blocks: u64) {
    stage.verify(blocks);
    let capacity = stage.status().geometry.capacity_blocks();
    for at in (blocks..capacity).step_by(500) {
        let bytes = stage.read(0, at, 500.min(capacity - at)).expect("works");
        assert!(bytes.iter().all(|byte| *byte == 0), "block {at} of {capacity} is not zeroes");
    }
    if stage.status().geometry.parity_strips() > 0 {
        stage.check_parity(u64::MAX);
    }
}

fn capacity(stage: &Stage) -> u64 {
    stage.status().geometry.capacity_blocks()
}

#[test]
fn every_level_grows_and_keeps_what_it_holds() {
    for (level, members, group) in LEVELS {
        let mut set = Set::new(level, members);
        (set.group, set.disk_bytes) = (group, 22 << 20);
        let mut stage = set.build().expect("sound");
        let before = capacity(&stage);
        let blocks = before.min(2500);
        stage.fill(blocks, 100, 3);
        stage.stop().expect("clean");
        // The first growth is small, so that the old labels and the new area overlap in part. The second one is large.
        for bytes in [(22 << 20) + (300 << 10), 27 << 20] {
            for member in 0..members {
                enlarge(&mut stage, member, bytes);
            }
            let plan = grow_offline(&mut stage, STRICTLY).expect("it grows");
            assert!(plan.bytes_after() > plan.bytes_before(), "{level}: {plan}");
            let recovery = stage.recovered(STRICTLY);
            let found = (recovery.resync_regions, recovery.crashed);
            assert_eq!(found, (0, false), "{level}: nothing is in doubt");
            assert_eq!(capacity(&stage) << stage.size.shift(), plan.bytes_after());
            check(&mut stage, blocks);
            stage.stop().expect("clean");
        }
        let plan = grow_offline(&mut stage, STRICTLY).expect("it may");
        assert!(plan.is_nothing(), "{level}: {plan}");
        stage.again(STRICTLY);
        let (shift, after) = (stage.size.shift(), capacity(&stage));
        assert!(after > before, "{level}");
        let model = stage.model.len();
        stage.model.resize(model.max((after << shift) as usize), 0);
        stage.write(after - 200, 200, 77).expect("there is room now");
        stage.restart();
        assert_eq!(
            stage.read(0, after - 200, 200),
            Ok(Stage::pattern(200 << shift, 77)),
            "{level}"
        );
        stage.verify(blocks);
        if usize::from(stage.status().geometry.redundancy(MemberSet::EMPTY).unwrap_or(0)) > 0 {
            stage.fail(0).expect("allowed");
            assert_eq!(stage.read(0, after - 200, 200), Ok(Stage::pattern(200 << shift, 77)));
            stage.replace(0).expect("it fits");
            stage.healthy();
        }
        stage.verify(blocks);
    }
}

#[test]
fn the_smallest_member_says_how_far() {
    let mut stage = Set::new(Level::Raid5, 3).filled(500, 50, 3);
    let before = capacity(&stage);
    stage.stop().expect("clean");
    for (member, bytes) in [(0, 40 << 20), (2, 32 << 20)] {
        enlarge(&mut stage, member, bytes);
    }
    let plan = grow_offline(&mut stage, STRICTLY).expect("it may");
    assert_eq!((plan.is_nothing(), plan.limit()), (true, MemberIndex(1)), "{plan}");
    enlarge(&mut stage, 1, 36 << 20);
    let plan = grow_offline(&mut stage, STRICTLY).expect("it may");
    assert_eq!((plan.is_nothing(), plan.limit()), (false, MemberIndex(2)), "{plan}");
    stage.again(STRICTLY);
    assert_eq!(capacity(&stage) - before, 2 * (4 << 20 >> 9), "two of three strips are data");
    check(&mut stage, 500);
}

/// A refused grow does not change the array.
#[test]
fn an_array_that_is_not_at_rest_does_not_grow() {
    let start = || Set::new(Level::Raid6, 4).filled(500, 50, 3);
    let refused = |mut stage: Stage, words: &str, readable: bool| {
        let before = capacity(&stage);
        stage.down();
        (0..4).for_each(|member| enlarge(&mut stage, member, 32 << 20));
        let error = grow_offline(&mut stage, DEGRADED).expect_err("it is not at rest");
        assert!(error.what.contains(words), "{error}");
        stage.again(DEGRADED);
        assert_eq!(capacity(&stage), before);
        if readable {
            stage.verify(500);
        }
    };
    let mut stage = start();
    stage.fail(2).expect("allowed");
    refused(stage, "member 2", true);
    let mut stage = start();
    stage.submit_write(0, 7, 4, 1);
    stage.until("the write is under way", |stage| stage.array().newest_label().generation > 0);
    stage.rounds(200);
    // The array crashed with regions that need a resync.
    refused(stage, "resynchronized", false);
    let mut stage = start();
    stage.restart();
    stage.crowd_bad_blocks(2000);
    refused(stage, "bad", true);
}

/// The part of the last write that reached the medium at the crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Torn {
    Nothing,
    Half,
    Whole,
}

/// Counts the changes of drives, and stops all drives at one of these changes.
struct Saw {
    left: u64,
    torn: Torn,
    log: u64,
}

/// A drive that can stop during a write.
struct Sawn {
    inner: Arc<dyn BlockDevice>,
    ram: RamDevice,
    saw: Arc<Mutex<Saw>>,
}

struct SawnQueue {
    inner: Box<dyn IoQueue>,
    ram: RamDevice,
    size: BlockSize,
    saw: Arc<Mutex<Saw>>,
    failed: Vec<Io>,
}

impl BlockDevice for Sawn {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        Ok(Box::new(SawnQueue {
            inner: self.inner.open_queue(core, depth)?,
            ram: self.ram.clone(),
            size: self.inner.info().block_size,
            saw: Arc::clone(&self.saw),
            failed: Vec::new(),
        }))
    }
}

impl SawnQueue {
    /// Executes the part of `op` before the stop: nothing, half of it or all of it.
    fn last(&self, op: &Op, torn: Torn) {
        let range = op.range(self.size);
        let (at, bytes) = (range.start.bytes(self.size), range.blocks << self.size.shift());
        let done = match torn {
            Torn::Nothing => 0,
            Torn::Half => (bytes / 2) & !511,
            Torn::Whole => bytes,
        } as usize;
        let data = match op {
            Op::Write { data, .. } => {
                data.parts().iter().flat_map(|p| p.as_slice()).copied().collect()
            }
            Op::Deallocate { .. } | Op::WriteZeroes { .. } => vec![0; bytes as usize],
            Op::Read { .. } | Op::Flush => Vec::new(),
        };
        self.ram.write_at(at, &data[..done.min(data.len())]).expect("inside");
    }
}

impl IoQueue for SawnQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        let mut saw = self.saw.lock().expect("one thread");
        if matches!(io.op, Op::Read { .. }) && saw.left > 0 {
            return self.inner.submit(io);
        }
        saw.log += 1;
        if saw.left > 1 {
            saw.left -= 1;
            return self.inner.submit(io);
        }
        if saw.left == 1 {
            saw.left = 0;
            self.last(&io.op, saw.torn);
        }
        self.failed.push(io);
        Ok(())
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        self.inner.ring_doorbell(now);
    }

    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        self.inner.poll(now, batch);
        for io in self.failed.drain(..) {
            let result = Err(IoError::new(IoErrorKind::Device));
            batch.push(Completion { token: io.token, result, op: io.op });
        }
    }

    fn readiness(&self) -> Readiness {
        self.inner.readiness()
    }
}

/// Checks that no drive counts as a truncated member, which could never grow again.
fn check_nothing_was_cut(stage: &Stage) {
    for (member, disk) in stage.disks.iter().enumerate() {
        let bytes = stage.label(disk).members[member].bytes;
        let mut wait = ticking();
        let cut = MemberIo::open(&disk.drive, &mut wait).and_then(|mut io| io.was_cut(bytes));
        assert!(!cut.expect("readable"), "member {member}, which had {bytes} bytes");
    }
}

/// Runs the operation on `set`, and stops all drives at the `nth` change of a drive. Then starts the array without the
/// member `lost`, if there is one. Returns whether a stop occurred, and whether the array is larger.
fn cut_at(set: Set, more: u64, (nth, torn): (u64, Torn), lost: Option<usize>) -> (bool, bool) {
    let members = set.members;
    let mut stage = set.build().expect("sound");
    let before = capacity(&stage);
    stage.fill(1500, 100, 3);
    stage.pass(6);
    stage.stop().expect("clean");
    (0..members).for_each(|member| enlarge(&mut stage, member, (22 << 20) + more));
    let saw = Arc::new(Mutex::new(Saw { left: nth, torn, log: 0 }));
    let whole: Vec<Drive> = stage.disks.iter().map(|disk| disk.drive.clone()).collect();
    for disk in &mut stage.disks {
        let (inner, ram) = (Arc::clone(&disk.drive.device), disk.ram.clone());
        disk.drive.device = Arc::new(Sawn { inner, ram, saw: Arc::clone(&saw) });
    }
    let grown = grow_offline(&mut stage, STRICTLY);
    stage.disks.iter_mut().zip(whole).for_each(|(disk, whole)| disk.drive = whole);
    let stopped = saw.lock().expect("one thread").left == 0;
    assert!(grown.is_err() || !stopped || torn == Torn::Whole, "it did not notice");
    check_nothing_was_cut(&stage);
    let policy = if lost.is_some() { DEGRADED } else { STRICTLY };
    let gone = lost.map(|member| stage.disks.remove(member));
    stage.again(policy);
    let larger = capacity(&stage) > before;
    stage.verify(1500);
    if let (Some(member), Some(disk)) = (lost, gone) {
        // The array is written without this member, which then returns with an arbitrary label.
        let at = capacity(&stage) - 100;
        stage.model.resize(stage.model.len().max((at as usize + 100) << 9), 0);
        stage.write(at, 100, 5).expect("works");
        stage.write(40, 100, 6).expect("works");
        stage.disks.insert(member, disk);
        stage.readd(member as u8).expect("it is the member");
        stage.healthy();
        stage.pass(6);
        stage.verify(1500);
        assert_eq!(stage.read(0, at, 100), Ok(Stage::pattern(100 << 9, 5)));
    } else {
        check(&mut stage, 1500);
        assert!(larger == (capacity(&stage) > before));
    }
    if stage.status().geometry.parity_strips() > 0 {
        stage.check_parity(u64::MAX);
    }
    // The array may grow (again) from either size.
    stage.pass(6);
    stage.stop().expect("clean");
    check_nothing_was_cut(&stage);
    let plan = grow_offline(&mut stage, STRICTLY).expect("it is at rest");
    assert_eq!(plan.is_nothing(), larger, "{plan}");
    stage.again(STRICTLY);
    assert!(capacity(&stage) > before);
    stage.verify(1500);
    assert!((0..members).all(|member| stage.state(member) == MemberState::InSync));
    (stopped, larger)
}

fn small(level: Level, members: usize, consistency: Consistency) -> Set {
    let mut set = Set::new(level, members);
    (set.disk_bytes, set.consistency) = (22 << 20, consistency);
    set
}

/// For every stop, the array is assembled with the old or the new size, with all members or without one member, which
/// returns later.
#[test]
fn f26_a_crash_while_an_array_grows_leaves_the_old_size_or_the_new_exhaustive() {
    for (level, members, consistency) in [
        (Level::Raid1, 2, Consistency::Safe),
        (Level::Raid5, 3, Consistency::Safe),
        (Level::Raid6, 4, Consistency::Strict),
    ] {
        let mut sizes = Vec::new();
        for nth in 1.. {
            let torn = [Torn::Nothing, Torn::Half, Torn::Whole][nth as usize % 3];
            let mut stopped = true;
            for (torn, lost) in [(torn, None), (torn, Some(0)), (torn, Some(members - 1))] {
                let (cut, larger) =
                    cut_at(small(level, members, consistency), 600 << 10, (nth, torn), lost);
                stopped &= cut;
                sizes.push(larger);
            }
            if !stopped {
                break;
            }
        }
        assert!(sizes.contains(&true) && sizes.contains(&false), "{level}");
    }
}

/// The case where the previous end becomes data, or is at the position of the new labels: no drive may later count as a
/// truncated member, which could not grow again.
#[test]
fn f26_an_array_grows_after_a_crash_past_the_ends_of_before() {
    for more in [5 << 20, 300 << 10] {
        let mut sizes = Vec::new();
        for nth in 1.. {
            let torn = [Torn::Nothing, Torn::Half, Torn::Whole][nth as usize % 3];
            let set = small(Level::Raid1, 2, Consistency::Safe);
            let (stopped, larger) = cut_at(set, more, (nth, torn), None);
            sizes.push(larger);
            if !stopped {
                break;
            }
        }
        assert!(sizes.contains(&true) && sizes.contains(&false), "{more} bytes more");
    }
}

/// If a device grew by less than the size of the tail area, the ring of labels reaches the position of the previous
/// end.
#[test]
fn labels_over_the_end_of_before_keep_no_array_from_growing() {
    let mut stage = small(Level::Raid1, 2, Consistency::Safe).filled(100, 100, 3);
    stage.stop().expect("clean");
    (0..2).for_each(|member| enlarge(&mut stage, member, (22 << 20) + (300 << 10)));
    let first = stage.label(&stage.disks[0]).generation;
    // The labels fill the whole ring once.
    while stage.label(&stage.disks[0]).generation < first + RING_SLOTS {
        stage.again(STRICTLY);
        stage.stop().expect("clean");
    }
    check_nothing_was_cut(&stage);
    grow_offline(&mut stage, STRICTLY).expect("it is at rest");
    stage.again(STRICTLY);
    stage.verify(100);
}

/// The update with the new size reached any subset of the members, torn or whole, in the head ring or also in the tail
/// ring.
#[test]
fn f26_any_members_may_have_the_label_with_the_new_size() {
    for (level, members) in [(Level::Raid1, 3), (Level::Raid6, 4)] {
        for subset in 0..1_u32 << members {
            let mut stage = small(level, members, Consistency::Safe).filled(1500, 100, 3);
            stage.pass(6);
            stage.stop().expect("clean");
            (0..members).for_each(|member| enlarge(&mut stage, member, 25 << 20));
            let Outcome::Ready(assembled) = stage.find(STRICTLY) else { panic!("it is whole") };
            let plan = plan_change(Change::Grow, assembled.label(), &assembled.drives())
                .expect("all are here");
            stage.disks.iter().for_each(|d| zero(&d.drive, plan.new_area()).expect("works"));
            grow(*assembled, &plan, &[], &mut ticking()).expect("it grows");
            let layout = AreaLayout::of(25 << 20).expect("a member");
            for (member, disk) in stage.disks.iter().enumerate() {
                let lose = |copy| {
                    let at = layout.slot_offset(copy, stage.label(disk).generation);
                    disk.ram.write_at(at, &[0; SLOT_BYTES]).expect("inside");
                };
                if subset != (1 << members) - 1 {
                    // The tail rings are written after all head rings.
                    lose(Copy::Tail);
                }
                if subset & 1 << member == 0 {
                    lose(Copy::Head);
                }
            }
            stage.again(STRICTLY);
            let size = capacity(&stage) << stage.size.shift();
            let wanted = if subset == 0 { plan.bytes_before() } else { plan.bytes_after() };
            assert_eq!(size, wanted, "{level}, members {subset:b}");
            check(&mut stage, 1500);
            let sizes: Vec<u64> =
                stage.disks.iter().map(|disk| stage.label(disk).geometry.member_blocks).collect();
            assert!(sizes.windows(2).all(|pair| pair[0] == pair[1]), "{level}: {sizes:?}");
            stage.restart();
            check(&mut stage, 1500);
        }
    }
}

/// A grown member has its tail ring at another position. The test checks that an overwrite of its new end is detected.
#[test]
fn the_new_end_of_a_member_counts_after_it_has_grown() {
    let mut stage = small(Level::Raid1, 2, Consistency::Safe).filled(500, 50, 3);
    for _ in 0..6 {
        stage.restart();
    }
    stage.stop().expect("clean");
    (0..2).for_each(|member| enlarge(&mut stage, member, 25 << 20));
    let seen = |stage: &Stage, member: usize| {
        let mut wait = ticking();
        let drive = &stage.disks[member].drive;
        MemberIo::open(drive, &mut wait).expect("opens").overwritten().expect("readable")
    };
    assert_eq!(seen(&stage, 0), None, "it has grown, and the array has not");
    grow_offline(&mut stage, STRICTLY).expect("it grows");
    assert_eq!((seen(&stage, 0), seen(&stage, 1)), (None, None));
    stage.again(STRICTLY);
    stage.stop().expect("clean");
    assert_eq!((seen(&stage, 0), seen(&stage, 1)), (None, None));
    let end = vec![0; 1 << 20];
    stage.disks[1].ram.write_at(24 << 20, &end).expect("inside");
    assert_eq!(seen(&stage, 1), Some(Copy::Tail));
    let mut first = vec![0; 4096];
    stage.disks[0].ram.read_at(DATA, &mut first).expect("inside");
    assert_eq!(first[..512], stage.model[..512]);
}
