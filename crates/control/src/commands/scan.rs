//! Scans of drives: drives of the host, and open drives.
//!
//! The list of drives is collected under the lock of the manager, and the drives are scanned without the lock, because
//! a defective drive may answer late or never.

use std::sync::Arc;

use strake_api::v1::{Drive as DriveMessage, ListDrivesRequest, UndeleteArrayRequest};
use strake_dev_fabrics::{FabricsDevice, LinkState};
use strake_dev_nvme::{NvmeDevice, Stats};
use strake_dev_uring::{KernelDrive, Machine};
use strake_ondisk::Foreign;
use strake_raid::MemberState;
use strake_units::ByteSize;
use strake_wording::{command, say};

use crate::commands::remote::absent_remotes;
use crate::commands::take::closed_taken;
use crate::commands::unopened::{OfflineDrive, add_offline, offline_drives};
use crate::control::Control;
use crate::drives::address::{lost_note, pci_address};
use crate::drives::health::{HealthSource, source_of_kernel};
use crate::drives::probe::{Probe, Probes, Target};
use crate::drives::{Anchor, AtPath, DriveKind, Medium, OpenDrive, medium};
use crate::error::ControlError;
use crate::manager::Manager;
use crate::remote::paths::{message_of, paths_note};
use crate::state::lights::Shown;
use crate::state::maintenance::Listed;
use crate::view::queues::queues_of;

/// The known drives before a scan.
struct Survey {
    machine: Machine,
    probes: Probes,
    open: Vec<(DriveMessage, Option<Medium>)>,
    anchors: Vec<Anchor>,
    lights: Shown,
    /// Drives of the driver of this process, by path.
    sources: Vec<(String, Arc<dyn HealthSource>)>,
    /// Formats, sanitize operations and firmware updates.
    maintenance: Vec<Listed>,
    /// Drives of recorded arrays that do not run.
    offline: Vec<OfflineDrive>,
}

impl Survey {
    /// Marks every open drive as failed if another drive is at its path.
    fn tell_swapped(&mut self) {
        for ((message, _), anchor) in self.open.iter_mut().zip(&self.anchors) {
            if anchor.look(&self.machine) == AtPath::Another {
                "failed".clone_into(&mut message.state);
                add_note(
                    message,
                    "another drive is at its path now; this one is open and has no path",
                );
            }
        }
    }

    /// Returns the drives of the host and all open drives, by path. If a drive does not answer, the scan takes a few
    /// seconds, and the message of the drive reports this.
    fn drives(mut self) -> Vec<DriveMessage> {
        self.tell_swapped();
        let kernel = self.machine.drives();
        let offline = std::mem::take(&mut self.offline);
        let probes = self.probes.clone();
        let mut list = self.look(kernel, true);
        add_offline(&mut list, offline, &probes);
        list
    }

    /// Returns the drive with the name `name`.
    ///
    /// # Errors
    /// If there is no such drive.
    fn drive(mut self, name: &str, path: &str) -> Result<DriveMessage, ControlError> {
        self.tell_swapped();
        let node = self.machine.at_node(path);
        let wanted = node.clone().map(medium);
        self.open
            .retain(|(message, of)| message.path == path || (wanted.is_some() && *of == wanted));
        let mut kernel: Vec<KernelDrive> = node.into_iter().collect();
        if kernel.is_empty() {
            kernel.extend(self.machine.drives().into_iter().filter(|drive| drive.path == path));
        }
        if self.open.is_empty() && kernel.is_empty() {
            return self.file(name, path);
        }
        let mut found = self.look(kernel, false);
        found.pop().ok_or_else(|| no_such_drive(name))
    }

    /// Returns a file that is not open. Lists do not contain files, because any file might be a drive.
    fn file(&self, name: &str, path: &str) -> Result<DriveMessage, ControlError> {
        let is_file = |meta: &std::fs::Metadata| meta.is_file();
        let meta =
            std::fs::metadata(path).ok().filter(is_file).ok_or_else(|| no_such_drive(name))?;
        let mut message = DriveMessage {
            path: path.to_owned(),
            kind: DriveKind::File.word().to_owned(),
            size_bytes: meta.len(),
            ..DriveMessage::default()
        };
        let target = Target { path: path.to_owned(), bytes: Some(meta.len()), health: None };
        for (_, probe) in self.probes.look(vec![target]) {
            add_contents(&mut message, probe.contents);
        }
        Ok(message)
    }

