//! Sets the locate LEDs of slots to the patterns that the states of their drives require.
//!
//! A write to sysfs may wait for firmware. Each LED is set by a separate thread, within a time limit. An unresponsive
//! LED is not set again until its firmware answers; see [`crate::bounded`].

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use strake_api::v1::ListDrivesRequest;
use strake_dev_nvme::Host;
use strake_dev_uring::{KernelDrive, Light, Machine, Pattern, Slot};

use crate::actions::Pace;
use crate::bounded::{self, Job, side_by_side};
use crate::control::Control;
use crate::drives::address::pci_address;
use crate::drives::pci::is_gone;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::limits::{LIGHT_LIMIT, LIGHT_SETTLE, LIGHTS_EVERY};
use crate::manager::Manager;
use crate::policy::lights::{Fact, Facts, add_array};
use crate::policy::spares::SpareState;
use crate::state::lights::{Spot, Survey, Switched, Wanted, changes};

/// Starts [`switch_lights`] if LEDs may have to be set.
pub(crate) fn tend_lights(control: &Control, pace: Pace) -> Result<(), ControlError> {
    let is_due = control.with(|m| !m.stopping && m.lights.is_due(&facts(m), LIGHTS_EVERY))?;
    if is_due { control.act(pace, "lights".to_owned(), switch_lights) } else { Ok(()) }
}

/// Sets every LED that does not show the required pattern. Waits for at most [`LIGHT_LIMIT`], and for a concurrent
/// call.
pub(crate) fn switch_lights(control: &Control) -> Result<(), ControlError> {
    look_at_lights(control, LIGHTS_EVERY)
}

/// Sets every LED that does not show the required pattern. Compares an LED again if its last comparison is older than
/// `every`.
pub(crate) fn look_at_lights(control: &Control, every: Duration) -> Result<(), ControlError> {
    let gate = control.with(|m| Arc::clone(&m.lights.gate))?;
    // The lock protects no data, so a panic leaves no partial change.
    let _one = gate.lock().unwrap_or_else(PoisonError::into_inner);
    let (look, machine, binder, taken) = control.with(|m| {
        let facts = facts(m);
        (
            m.lights.begin(facts, every),
            m.drives.machine().clone(),
            m.options.binder.clone(),
            taken(m),
        )
    })?;
    let survey = survey(&machine, binder.host(), taken);
    let (wanted, next) = look.known.decide(&look.facts, &survey);
    let changes = changes(&look.shown, &wanted, &look.cleared, look.depth);
    let switched = switch(changes, |name, pattern| look.is_shown(name, pattern));
    control.with(|m| {
        let failed = m.lights.end(&look, next, switched);
        note_failed(m, failed);
    })
}

/// The facts about drives that can have an LED: the drives of the kernel, and the drives on the PCI bus.
fn facts(manager: &Manager) -> Facts {
    let mut facts = Facts::new();
    for running in &manager.running {
        add_array(&mut facts, &running.array.status(), |uuid| manager.sick.is_sick(uuid));
    }
    for spare in &manager.records.spares {
        let fact = match manager.spares.get(spare) {
            Some(SpareState::Ready(_)) => Fact::Spare,
            Some(SpareState::Failed(_)) => Fact::Failed,
            // A drive that another program uses is healthy, and must not be pulled.
            Some(SpareState::Missing(_) | SpareState::Occupied(_)) | None => continue,
        };
        facts.entry(spare.path.clone()).or_default().insert(fact);
    }
    // Such a drive was abandoned, or may not have stopped. This fact does not depend on an array.
    for open in manager.drives.all().iter().filter(|open| is_gone(&open.drive)) {
        facts.entry(open.drive.path.clone()).or_default().insert(Fact::Failed);
    }
    let machine = manager.drives.machine();
    facts.retain(|path, _| machine.has_node(path) || pci_address(path).is_some());
    facts
}

/// A drive that is taken from the kernel.
pub(crate) struct Taken {
    pub(crate) path: String,
    /// The serial number of the drive; empty if it is unknown.
    pub(crate) serial: String,
    /// Whether this process has the drive open. The serial number then comes from the drive and not only from the
    /// record.
    pub(crate) is_open: bool,
}

/// The drives that are taken from the kernel. An open drive comes after its record.
fn taken(manager: &Manager) -> Vec<Taken> {
    let open = manager.drives.all().iter().filter_map(|open| {
        let serial = open.pci.as_ref()?.facts()?.controller.serial;
        Some(Taken { path: open.drive.path.clone(), serial, is_open: true })
    });
    let recorded = manager.records.taken_paths().into_iter().map(|path| {
        let address = pci_address(&path).unwrap_or_default();
        let record = manager.records.taken_at(address);
        let serial = record.map(|record| record.serial.clone()).unwrap_or_default();
        Taken { path, serial, is_open: false }
    });
    recorded.chain(open).collect()
}

