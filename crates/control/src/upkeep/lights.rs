//! Switches the lights of slots to what the state of their drives asks for.
//!
//! A write to sysfs may wait for firmware. Each light is switched on a thread of its own, within a limit, and one that
//! does not answer is left alone until it does; see [`bounded`](crate::bounded).

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use strake_api::v1::ListDrivesRequest;
use strake_dev_uring::{KernelDrive, Light, Machine, Pattern, Slot};

use crate::actions::Pace;
use crate::bounded::{self, Job, side_by_side};
use crate::control::Control;
use crate::drives::address::pci_address;
use crate::drives::pci::is_gone;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::limits::{LIGHT_LIMIT, LIGHTS_EVERY};
use crate::manager::Manager;
use crate::policy::lights::{Fact, Facts, add_array};
use crate::policy::spares::SpareState;
use crate::state::lights::{Spot, Survey, Switched, Wanted, changes};

/// Looks whether lights are to be switched.
pub(crate) fn tend_lights(control: &Control, pace: Pace) -> Result<(), ControlError> {
    let is_due = control.with(|m| !m.stopping && m.lights.is_due(&facts(m), LIGHTS_EVERY))?;
    if is_due { control.act(pace, "lights".to_owned(), switch_lights) } else { Ok(()) }
}

/// Switches every light that does not show what it should. Waits for [`LIGHT_LIMIT`] at most, and for another that does
/// the same.
pub(crate) fn switch_lights(control: &Control) -> Result<(), ControlError> {
    let gate = control.with(|m| Arc::clone(&m.lights.gate))?;
    // What is behind it is nothing that a panic could have left half done.
    let _one = gate.lock().unwrap_or_else(PoisonError::into_inner);
    let (look, machine, taken) = control.with(|m| {
        let facts = facts(m);
        (m.lights.begin(facts, LIGHTS_EVERY), m.drives.machine().clone(), taken(m))
    })?;
    let survey = survey(&machine, taken);
    let (wanted, next) = look.known.decide(&look.facts, &survey);
    let switched = switch(changes(&look.shown, &wanted, &look.cleared, look.depth));
    control.with(|m| {
        let failed = m.lights.end(&look, next, switched);
        note_failed(m, failed);
    })
}

/// What is known of drives that can have a light: those of the kernel, and those on the PCI bus.
fn facts(manager: &Manager) -> Facts {
    let mut facts = Facts::new();
    for running in &manager.running {
        add_array(&mut facts, &running.array.status(), |uuid| manager.sick.why.contains_key(&uuid));
    }
    for spare in &manager.records.spares {
        let fact = match manager.spares.get(spare) {
            Some(SpareState::Ready(_)) => Fact::Spare,
            Some(SpareState::Failed(_)) => Fact::Failed,
            Some(SpareState::Missing(_)) | None => continue,
        };
        facts.entry(spare.path.clone()).or_default().insert(fact);
    }
    // Given up, or not stopped for certain; no array has to have noticed.
    for open in manager.drives.all().iter().filter(|open| is_gone(&open.drive)) {
        facts.entry(open.drive.path.clone()).or_default().insert(Fact::Failed);
    }
    let machine = manager.drives.machine();
    facts.retain(|path, _| machine.has_node(path) || pci_address(path).is_some());
    facts
}

/// Drives that are taken from the kernel: path and serial number.
fn taken(manager: &Manager) -> Vec<(String, String)> {
    let open = manager.drives.all().iter().filter_map(|open| {
        let serial = open.pci.as_ref()?.facts()?.controller.serial;
        Some((open.drive.path.clone(), serial))
    });
    let recorded = manager.records.taken_paths().into_iter().map(|path| {
        let address = pci_address(&path).unwrap_or_default();
        let record = manager.records.taken_at(address);
        let serial = record.map(|record| record.serial.clone()).unwrap_or_default();
        (path, serial)
    });
    recorded.chain(open).collect()
}

/// The drives of the machine that are in slots with lights, by each of their paths.
fn survey(machine: &Machine, taken: Vec<(String, String)>) -> Survey {
    let mut survey = Survey::new();
    let spot = |slot: Slot, drive: &str| {
        Some(Spot { slot: slot.name, light: slot.light?, drive: drive.to_owned() })
    };
    for drive in machine.drives() {
        let Some(spot) = spot(machine.slot_of(&drive), identity(&drive)) else { continue };
        let paths = std::iter::once(&drive.path).chain(&drive.aliases);
        survey.extend(paths.map(|path| (path.clone(), spot.clone())));
    }
    for (path, serial) in taken {
        let slot = pci_address(&path).and_then(|address| machine.slot_at(address));
        let drive = if serial.is_empty() { &path } else { &serial };
        survey.extend(slot.and_then(|slot| spot(slot, drive)).map(|spot| (path.clone(), spot)));
    }
    survey
}

/// What identifies a drive under the kernel's driver and without it.
fn identity(drive: &KernelDrive) -> &str {
    if drive.serial.is_empty() { &drive.identity } else { &drive.serial }
}

/// Switches lights, all at the same time. One that was unplugged meanwhile is left out.
fn switch(changes: Wanted) -> Vec<Switched> {
    let mut lights = Vec::new();
    let mut jobs: Vec<Job<Switched>> = Vec::new();
    for (name, (light, pattern)) in changes {
        lights.push((name.clone(), light.clone()));
        let job = {
            let name = name.clone();
            move || (name.clone(), light.clone(), show(&name, light, pattern))
        };
        jobs.push((name, Box::new(job)));
    }
    // Each of them has a limit of its own; this one is for threads that are late.
    let (mut switched, late) = side_by_side(jobs, Instant::now() + LIGHT_LIMIT * 2);
    let late: BTreeSet<String> = late.into_iter().collect();
    let late = lights.into_iter().filter(|(name, _)| late.contains(name));
    switched.extend(
        late.map(|(name, light)| (name, light, Err("it was not switched in time".to_owned()))),
    );
    switched
}

/// Has a light show `pattern`, within the limit.
fn show(name: &str, light: Light, pattern: Pattern) -> Result<Pattern, String> {
    let job = move || {
        if light.is_there() { light.show(pattern).map(|()| pattern) } else { Ok(Pattern::Off) }
    };
    match bounded::ask(name, LIGHT_LIMIT, job) {
        Ok(shown) => shown.map_err(|error| error.to_string()),
        Err(silent) => {
            Err(format!("its firmware has not answered for {} s", silent.for_.as_secs()))
        }
    }
}

/// Reports lights that could not be switched: one event, because they usually have one reason.
fn note_failed(manager: &Manager, failed: Vec<(String, String)>) {
    let Some((name, why)) = failed.first() else { return };
    let what = match failed.len() {
        1 => format!("the light {name} cannot be switched"),
        count => format!("{count} lights cannot be switched, such as {name}"),
    };
    let note = Note::new(EventKind::LightFailed, "daemon", what).cause(why.clone());
    manager.record(note.next(ListDrivesRequest {}));
}

/// The slot of the drive at `path`, under any driver; `None` when it is in none.
pub(crate) fn slot_at(machine: &Machine, path: &str) -> Option<Slot> {
    if let Some(address) = pci_address(path) {
        return machine.slot_at(address);
    }
    let named = || machine.drives().into_iter().find(|drive| drive.path == path);
    Some(machine.slot_of(&machine.at_node(path).or_else(named)?))
}
