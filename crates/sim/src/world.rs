//! A world: one array on simulated drives, its clients, and its events.

mod before;
mod chance;
mod chores;
mod client;
mod control;
mod crash;
mod doubt;
mod ending;
mod lies;
mod mishaps;
mod restart;
mod silence;
pub mod stage;

use std::panic::{AssertUnwindSafe, catch_unwind};

use strake_block::VolatileCache;
use strake_engine::{Array, CreateSpec, Drive, Ids, Options, Pending, Replacing};
use strake_raid::{Geometry, MemberState};
use strake_reactor::{Poller, Sleep, Turn};
use strake_units::{CoreIndex, MemberIndex, MemberSet, Name, Nanos, Uuid};

use crate::drive::{DriveSpec, SimDrive};
use crate::faults::{Faults, Kinds, Mutant};
use crate::oracle::{Content, Oracle};
use crate::rng::Rng;
use crate::shape::Shape;
use crate::trace::Trace;
use chance::Chance;
use client::{Client, Ground, Scene};

/// Consecutive rounds without any event although a shard does not sleep, after which the run fails.
const SPIN_ROUNDS: u32 = 100_000;

/// Simulated time without progress after which the run fails.
const PATIENCE: Nanos = Nanos(600 * Nanos::SECOND.0);

/// Memory of a shard. Initializing the size of a real shard takes longer than most worlds.
const SCRATCH_BYTES: usize = 1 << 20;

/// Bands that a shard processes at a time, for the same reason. There are few clients, but they still wait for a band
/// sometimes.
const TASKS: usize = 24;

/// Reductions of the run that a seed defines: a small failing run is easier to analyze.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Kinds of faults that never happen.
    pub without: Kinds,
    /// Host requests, at most.
    pub requests: Option<u64>,
    /// Clients, at most; at least one remains.
    pub clients: Option<usize>,
    /// Shards, at most; at least one remains.
    pub cores: Option<u16>,
}

/// The settings of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The reductions.
    pub limits: Limits,
    /// The deliberate fault.
    pub mutant: Mutant,
    /// Print every event.
    pub print: bool,
    /// Keep the last events for the report of a violation.
    pub keep: bool,
}

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// A description of the world.
    pub shape: String,
    /// The violation, if there is one.
    pub violation: Option<String>,
    /// The record of the run.
    pub trace: Trace,
    /// The number of host requests.
    pub requests: u64,
}

/// Runs the world of `seed` to its end.
#[must_use]
pub fn run(seed: u64, settings: Settings) -> Report {
    let trace = Trace::new(settings.keep, settings.print);
    let mut rng = Rng::new(seed);
    let shape = Shape::draw(&mut rng).within(&settings.limits);
    let mut requests = 0;
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut chance = Chance { world: World::new(&shape, rng, settings, &trace)? };
        let result = chance.live();
        requests = chance.world.next_id;
        result
    }));
    let violation = match result {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(violation),
        Err(panic) => Some(format!("panic: {}", panic_text(&*panic))),
    };
    Report { seed, shape: shape.describe(), violation, trace, requests }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without words".to_owned())
}

/// A shard, and whether its last turn was idle.
struct Shard {
    poller: Box<dyn Poller>,
    idle: bool,
}

/// The running array.
struct Running {
    array: Array,
    shards: Vec<Shard>,
    clients: Vec<Client>,
    clients_idle: bool,
}

/// A control operation that has not completed.
enum Asked {
    Fail { member: MemberIndex, pending: Pending },
    Replace { member: MemberIndex, replacing: Box<Replacing> },
}

/// The content of a member's drive at an earlier time.
struct Snapshot {
    slot: usize,
    drive: SimDrive,
    /// Whether the member was in use since then, so that the drive may have been written.
    is_older: bool,
}

impl Asked {
    /// The slot that a drive is about to fill.
    const fn joins(&self) -> Option<usize> {
        match self {
            Self::Fail { .. } => None,
            Self::Replace { member, .. } => Some(member.at()),
        }
    }
}

