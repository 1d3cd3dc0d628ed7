//! The check of a damaged array.

use strake_engine::{ArrayEventKind, Consistency, load_config};
use strake_engine::{AssemblePolicy, Assembled, Drive, Outcome, ScrubMode, ScrubState, assemble};
use strake_raid::MemberState;
use strake_units::{Lba, MemberSet, Nanos};

use super::super::area::Area;
use super::super::cut::State;
use super::super::disk::Disk;
use super::super::host::Host;
use super::super::image::Image;
use super::super::judge::{Known, give_up};
use super::super::player::CONFIG;
use super::super::record::{Record, at_once, uuid};
use super::wound::Wound;
use crate::oracle::Oracle;
use crate::placement::Spot;
use crate::textbook;

/// The result of a check without a violation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Whether the array was started.
    pub(super) started: bool,
    /// The messages before the start, or instead of it.
    pub(super) said: Vec<String>,
    /// Whether a scrub repaired the damage.
    pub(super) healed: bool,
    /// Whether a scrub reported the damage.
    pub(super) found: bool,
}

/// The consents of the operator, one after the other.
const POLICIES: [AssemblePolicy; 3] = [
    AssemblePolicy { allow_degraded: false, accept_loss: false },
    AssemblePolicy { allow_degraded: true, accept_loss: false },
    AssemblePolicy { allow_degraded: true, accept_loss: true },
];

/// Checks an array with one damaged member.
///
/// Returns the violation.
pub(super) fn examine(
    record: &Record,
    known: &Known,
    state: &State,
    wound: &Wound,
    images: &[Image],
) -> Result<Found, String> {
    let absent = state.lost | record.pulled;
    let spec = record.case.disk_spec();
    let disk = |(at, image): (usize, &Image)| {
        (absent & 1 << at == 0).then(|| Disk::new(spec, at, image.clone()))
    };
    let mut disks: Vec<Option<Disk>> = images.iter().enumerate().map(disk).collect();
    let drives: Vec<Drive> = disks.iter().flatten().map(Disk::drive).collect();
    check_config(record, &drives)?;
    let mut found = Found::default();
    let (mut assembled, mut policy) = start(record, &drives, &mut found.said)?;
    if assembled.is_none() {
        // The message must help: the damaged drive is then removed.
        disks[wound.member] = None;
        if !record.tolerates(known.promise().out, absent | 1 << wound.member) {
            return Ok(found);
        }
        let drives: Vec<Drive> = disks.iter().flatten().map(Disk::drive).collect();
        (assembled, policy) = start(record, &drives, &mut found.said)?;
    }
    let Some(assembled) = assembled else {
        return Err(format!("is not started though the data is there: {:?}", found.said));
    };
    found.started = true;
    let mut look = Look { record, wound, disks, oracle: known.oracle().clone() };
    let careless = record.case.mode == Consistency::None;
    let states = assembled.states().to_vec();
    if policy.accept_loss || careless || wound.area == Area::Log {
        give_up(&mut look.oracle, record, known, &states);
    }
    let sound = !policy.accept_loss && !careless;
    look.run(*assembled, &states, sound, &mut found)?;
    Ok(found)
}

/// Checks that the record of the control plane survives: undamaged members have it.
fn check_config(record: &Record, drives: &[Drive]) -> Result<(), String> {
    let config = load_config(drives, uuid(record.case.seed, 1), &mut at_once(0));
    if drives.len() > 1 && config.as_deref() != Some(CONFIG) {
        return Err(format!("the record of the control plane is {config:?}"));
    }
    Ok(())
}

/// Starts the array, with increasing consent. Every message must be useful to an operator.
fn start(
    record: &Record,
    drives: &[Drive],
    said: &mut Vec<String>,
) -> Result<(Option<Box<Assembled>>, AssemblePolicy), String> {
    for (at, policy) in (0..).zip(POLICIES) {
        let fresh = uuid(record.case.seed, 10 + at);
        let mut wait = at_once(1_500_000_000_000);
        let (mut outcomes, errors) =
            assemble(drives, policy, &|_, _| true, &mut || fresh, &mut wait);
        let silent = errors.is_empty();
        said.extend(errors.into_iter().map(|error| error.what));
        match (outcomes.pop(), outcomes.len()) {
            (Some(Outcome::Ready(assembled)), 0) => return Ok((Some(assembled), policy)),
            (Some(Outcome::Waiting { what, .. } | Outcome::Refused { what, .. }), 0) => {
                said.push(what);
            }
            (None, _) if silent => return Err("nothing is found and nothing is said".to_owned()),
            (None, _) => {}
            (_, more) => return Err(format!("one array became {}", more + 1)),
        }
        if let Some(what) =
            said.iter().find(|what| !what.contains("crash") && !what.contains("disk"))
        {
            return Err(format!("says nothing of use: {what:?}"));
        }
    }
    Ok((None, POLICIES[2]))
}

struct Look<'a> {
    record: &'a Record,
    wound: &'a Wound,
    disks: Vec<Option<Disk>>,
    oracle: Oracle,
}

