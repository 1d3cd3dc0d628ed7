//! Plays a history: the real engine, a caller with requests and commands, and a tape that records all events.

use strake_block::{Completion, Op};
use strake_engine::{
    ArrayError, AssemblePolicy, Consistency, CreateSpec, Drive, Ids, MemberIo, Outcome, Pending,
    Replacing, assemble, create, plan_create, prepare_drive, store_config,
};
use strake_raid::Geometry;
use strake_units::{Lba, LbaRange, MemberIndex, MemberSet, Name, Nanos};

use super::case::{Before, Case, Request, Step};
use super::disk::{Disk, Event, Tape, note};
use super::host::{Host, PATIENCE, Stopping, durability, write_op};
use super::image::Image;
use super::jobs::Job;
use super::promise::Promise;
use super::record::{Record, at_once, uuid, watched};
use crate::oracle::{Content, Oracle};
use crate::placement::Placement;

/// Largest request of a client.
pub(super) const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// The record of the control plane on every member.
pub(super) const CONFIG: &[u8] = b"what the control plane writes down";

/// The number from which the identifier of a spare is drawn.
const SPARE: u64 = 200;

/// The duration of a round of a history.
pub(super) const ROUND: Nanos = Nanos(1_000);

pub(super) struct Player {
    geometry: Geometry,
    placement: Placement,
    disks: Vec<Disk>,
    host: Host,
    oracle: Oracle,
    tape: Tape,
    next_id: u64,
    live: usize,
    promise: Promise,
    /// The event at the start of this turn.
    turn: usize,
    /// Members whose failure was requested while the history was recorded.
    condemned: MemberSet,
    under_way: Option<UnderWay>,
    recording: bool,
}

/// A job that has not completed.
enum UnderWay {
    Replacing(Box<Replacing>),
    /// The new mode is weaker than the previous one.
    Weaker(Pending),
    Stronger(Pending),
}

impl UnderWay {
    fn poll(&mut self) -> Option<Result<(), ArrayError>> {
        match self {
            Self::Replacing(replacing) => replacing.poll(),
            Self::Weaker(pending) | Self::Stronger(pending) => pending.poll(),
        }
    }
}

impl Player {
    pub(super) fn new(case: &Case) -> Result<Self, String> {
        let spec = case.disk_spec();
        let image = Image::new(spec.bytes);
        let disks: Vec<Disk> =
            (0..case.drives()).map(|at| Disk::new(spec, at, image.clone())).collect();
        let drives: Vec<Drive> = disks[..case.members].iter().map(Disk::drive).collect();
        let create_spec = CreateSpec {
            name: "crash".parse::<Name>().map_err(|e| e.to_string())?,
            level: case.level,
            group_size: case.group_size,
            strip_bytes: case.strip_bytes,
            block_size: Some(case.array_block),
            consistency: case.mode,
        };
        let plan = plan_create(&create_spec, &drives).map_err(|e| e.to_string())?;
        let ids = Ids {
            array: uuid(case.seed, 1),
            epoch: uuid(case.seed, 2),
            members: (0..case.members as u64).map(|at| uuid(case.seed, 100 + at)).collect(),
        };
        let assembled =
            create(&plan, drives, &ids, true, &mut at_once(0)).map_err(|e| e.to_string())?;
        // Twice, so that there is an older copy as well.
        let drives: Vec<Drive> = disks[..case.members].iter().map(Disk::drive).collect();
        for content in [&b"what it wrote down before"[..], CONFIG] {
            store_config(&drives, ids.array, content, &mut at_once(0))
                .map_err(|e| e.to_string())?;
        }
        for spare in &disks[case.members..] {
            prepare_drive(&spare.drive(), uuid(case.seed, SPARE), &mut at_once(0))
                .map_err(|e| e.to_string())?;
        }
        let host = Host::start(assembled, case, Nanos(1_000_000_000_000))?;
        Ok(Self {
            geometry: plan.geometry,
            placement: case.placement(),
            disks,
            host,
            oracle: Oracle::new(&plan.geometry, Content::Zero, spec.cache),
            tape: Tape::default(),
            next_id: 1,
            live: 0,
            promise: Promise::default(),
            turn: 0,
            condemned: MemberSet::EMPTY,
            under_way: None,
            recording: false,
        })
    }