    /// Combines open drives, drives of the kernel, and the results of scans.
    fn look(self, kernel: Vec<KernelDrive>, sorted: bool) -> Vec<DriveMessage> {
        let mut list: Vec<DriveMessage> = Vec::new();
        let mut open = self.open;
        let mut targets = Vec::new();
        for drive in kernel {
            let of = Some((drive.identity.clone(), drive.size_bytes));
            let known = open.iter().position(|(m, medium)| m.path == drive.path || *medium == of);
            let health = drive.name.starts_with("nvme").then(|| source_of_kernel(&drive.path));
            let quiet = known.is_some() || drive.user.is_some() || drive.trouble.is_some();
            let bytes = (!quiet).then_some(drive.size_bytes);
            targets.push(Target { path: drive.path.clone(), bytes, health });
            let mut message = match known {
                Some(at) => open.remove(at).0,
                None => of_kernel(&drive),
            };
            self.lights.add_to(&mut message, self.machine.slot_of(&drive));
            add_kernel(&mut message, drive);
            list.push(message);
        }
        for (mut message, of) in open {
            let address = pci_address(&message.path);
            if let Some(slot) = address.and_then(|address| self.machine.slot_at(address)) {
                self.lights.add_to(&mut message, slot);
            }
            let source = self.sources.iter().find(|(path, _)| *path == message.path);
            let health = source.map(|(_, source)| Arc::clone(source));
            targets.push(Target { path: message.path.clone(), bytes: None, health });
            list.push(without_kernel(message, of.is_some()));
        }
        let probed = self.probes.look(targets);
        for (message, (_, probe)) in list.iter_mut().zip(probed) {
            add_probe(message, probe);
            add_maintenance(message, &self.maintenance);
        }
        if sorted {
            list.sort_by(|a, b| a.path.cmp(&b.path));
        }
        list
    }
}

fn no_such_drive(name: &str) -> ControlError {
    let what = say(format!("there is no drive {name:?}; ")).run(ListDrivesRequest {});
    ControlError::not_found(what.say(" lists the drives"))
}

/// Describes a drive that this daemon does not use.
fn of_kernel(drive: &KernelDrive) -> DriveMessage {
    let (state, note) = match (&drive.trouble, &drive.user) {
        (Some(trouble), _) => ("failed", trouble.clone()),
        (None, Some(user)) => ("busy", user.clone()),
        (None, None) => ("free", String::new()),
    };
    DriveMessage {
        path: drive.path.clone(),
        identity: drive.identity.clone(),
        kind: DriveKind::Block.word().to_owned(),
        size_bytes: drive.size_bytes,
        block_bytes: drive.block_bytes,
        state: state.to_owned(),
        note,
        ..DriveMessage::default()
    }
}

/// Adds properties that only the kernel knows.
fn add_kernel(message: &mut DriveMessage, drive: KernelDrive) {
    if drive.name.starts_with("nvme") {
        "nvme".clone_into(&mut message.kind);
    }
    message.temperature_c = drive.temperature_c();
    message.model = drive.model;
    message.serial = drive.serial;
    let own = &message.path;
    let others = std::iter::once(drive.path).chain(drive.aliases).filter(|path| path != own);
    message.aliases = others.collect();
}

/// Adds the results of a scan.
fn add_probe(message: &mut DriveMessage, probe: Probe) {
    if let Some(health) = probe.health {
        message.wear_percent = Some(u32::from(health.wear_percent));
        message.temperature_c = health.temperature_c.or(message.temperature_c);
        if let Some(why) = health.prediction() {
            add_note(message, why);
        }
    }
    add_contents(message, probe.contents);
}

