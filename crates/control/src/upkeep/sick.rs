//! Members that still serve and should be replaced.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::control::Control;
use crate::drives::probe::Target;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;

/// How often drives are asked how they are.
const ASK_EVERY: Duration = Duration::from_secs(60);

/// Asks drives of members how they are, now and then.
pub(crate) fn ask_drives(control: &Control) -> Result<(), ControlError> {
    let due = control.run(|m| Ok(m.drives_to_ask()))?;
    let Some((probes, targets)) = due else { return Ok(()) };
    let seen = probes.look(targets);
    control.run(|m| {
        let said = |(path, probe): (String, crate::drives::probe::Probe)| {
            probe.health?.prediction().map(|why| (path, why))
        };
        m.sick.predictions = seen.into_iter().filter_map(said).collect();
        Ok(())
    })
}

impl Manager {
    /// The drives of members that can say how they are, when it is time to ask.
    fn drives_to_ask(&mut self) -> Option<(crate::drives::probe::Probes, Vec<Target>)> {
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
            let settings = self.records.config.settings(&self.running[at].uuid());
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