    pub(super) fn play(mut self, case: Case) -> Result<Record, String> {
        self.fill(&case)?;
        for slot in &case.failed {
            self.fail(*slot)?;
        }
        match case.before {
            Before::Busy => self.rest(4)?,
            Before::Rested => self.rest(40)?,
            Before::Restarted => self.restart(&case)?,
        }
        if case.around {
            self.go_around(&case)?;
        }
        self.host.until("quiet drives", |host| {
            let idle = self.disks.iter().all(Disk::is_idle);
            host.round(ROUND);
            Ok(idle && self.disks.iter().all(Disk::is_idle))
        })?;
        self.oracle.all_stable();
        let oracle = self.oracle.clone();
        let base = self.disks.iter().map(Disk::image).collect();
        self.record(&case);
        for step in case.script(&self.geometry) {
            self.step(step, &case)?;
        }
        let Self { host, tape, geometry, placement, .. } = self;
        drop(host);
        let events = std::mem::take(&mut *tape.lock().expect("one thread runs a case"));
        let pulled = if case.pulled { case.out().bits() } else { 0 };
        Ok(Record { case, geometry, placement, base, oracle, events, pulled })
    }

    /// Starts the recording of the history.
    fn record(&mut self, case: &Case) {
        for (at, disk) in self.disks.iter().enumerate() {
            disk.record(&self.tape, case.seed ^ at as u64);
        }
        self.recording = true;
        self.note_promise(true);
    }

    /// Gives every watched block a stable content.
    fn fill(&mut self, case: &Case) -> Result<(), String> {
        let size = self.geometry.block_size();
        let all = watched(&self.placement, case.first_stripe(&self.geometry), size);
        let stripe = self.geometry.stripe_data_blocks().min(REQUEST_BYTES_MAX >> size.shift());
        for start in (0..all.blocks).step_by(stripe as usize) {
            let blocks = stripe.min(all.blocks - start);
            let range = LbaRange::new(Lba(all.start.0 + start), blocks);
            let id = self.fresh_id();
            let begun = self.oracle.begin_write(id, range, Content::Pattern(id), false);
            self.host.run(write_op(id, range, size, false))?;
            self.oracle.end_write(begun, range, false);
        }
        self.host.run(Op::Flush)?;
        self.oracle.all_stable();
        Ok(())
    }

