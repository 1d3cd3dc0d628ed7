//! Members that still serve and should be replaced: they met many errors, or their drives expect to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use strake_engine::{ArrayStatus, MemberStatus};
use strake_raid::MemberState;
use strake_units::Uuid;

use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::probe::Target;
use crate::store::Settings;

/// How often drives are asked how they are.
const ASK_EVERY: Duration = Duration::from_secs(60);

/// What is known of members that should be replaced.
#[derive(Default)]
pub(crate) struct Sick {
    /// Why, by the identity of the member.
    why: BTreeMap<Uuid, String>,
    /// Members whose replacement was called off.
    left_alone: BTreeSet<Uuid>,
    /// What drives said of themselves when they were last asked, by path.
    predictions: BTreeMap<String, &'static str>,
    asked: Option<Instant>,
}

impl Sick {
    /// True when the member should be replaced by a spare, if there is one.
    pub(crate) fn wants_spare(&self, member: &MemberStatus) -> bool {
        member.state == MemberState::InSync
            && member.replacement.is_empty()
            && self.why.contains_key(&member.uuid)
            && !self.left_alone.contains(&member.uuid)
    }

    /// Its replacement is not begun without being asked for.
    pub(crate) fn leave_alone(&mut self, member: Uuid) {
        self.left_alone.insert(member);
    }

    /// Calls a member sick.
    #[cfg(test)]
    pub(crate) fn call(&mut self, member: Uuid, why: &str) {
        self.why.insert(member, why.to_owned());
    }

    /// Why the member should be replaced, if it should.
    fn judge(&self, member: &MemberStatus, settings: Settings) -> Option<String> {
        if member.state != MemberState::InSync {
            return None;
        }
        if let Some(why) = self.predictions.get(&member.path) {
            return Some((*why).to_owned());
        }
        let health = &member.health;
        let errors = health.medium + health.timeouts + health.device;
        let limit = u64::from(settings.replace_after_errors);
        (limit > 0 && errors >= limit).then(|| {
            format!(
                "it met {} unreadable blocks, {} time-outs and {} other errors",
                health.medium, health.timeouts, health.device
            )
        })
    }
}

/// Slots of members that a spare should replace now: those that are out, or, when none is, the first that `is_sick`.
/// None while a member is being copied to its replacement: an array takes no other drive until that has ended.
pub(crate) fn slots_for_spares(
    status: &ArrayStatus,
    is_sick: impl Fn(&MemberStatus) -> bool,
) -> Vec<usize> {
    let slots = |test: &dyn Fn(&MemberStatus) -> bool| -> Vec<usize> {
        let members = status.members.iter().enumerate();
        members.filter(|(_, m)| test(m)).map(|(slot, _)| slot).collect()
    };
    if status.replace.is_some() {
        return Vec::new();
    }
    let out = slots(&crate::members::is_out);
    if !out.is_empty() || status.rebuild.is_some() {
        return out;
    }
    slots(&is_sick).into_iter().take(1).collect()
}

impl Control {
    /// Asks drives of members how they are, now and then.
    pub(crate) fn ask_drives(&self) -> Result<(), ControlError> {
        let due = self.run(|m| Ok(m.drives_to_ask()))?;
        let Some((probes, targets)) = due else { return Ok(()) };
        let seen = probes.look(targets);
        self.run(|m| {
            let said = |(path, probe): (String, crate::probe::Probe)| {
                probe.health?.prediction().map(|why| (path, why))
            };
            m.sick.predictions = seen.into_iter().filter_map(said).collect();
            Ok(())
        })
    }
}

impl Manager {
    /// The drives of members that can say how they are, when it is time to ask.
    fn drives_to_ask(&mut self) -> Option<(crate::probe::Probes, Vec<Target>)> {
        if self.sick.asked.is_some_and(|asked| asked.elapsed() < ASK_EVERY) {
            return None;
        }
        self.sick.asked = Some(Instant::now());
        let nvme = |path: &String| path.starts_with("/dev/nvme");
        let members = self.running.iter().flat_map(|running| running.array.status().members);
        let paths = members.map(|member| member.path).filter(nvme);
        let targets = paths.map(|path| Target { path, bytes: None, nvme: true }).collect();
        Some((self.drives.probes().clone(), targets))
    }

    /// Notices members that should be replaced, and says so once.
    pub(crate) fn notice_sick(&mut self) {
        let mut there = BTreeSet::new();
        for at in 0..self.running.len() {
            let status = self.running[at].array.status();
            let settings = self.settings(&self.running[at].uuid());
            let name = &status.name;
            for (slot, member) in status.members.iter().enumerate() {
                there.insert(member.uuid);
                let Some(why) = self.sick.judge(member, settings) else { continue };
                if self.sick.why.insert(member.uuid, why.clone()).is_some() {
                    continue;
                }
                let what =
                    format!("member {slot} ({}) of array {name} should be replaced", member.path);
                let note = Note::new(EventKind::MemberSick, format!("array/{name}"), what);
                let next = format!("strake array replace {name} --member {slot} --with DRIVE");
                self.record(note.member(slot).cause(why).next(next));
            }
        }
        self.sick.why.retain(|uuid, _| there.contains(uuid));
        self.sick.left_alone.retain(|uuid| there.contains(uuid));
    }
}

#[cfg(test)]
mod tests;