pub(crate) fn add_contents(message: &mut DriveMessage, contents: crate::drives::probe::Contents) {
    let contents = match contents {
        Ok(contents) => contents,
        Err(why) => {
            "failed".clone_into(&mut message.state);
            add_note(message, &why);
            return;
        }
    };
    match contents.named() {
        None if message.state.is_empty() => "free".clone_into(&mut message.state),
        None => {}
        Some(found) => {
            let state = if found.is_obstacle() { "occupied" } else { "free" };
            state.clone_into(&mut message.state);
            let undelete = match &found {
                Foreign::Destroyed(name) => {
                    let request = UndeleteArrayRequest { name: name.clone(), ..Default::default() };
                    format!(" ({} brings it back)", command(&request))
                }
                Foreign::Strake(_)
                | Foreign::StrakeUnknown
                | Foreign::StrakeDamaged
                | Foreign::Other(_) => String::new(),
            };
            add_note(message, &format!("holds {found}{undelete}"));
            // A member may be partly overwritten while its labels are intact.
            if let Some(other) = contents.other.filter(|other| found != Foreign::Other(other)) {
                add_note(message, &format!("and {other} over it"));
            }
        }
    }
}

/// Adds the operation of the drive. Until a format or sanitize operation has succeeded, no array can use the drive. A
/// taken drive that is not open is known by its address and its serial number.
fn add_maintenance(message: &mut DriveMessage, all: &[Listed]) {
    let is_it = |listed: &&Listed| match message.identity.as_str() {
        "" => listed.path == message.path && listed.serial == message.serial,
        identity => listed.identity == identity,
    };
    let Some(Listed { message: operation, .. }) = all.iter().find(is_it) else { return };
    match (&*operation.operation, &*operation.state) {
        ("firmware", _) => {}
        (_, "failed") => "failed".clone_into(&mut message.state),
        _ => "busy".clone_into(&mut message.state),
    }
    message.maintenance = Some(operation.clone());
}

fn add_note(message: &mut DriveMessage, what: &str) {
    if !message.note.is_empty() {
        message.note.push_str("; ");
    }
    message.note.push_str(what);
}

/// Completes an open drive that the kernel does not list: a file, memory, or a pulled device.
fn without_kernel(mut message: DriveMessage, was_listed: bool) -> DriveMessage {
    if was_listed {
        add_note(
            &mut message,
            "the kernel no longer lists the drive: the drive was pulled, or its link is down",
        );
    }
    message
}

impl Control {
    /// Returns the drives of the host and all open drives. Scans them for a few seconds at most.
    ///
    /// # Errors
    /// If an earlier command panicked.
    pub fn list_drives(&self) -> Result<Vec<DriveMessage>, ControlError> {
        Ok(self.with(|m| survey_of(m))?.drives())
    }

    /// Returns one drive by any of its names. Scans the drive, as [`list_drives`](Self::list_drives) does.
    ///
    /// # Errors
    /// If the name is neither a drive of the host, nor an open drive, nor a file.
    pub fn drive(&self, name: &str) -> Result<DriveMessage, ControlError> {
        let (survey, path) = self.run(|m| Ok((survey_of(m), drive_path(m, name)?)))?;
        survey.drive(name, &path)
    }
}

impl Manager {
    /// Returns open drives, recorded remote drives, and taken drives, without a scan.
    #[must_use]
    pub fn open_drives(&self) -> Vec<DriveMessage> {
        let open = self.drives.all().iter().map(|d| of_open(self, d));
        open.chain(absent_remotes(self)).chain(closed_taken(self)).collect()
    }
}

/// Collects the known drives for a scan without the manager.
fn survey_of(manager: &Manager) -> Survey {
    let open = manager.drives.all().iter().map(|d| (of_open(manager, d), d.medium.clone()));
    let closed = absent_remotes(manager).into_iter().chain(closed_taken(manager));
    let closed = closed.map(|message| (message, None));
    Survey {
        machine: manager.drives.machine().clone(),
        probes: manager.drives.probes().clone(),
        open: open.chain(closed).collect(),
        anchors: manager.drives.all().iter().map(|d| d.anchor(&d.drive.path)).collect(),
        lights: manager.lights.shown(),
        sources: manager.drives.health_sources(),
        maintenance: manager.maintenance.messages(),
        offline: offline_drives(manager),
    }
}

/// Returns the path of the drive with the name `name`.
pub(crate) fn drive_path(manager: &Manager, name: &str) -> Result<String, ControlError> {
    match manager.drives.path_of(name) {
        // A drive that is not connected is only in the records.
        Ok(path) => Ok(manager.records.name_of(&path)),
        // A name of several drives has its own usage error.
        Err(error) if manager.drives.is_shared(name) => Err(error),
        Err(_) => Err(no_such_drive(name)),
    }
}

