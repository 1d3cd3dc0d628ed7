//! Serving members that should be replaced.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strake_wording::replace;

use crate::control::Control;
use crate::drives::health::{HealthSource, source_of_kernel};
use crate::drives::probe::Target;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::policy::sick::Sick;

/// Time between two queries of the health of drives.
const ASK_EVERY: Duration = Duration::from_secs(60);
/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// Queries the health of the drives of members, at most once in [`ASK_EVERY`].
pub(crate) fn ask_drives(control: &Control) -> Result<(), ControlError> {
    let due = control.with(drives_to_ask)?;
    let Some((probes, targets)) = due else { return Ok(()) };
    let asked: BTreeSet<String> = targets.iter().map(|target| target.path.clone()).collect();
    let seen = probes.look(targets);
    control.run(|m| {
        let answered = seen.into_iter().filter_map(|(path, probe)| Some((path, probe.health?)));
        m.sick.pages = answered.collect();
        let day = m.started.elapsed().as_secs() / DAY_S;
        let Sick { pages, media, .. } = &mut m.sick;
        pages.iter().for_each(|(path, page)| media.note(path, page.media_errors, day));
        media.retain(|path| asked.contains(path));
        Ok(())
    })
}

/// The drives of members that report their health; `None` if the next query is not yet due.
fn drives_to_ask(manager: &mut Manager) -> Option<(crate::drives::probe::Probes, Vec<Target>)> {
    if manager.sick.asked.is_some_and(|asked| asked.elapsed() < ASK_EVERY) {
        return None;
    }
    manager.sick.asked = Some(Instant::now());
    let members = manager.running.iter().flat_map(|running| running.array.status().members);
    let targets = members.filter_map(|member| {
        let health = Some(health_source(manager, &member.path)?);
        Some(Target { path: member.path, bytes: None, health })
    });
    let targets = targets.collect();
    Some((manager.drives.probes().clone(), targets))
}

/// The source of the health of the drive at `path`; `None` if the drive is not NVMe, or if it is taken from the kernel
/// and not open.
pub(crate) fn health_source(manager: &Manager, path: &str) -> Option<Arc<dyn HealthSource>> {
    if path.starts_with("/dev/nvme") {
        return Some(source_of_kernel(path));
    }
    let open = manager.drives.all().iter().find(|open| open.drive.path == path)?;
    open.health.clone()
}

/// Reports each member that should be replaced, once.
pub(crate) fn notice_sick(manager: &mut Manager) {
    let mut there = BTreeSet::new();
    for at in 0..manager.running.len() {
        let status = manager.running[at].array.status();
        let settings = manager.records.settings(&manager.running[at].uuid());
        let name = &status.name;
        for (slot, member) in status.members.iter().enumerate() {
            there.insert(member.uuid);
            let Some(why) = manager.sick.judge(member, settings) else { continue };
            if manager.sick.why.insert(member.uuid, why.clone()).is_some() {
                continue;
            }
            let what =
                format!("member {slot} ({}) of array {name} should be replaced", member.path);
            let note = Note::of_array(EventKind::MemberSick, &name, what);
            manager.record(note.member(slot).cause(why).next(replace(name, Some(slot as u32), "")));
        }
    }
    manager.sick.why.retain(|uuid, _| there.contains(uuid));
    manager.sick.left_alone.retain(|uuid| there.contains(uuid));
}
