//! A world: one array on simulated drives, its clients, and what happens to them.

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

/// Rounds in which nothing at all happens although a shard asks not to sleep, before that counts as an error.
const SPIN_ROUNDS: u32 = 100_000;

/// Simulated time without any progress after which a wait counts as stuck.
const PATIENCE: Nanos = Nanos(600 * Nanos::SECOND.0);

/// Memory of a shard. Filling what a real one has takes longer than most worlds.
const SCRATCH_BYTES: usize = 1 << 20;

/// Bands that a shard works on at a time, for the same reason. Clients are few, and come to wait for one nevertheless.
const TASKS: usize = 24;

/// How much less happens in a run than its seed has drawn: a failing run is understood sooner when it is small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Kinds of faults that never happen.
    pub without: Kinds,
    /// Host requests, at most.
    pub requests: Option<u64>,
    /// Clients, at most, but one.
    pub clients: Option<usize>,
    /// Shards, at most, but one.
    pub cores: Option<u16>,
}

/// How a run is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// What is left out.
    pub limits: Limits,
    /// The lie that drives tell.
    pub mutant: Mutant,
    /// Print every event.
    pub print: bool,
    /// Keep the last events for the report of a violation.
    pub keep: bool,
}

/// How a run ended.
#[derive(Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What the world was made of.
    pub shape: String,
    /// What went wrong, if anything did.
    pub violation: Option<String>,
    /// The record of the run.
    pub trace: Trace,
    /// Host requests made.
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

/// A shard and whether its last turn found nothing to do.
struct Shard {
    poller: Box<dyn Poller>,
    idle: bool,
}

/// The array while it runs.
struct Running {
    array: Array,
    shards: Vec<Shard>,
    clients: Vec<Client>,
    clients_idle: bool,
}

/// A control operation that has not been answered.
enum Asked {
    Fail { member: MemberIndex, pending: Pending },
    Replace { member: MemberIndex, replacing: Box<Replacing> },
}

/// What the drive of a member held at some time.
struct Snapshot {
    slot: usize,
    drive: SimDrive,
    /// The member was in use since, so the drive may have been written to.
    is_older: bool,
}

impl Asked {
    /// The slot that a drive is about to join.
    const fn joins(&self) -> Option<usize> {
        match self {
            Self::Fail { .. } => None,
            Self::Replace { member, .. } => Some(member.at()),
        }
    }
}

/// The array with all that is around it, and time. What happens to it is decided by [`Chance`], or by the script of a
/// [`Stage`](stage::Stage).
struct World {
    rng: Rng,
    /// What came later: histories stay as they were where it brings nothing.
    later: Rng,
    /// The same, for what came last.
    silences: Rng,
    trace: Trace,
    faults: Faults,
    shape: Shape,
    geometry: Geometry,
    ground: Ground,
    /// By slot.
    drives: Vec<SimDrive>,
    /// Drives that were members once and still answer.
    retired: Vec<SimDrive>,
    /// What a drive held when the array was stopped in order, for it to come back with.
    snapshot: Option<Snapshot>,
    /// Slots whose drive lacks something that it should hold and must not be believed.
    estranged: MemberSet,
    serial: u64,
    running: Option<Running>,
    asked: Vec<Asked>,
    /// Slots that a script is about to take out of use.
    condemned: MemberSet,
    oracle: Oracle,
    now: Nanos,
    next_id: u64,
    left: u64,
    /// A crash left regions to resynchronize: no further faults until that is done.
    recovering: bool,
    /// What crashes left in doubt since the last resync that ended.
    doubts: doubt::Doubts,
    /// Members whose stripes the labels promised to be sound whenever the machine stops, when it did.
    promised: MemberSet,
    /// And whether that covers one more that is lost in the same event.
    loss_covered: bool,
    /// Members that were not in sync then.
    out_before: MemberSet,
    /// Until then all drives stall, or have just stalled, for so long that members may be failed.
    standstill_until: Nanos,
    /// The last daemon was killed, and the array has not been started since.
    killed: bool,
    stopping: bool,
    lost: bool,
    /// Faults have stopped, and everything is to come to rest.
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

        // Junk may look like anything by chance.
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

    /// Has the first client make a request, for which it has room.
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

    /// The same, and waits for the answer.
    fn ask(
        &mut self,
        what: impl FnOnce(&mut Client, &Ground, &mut Scene<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        self.say(what)?;
        self.run_until("an answer", |world| world.outstanding() == 0)
    }

    /// Lets the world go on until `done`.
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

    /// A shard or client that was idle may have work now.
    fn wake_all(&mut self) {
        if let Some(running) = &mut self.running {
            running.shards.iter_mut().for_each(|shard| shard.idle = false);
            running.clients_idle = false;
        }
    }

    /// Gives some of the shards and clients a turn, in random order. True while any of them may have work.
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
            // A shard or client that had its turn before may have been given work since.
            self.wake_all();
            return Ok(true);
        }
        Ok(!running.clients_idle || running.shards.iter().any(|shard| !shard.idle))
    }

    /// Every shard and client is idle: moves the clock to the next thing that was announced.
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

    /// It is `now`, for the drives too: they go by the clock of the trace.
    fn pass_to(&mut self, now: Nanos) {
        self.now = now;
        self.trace.set_now(now);
    }

    fn states(&self) -> Vec<MemberState> {
        self.array().status().members.iter().map(|m| m.state).collect()
    }

    /// Tells the fault atlas how things stand.
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

    /// True when a command to fail or replace the member of `slot` has no answer yet.
    fn is_asked(&self, slot: usize) -> bool {
        self.asked.iter().any(|asked| match asked {
            Asked::Fail { member, .. } | Asked::Replace { member, .. } => member.at() == slot,
        })
    }

    /// What a person wants to know first.
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

    /// A fresh drive for `slot`, like the one it replaces.
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

/// Simulated time between two looks at a drive that has not answered.
const LOOK: Nanos = Nanos(50 * Nanos::MICRO.0);

/// The same once the wait has taken more than a second.
const LOOK_LATE: Nanos = Nanos(2 * Nanos::MILLI.0);

/// A way to wait that moves the clock of the world and that of the drives. It gives up when nothing has come of it for
/// very long.
fn patient<'a>(now: &'a mut Nanos, trace: &'a Trace) -> impl FnMut() -> Option<Nanos> + 'a {
    let began = *now;
    move || {
        let late = now.since(began) > Nanos::SECOND;
        *now = now.plus(if late { LOOK_LATE } else { LOOK });
        trace.set_now(*now);
        (now.since(began) < PATIENCE).then_some(*now)
    }
}
