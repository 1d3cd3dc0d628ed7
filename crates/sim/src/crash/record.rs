//! A short history, written down: what every drive was told and did, what clients were told, what labels promised.

use std::sync::Arc;

use strake_block::{Completion, Op};
use strake_engine::{
    AssemblePolicy, Consistency, CreateSpec, Drive, Ids, Outcome, assemble, create, plan_create,
    store_config,
};
use strake_ondisk::RecordedState;
use strake_raid::Geometry;
use strake_units::{Lba, LbaRange, MemberIndex, Name, Nanos, Uuid};

use super::case::{Before, Case, Request, STRIPES, Step};
use super::disk::{Disk, Event, Promise, Tape, note};
use super::host::{Host, durability, write_op};
use super::image::Image;
use crate::drive::Crash;
use crate::oracle::{Begun, Content, Oracle};
use crate::rng::Rng;

/// What the control plane has written down on every member.
pub(super) const CONFIG: &[u8] = b"what the control plane writes down";

/// A round of a history.
const ROUND: Nanos = Nanos(1_000);

/// What is known of a case after it was played once.
pub(super) struct Record {
    pub(super) case: Case,
    pub(super) geometry: Geometry,
    /// What every drive held, stably, when the history began.
    pub(super) base: Vec<Image>,
    /// What every block held then.
    oracle: Oracle,
    pub(super) events: Vec<Event>,
    /// Drives that are not there after a crash, as a mask.
    pub(super) pulled: u64,
}

impl Record {
    /// Plays the history of a case.
    ///
    /// # Errors
    /// When something goes wrong in it, though nothing went wrong with a drive.
    pub(super) fn of(case: Case) -> Result<Self, String> {
        Player::new(&case)?.play(case)
    }

    /// The blocks that are looked at.
    pub(super) fn watched(&self) -> LbaRange {
        watched(&self.geometry)
    }

    /// What the labels promised at a point.
    pub(super) fn promise(&self, point: usize) -> Promise {
        promise(&self.events[..point])
    }

    /// What blocks may hold when the machine stops at a point, and which stripes had a write under way or not stable.
    pub(super) fn oracle(&self, point: usize, crash: Crash) -> (Oracle, Vec<u64>) {
        let mut oracle = self.oracle.clone();
        let mut live: Vec<(Begun, LbaRange)> = Vec::new();
        for event in &self.events[..point] {
            match event {
                Event::Begin { id, range, content } => {
                    live.push((oracle.begin_write(*id, *range, *content, false), *range));
                }
                Event::FlushBegin { id } => live.push((oracle.begin(*id), LbaRange::default())),
                Event::Ack { id, fua } => {
                    let (begun, range) = take(&mut live, *id);
                    oracle.end_write(begun, range, *fua);
                }
                Event::FlushAck { id } => oracle.end_flush(take(&mut live, *id).0),
                Event::Issue { .. }
                | Event::Done { .. }
                | Event::FlushIssue
                | Event::FlushDone { .. }
                | Event::Promise(_) => {}
            }
        }
        let watched = self.watched();
        let mut stripes: Vec<u64> = (watched.start.0..watched.end().0)
            .filter(|lba| oracle.is_unsettled(*lba, crash))
            .map(|lba| self.geometry.place(Lba(lba)).stripe.0)
            .collect();
        stripes.dedup();
        oracle.crash(crash);
        (oracle, stripes)
    }
}

/// What the labels promised last.
pub(super) fn promise(events: &[Event]) -> Promise {
    let promises = events.iter().rev().find_map(|event| match event {
        Event::Promise(promise) => Some(*promise),
        _ => None,
    });
    promises.unwrap_or_default()
}

fn take(live: &mut Vec<(Begun, LbaRange)>, id: u64) -> (Begun, LbaRange) {
    let at = live.iter().position(|(begun, _)| begun.id == id);
    live.swap_remove(at.expect("an answer follows its request"))
}

pub(super) fn watched(geometry: &Geometry) -> LbaRange {
    let blocks = (STRIPES * geometry.stripe_data_blocks()).min(geometry.capacity_blocks());
    LbaRange::new(Lba(0), blocks)
}

pub(super) fn uuid(seed: u64, what: u64) -> Uuid {
    Uuid::from_random(Rng::new(seed ^ what.rotate_left(40)).bytes16())
}

/// A way to wait for drives that need no waiting.
pub(super) fn at_once(mut now: u64) -> impl FnMut() -> Option<Nanos> {
    move || {
        now += 1_000;
        Some(Nanos(now))
    }
}

struct Player {
    geometry: Geometry,
    disks: Vec<Disk>,
    host: Host,
    oracle: Oracle,
    tape: Tape,
    next_id: u64,
    live: usize,
    promise: Promise,
    /// Members that somebody asked to be failed while the history was written down, as a mask.
    condemned: u64,
    recording: bool,
}