/// The array with its environment, and the time. [`Chance`] or the script of a [`Stage`](stage::Stage) decides on the
/// events.
struct World {
    rng: Rng,
    /// A generator for later additions, so that earlier histories do not change if an addition has no effect.
    later: Rng,
    /// The same for the latest additions.
    silences: Rng,
    trace: Trace,
    faults: Faults,
    shape: Shape,
    geometry: Geometry,
    ground: Ground,
    /// The drives by slot.
    drives: Vec<SimDrive>,
    /// Former members that still answer.
    retired: Vec<SimDrive>,
    /// The content of a drive at a clean shutdown, with which it may return.
    snapshot: Option<Snapshot>,
    /// Slots whose drive lacks content and must not be trusted.
    estranged: MemberSet,
    serial: u64,
    running: Option<Running>,
    asked: Vec<Asked>,
    /// Slots that a script is about to fail.
    condemned: MemberSet,
    oracle: Oracle,
    now: Nanos,
    next_id: u64,
    left: u64,
    /// Whether a crash left regions to resynchronize: no faults are injected until the resync has finished.
    recovering: bool,
    /// Regions that crashes left in doubt since the last completed resync.
    doubts: doubt::Doubts,
    /// Members whose stripes the labels guaranteed to be consistent after a crash at this time.
    promised: MemberSet,
    /// Whether the guarantee covers one more member that is lost in the same event.
    loss_covered: bool,
    /// Members that were not in sync at that time.
    out_before: MemberSet,
    /// Until this time all drives stall, or have just stalled, for so long that members may be failed.
    standstill_until: Nanos,
    /// Whether the last daemon was killed, and the array has not been started since.
    killed: bool,
    stopping: bool,
    lost: bool,
    /// Whether faults are disabled and the world is about to end.
    ending: bool,
}

fn to_drive(drive: &SimDrive) -> Drive {
    Drive { device: std::sync::Arc::new(drive.clone()), path: drive.name() }
}

impl World {
    fn new(shape: &Shape, mut rng: Rng, settings: Settings, trace: &Trace) -> Result<Self, String> {
        trace.event(&[1], || shape.describe());
        let faults = Faults::new(shape.rates, settings.limits.without, settings.mutant);
        let drives: Vec<SimDrive> = (0u64..)
            .zip(&shape.drives)
            .map(|(at, spec)| SimDrive::new(*spec, at as u8, at, &mut rng, trace, &faults))
            .collect();
        let mut now = Nanos(0);

        // Junk may have any content by chance.
        let zeroes = strake_block::DeallocateReads::Zeroes;
        let junk = shape.drives.iter().any(|drive| drive.deallocate != zeroes);
        let assembled = make(shape, &drives, junk, &mut rng, (&mut now, trace))?;
        let geometry = assembled.1;
        faults.set_geometry(geometry);
        let ground = ground(&geometry, &mut rng);
        let serial = shape.members as u64;
        let mut world = Self {
            oracle: oracle(shape, &geometry),
            later: rng.beside(),
            silences: rng.beside().beside(),
            rng,
            trace: trace.clone(),
            faults,
            shape: shape.clone(),
            geometry,
            ground,
            drives,
            retired: Vec::new(),
            snapshot: None,
            estranged: MemberSet::EMPTY,
            serial,
            running: None,
            asked: Vec::new(),
            condemned: MemberSet::EMPTY,
            now,
            next_id: 1,
            left: 0,
            recovering: false,
            doubts: doubt::Doubts::default(),
            promised: MemberSet::EMPTY,
            loss_covered: false,
            out_before: MemberSet::EMPTY,
            standstill_until: Nanos(0),
            killed: false,
            stopping: false,
            lost: false,
            ending: false,
        };
        world.start(assembled.0)?;
        Ok(world)
    }

    fn start(&mut self, assembled: strake_engine::Assembled) -> Result<(), String> {
        let Shape { merge, steer, cache, .. } = self.shape;
        let options = Options {
            merge,
            steer,
            cache,
            scratch_bytes: SCRATCH_BYTES,
            tasks: TASKS,
            ..Options::default()
        };
        let (array, pollers) = Array::start_here(assembled, self.shape.cores, options)
            .map_err(|e| format!("start: {e}"))?;
        let device = array.device();
        let mut clients = Vec::new();
        for number in 0..self.shape.clients {
            let core = CoreIndex((number % usize::from(self.shape.cores)) as u16);
            let queue =
                device.open_queue(core, self.shape.depth as u32).map_err(|e| e.to_string())?;
            clients.push(Client::new(number as u64, queue, self.shape.depth, self.rng.fork()));
        }
        let shards = pollers.into_iter().map(|poller| Shard { poller, idle: false }).collect();
        self.running = Some(Running { array, shards, clients, clients_idle: false });
        self.stopping = false;
        let states = self.states();
        if let Some(snapshot) = &mut self.snapshot {
            let out = matches!(states[snapshot.slot], MemberState::Faulty | MemberState::Missing);
            snapshot.is_older |= !out;
        }
        self.refresh();
        Ok(())
    }

    fn array(&self) -> &Array {
        &self.running.as_ref().expect("the array runs").array
    }

    fn outstanding(&self) -> usize {
        self.running.as_ref().map_or(0, |r| r.clients.iter().map(Client::outstanding).sum())
    }

