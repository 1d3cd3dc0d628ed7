//! A stage for tests: observed faulty drives, one array, queues on any of its cores, and time as an argument.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use strake_block::{
    BlockDevice, Completion, CompletionBatch, DeallocateReads, DeviceKind, Io, IoErrorKind,
    IoQueue, Op, Token,
};
use strake_dev_mem::{Effect, FaultPlan, Faulty, MemSpec, Modelled, Ops, Profile, RamDevice, Rule};
use strake_engine::{
    Array, ArrayError, ArrayRemedy, ArrayStatus, AssemblePolicy, Assembled, Consistency,
    CreateSpec, Drive, Ids, Options, Outcome, Recovery, assemble, create, plan_create,
};
use strake_ondisk::{BAD_RUNS_MAX, BadEvent, BadList};
use strake_raid::{Level, MemberState};
use strake_reactor::Poller;
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, MemberIndex, Nanos, Uuid};

mod io;
mod operator;
mod watched;

pub use io::bytes_of;
pub use watched::Seen;
use watched::{Log, Watched};

/// Rounds after which a stage without an answer counts as hung.
const PATIENCE: u64 = 3_000_000;

/// The start of the data area of every member, in bytes.
pub const DATA: u64 = 16 << 20;

/// Starts only with every member in sync.
pub const STRICTLY: AssemblePolicy = AssemblePolicy { allow_degraded: false, accept_loss: false };
/// Starts without members whose absence redundancy covers.
pub const DEGRADED: AssemblePolicy = AssemblePolicy { allow_degraded: true, accept_loss: false };
/// Returns whether the operator can resolve a refusal by accepting a loss.
pub fn needs_consent(remedy: Option<Box<ArrayRemedy>>) -> bool {
    remedy.is_some_and(|remedy| remedy.accepts_loss())
}

/// Starts with the present members, also if acknowledged writes are lost.
pub const LOSSY: AssemblePolicy = AssemblePolicy { allow_degraded: true, accept_loss: true };

/// One drive: the device, its medium, and the handle for its faults.
#[derive(Clone)]
pub struct Disk {
    pub drive: Drive,
    pub ram: RamDevice,
    pub plan: FaultPlan,
}

impl Disk {
    /// Leaves all later requests of this kind unanswered.
    pub fn hang(&self, ops: Ops) {
        self.plan.add(Rule::new(ops, Effect::Hang));
    }

    /// Makes the drive disappear at its next request.
    pub fn vanish(&self) {
        self.plan.add(Rule::new(Ops::ANY, Effect::Vanish));
    }

    /// Makes the drive serve again, and answers the held requests.
    pub fn answer(&self) {
        self.plan.clear();
        self.plan.release();
    }
}

/// The configuration of a stage.
#[derive(Clone)]
pub struct Set {
    pub level: Level,
    pub members: usize,
    pub group: Option<u8>,
    pub cores: u16,
    pub strip: u32,
    pub disk_block: BlockSize,
    pub array_block: Option<BlockSize>,
    pub consistency: Consistency,
    pub disk_bytes: u64,
    /// The options of the array, except those that `STRAKE_OFF` turns off.
    pub options: Options,
    pub deallocate: DeallocateReads,
    pub profile: Option<Profile>,
    /// The cores on which queues are opened.
    pub queues: Vec<u16>,
    pub depth: u32,
    /// The byte that fills the drives first.
    pub garbage: Option<u8>,
    /// Whether drives have a volatile cache.
    pub cached: bool,
    /// The kind that drives report.
    pub kind: DeviceKind,
}

impl Set {
    pub fn new(level: Level, members: usize) -> Self {
        Self {
            level,
            members,
            group: None,
            cores: 1,
            strip: 16 << 10,
            disk_block: BlockSize::B512,
            array_block: None,
            consistency: Consistency::Safe,
            disk_bytes: 28 << 20,
            options: switched(Options { scratch_bytes: SCRATCH_BYTES, ..Options::default() }),
            deallocate: DeallocateReads::Zeroes,
            profile: None,
            queues: vec![0],
            depth: 256,
            garbage: None,
            cached: false,
            kind: DeviceKind::Block,
        }
    }

    /// A set whose small writes are logged before they are acknowledged.
    pub fn strict(level: Level, members: usize) -> Self {
        Self { consistency: Consistency::Strict, ..Self::new(level, members) }
    }

