//! Drives that are slower than their peers for hours.

use std::collections::BTreeMap;

use strake_engine::LatencyCounts;
use strake_raid::MemberState;

use crate::control::Control;
use crate::error::ControlError;
use crate::manager::Manager;
use crate::policy::slow::{Observed, Work};

/// Compares the drives of members, once an hour.
pub(crate) fn compare_drives(control: &Control) -> Result<(), ControlError> {
    let due = control.with(|m| m.slow.is_due().then(|| m.drives.machine().clone()))?;
    let Some(machine) = due else { return Ok(()) };
    let mut models = BTreeMap::new();
    for drive in machine.drives().into_iter().filter(|drive| !drive.model.is_empty()) {
        for path in drive.aliases.into_iter().chain([drive.path]) {
            models.insert(path, drive.model.clone());
        }
    }
    control.with(|m| compare(m, &models))
}

/// Compares members whose drives have a model. A file and a remote drive have none: their latency depends on much else.
pub(crate) fn compare(manager: &mut Manager, models: &BTreeMap<String, String>) {
    let model_of = |path: &str| {
        let open = manager.drives.all().iter().find(|open| open.drive.path == path);
        let taken = open.and_then(|open| open.pci.as_ref()?.facts());
        taken.map(|facts| facts.controller.model).or_else(|| models.get(path).cloned())
    };
    let mut arrays = Vec::new();
    for running in &manager.running {
        let latencies = running.array.latencies();
        let members = running.array.status().members.into_iter().zip(latencies.members);
        let in_sync = members.filter(|(member, _)| member.state == MemberState::InSync);
        let observed = in_sync.filter_map(|(member, times)| {
            let model = model_of(&member.path)?;
            let (reads, writes) = (work(&times.read), work(&times.write));
            Some(Observed { uuid: member.uuid, model, reads, writes })
        });
        arrays.push(observed.collect());
    }
    let found = manager.slow.compare(&arrays);
    manager.sick.slow = found.into_iter().collect();
}

fn work(counts: &LatencyCounts) -> Work {
    Work { operations: counts.count(), took: counts.sum() }
}