    /// Writes to the last two strips, more than a partial-write record holds, until the ring of the redo log is about
    /// to wrap around.
    fn go_around(&mut self, case: &Case) -> Result<(), String> {
        let tape = Tape::default();
        self.disks.iter().for_each(|disk| disk.record(&tape, case.seed));
        let size = self.geometry.block_size();
        let strip = u64::from(self.geometry.strip_blocks());
        let range = LbaRange::new(Lba(self.geometry.capacity_blocks() - 2 * strip), 2 * strip);
        let (start, bytes) = strake_ondisk::redo_ring(0, 1);
        // The length of the longest record: no record starts closer than this to the end.
        let record = strake_ondisk::REDO_HEADER_BYTES as u64 + u64::from(case.strip_bytes);
        let near = start + bytes - record * (2 + case.seed % 4);
        for _ in 0..bytes / record {
            let id = self.fresh_id();
            self.host.run(write_op(id, range, size, false))?;
            let events = std::mem::take(&mut *tape.lock().expect("one thread runs a case"));
            let offsets = events.iter().filter_map(|event| match event {
                Event::Issue { offset, .. } => Some(*offset),
                Event::Done { .. }
                | Event::FlushIssue
                | Event::FlushDone { .. }
                | Event::Begin { .. }
                | Event::Ack { .. }
                | Event::FlushBegin { .. }
                | Event::FlushAck { .. }
                | Event::Promise { .. } => None,
            });
            let log = start..start + bytes;
            let last = offsets.filter(|offset| log.contains(offset)).max();
            if last.ok_or("a write that is to be logged is not")? >= near {
                self.disks.iter().for_each(Disk::forget);
                return Ok(());
            }
        }
        Err("the ring of the redo log has no end".to_owned())
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn fail(&mut self, slot: u8) -> Result<(), String> {
        let pending = self.host.array.begin_fail(MemberIndex(slot));
        let mut pending = pending.map_err(|e| e.to_string())?;
        self.host.until("failing a member", |host| {
            host.round(ROUND);
            match pending.poll() {
                Some(Err(error)) => Err(format!("failing member {slot}: {error}")),
                answer => Ok(answer.is_some()),
            }
        })
    }

    /// Runs quarters of a second.
    fn rest(&mut self, quarters: u64) -> Result<(), String> {
        for _ in 0..quarters {
            self.round(Nanos(250_000_000))?;
            for _ in 0..12 {
                self.round(ROUND)?;
            }
        }
        Ok(())
    }

    fn restart(&mut self, case: &Case) -> Result<(), String> {
        self.stop_cleanly()?;
        let here = |disk: &usize| !(case.pulled && case.failed.contains(&(*disk as u8)));
        let here = (0..self.disks.len()).filter(here);
        let drives: Vec<Drive> = here.map(|at| self.disks[at].drive()).collect();
        let fresh = uuid(case.seed, 3);
        let policy = AssemblePolicy::default();
        let now = self.host.now;
        let found =
            assemble(&drives, policy, &|_, _| true, &mut || fresh, &mut at_once(now.0)).0.pop();
        match found {
            Some(Outcome::Ready(assembled)) => self.host = Host::start(*assembled, case, now)?,
            Some(Outcome::Waiting { what, .. } | Outcome::Refused { what, .. }) => {
                return Err(what);
            }
            None => return Err("no array is found after an orderly stop".to_owned()),
        }
        self.rest(1)
    }

    fn step(&mut self, step: Step, case: &Case) -> Result<(), String> {
        match step {
            Step::Requests(requests) => {
                requests.into_iter().try_for_each(|request| self.request(request))
            }
            Step::Rounds(rounds) => (0..rounds).try_for_each(|_| self.round(ROUND)),
            Step::Settle => self.settle(),
            Step::Rest => self.rest(40),
            Step::Fail(slot) => {
                self.condemned.insert(MemberIndex(slot));
                self.note_promise(false);
                // The failure may or may not complete before the crash.
                let _ = self.host.array.begin_fail(MemberIndex(slot)).map_err(|e| e.to_string())?;
                Ok(())
            }
            Step::Stop => self.stop(case),
            Step::Job(job) => self.begin(job, case),
        }
    }

    fn begin(&mut self, job: Job, case: &Case) -> Result<(), String> {
        let array = &self.host.array;
        let begun = match job {
            Job::Replace(slot) | Job::Copy(slot) => {
                let drive = self.disks[case.members].drive();
                array
                    .begin_replace(MemberIndex(slot), &drive, uuid(case.seed, SPARE))
                    .map(|replacing| Some(UnderWay::Replacing(Box::new(replacing))))
            }
            Job::Readd(slot) => {
                let drive = self.disks[usize::from(slot)].drive();
                let mut wait = at_once(self.host.now.0);
                let label = MemberIo::open(&drive, &mut wait).and_then(|mut io| io.newest_label());
                let label = label.map_err(|e| e.to_string())?.ok_or("a member has no label")?;
                array
                    .begin_readd(MemberIndex(slot), &drive, &label)
                    .map(|replacing| Some(UnderWay::Replacing(Box::new(replacing))))
            }
            Job::Scrub(mode) => array.begin_scrub(mode).map(|()| None),
            Job::Mode(mode) => {
                let pending = array.begin_set_consistency(mode);
                let weaker = case.mode == Consistency::Strict || mode == Consistency::Resync;
                let under_way = if weaker { UnderWay::Weaker } else { UnderWay::Stronger };
                Ok(Some(under_way(pending)))
            }
        };
        self.under_way = begun.map_err(|error| format!("{job:?}: {error}"))?;
        self.note_promise(false);
        Ok(())
    }

    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..PATIENCE {
            if self.live == 0 {
                return Ok(());
            }
            self.round(ROUND)?;
        }
        Err(format!("requests are not answered: {:?}", self.host.array.status()))
    }

    fn stop(&mut self, case: &Case) -> Result<(), String> {
        // No request is in flight, so none completes later.
        self.settle()?;
        self.stop_cleanly()?;
        if case.mode != Consistency::None {
            // No region is in doubt, with any members out.
            let logged = self.geometry.all_members();
            self.note(Promise { logged, ..self.promise });
        }
        Ok(())
    }

    /// Runs rounds until the array has stopped. They record the promises of the labels, like all rounds: a job may
    /// still finish, and a member that is then in sync no longer counts as out.
    fn stop_cleanly(&mut self) -> Result<(), String> {
        let mut stopping = Stopping::start(&self.host.array);
        for _ in 0..PATIENCE {
            self.round(ROUND)?;
            if stopping.is_finished(&self.host.array)? {
                return Ok(());
            }
        }
        Err(format!("the array does not stop: {:?}", self.host.array.status()))
    }

    fn request(&mut self, request: Request) -> Result<(), String> {
        let id = self.fresh_id();
        let size = self.geometry.block_size();
        let (event, op) = match request {
            Request::Write { range, fua } => {
                let content = Content::Pattern(id);
                (Event::Begin { id, range, content }, write_op(id, range, size, fua))
            }
            Request::Zeroes { range, fua } => {
                let content = Content::Zero;
                let op = Op::WriteZeroes { range, durability: durability(fua) };
                (Event::Begin { id, range, content }, op)
            }
            Request::Flush => (Event::FlushBegin { id }, Op::Flush),
        };
        note(&self.tape, event);
        self.live += 1;
        self.host.submit(id, op)
    }