    pub fn disk(&self, number: usize, log: &Log) -> Disk {
        let mut spec = MemSpec::new(self.disk_bytes >> self.disk_block.shift(), self.disk_block);
        spec.deallocate = self.deallocate;
        let ram = RamDevice::with_spec(spec);
        if let Some(byte) = self.garbage {
            let piece = vec![byte; 1 << 20];
            (0..self.disk_bytes >> 20)
                .for_each(|mib| ram.write_at(mib << 20, &piece).expect("inside"));
        }
        let plan = FaultPlan::new(number as u64 + 1);
        let plan = if self.cached { plan.with_cache() } else { plan };
        let inner: Box<dyn BlockDevice> = match self.profile {
            Some(profile) => {
                let modelled = Modelled::new(ram.clone(), profile).expect("a sound profile");
                Box::new(Faulty::new(modelled, plan.clone()))
            }
            None => Box::new(Faulty::new(ram.clone(), plan.clone())),
        };
        let device =
            Arc::new(Watched { inner, drive: number, kind: self.kind, log: Arc::clone(log) });
        Disk { drive: Drive { device, path: format!("ram{number}") }, ram, plan }
    }

    fn spec(&self) -> CreateSpec {
        CreateSpec {
            name: "tank".parse().expect("a name"),
            level: self.level,
            group_size: self.group,
            strip_bytes: self.strip,
            block_size: self.array_block,
            consistency: self.consistency,
        }
    }

    /// Builds the array on new drives. Returns the error of a failed creation.
    pub fn build(self) -> Result<Stage, ArrayError> {
        let log = Log::default();
        let disks: Vec<Disk> = (0..self.members).map(|at| self.disk(at, &log)).collect();
        let drives: Vec<Drive> = disks.iter().map(|d| d.drive.clone()).collect();
        let plan = plan_create(&self.spec(), &drives)?;
        let ids = Ids {
            array: Uuid([1; 16]),
            epoch: Uuid([2; 16]),
            members: (0..self.members as u8).map(|i| Uuid([100 + i; 16])).collect(),
        };
        let mut now = 0;
        let mut wait = || {
            now += 1_000_000;
            Some(Nanos(now))
        };
        let assembled = create(&plan, drives, &ids, true, &mut wait)?;
        let size = plan.geometry.block_size();
        let bytes = plan.geometry.capacity_blocks() << size.shift();
        let mut stage = Stage {
            next_disk: self.members,
            set: self,
            log,
            disks,
            array: None,
            pollers: Vec::new(),
            queues: Vec::new(),
            now: Nanos(1_000_000_000_000),
            step: Nanos(1000),
            model: vec![0; bytes.min(24 << 20) as usize],
            size,
            next: 0,
            answers: BTreeMap::new(),
            uuids: 10,
        };
        stage.start(assembled);
        Ok(stage)
    }

    /// Builds the array on new drives and writes its first `blocks` in pieces of `piece`.
    pub fn filled(self, blocks: u64, piece: u64, seed: u64) -> Stage {
        let mut stage = self.build().expect("a sound set");
        stage.fill(blocks, piece, seed);
        stage
    }
}

pub struct Stage {
    pub set: Set,
    pub log: Log,
    pub disks: Vec<Disk>,
    pub array: Option<Array>,
    pub pollers: Vec<Box<dyn Poller>>,
    pub queues: Vec<Box<dyn IoQueue>>,
    pub now: Nanos,
    pub step: Nanos,
    pub model: Vec<u8>,
    pub size: BlockSize,
    next: u64,
    pub answers: BTreeMap<u64, Completion>,
    next_disk: usize,
    uuids: u8,
}

pub type Answer = Result<(), IoErrorKind>;

impl Stage {
    pub fn start(&mut self, assembled: Assembled) {
        let options = self.set.options;
        let (array, pollers) =
            Array::start_here(assembled, self.set.cores, options).expect("drives open");
        let device = array.device();
        let open = |core: &u16| {
            device.open_queue(CoreIndex(*core), self.set.depth).expect("a queue opens")
        };
        self.queues = self.set.queues.iter().map(open).collect();
        self.array = Some(array);
        self.pollers = pollers;
    }

    pub fn array(&self) -> &Array {
        self.array.as_ref().expect("running")
    }

    pub fn status(&self) -> ArrayStatus {
        self.array().status()
    }

    pub fn state(&self, member: usize) -> MemberState {
        self.status().members[member].state
    }