/// The drives of the host that are in slots with LEDs, by each of their paths.
pub(crate) fn survey(machine: &Machine, host: &Host, taken: Vec<Taken>) -> Survey {
    let mut survey = Survey::new();
    let spot = |slot: Slot, drive: &str| {
        Some(Spot { slot: slot.name, light: slot.light?, drive: drive.to_owned() })
    };
    for drive in machine.drives() {
        let Some(spot) = spot(machine.slot_of(&drive), identity(&drive)) else { continue };
        let paths = std::iter::once(&drive.path).chain(&drive.aliases);
        survey.extend(paths.map(|path| (path.clone(), spot.clone())));
    }
    for Taken { path, serial, is_open } in taken {
        let Some(address) = pci_address(&path) else { continue };
        // The recorded drive is bound to VFIO. A drive that the kernel drives at this address may be another drive.
        let of_kernel = || host.picture(address)?.identity.map(|identity| identity.serial);
        let serial = if is_open { serial } else { of_kernel().unwrap_or(serial) };
        let drive = if serial.is_empty() { &path } else { &serial };
        let spot = machine.slot_at(address).and_then(|slot| spot(slot, drive));
        survey.extend(spot.map(|spot| (path.clone(), spot)));
    }
    survey
}

/// The identity of a drive, which is the same with the driver of the kernel and without it.
fn identity(drive: &KernelDrive) -> &str {
    if drive.serial.is_empty() { &drive.identity } else { &drive.serial }
}

/// Sets LEDs, all at the same time.
fn switch(changes: Wanted, is_shown: impl Fn(&str, Pattern) -> bool) -> Vec<Switched> {
    let mut lights = Vec::new();
    let mut jobs: Vec<Job<Switched>> = Vec::new();
    for (name, (light, pattern)) in changes {
        lights.push((name.clone(), light.clone()));
        let is_shown = is_shown(&name, pattern);
        let job = {
            let name = name.clone();
            move || (name.clone(), light.clone(), show(&name, light, pattern, is_shown))
        };
        jobs.push((name, Box::new(job)));
    }
    // Each LED has a separate limit; this limit is for late threads.
    let (mut switched, late) = side_by_side(jobs, Instant::now() + LIGHT_LIMIT * 2);
    let late: BTreeSet<String> = late.into_iter().collect();
    let late = lights.into_iter().filter(|(name, _)| late.contains(name));
    switched.extend(
        late.map(|(name, light)| (name, light, Err("it was not switched in time".to_owned()))),
    );
    switched
}

/// Sets an LED to `pattern`, within the limit. An LED that already showed the pattern is only compared. An LED that was
/// removed counts as [`Pattern::Off`].
fn show(name: &str, light: Light, pattern: Pattern, is_shown: bool) -> Result<Pattern, String> {
    let job = move || match light.is_there() {
        false => Ok(Pattern::Off),
        true if is_shown => light.keep(pattern, LIGHT_SETTLE).map(|()| pattern),
        true => light.show(pattern, LIGHT_SETTLE).map(|()| pattern),
    };
    match bounded::ask(name, LIGHT_LIMIT, job) {
        Ok(shown) => shown.map_err(|error| error.to_string()),
        Err(silent) => {
            Err(format!("its firmware has not answered for {} s", silent.for_.as_secs()))
        }
    }
}

/// Reports the LEDs that could not be set. One event reports all of them, because they usually have the same cause.
fn note_failed(manager: &Manager, failed: Vec<(String, String)>) {
    let Some((name, why)) = failed.first() else { return };
    let what = match failed.len() {
        1 => format!("the LEDs {name} cannot be switched"),
        count => format!("the LEDs of {count} slots cannot be switched, such as {name}"),
    };
    let note = Note::new(EventKind::LightFailed, "daemon", what).cause(why.clone());
    manager.record(note.next(ListDrivesRequest {}));
}

/// The slot of the drive at `path`, with any driver; `None` if the drive is in no slot.
pub(crate) fn slot_at(machine: &Machine, path: &str) -> Option<Slot> {
    if let Some(address) = pci_address(path) {
        return machine.slot_at(address);
    }
    let named = || machine.drives().into_iter().find(|drive| drive.path == path);
    Some(machine.slot_of(&machine.at_node(path).or_else(named)?))
}