/// Describes incidents of a controller that this process drives.
fn pci_note(device: &NvmeDevice) -> Option<String> {
    let Stats { bounces, resets, replays, .. } = device.stats();
    let counts =
        [(resets, "resets"), (replays, "commands sent again"), (bounces, "commands copied")];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let mut parts: Vec<String> = counts.map(|(count, what)| format!("{what}: {count}")).collect();
    parts.extend(device.reason().map(|reason| reason.to_string()));
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Returns the array and the slot of a member that is being copied to the drive, or will be.
fn copied_to(manager: &Manager, identity: &str) -> Option<(String, usize)> {
    let copied = manager.running.iter().find_map(|r| {
        let next = r.replacement.as_ref()?;
        let is_it = next.drive.device.identity() == identity;
        is_it.then(|| (r.array.name().to_string(), next.slot.at()))
    });
    // A copy may be recorded and not started yet.
    copied.or_else(|| manager.records.promised(identity, None))
}

fn of_open(manager: &Manager, open: &OpenDrive) -> DriveMessage {
    let info = open.drive.device.info();
    let place = manager.running.iter().find_map(|r| {
        let same = |d: &Option<strake_engine::Drive>| {
            d.as_ref().is_some_and(|d| d.device.identity() == info.identity)
        };
        let slot = r.drives.iter().position(same)?;
        Some((r.array.name().to_string(), slot, r.array.status().members[slot].clone()))
    });
    let errors = place.as_ref().map(|(_, _, status)| crate::view::array::errors_of(&status.health));
    let (array, member, state, mut notes) = match place {
        Some((array, slot, status)) => {
            let faulty = status.state == MemberState::Faulty;
            let why = status.cause.map(|c| c.text().to_owned());
            (
                array,
                Some(slot as u32),
                if faulty { "failed" } else { "member" },
                why.into_iter().collect(),
            )
        }
        None => match copied_to(manager, &info.identity) {
            Some((array, slot)) => {
                let note = format!("replacement of member {slot}, which is being copied to it");
                (array, Some(slot as u32), "replacement", vec![note])
            }
            None => (String::new(), None, "free", Vec::new()),
        },
    };
    let spare = manager.records.spares.iter().find(|spare| spare.identity == info.identity);
    notes.extend(open.notices.iter().cloned());
    if open.kind == DriveKind::Ram || open.kind == DriveKind::Null {
        notes.push(format!("{} in memory: lost when the daemon stops", ByteSize(info.bytes())));
    }
    let facts = open.pci.as_ref().and_then(|d| d.facts()).map(|facts| facts.controller);
    notes.extend(open.pci.as_ref().and_then(|d| pci_note(d)));
    let (model, serial) = match (&open.remote, facts) {
        (Some(remote), _) => remote.model_and_serial(),
        (None, facts) => facts.map(|facts| (facts.model, facts.serial)).unwrap_or_default(),
    };
    if let Some(LinkState::Down(reason, _)) = open.remote.as_ref().map(|d| d.state()) {
        notes.push(lost_note(reason));
    }
    let paths = open.remote.as_ref().map(|d| d.paths()).unwrap_or_default();
    notes.extend(paths_note(&paths).filter(|_| paths.len() > 1));
    DriveMessage {
        path: open.drive.path.clone(),
        identity: info.identity.clone(),
        model,
        serial,
        kind: open.kind.word().to_owned(),
        size_bytes: info.bytes(),
        block_bytes: info.block_size.bytes(),
        state: state.to_owned(),
        array,
        member,
        note: notes.join("; "),
        errors,
        paths: paths.iter().map(message_of).collect(),
        association: open.remote.as_ref().map_or(0, |d| d.association()),
        reconnects: open.remote.as_ref().map_or(0, |d| d.reconnects()),
        reservation: open.remote.as_ref().map_or("", |d| reservation_word(d)).to_owned(),
        queues: open.remote.as_ref().map(|d| queues_of(d)).unwrap_or_default(),
        spare_of: spare.map(|spare| manager.records.spare_of(&spare.array)).unwrap_or_default(),
        ..DriveMessage::default()
    }
}

/// Describes the protection of a drive against writes of other hosts.
fn reservation_word(device: &FabricsDevice) -> &'static str {
    match device.is_reserved() {
        Some(true) => "reserved",
        Some(false) => "taken_over",
        None => "none",
    }
}
