//! The array, its drives, its clients and the clock.

use std::sync::Arc;

use strake_block::BlockDevice;
use strake_dev_mem::{FaultPlan, Faulty, Modelled, Profile};
use strake_engine::{Array, Consistency, CreateSpec, Drive, Ids, Options};
use strake_raid::{Level, MemberState};
use strake_reactor::{Poller, Sleep, Turn};
use strake_units::{CoreIndex, MemberIndex, Name, Nanos, Uuid};

use super::client::{Client, Habit};
use super::drive::LabelDrive;
use super::sample::Sample;
use crate::rng::Rng;

/// The parameters of an experiment.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Level of the array.
    pub level: Level,
    /// Its consistency mode.
    pub consistency: Consistency,
    /// The number of drives.
    pub drives: u8,
    /// The performance of the drives. Every drive gets a seed of its own.
    pub profile: Profile,
    /// Bytes of each drive.
    pub member_bytes: u64,
    /// Bytes of a strip.
    pub strip_bytes: u32,
    /// The number of shards; clients are distributed over them in turn.
    pub cores: u16,
    /// Simulated time of every turn.
    pub turn: Nanos,
    /// The seed of all random choices.
    pub seed: u64,
}

impl Spec {
    /// Eight drives of 16 GiB in mode `safe` on one core.
    #[must_use]
    pub const fn of(level: Level, profile: Profile) -> Self {
        Self {
            level,
            consistency: Consistency::Safe,
            drives: 8,
            profile,
            member_bytes: 16 << 30,
            strip_bytes: 64 << 10,
            cores: 1,
            turn: Nanos(500),
            seed: 1,
        }
    }
}

/// Simulated time after which a wait counts as stuck.
const PATIENCE: Nanos = Nanos(600 * Nanos::SECOND.0);

/// Consecutive turns with work but without simulated time, after which the run fails.
const SPINS_MAX: u32 = 1_000_000;

/// An array under experiment.
pub struct Lab {
    spec: Spec,
    array: Array,
    /// The drives of the members, by slot.
    members: Vec<Drive>,
    /// The fault plan of each drive.
    plans: Vec<FaultPlan>,
    shards: Vec<Box<dyn Poller>>,
    clients: Vec<Client>,
    rng: Rng,
    now: Nanos,
    drives_made: u64,
}

impl Lab {
    /// Creates the array and waits for full redundancy.
    ///
    /// Returns a description if the engine rejects a step or makes no progress.
    pub fn new(spec: &Spec) -> Result<Self, String> {
        let mut rng = Rng::new(spec.seed);
        let mut made = 0;
        let (members, plans): (Vec<Drive>, Vec<FaultPlan>) =
            (0..spec.drives).map(|_| make_drive(spec, &mut rng, &mut made)).unzip();
        let wanted = CreateSpec {
            name: "lab".parse::<Name>().map_err(|e| e.to_string())?,
            level: spec.level,
            group_size: None,
            strip_bytes: spec.strip_bytes,
            block_size: None,
            consistency: spec.consistency,
        };
        let plan = strake_engine::plan_create(&wanted, &members).map_err(|e| e.to_string())?;
        let ids = Ids {
            array: Uuid::from_random(rng.bytes16()),
            epoch: Uuid::from_random(rng.bytes16()),
            members: (0..spec.drives).map(|_| Uuid::from_random(rng.bytes16())).collect(),
        };
        let mut now = Nanos(0);
        let assembled = {
            let mut wait = patient(&mut now);
            strake_engine::create(&plan, members.clone(), &ids, false, &mut wait)
                .map_err(|e| e.to_string())?
        };
        let (array, shards) = Array::start_here(assembled, spec.cores, Options::default())
            .map_err(|e| format!("start: {e}"))?;
        let spec = spec.clone();
        let mut lab = Self {
            spec,
            array,
            members,
            plans,
            shards,
            clients: Vec::new(),
            rng,
            now,
            drives_made: made,
        };
        lab.until("full redundancy", |lab| lab.array.status().resync.is_none())?;
        Ok(lab)
    }

    /// The array, for its status and for commands.
    #[must_use]
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// The simulated time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Ends all clients and creates one client of `habit` per shard, or none.
    ///
    /// Returns an error if requests do not complete.
    pub fn set_clients(&mut self, habit: Option<Habit>) -> Result<(), String> {
        self.clients.iter_mut().for_each(Client::rest);
        self.until("answers to clients", |lab| lab.clients.iter().all(Client::is_quiet))?;
        self.clients.clear();
        let Some(habit) = habit else { return Ok(()) };
        let device = self.array.device();
        let blocks = device.info().blocks;
        for core in 0..self.spec.cores {
            let queue =
                device.open_queue(CoreIndex(core), habit.depth()).map_err(|e| e.to_string())?;
            self.clients.push(Client::new(habit, queue, blocks, self.rng.fork(), self.now));
        }
        Ok(())
    }

    /// Fails `member`.
    ///
    /// Returns an error if the array rejects this.
    pub fn fail(&mut self, member: MemberIndex) -> Result<(), String> {
        let mut pending = self.array.begin_fail(member).map_err(|e| e.to_string())?;
        let mut answer = None;
        self.until("a member to fail", |_| {
            answer = answer.take().or_else(|| pending.poll());
            answer.is_some()
        })?;
        answer.expect("waited for").map_err(|e| e.to_string())
    }

