//! Serving members that should be replaced.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use strake_wording::replace;

use crate::control::Control;
use crate::drives::health::{HealthSource, source_of_kernel};
use crate::drives::probe::{Probes, Target};
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::policy::members::is_out;
use crate::policy::sick::Subject;

/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// Queries the health of the drives of serving members and of spares: once a minute, and when one is new.
pub(crate) fn ask_drives(control: &Control) -> Result<(), ControlError> {
    let due = control.with(drives_to_ask)?;
    let Some((probes, drives)) = due else { return Ok(()) };
    let (subjects, targets): (Vec<Subject>, Vec<Target>) = drives.into_iter().unzip();
    let seen = probes.look(targets);
    control.run(|m| {
        let answers = subjects.into_iter().zip(seen);
        let answers = answers.map(|(subject, (path, probe))| (subject, path, probe.health));
        let day = m.started.elapsed().as_secs() / DAY_S;
        m.sick.note_pages(answers.collect(), Instant::now(), day);
        Ok(())
    })
}

/// The drives of serving members and the spares that report their health; `None` if the next query is not yet due.
fn drives_to_ask(manager: &mut Manager) -> Option<(Probes, Vec<(Subject, Target)>)> {
    // At the path of a member that is out, there may be another drive.
    let members = manager.running.iter().flat_map(|running| running.array.status().members);
    let members = members.filter(|member| !is_out(member));
    let members = members.map(|member| (Subject::Member(member.uuid), member.path));
    let spares =
        manager.records.spares.iter().filter(|spare| manager.spares.ready(spare).is_some());
    let spares = spares.map(|spare| (Subject::Spare(spare.identity.clone()), spare.path.clone()));
    let drives: Vec<(Subject, String)> = members.chain(spares).collect();
    let subjects: BTreeSet<Subject> = drives.iter().map(|(subject, _)| subject.clone()).collect();
    let now = Instant::now();
    if !manager.sick.is_due(&subjects, now) {
        return None;
    }
    manager.sick.begin_query(subjects, now);
    let targets = drives.into_iter().filter_map(|(subject, path)| {
        let health = Some(health_source(manager, &path)?);
        Some((subject, Target { path, bytes: None, health }))
    });
    let targets = targets.collect();
    Some((manager.drives.probes().clone(), targets))
}

/// The source of the health of the drive at `path`; `None` if the drive is not NVMe, or if it is taken from the kernel
/// and not open.
pub(crate) fn health_source(manager: &Manager, path: &str) -> Option<Arc<dyn HealthSource>> {
    if is_nvme_of_kernel(path) {
        return Some(source_of_kernel(path));
    }
    let open = manager.drives.all().iter().find(|open| open.drive.path == path)?;
    open.health.clone()
}

/// True for the device node of an NVMe drive, by any of its names.
fn is_nvme_of_kernel(path: &str) -> bool {
    let is_nvme = |path: &str| path.starts_with("/dev/nvme");
    // A link in `/dev` is in memory: reading it waits for no drive.
    let node = || std::fs::canonicalize(path).ok().map(|node| node.display().to_string());
    is_nvme(path) || path.starts_with("/dev/disk/") && node().is_some_and(|node| is_nvme(&node))
}

/// Reports each member that should be replaced, once for each reason.
pub(crate) fn notice_sick(manager: &mut Manager) {
    let now = Instant::now();
    let mut there = BTreeSet::new();
    for at in 0..manager.running.len() {
        let status = manager.running[at].array.status();
        let settings = manager.records.settings(&manager.running[at].uuid());
        let name = &status.name;
        for (slot, member) in status.members.iter().enumerate() {
            there.insert(member.uuid);
            let reasons = manager.sick.judge(member, settings);
            for reason in manager.sick.note(member.uuid, reasons, now) {
                let what =
                    format!("member {slot} ({}) of array {name} should be replaced", member.path);
                let note = Note::of_array(EventKind::MemberSick, &name, what).member(slot);
                let next = replace(name, Some(slot as u32), "");
                manager.record(note.cause(reason.why).next(next));
            }
        }
    }
    manager.sick.retain(|uuid| there.contains(uuid));
}