impl Player {
    fn new(case: &Case) -> Result<Self, String> {
        let spec = case.disk_spec();
        let image = Image::new(spec.bytes);
        let disks: Vec<Disk> =
            (0..case.members).map(|at| Disk::new(spec, at, image.clone())).collect();
        let drives: Vec<Drive> = disks.iter().map(Disk::drive).collect();
        let create_spec = CreateSpec {
            name: "crash".parse::<Name>().map_err(|e| e.to_string())?,
            level: case.level,
            group_size: None,
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
        // Twice, so that there is an older one as well.
        let drives: Vec<Drive> = disks.iter().map(Disk::drive).collect();
        for content in [&b"what it wrote down before"[..], CONFIG] {
            store_config(&drives, ids.array, content, &mut at_once(0))
                .map_err(|e| e.to_string())?;
        }
        let host = Host::start(assembled, case, Nanos(1_000_000_000_000))?;
        Ok(Self {
            geometry: plan.geometry,
            disks,
            host,
            oracle: Oracle::new(&plan.geometry, Content::Zero, spec.cache),
            tape: Tape::default(),
            next_id: 1,
            live: 0,
            promise: Promise::default(),
            condemned: 0,
            recording: false,
        })
    }

    fn play(mut self, case: Case) -> Result<Record, String> {
        self.fill()?;
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
        for (at, disk) in self.disks.iter().enumerate() {
            disk.record(&self.tape, case.seed ^ at as u64);
        }
        self.recording = true;
        self.note_promise(true);
        for step in case.script(&self.geometry) {
            self.step(step, &case)?;
        }
        let Self { host, tape, geometry, .. } = self;
        drop(host);
        let events = std::mem::take(&mut *tape.lock().expect("one thread runs a case"));
        let pulled = case.failed.iter().filter(|_| case.pulled);
        let pulled = pulled.fold(0, |mask, slot| mask | 1 << slot);
        Ok(Record { case, geometry, base, oracle, events, pulled })
    }

    /// Gives every watched block a content that is stable.
    fn fill(&mut self) -> Result<(), String> {
        let all = watched(&self.geometry);
        let size = self.geometry.block_size();
        let stripe = self.geometry.stripe_data_blocks();
        for start in (0..all.blocks).step_by(stripe as usize) {
            let range = LbaRange::new(Lba(start), stripe.min(all.blocks - start));
            let id = self.fresh_id();
            let begun = self.oracle.begin_write(id, range, Content::Pattern(id), false);
            self.host.run(write_op(id, range, size, false))?;
            self.oracle.end_write(begun, range, false);
        }
        self.host.run(Op::Flush)?;
        self.oracle.all_stable();
        Ok(())
    }

    /// Writes to the last two strips, which is more than only its intent is told of, until the ring of the redo log
    /// is about to begin anew.
    fn go_around(&mut self, case: &Case) -> Result<(), String> {
        let tape = Tape::default();
        self.disks.iter().for_each(|disk| disk.record(&tape, case.seed));
        let size = self.geometry.block_size();
        let strip = u64::from(self.geometry.strip_blocks());
        let range = LbaRange::new(Lba(self.geometry.capacity_blocks() - 2 * strip), 2 * strip);
        let (start, bytes) = strake_ondisk::redo_ring(0, 1);
        // As long as the longest there is, and none begins less than that before the end.
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
                | Event::Promise(_) => None,
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

    /// Lets quarters of a second go by.
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
        self.host.stop(|host| {
            host.round(ROUND);
            Ok(())
        })?;
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
                self.condemned |= 1 << slot;
                self.note_promise(false);
                // Whether it is done before the machine stops is open, as is so much else.
                let _ = self.host.array.begin_fail(MemberIndex(slot)).map_err(|e| e.to_string())?;
                Ok(())
            }
            Step::Stop => self.stop(case),
        }
    }

    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..100_000 {
            if self.live == 0 {
                return Ok(());
            }
            self.round(ROUND)?;
        }
        Err(format!("requests are not answered: {:?}", self.host.array.status()))
    }

    fn stop(&mut self, case: &Case) -> Result<(), String> {
        // Nothing is under way, so nothing is answered either.
        self.settle()?;
        self.host.stop(|host| {
            host.round(ROUND);
            Ok(())
        })?;
        if case.mode != Consistency::None {
            // Nothing is in doubt, whoever is out.
            let logged = self.geometry.groups_with(u64::MAX);
            note(&self.tape, Event::Promise(Promise { logged, ..self.promise }));
        }
        Ok(())
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
        if self.recording {
            self.note_promise(false);
        }
        Ok(())
    }

    /// Writes down what the label says that every member in use holds, if that has changed.
    fn note_promise(&mut self, first: bool) {
        let label = self.host.array.newest_label();
        let rows = label.members.iter().enumerate();
        let out = rows.filter(|(_, row)| row.state != RecordedState::InSync);
        let out = out.fold(0, |mask, (at, _)| mask | 1 << at);
        let everybody = u64::MAX >> (64 - label.members.len());
        let all = label.consistency == Consistency::Strict && label.logged == everybody;
        let logged = if all { u64::MAX } else { label.logged & out };
        let logged = self.geometry.groups_with(logged);
        let promise = Promise { logged, out: out | self.condemned };
        if first || promise != self.promise {
            self.promise = promise;
            note(&self.tape, Event::Promise(promise));
        }
    }
}

/// The tape of what happens to these drives from now on.
pub(super) fn tape_of(disks: &[Option<Disk>], seed: u64) -> Tape {
    let tape: Tape = Arc::default();
    for (at, disk) in disks.iter().enumerate() {
        if let Some(disk) = disk {
            disk.record(&tape, seed ^ at as u64);
        }
    }
    tape
}
