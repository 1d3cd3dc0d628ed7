//! The check of a state: the array is assembled from the media, and everything is compared.

use std::panic::{AssertUnwindSafe, catch_unwind};

use strake_engine::{
    AssemblePolicy, Assembled, Consistency, Drive, MemberIo, Outcome, Recovery, assemble,
};
use strake_raid::MemberState;
use strake_units::{LbaRange, MemberIndex, Nanos};

use super::area::{Area, area_of};
use super::case::Ground;
use super::cut::{Cut, State, Writes};
use super::disk::{Disk, DiskSpec, Event, Pace, Tape};
use super::host::Host;
use super::image::{Image, Torn};
use super::promise::{Noted, Promise, Watch, promise_at};
use super::record::{Record, TALL_BYTES, Window, at_once, tape_of, uuid};
use crate::drive::Crash;
use crate::medium::{PAGE, PageBytes};
use crate::oracle::Oracle;
use crate::textbook;

/// One of this many states is started and used; the media of all states are checked.
const RUNS: u64 = 20;

/// The same divisor for states in which a lost drive has returned.
const RUNS_RETURNED: u64 = 4;

/// The additional divisor for arrays of several regions, because the resync of a whole array takes long.
const RUNS_OF_REGIONS: u64 = 4;

/// Most activations of a history, from the creation on.
const STARTS_BEFORE: u64 = 3;

/// Rounds of a resync between two checks whether it has finished.
const ROUNDS_BETWEEN_LOOKS: u64 = 16;

/// The permitted content of blocks after a crash at a point, for all states of that point.
pub(super) struct Known {
    point: usize,
    crash: Crash,
    oracle: Oracle,
    unsettled: Vec<u64>,
    promise: Promise,
    writes: Writes,
}

impl Known {
    pub(super) fn at(record: &Record, point: usize, crash: Crash) -> Self {
        let (oracle, unsettled) = record.oracle(point, crash);
        let spec = record.case.disk_spec();
        Self {
            point,
            crash,
            oracle,
            unsettled,
            promise: record.promise(point),
            writes: Writes::before(&record.events, point, crash, &spec),
        }
    }

    pub(super) const fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    pub(super) const fn promise(&self) -> Promise {
        self.promise
    }

    pub(super) const fn writes(&self) -> &Writes {
        &self.writes
    }

    pub(super) fn is_of(&self, cut: &Cut) -> bool {
        (self.point, self.crash) == (cut.point, cut.crash)
    }
}

/// The result of a check without a violation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Whether the array rejected the start, as it may, and started with the loss accepted.
    pub(super) refused: bool,
    /// Whether regions had to be resynchronized.
    pub(super) resynced: bool,
    /// Whether the array was started, read completely and resynchronized.
    pub(super) ran: bool,
    /// Members that were re-added, and rebuilt.
    pub(super) taken_back: u64,
    /// The recovery as the engine reports it.
    pub(super) recovery: Recovery,
    /// The area of the newest write, if it was torn.
    pub(super) torn: Option<Area>,
}

/// The record of a recovery, for another cut.
pub(super) struct After {
    /// The number of starts, from the first crash on.
    nth: u64,
    /// The content of the media at the beginning of this start.
    pub(super) base: Vec<Image>,
    /// The permitted content of blocks, after the loss was accepted if this was necessary.
    oracle: Oracle,
    pub(super) events: Vec<Event>,
    /// The promise of the labels at the beginning of this start.
    promised: Promise,
    /// The later promises.
    noted: Vec<Noted>,
}

impl After {
    /// The promise of the labels at a point of the recovery.
    fn promise(&self, point: usize) -> Promise {
        promise_at(point, self.promised, self.noted.iter().copied())
    }
}

/// Checks one state, including its further crashes.
///
/// Returns the violation.
pub(super) fn judge(record: &Record, known: &Known, state: &State) -> Result<Seen, String> {
    caught(|| {
        let after = state.then.map(|_| written(record, known, state, None)).transpose()?;
        let second = state.then.as_ref().zip(after.as_ref());
        let after = state.again.map(|_| written(record, known, state, second)).transpose()?;
        let third = state.again.as_ref().zip(after.as_ref());
        Ok(look(record, known, state, third.or(second), false)?.0)
    })
}

/// The writes of the last recovery of a valid state with at most two crashes.
///
/// Returns the violation.
pub(super) fn recovery(record: &Record, known: &Known, state: &State) -> Result<After, String> {
    caught(|| {
        let first = state.then.map(|_| written(record, known, state, None)).transpose()?;
        written(record, known, state, state.then.as_ref().zip(first.as_ref()))
    })
}