impl Look<'_> {
    fn run(
        &mut self,
        assembled: Assembled,
        states: &[MemberState],
        sound: bool,
        found: &mut Found,
    ) -> Result<(), String> {
        let resync = assembled.resync_regions().0 > 0;
        let whole = states.iter().all(|state| *state == MemberState::InSync);
        let mut host = Host::start(assembled, &self.record.case, Nanos(2_000_000_000_000))?;
        let everything = self.oracle.clone();
        self.excuse(states);
        self.read(&mut host)?;
        if resync {
            host.until("the end of the resync", |host| {
                (0..16).for_each(|_| drop(host.round(Nanos(1_000))));
                Ok(host.array.status().resync.is_none())
            })?;
            self.read(&mut host)?;
        }
        // After a resync or a partial-write record, parity is recomputed from data that was read, so the damage becomes
        // the valid content.
        let redone = |kind| matches!(kind, ArrayEventKind::WritesRedone { .. });
        let recomputed = resync || host.array.drain_events().iter().any(|event| redone(event.kind));
        if self.wound.area == Area::Data && whole && !recomputed && sound {
            self.scrub(&mut host, everything, found)?;
        }
        Ok(())
    }

    /// Damaged blocks, and blocks that are computed from damage, may have any content.
    fn excuse(&mut self, states: &[MemberState]) {
        let placement = &self.record.placement;
        let size = self.record.case.array_block;
        let watched = self.record.watched();
        for lba in watched.start.0..watched.end().0 {
            let spot = placement.spot(Lba(lba).bytes(size));
            let from = placement.offset(spot.stripe) + spot.at;
            let to = from + u64::from(size.bytes());
            if to <= self.wound.offset || from >= self.wound.end() {
                continue;
            }
            let parity = placement.parities() > 0;
            let reaches = (0..placement.copies()).any(|copy| {
                let member = placement.member(spot.stripe, spot.strip, copy);
                let computed = parity && states[member] != MemberState::InSync;
                let group = placement.groups_with(MemberSet::of(member));
                let same_group = group.contains(self.wound.member);
                member == self.wound.member || (computed && same_group)
            });
            if reaches {
                self.oracle.give_up(lba);
            }
        }
        self.excuse_logged(states);
    }

    /// If no other in-sync member has a damaged record of the log, an older record is replayed: all blocks of the
    /// damaged record may have their old content.
    fn excuse_logged(&mut self, states: &[MemberState]) {
        let placement = &self.record.placement;
        let size = self.record.case.array_block;
        let here = |member: usize| states[member] == MemberState::InSync;
        for record in &self.wound.records {
            let own = |at: usize| at == self.wound.member;
            if record.parts().iter().any(|part| here(part.slot.at()) && !own(part.slot.at())) {
                continue;
            }
            let stripe = record.header.stripe.0;
            for strip in 0..placement.data() {
                let member = placement.member(stripe, strip, 0);
                if here(member) && !own(member) {
                    continue;
                }
                for offset in record.parts().iter().flat_map(|p| p.offset..p.offset + p.blocks) {
                    let spot = Spot { stripe, strip, at: Lba(offset.into()).bytes(size) };
                    self.oracle.give_up(placement.address(spot) >> size.shift());
                }
            }
        }
    }

    fn scrub(
        &mut self,
        host: &mut Host,
        everything: Oracle,
        found: &mut Found,
    ) -> Result<(), String> {
        let placement = self.record.placement;
        let agrees = || {
            let page = |member: usize, offset| self.disks[member].as_ref()?.page(offset);
            textbook::verify(&placement, &page)
        };
        let wrong = agrees().is_err();
        host.array.begin_scrub(ScrubMode::Repair).map_err(|error| error.to_string())?;
        host.until("the end of a scrub", |host| {
            (0..16).for_each(|_| drop(host.round(Nanos(1_000))));
            let scrub = host.array.status().scrub;
            Ok(scrub.is_some_and(|scrub| scrub.state == ScrubState::Finished))
        })?;
        let findings = host.array.scrub_findings();
        if wrong == findings.is_empty() {
            return Err(format!("parity is wrong: {wrong}; a scrub found {findings:?}"));
        }
        let tells = placement.parities() >= 2 || placement.copies() >= 3;
        if wrong && tells {
            agrees().map_err(|what| format!("not healed by a scrub: {what}; {findings:?}"))?;
            self.oracle = everything;
            self.read(host).map_err(|what| format!("healed to something else: {what}"))?;
        }
        found.healed = wrong && tells;
        found.found = wrong && !tells;
        Ok(())
    }

    /// Reads all watched blocks and compares them with their permitted content.
    fn read(&mut self, host: &mut Host) -> Result<(), String> {
        let range = self.record.watched();
        let begun = self.oracle.begin(u64::MAX);
        let data = host.read(range, self.record.case.array_block)?;
        self.oracle.end_read(begun, range, &data)
    }
}