    fn round(&mut self, step: Nanos) -> Result<(), String> {
        self.turn = self.tape.lock().expect("one thread runs a case").len();
        for Completion { token, op, result } in self.host.round(step) {
            result.map_err(|error| format!("request {} failed: {error}", token.0))?;
            self.live -= 1;
            let fua = |durability| durability == strake_block::Durability::Fua;
            let event = match op {
                Op::Write { durability, .. } | Op::WriteZeroes { durability, .. } => {
                    Event::Ack { id: token.0, fua: fua(durability) }
                }
                Op::Flush => Event::FlushAck { id: token.0 },
                Op::Read { .. } | Op::Deallocate { .. } => continue,
            };
            note(&self.tape, event);
        }
        if let Some(answer) = self.under_way.as_mut().and_then(UnderWay::poll) {
            self.under_way = None;
            // A member that is failed meanwhile is not replaced.
            if self.condemned.is_empty() {
                answer.map_err(|error| format!("a job: {error}"))?;
            }
        }
        if self.recording {
            self.note_promise(false);
        }
        Ok(())
    }

    /// Records the promise of the label that every member in use holds, if it has changed.
    fn note_promise(&mut self, first: bool) {
        let Promise { logged, out } = Promise::of(&self.host.array.newest_label(), &self.placement);
        // A weaker mode is recorded before it is used.
        let weaker = matches!(self.under_way, Some(UnderWay::Weaker(_)));
        let logged = if weaker { MemberSet::EMPTY } else { logged };
        let promise = Promise { logged, out: out | self.condemned };
        if first || promise != self.promise {
            self.promise = promise;
            self.note(promise);
        }
    }

    fn note(&self, promise: Promise) {
        note(&self.tape, Event::Promise { promise, from: self.turn });
    }
}

#[cfg(test)]
mod tests {
    use strake_engine::Consistency;
    use strake_raid::Level;
    use strake_units::{MemberIndex, MemberSet};

    use super::{Case, Job, Player, Promise, Step};
    use crate::crash::case::Ground;
    use crate::crash::disk::Lie;

    /// More rounds than the member needs to be in sync.
    const ROUNDS: u64 = 160;

    /// Member 1 is out and is re-added, and the array is stopped `rounds` rounds later. Returns the members that are
    /// not in sync according to the recorded promises: when the stop started, and at its end.
    fn check(
        (level, members): (Level, usize),
        mode: Consistency,
        cores: u16,
        rounds: u64,
    ) -> [MemberSet; 2] {
        let job = Job::Readd(1);
        let case = Case {
            level,
            members,
            mode,
            cores,
            cached: false,
            ground: Ground::Start,
            failed: vec![1],
            pulled: false,
            around: false,
            job: Some(job),
            ..Case::draw(1, 0, Lie::None)
        };
        let played = || {
            let mut player = Player::new(&case)?;
            player.fail(1)?;
            player.rest(4)?;
            player.record(&case);
            player.step(Step::Job(job), &case)?;
            player.step(Step::Rounds(rounds), &case)?;
            let before = player.promise.out;
            player.step(Step::Stop, &case)?;
            let label = Promise::of(&player.host.array.newest_label(), &player.placement);
            assert_eq!(player.promise.out, label.out, "{case}, {rounds} rounds");
            Ok::<_, String>([before, label.out])
        };
        played().unwrap_or_else(|what| panic!("{case}, {rounds} rounds: {what}"))
    }

    /// A member was in sync again during the stop of the array, the log had ended with this, and two more members were
    /// lost in the crash. The array rejected the start, as the mode defines. The judge expected a start, because
    /// promises were not recorded during a stop.
    #[test]
    fn what_the_labels_promise_is_noted_while_the_array_stops() {
        let out = MemberSet::of(MemberIndex(1));
        let levels = [(Level::Raid1, 3), (Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid73, 6)];
        let modes = [Consistency::Safe, Consistency::Strict, Consistency::Resync];
        for (level, mode) in levels.into_iter().flat_map(|level| modes.map(|mode| (level, mode))) {
            for cores in [1, 2] {
                let mut noted = (0..ROUNDS).map(|rounds| check(level, mode, cores, rounds));
                let meanwhile = noted.any(|noted| noted == [out, MemberSet::EMPTY]);
                assert!(meanwhile, "{level:?} {mode} on {cores}: in sync during no stop");
            }
        }
    }
}