    /// Replaces `member` by a new drive; the rebuild starts.
    ///
    /// Returns an error if the array rejects this.
    pub fn replace(&mut self, member: MemberIndex) -> Result<(), String> {
        let (drive, plan) = make_drive(&self.spec, &mut self.rng, &mut self.drives_made);
        let uuid = Uuid::from_random(self.rng.bytes16());
        {
            // The array is not polled meanwhile, so its time does not advance either.
            let mut elsewhere = self.now;
            let mut wait = patient(&mut elsewhere);
            strake_engine::prepare_drive(&drive, uuid, &mut wait).map_err(|e| e.to_string())?;
        }
        let mut replacing =
            self.array.begin_replace(member, &drive, uuid).map_err(|e| e.to_string())?;
        let mut answer = None;
        self.until("a member to be replaced", |_| {
            answer = answer.take().or_else(|| replacing.poll());
            answer.is_some()
        })?;
        answer.expect("waited for").map_err(|e| e.to_string())?;
        self.members[member.at()] = drive;
        self.plans[member.at()] = plan;
        Ok(())
    }

    /// Kills the daemon: requests in flight never complete. Returns the drives of the members by slot, their fault
    /// plans, and the time.
    #[must_use]
    pub fn kill(self) -> (Vec<Drive>, Vec<FaultPlan>, Nanos) {
        (self.members, self.plans, self.now)
    }

    /// True while a member is being rebuilt.
    #[must_use]
    pub fn is_rebuilding(&self) -> bool {
        let states = self.array.status().members;
        states.iter().any(|m| matches!(m.state, MemberState::Rebuilding { .. }))
    }

    /// Runs for `span` and returns the measurements.
    ///
    /// Returns an error if a request fails or the engine makes no progress.
    pub fn watch(&mut self, span: Nanos) -> Result<Sample, String> {
        self.clients.iter_mut().for_each(|client| drop(client.take()));
        let (began, before) = (self.now, self.rebuilt_bytes());
        let end = began.plus(span);
        self.run(Some(end), "time to pass", |lab| lab.now >= end)?;
        let latencies = self.clients.iter_mut().flat_map(Client::take).collect();
        let rebuilt = self.rebuilt_bytes() - before;
        Ok(Sample::of(self.now.since(began), latencies, rebuilt))
    }

    /// Rebuilt bytes of the member that is being rebuilt; the whole member if there is none.
    #[must_use]
    pub fn rebuilt_bytes(&self) -> u64 {
        let status = self.array.status();
        let geometry = status.geometry;
        let member = geometry.member_blocks_used() << geometry.block_size().shift();
        let Some(of) = status.rebuild else { return member };
        (u128::from(member) * u128::from(of.done_bytes) / u128::from(of.total_bytes.max(1))) as u64
    }

    /// Runs until `done`, with a generous time limit.
    ///
    /// Returns an error if a request fails or the time limit is exceeded.
    pub fn until(&mut self, what: &str, done: impl FnMut(&Self) -> bool) -> Result<(), String> {
        self.run(None, what, done)
    }

    /// `end` only limits the steps of the clock.
    fn run(
        &mut self,
        end: Option<Nanos>,
        what: &str,
        mut done: impl FnMut(&Self) -> bool,
    ) -> Result<(), String> {
        let deadline = self.now.plus(PATIENCE);
        let mut spins = 0;
        while !done(self) {
            if self.round()? {
                spins += 1;
                self.now = self.now.plus(self.spec.turn);
            } else {
                spins = 0;
                self.jump(end, what)?;
            }
            if self.now > deadline || spins > SPINS_MAX {
                return Err(format!("waited too long for {what}: {:?}", self.array.status()));
            }
        }
        Ok(())
    }

    /// Runs one turn of every shard and client. Returns true while any of them may have work.
    fn round(&mut self) -> Result<bool, String> {
        let mut busy = false;
        for shard in &mut self.shards {
            busy |= shard.turn(self.now) != Turn::Idle;
        }
        for client in &mut self.clients {
            busy |= client.turn(self.now)?;
        }
        Ok(busy)
    }

    /// Advances the clock to the next event, by at least one turn, when no shard or client has work.
    fn jump(&mut self, end: Option<Nanos>, what: &str) -> Result<(), String> {
        let mut sleep = Sleep::new();
        self.shards.iter().for_each(|shard| shard.sleep(&mut sleep));
        self.clients.iter().filter_map(Client::next_time).for_each(|time| sleep.until(time));
        end.into_iter().for_each(|end| sleep.until(end));
        let next = match (sleep.is_never(), sleep.deadline()) {
            (true, _) => self.now,
            (false, Some(deadline)) => deadline,
            (false, None) => return Err(format!("everybody sleeps for ever, waiting for {what}")),
        };
        self.now = next.max(self.now.plus(self.spec.turn).max(self.now.plus(Nanos(1))));
        Ok(())
    }
}

fn make_drive(spec: &Spec, rng: &mut Rng, made: &mut u64) -> (Drive, FaultPlan) {
    let path = format!("lab:{}:{made}", spec.seed);
    *made += 1;
    let profile = Profile { seed: rng.bits(), ..spec.profile };
    let device = Modelled::new(LabelDrive::new(spec.member_bytes, &path), profile);
    let plan = FaultPlan::new(0);
    let device = Faulty::new(device.expect("profiles in use are sound"), plan.clone());
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    (Drive { device, path }, plan)
}

/// A wait function without a limit, with an advancing clock.
fn patient(now: &mut Nanos) -> impl FnMut() -> Option<Nanos> + '_ {
    || {
        *now = now.plus(Nanos(50_000));
        Some(*now)
    }
}