    /// Lets the first client submit a request; the client must have room.
    fn say(
        &mut self,
        what: impl FnOnce(&mut Client, &Ground, &mut Scene<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(running) = &mut self.running else {
            return Err("the array is not running".to_owned());
        };
        let mut scene = Scene {
            oracle: &mut self.oracle,
            trace: &self.trace,
            next_id: &mut self.next_id,
            left: &mut self.left,
            stopping: false,
            lost: false,
            now: self.now,
        };
        what(&mut running.clients[0], &self.ground, &mut scene)
    }

    /// As [`say`](Self::say), and waits for the completion.
    fn ask(
        &mut self,
        what: impl FnOnce(&mut Client, &Ground, &mut Scene<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        self.say(what)?;
        self.run_until("an answer", |world| world.outstanding() == 0)
    }

    /// Runs the world until `done`.
    fn run_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        let mut spins = 0;
        let deadline = self.now.plus(PATIENCE);
        self.wake_all();
        while !done(self) {
            if self.round()? {
                spins = 0;
                self.now = self.now.plus(Nanos(self.rng.between(1, 4) * 500));
            } else {
                spins += 1;
                self.skip(what, spins)?;
            }
            if self.now > deadline {
                return Err(format!(
                    "waited {} s for {what}: {}",
                    PATIENCE.0 / Nanos::SECOND.0,
                    self.picture()
                ));
            }
            self.trace.set_now(self.now);
        }
        Ok(())
    }

    /// Marks all shards and clients as not idle, because they may have work.
    fn wake_all(&mut self) {
        if let Some(running) = &mut self.running {
            running.shards.iter_mut().for_each(|shard| shard.idle = false);
            running.clients_idle = false;
        }
    }

    /// Gives some of the shards and clients a turn, in random order. Returns true while any of them may have work.
    fn round(&mut self) -> Result<bool, String> {
        if self.rng.one_in(32) {
            self.refresh();
        }
        let mut busy = self.take_control_answers()?;
        let Some(running) = &mut self.running else { return Ok(false) };
        let actors = running.shards.len() + 1;
        let first = self.rng.below(actors as u64) as usize;
        let skipped =
            if self.rng.one_in(3) { self.rng.below(actors as u64) as usize } else { actors };
        for at in (0..actors).map(|at| (at + first) % actors).filter(|at| *at != skipped) {
            if let Some(shard) = running.shards.get_mut(at) {
                let turn = shard.poller.turn(self.now);
                shard.idle = turn == Turn::Idle;
                busy |= !shard.idle;
                continue;
            }
            let mut work = false;
            for client in &mut running.clients {
                let mut scene = Scene {
                    oracle: &mut self.oracle,
                    trace: &self.trace,
                    next_id: &mut self.next_id,
                    left: &mut self.left,
                    stopping: self.stopping,
                    lost: self.lost,
                    now: self.now,
                };
                work |= client.turn(&self.ground, &mut scene)?;
            }
            running.clients_idle = !work;
            busy |= work;
        }
        if busy {
            // A shard or client that had its turn earlier may have received work since.
            self.wake_all();
            return Ok(true);
        }
        Ok(!running.clients_idle || running.shards.iter().any(|shard| !shard.idle))
    }

    /// Advances the clock to the next announced event, when every shard and client is idle.
    fn skip(&mut self, what: &str, spins: u32) -> Result<(), String> {
        let Some(running) = &self.running else {
            return Err(format!("nothing runs, waiting for {what}"));
        };
        let mut sleep = Sleep::new();
        running.shards.iter().for_each(|shard| shard.poller.sleep(&mut sleep));
        if sleep.is_never() {
            if spins > SPIN_ROUNDS {
                return Err(format!(
                    "shards neither work nor sleep, waiting for {what}: {}",
                    self.picture()
                ));
            }
            self.now = self.now.plus(Nanos::MICRO);
            return Ok(());
        }
        match sleep.deadline() {
            Some(deadline) => self.now = deadline.max(self.now.plus(Nanos(1))),
            None => {
                return Err(format!(
                    "everybody sleeps for ever, waiting for {what}: {}",
                    self.picture()
                ));
            }
        }
        // A real core reads its clock a little late.
        self.now = self.now.plus(Nanos(self.rng.below(2_000)));
        Ok(())
    }

    /// Sets the time to `now`, also for the drives, which use the clock of the trace.
    fn pass_to(&mut self, now: Nanos) {
        self.now = now;
        self.trace.set_now(now);
    }

    fn states(&self) -> Vec<MemberState> {
        self.array().status().members.iter().map(|m| m.state).collect()
    }

    /// Updates the state of the faults from the array.
    fn refresh(&mut self) {
        if self.running.is_none() {
            return;
        }
        let status = self.array().status();
        if status.resync.is_none() {
            self.recovering = false;
        }
        let impaired = |(at, state): &(usize, MemberState)| {
            let drive = &self.drives[*at];
            *state != MemberState::InSync
                || drive.is_doomed()
                || drive.has_bad_blocks()
                || self.is_asked(*at)
                || self.condemned.contains(at)
        };
        let states = status.members.iter().map(|m| m.state).enumerate();
        self.faults.set_impaired(states.filter(impaired).map(|(at, _)| at).collect());
        self.faults.hold(self.now < self.standstill_until);
    }

    /// True if a command to fail or replace the member of `slot` has not completed.
    fn is_asked(&self, slot: usize) -> bool {
        self.asked.iter().any(|asked| match asked {
            Asked::Fail { member, .. } | Asked::Replace { member, .. } => member.at() == slot,
        })
    }

    /// A summary of the state for error messages.
    fn picture(&self) -> String {
        let Some(running) = &self.running else { return "not running".to_owned() };
        let status = running.array.status();
        let members: Vec<String> = status
            .members
            .iter()
            .map(|m| m.cause.map_or(m.state.to_string(), |c| format!("{} ({c:?})", m.state)))
            .collect();
        format!(
            "members [{}], resync {:?}, rebuild {:?}{}{}, {} request(s) outstanding, {} control operation(s), \
             drives idle: {}",
            members.join(", "),
            status.resync,
            status.rebuild,
            if status.rebuild_halted { " halted" } else { "" },
            if status.lost { ", LOST" } else { "" },
            self.outstanding(),
            self.asked.len(),
            self.drives.iter().all(SimDrive::is_idle),
        )
    }

    /// A new drive for `slot`, like the one that it replaces.
    fn new_drive(&mut self, slot: usize) -> SimDrive {
        let spec: DriveSpec = self.shape.drives[slot];
        self.serial += 1;
        SimDrive::new(spec, slot as u8, self.serial, &mut self.rng, &self.trace, &self.faults)
    }
}

/// Creates an array on `drives`.
fn make(
    shape: &Shape,
    drives: &[SimDrive],
    overwrite: bool,
    rng: &mut Rng,
    (now, trace): (&mut Nanos, &Trace),
) -> Result<(strake_engine::Assembled, Geometry), String> {
    let spec = CreateSpec {
        name: "sim".parse::<Name>().map_err(|e| e.to_string())?,
        level: shape.level,
        group_size: shape.group_size,
        strip_bytes: shape.strip_bytes,
        block_size: shape.block_size,
        consistency: shape.consistency,
    };
    let list: Vec<Drive> = drives.iter().map(to_drive).collect();
    let plan = strake_engine::plan_create(&spec, &list).map_err(|e| e.to_string())?;
    let ids = Ids {
        array: Uuid::from_random(rng.bytes16()),
        epoch: Uuid::from_random(rng.bytes16()),
        members: (0..shape.members).map(|_| Uuid::from_random(rng.bytes16())).collect(),
    };
    let mut wait = patient(now, trace);
    let assembled = strake_engine::create(&plan, list, &ids, overwrite, &mut wait)
        .map_err(|e| e.to_string())?;
    Ok((assembled, plan.geometry))
}

fn oracle(shape: &Shape, geometry: &Geometry) -> Oracle {
    let zeroes = shape.drives.iter().all(|d| d.deallocate == strake_block::DeallocateReads::Zeroes);
    let first = if zeroes { Content::Zero } else { Content::Unknown };
    let cached = shape.drives.iter().any(|d| d.cache == VolatileCache::Present);
    let cache = if cached { VolatileCache::Present } else { VolatileCache::Absent };
    Oracle::new(geometry, first, cache)
}

fn ground(geometry: &Geometry, rng: &mut Rng) -> Ground {
    let capacity = geometry.capacity_blocks();
    let mut spots: Vec<u64> = (0..rng.between(1, 3)).map(|_| rng.below(capacity)).collect();
    spots.push(capacity.saturating_sub(64));
    Ground {
        capacity,
        block_size: geometry.block_size(),
        strip: u64::from(geometry.strip_blocks()),
        stripe: geometry.stripe_data_blocks(),
        spots,
    }
}

/// Interval of polls of a drive that has not answered, in simulated time.
const LOOK: Nanos = Nanos(50 * Nanos::MICRO.0);

/// The interval after a wait of more than a second.
const LOOK_LATE: Nanos = Nanos(2 * Nanos::MILLI.0);

/// A wait function that advances the clocks of the world and of the drives. It returns `None` after a very long time
/// without a result.
fn patient<'a>(now: &'a mut Nanos, trace: &'a Trace) -> impl FnMut() -> Option<Nanos> + 'a {
    let began = *now;
    move || {
        let late = now.since(began) > Nanos::SECOND;
        *now = now.plus(if late { LOOK_LATE } else { LOOK });
        trace.set_now(*now);
        (now.since(began) < PATIENCE).then_some(*now)
    }
}