/// The second crash, in the recovery from the first; or the third, in the recovery from the second.
type Next<'a> = (&'a Cut, &'a After);

fn written(
    record: &Record,
    known: &Known,
    state: &State,
    next: Option<Next<'_>>,
) -> Result<After, String> {
    look(record, known, state, next, true).map(|(_, after)| after)
}

pub(super) fn caught<T>(what: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(format!("panic: {}", text.unwrap_or_else(|| "without words".to_owned())))
    })
}

struct Look<'a> {
    record: &'a Record,
    known: &'a Known,
    /// Drives that were lost, as a mask, including those that have returned.
    lost: u64,
    /// Whether the operator permits a start without absent members.
    degraded: bool,
    disks: Vec<Option<Disk>>,
    /// The disk of each slot; if no disk has the slot, the one that had it first.
    homes: Vec<usize>,
    tape: Option<Tape>,
    oracle: Oracle,
    /// The promise of the labels at the crash before this start.
    promise: Promise,
    /// The later promises, if they are recorded.
    noted: Vec<Noted>,
}

/// Checks the start after the first crash, or the start `next`. Its writes can be recorded.
fn look(
    record: &Record,
    known: &Known,
    state: &State,
    next: Option<Next<'_>>,
    recorded: bool,
) -> Result<(Seen, After), String> {
    // No requests are in flight during the recovery, so slow I/Os would have no effect; a resync would take very long.
    let spec = DiskSpec { pace: Pace::Even, ..record.case.disk_spec() };
    let nth = next.map_or(1, |(_, after)| after.nth + 1);
    let (base, torn) = match next {
        None => {
            let (cut, events) = (&state.cut, &record.events);
            let torn = torn_in(record, &known.writes, events, cut);
            (known.writes.images(&record.base, events, cut), torn)
        }
        Some((cut, after)) => {
            let writes = Writes::before(&after.events, cut.point, cut.crash, &spec);
            let torn = torn_in(record, &writes, &after.events, cut);
            (writes.images(&after.base, &after.events, cut), torn)
        }
    };
    let (away, lost) = state.lost_by(nth);
    let absent = away | record.pulled;
    let disk = |(at, image): (usize, &Image)| {
        (absent & 1 << at == 0).then(|| Disk::new(spec, at, image.clone()))
    };
    let disks: Vec<Option<Disk>> = base.iter().enumerate().map(disk).collect();
    let tape = recorded.then(|| tape_of(&disks, record.case.seed));
    let oracle = next.map_or(&known.oracle, |(_, after)| &after.oracle).clone();
    let homes = (0..record.case.members).collect();
    let promise = next.map_or(known.promise, |(cut, after)| after.promise(cut.point));
    let degraded = away != 0;
    let noted = Vec::new();
    let mut look =
        Look { record, known, lost, degraded, disks, homes, tape, oracle, promise, noted };
    let name = next.map_or(state.name(), |(cut, _)| cut.kept ^ cut.point as u64);
    let returned = lost & !away != 0;
    let runs = if returned { RUNS_RETURNED } else { RUNS };
    let runs = if record.case.ground == Ground::Start { runs } else { runs * RUNS_OF_REGIONS };
    let run = recorded || name.is_multiple_of(runs);
    let (seen, oracle) = look.all(STARTS_BEFORE + nth, run)?;
    let seen = Seen { torn, ..seen };
    let tape = look.tape.take().unwrap_or_default();
    let events = std::mem::take(&mut *tape.lock().expect("one thread runs a case"));
    let noted = std::mem::take(&mut look.noted);
    Ok((seen, After { nth, base, oracle, events, promised: promise, noted }))
}

/// The area of the last write that reached the media, if it was torn.
fn torn_in(record: &Record, writes: &Writes, events: &[Event], cut: &Cut) -> Option<Area> {
    let last = writes.last(cut.kept).filter(|_| cut.torn != Torn::Whole)?;
    let Event::Issue { offset, .. } = &events[last] else { return None };
    Some(area_of(record, *offset))
}