    /// Runs one turn of every shard and collects the completions.
    pub fn round(&mut self) {
        self.now = self.now.plus(self.step);
        for poller in &mut self.pollers {
            poller.turn(self.now);
        }
        let mut batch = CompletionBatch::new(256);
        for queue in &mut self.queues {
            queue.poll(self.now, &mut batch);
            for done in batch.drain() {
                self.answers.insert(done.token.0, done);
            }
        }
    }

    pub fn rounds(&mut self, count: u64) {
        (0..count).for_each(|_| self.round());
    }

    /// Advances time by `seconds` in steps of a quarter of a second.
    pub fn pass(&mut self, seconds: u64) {
        let step = std::mem::replace(&mut self.step, Nanos(250_000_000));
        self.rounds(seconds * 4);
        self.step = step;
        self.rounds(100);
    }

    /// Submits `op` alone, or every second time as a batch.
    pub fn submit(&mut self, queue: usize, op: Op) -> u64 {
        let mut batch = VecDeque::from([Io { token: Token(self.next), op }]);
        self.next += 1;
        for _ in 0..PATIENCE {
            let queue = &mut self.queues[queue];
            if self.next.is_multiple_of(2) {
                queue.submit_batch(&mut batch);
            } else if let Some(io) = batch.pop_front() {
                batch.extend(queue.submit(io).err());
            }
            if batch.is_empty() {
                queue.ring_doorbell(self.now);
                return self.next - 1;
            }
            self.round();
        }
        panic!("the array takes no requests: {:?}", self.status());
    }

    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..PATIENCE {
            if done(self) {
                return;
            }
            self.round();
        }
        panic!("{what} does not happen: {:?}", self.array.as_ref().map(Array::status));
    }

    /// Waits for a completion.
    pub fn answer(&mut self, id: u64) -> Completion {
        self.until("the answer", |stage| stage.answers.contains_key(&id));
        self.answers.remove(&id).expect("it is there")
    }

    pub fn result(&mut self, id: u64) -> Answer {
        self.answer(id).result.map_err(|e| e.kind)
    }

    pub fn run(&mut self, queue: usize, op: Op) -> Answer {
        let id = self.submit(queue, op);
        self.result(id)
    }

    pub fn find(&mut self, policy: AssemblePolicy) -> Outcome {
        self.find_any(policy).expect("an array")
    }

    /// Returns the outcome of an assembly, if the drives contain an array.
    pub fn find_any(&mut self, policy: AssemblePolicy) -> Option<Outcome> {
        self.down();
        self.uuids += 1;
        let fresh = self.uuids;
        let mut drives: Vec<Drive> = self.disks.iter().map(|d| d.drive.clone()).collect();
        drives.reverse();
        let mut now = self.now.0;
        let mut wait = || {
            now += 1_000_000;
            Some(Nanos(now))
        };
        let (mut outcomes, _) =
            assemble(&drives, policy, &|_, _| true, &mut || Uuid([fresh; 16]), &mut wait);
        outcomes.pop()
    }

    /// Assembles and starts; returns the number of regions for a resync.
    pub fn again(&mut self, policy: AssemblePolicy) -> u32 {
        self.recovered(policy).resync_regions
    }

    /// Assembles and starts; returns the result of the crash recovery.
    pub fn recovered(&mut self, policy: AssemblePolicy) -> Recovery {
        match self.find(policy) {
            Outcome::Ready(assembled) => {
                let recovery = assembled.recovery();
                self.start(*assembled);
                recovery
            }
            Outcome::Waiting { what, .. } | Outcome::Refused { what, .. } => panic!("{what}"),
        }
    }

    /// Leaves space for `room` runs in the bad block list: it lists the last blocks of the members, although they are
    /// readable. The caller then calls [`again`](Self::again).
    pub fn crowd_bad_blocks(&self, room: usize) {
        self.crowd_bad_blocks_around(BadList::default(), room);
    }

    /// Does the same with a list that already contains the runs of `list`.
    pub fn crowd_bad_blocks_around(&self, mut list: BadList, room: usize) {
        let (members, last) = (self.disks.len(), self.status().geometry.member_blocks_used() - 1);
        for nth in 0..BAD_RUNS_MAX - list.runs().len() - room {
            let at = Lba(last - 2 * (nth / members) as u64);
            let member = MemberIndex((nth % members) as u8);
            list.note(member, LbaRange::new(at, 1), BadEvent::Unreadable).expect("there is room");
        }
        let pages = list.encode(self.status().uuid, 0).concat();
        for disk in &self.disks {
            disk.ram.write_at(5 << 20, &pages).expect("inside");
        }
    }

    /// Starts the log of the I/Os of the drives.
    pub fn watch(&mut self) {
        *self.log.lock().expect("one thread") = Some(Vec::new());
    }

    /// Returns the I/Os of the drives since [`watch`](Self::watch).
    pub fn seen(&mut self) -> Vec<Seen> {
        self.log.lock().expect("one thread").take().unwrap_or_default()
    }

    /// Returns the member that holds array block `at`, and the byte of the block on its drive.
    pub fn home(&self, at: u64) -> (usize, u64) {
        let geometry = self.status().geometry;
        let place = geometry.place(Lba(at));
        let position = geometry.position_of_strip(place.stripe, place.strip);
        let member = geometry.member(place.stripe, position);
        let byte = DATA + (geometry.member_lba(place.stripe, place.offset).0 << self.size.shift());
        (member.at(), byte)
    }

    /// Returns the range of `blocks` array blocks from byte `byte` in blocks of the drives.
    pub fn on_disk(&self, byte: u64, blocks: u64) -> LbaRange {
        let shift = self.set.disk_block.shift();
        LbaRange::new(Lba(byte >> shift), (blocks << self.size.shift()) >> shift)
    }

    pub fn check_all_parity(&self) {
        self.check_parity(self.status().geometry.stripes());
    }

    /// Returns the data area of a member in blocks of the drives.
    pub fn data_area(&self) -> LbaRange {
        let shift = self.set.disk_block.shift();
        LbaRange::new(Lba(DATA >> shift), (self.set.disk_bytes - DATA - (4 << 20)) >> shift)
    }

    /// Submits a write of `blocks` at `at` with seed 99, whose writes to the data area of member `stuck` never
    /// complete. The caller then crashes the stage.
    pub fn cut_write(&mut self, stuck: usize, at: u64, blocks: u64) {
        let lost = Rule::new(Ops::WRITE, Effect::Hang).within(self.data_area());
        self.disks[stuck].plan.add(lost);
        self.submit_write(0, at, blocks, 99);
        self.rounds(400);
        self.disks[stuck].plan.clear();
    }

    /// Compares parity (up to two) on the media with a textbook computation over the first `stripes` stripes.
    pub fn check_parity(&self, stripes: u64) {
        let geometry = self.status().geometry;
        let bytes = (geometry.strip_blocks() as usize) << self.size.shift();
        let strip_of = |stripe: u64, strip: u8| {
            let index = strake_units::StripeIndex(stripe);
            let member = geometry.member(index, geometry.position_of_strip(index, strip));
            let byte = DATA + (geometry.member_lba(index, 0).0 << self.size.shift());
            let mut out = vec![0; bytes];
            self.disks[member.at()].ram.read_at(byte, &mut out).expect("inside");
            out
        };
        let k = geometry.data_strips();
        for stripe in 0..stripes.min(geometry.stripes()) {
            let (mut p, mut q) = (vec![0u8; bytes], vec![0u8; bytes]);
            for strip in (0..k).rev() {
                let data = strip_of(stripe, strip);
                for (at, byte) in data.iter().enumerate() {
                    p[at] ^= byte;
                    q[at] = (q[at] << 1) ^ (if q[at] & 0x80 != 0 { 0x1d } else { 0 }) ^ byte;
                }
            }
            for (index, wanted) in
                [p, q].iter().enumerate().take(usize::from(geometry.parity_strips()))
            {
                let there = strip_of(stripe, k + index as u8);
                let wrong = strake_parity::first_difference(&there, wanted);
                assert_eq!(wrong, None, "stripe {stripe}, parity {index}");
            }
        }
    }
}

/// Memory of a shard: enough for many requests. Zeroing the memory of a real shard takes longer than most tests.
const SCRATCH_BYTES: usize = 4 << 20;

/// Applies `STRAKE_OFF`, which turns options off for the whole suite: `STRAKE_OFF=merge,steer,cache cargo test -p
/// strake-engine --test faults`. Tests of one of these options turn it on themselves.
fn switched(mut options: Options) -> Options {
    let off = std::env::var("STRAKE_OFF").unwrap_or_default();
    for switch in off.split(',').filter(|switch| !switch.is_empty()) {
        match switch {
            "merge" => options.merge = false,
            "steer" => options.steer = false,
            "cache" => options.cache = false,
            unknown => panic!("STRAKE_OFF says {unknown}, which is nothing that can be turned off"),
        }
    }
    options
}