impl Look<'_> {
    /// `start` distinguishes activations. Also returns the permitted content of blocks before the first read.
    fn all(&mut self, start: u64, run: bool) -> Result<(Seen, Oracle), String> {
        let (assembled, refused) = self.assemble(start)?;
        let resynced = assembled.resync_regions().0 > 0;
        let recovery = assembled.recovery();
        let states = assembled.states().to_vec();
        self.find_homes(&assembled);
        let careless = self.record.case.mode == Consistency::None;
        if refused || careless {
            give_up(&mut self.oracle, self.record, self.known, &states);
        }
        let oracle = self.oracle.clone();
        // Without a region in doubt, all present members must agree.
        self.look_at_media(&states, !resynced && !careless && !refused)?;
        let taken_back = if run { self.run(assembled, resynced, !careless)? } else { 0 };
        let seen = Seen { refused, resynced, ran: run, taken_back, recovery, torn: None };
        Ok((seen, oracle))
    }

    /// Determines whether a spare has replaced another drive.
    fn find_homes(&mut self, assembled: &Assembled) {
        let Some(slot) = self.record.case.spare_slot().map(usize::from) else { return };
        let spare = self.record.case.members;
        let Some(disk) = &self.disks[spare] else { return };
        let has = assembled.drives()[slot].as_ref().map(|drive| drive.path == disk.drive().path);
        self.homes[slot] = if has == Some(true) { spare } else { slot };
    }

    fn page(&self, member: usize, offset: u64) -> Option<PageBytes> {
        self.disks[self.homes[member]].as_ref()?.page(offset)
    }

    /// Computes the content with the textbook encoder from the members in sync, and compares it with the permitted
    /// content.
    fn look_at_media(&self, states: &[MemberState], agree: bool) -> Result<(), String> {
        let absent = states.iter().enumerate().filter(|(_, s)| **s != MemberState::InSync);
        let absent = absent.map(|(slot, _)| slot).collect();
        let page = |member, offset| self.page(member, offset);
        let placement = &self.record.placement;
        for window in self.record.windows() {
            let Window { stripe, from, to } = window;
            let mut strips = vec![Vec::new(); placement.data() as usize];
            for at in (from..to).step_by(PAGE) {
                let pages = textbook::recover(placement, &page, (stripe, at), absent, agree)?;
                let pages = strips.iter_mut().zip(pages);
                pages.for_each(|(strip, page)| strip.extend_from_slice(&page[..]));
            }
            for (strip, data) in (0..).zip(&strips) {
                self.oracle.might_read(self.record.blocks(&window, strip), data)?;
            }
        }
        Ok(())
    }

    /// Starts the array, reads, waits for the resync, and reads again; then the same with all present members re-added.
    /// Returns the number of re-added members.
    fn run(&mut self, assembled: Assembled, resync: bool, careful: bool) -> Result<u64, String> {
        let mut watch = self.tape.as_ref().map(|tape| Watch::new(tape, &self.record.placement));
        // From the first write of the recovery on.
        watch.iter_mut().for_each(|watch| watch.note(assembled.label(), 0));
        let mut host = Host::start(assembled, &self.record.case, Nanos(2_000_000_000_000))?;
        host.watch = watch;
        let taken_back = self.serve(&mut host, resync, careful)?;
        self.noted = host.watch.take().map_or_else(Vec::new, Watch::into_noted);
        Ok(taken_back)
    }

    /// The work of a started array.
    fn serve(&mut self, host: &mut Host, resync: bool, careful: bool) -> Result<u64, String> {
        self.read(host)?;
        if resync {
            host.until("the end of the resync", |host| {
                (0..ROUNDS_BETWEEN_LOOKS).for_each(|_| drop(host.round(Nanos(1_000))));
                Ok(host.array.status().resync.is_none())
            })?;
            self.read(host)?;
        }
        if !careful {
            return Ok(0);
        }
        let taken_back = self.take_back(host)?;
        if host.array.status().members.iter().all(|m| m.state == MemberState::InSync) {
            let page = |member, offset| self.page(member, offset);
            textbook::verify(&self.record.placement, &page)?;
        }
        Ok(taken_back)
    }

    /// Re-adds the members that were absent and have returned, and waits for their rebuild.
    fn take_back(&mut self, host: &mut Host) -> Result<u64, String> {
        let label = host.array.newest_label();
        let mut taken = 0;
        for (at, row) in label.members.iter().enumerate() {
            let Some(disk) = self.disks[self.homes[at]].as_ref() else { continue };
            if row.state.is_live() {
                continue;
            }
            let mut wait = at_once(host.now.0);
            let own = MemberIo::open(&disk.drive(), &mut wait).and_then(|mut io| io.newest_label());
            let own = own.map_err(|error| error.to_string())?;
            let Some(own) = own.filter(|own| own.member == row.uuid) else { continue };
            let member = MemberIndex(at as u8);
            let refused = |error| format!("member {member} is not taken back: {error}");
            let mut back = host.array.begin_readd(member, &disk.drive(), &own).map_err(refused)?;
            host.until("an answer", |host| {
                host.round(Nanos(1_000));
                back.poll().transpose().map(|answer| answer.is_some()).map_err(refused)
            })?;
            taken += 1;
        }
        host.until("filling who is back", |host| {
            (0..ROUNDS_BETWEEN_LOOKS).for_each(|_| drop(host.round(Nanos(1_000))));
            let rebuilding = |state| matches!(state, MemberState::Rebuilding { .. });
            Ok(!host.array.status().members.iter().any(|member| rebuilding(member.state)))
        })?;
        self.read(host)?;
        Ok(taken)
    }

    fn assemble(&mut self, start: u64) -> Result<(Assembled, bool), String> {
        let mut policy = AssemblePolicy { allow_degraded: self.degraded, accept_loss: false };
        for _ in 0..4 {
            match self.found(policy, start)? {
                Outcome::Ready(assembled) => return Ok((*assembled, policy.accept_loss)),
                Outcome::Refused { .. } if !policy.accept_loss && self.may_refuse() => {
                    policy.accept_loss = true;
                }
                Outcome::Waiting { .. } if self.has_replacement() && !policy.allow_degraded => {
                    policy.allow_degraded = true;
                }
                Outcome::Waiting { what, .. } => return Err(format!("waits without need: {what}")),
                Outcome::Refused { what, .. } => {
                    return Err(format!("refused without need: {what}"));
                }
            }
        }
        Err("refused although the loss was accepted".to_owned())
    }

    /// The labels of the other members may name a spare as a member before it has a label itself. The array then waits
    /// for this member as for an absent one, and the operator must permit a start without it.
    fn has_replacement(&self) -> bool {
        self.record.case.spare_slot().is_some()
    }

    fn found(&self, policy: AssemblePolicy, start: u64) -> Result<Outcome, String> {
        let drives: Vec<Drive> = self.disks.iter().flatten().map(Disk::drive).collect();
        let fresh = uuid(self.record.case.seed, start);
        let mut wait = at_once(1_500_000_000_000);
        let (mut outcomes, unreadable) =
            assemble(&drives, policy, &|_, _| true, &mut || fresh, &mut wait);
        if let Some(error) = unreadable.first() {
            return Err(format!("a drive could not be looked at: {error}"));
        }
        match (outcomes.pop(), outcomes.len()) {
            (Some(outcome), 0) => Ok(outcome),
            (_, count) => Err(format!("one array went down and {count} came up")),
        }
    }

    /// Only a parity array without some members may be rejected, and not if the labels promised that a crash is
    /// harmless. The promise of partial-write records holds for one member that is lost with the crash, or during the
    /// history.
    ///
    /// The labels are those at the last crash. This excuses no promised data or start: a member that was re-added since
    /// the previous crash is in sync, and its loss with the last crash is the row "crash together with the loss of a
    /// member" of docs/guarantees.md, as if there had been one crash.
    fn may_refuse(&self) -> bool {
        let Promise { logged, out } = self.promise;
        let case = &self.record.case;
        let out = out | case.slots(self.lost);
        let at_once = (out - case.out()).len();
        let intends = case.is_ever_strict() && self.record.placement.parities() > 1;
        let parity = self.record.placement.parities() > 0;
        parity && (!out.is_subset(logged) || intends && at_once > 1)
    }

    /// Reads all watched blocks and compares them with their permitted content.
    fn read(&mut self, host: &mut Host) -> Result<(), String> {
        let size = self.record.case.array_block;
        let ranges = if self.record.placement.strip_bytes() < TALL_BYTES {
            vec![self.record.watched()]
        } else {
            let strips = |window: Window| {
                (0..self.record.placement.data()).map(move |strip| (window, strip))
            };
            let parts = self.record.windows().into_iter().flat_map(strips);
            parts.map(|(window, strip)| self.record.blocks(&window, strip)).collect()
        };
        for range in ranges {
            let begun = self.oracle.begin(u64::MAX);
            let data = host.read(range, size)?;
            self.oracle.end_read(begun, range, &data)?;
        }
        Ok(())
    }
}

/// Content that only parity can reconstruct may be anything in stripes with a write in flight.
pub(super) fn give_up(oracle: &mut Oracle, record: &Record, known: &Known, states: &[MemberState]) {
    let placement = &record.placement;
    let copies = placement.copies() > 1;
    for &stripe in &known.unsettled {
        let whole = Window { stripe, from: 0, to: placement.strip_bytes() };
        for strip in 0..placement.data() {
            if copies || states[placement.member(stripe, strip, 0)] != MemberState::InSync {
                let LbaRange { start, blocks } = record.blocks(&whole, strip);
                (start.0..start.0 + blocks).for_each(|lba| oracle.give_up(lba));
            }
        }
    }
}
