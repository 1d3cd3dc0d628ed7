//! Firmware of NVMe drives: its slots, and the update by an image.

use std::sync::Arc;

use strake_api::v1::{
    DriveChange, Firmware, FirmwareSlot, GetFirmwareRequest, UpdateFirmwareRequest,
};
use strake_dev_uring::KernelDrive;
use strake_engine::ArrayStatus;
use strake_nvme_wire::maintenance::firmware::{
    Activation, Committed, IMAGE_BYTES_MAX, Rejection, Reset, Slots, commit, download, read_slots,
};
use strake_units::MemberIndex;

use crate::bounded;
use crate::commands::erase::answer;
use crate::commands::maintain::Subject;
use crate::control::Control;
use crate::drives::OpenDrive;
use crate::drives::address::pci_address;
use crate::drives::maintenance::Maintained;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::limits::{FIRMWARE_LIMIT, FIRMWARE_PAUSE_MS_MAX, LOOK_LIMIT};
use crate::manager::Manager;
use crate::policy::members::absent_members;

/// A drive as a member of a running array.
struct Place {
    uuid: String,
    name: String,
    slot: usize,
    status: ArrayStatus,
}

/// A checked update.
#[derive(Clone, Copy)]
struct Update {
    slot: u8,
    activation: Activation,
}

/// Returns the firmware slots of an NVMe drive.
///
/// # Errors
/// If there is no such drive, it is not an NVMe drive of this host, or it does not answer.
pub fn firmware(control: &Control, request: &GetFirmwareRequest) -> Result<Firmware, ControlError> {
    let subject = Subject::named(control, &request.path)?;
    let (maintained, slots) = look(&subject)?;
    let capabilities = maintained.functions.firmware;
    let count = usize::from(capabilities.slots).max(slots.running.into());
    let slot = |(at, revision): (usize, &String)| {
        let number = at as u8 + 1;
        FirmwareSlot {
            number: number.into(),
            revision: revision.clone(),
            running: slots.running == number,
            next: slots.next == Some(number),
            read_only: number == 1 && capabilities.first_read_only,
        }
    };
    Ok(Firmware {
        path: subject.path,
        model: maintained.facts.model,
        serial: maintained.facts.serial,
        slots: slots.revisions.iter().take(count).enumerate().map(slot).collect(),
        activates_now: capabilities.activates_now,
    })
}

/// Stores an image of firmware in an NVMe drive, and activates it immediately or at the next reset. The members of
/// an array are updated one after the other, and only while the array tolerates the failure of the drive.
///
/// # Errors
/// If the request is impossible, the array does not tolerate the failure of the drive, another program uses the
/// drive, or the drive rejects the image or does not answer.
pub fn update_firmware(
    control: &Control,
    request: &UpdateFirmwareRequest,
    image: &[u8],
) -> Result<DriveChange, ControlError> {
    let update = checked(request)?;
    if !request.dry_run || !image.is_empty() {
        check_image(image)?;
    }
    let subject = Subject::named(control, &request.path)?;
    let path = subject.path.clone();
    let place = control.run(|m| check_use(m, &path))?;
    let (maintained, _) = look(&subject)?;
    let piece = check_functions(&path, &maintained, update, place.is_some())?;
    let array = place.as_ref().map(|place| place.uuid.clone());
    let (_, own) = control.reserve(|m| {
        check_use(m, &path)?;
        Ok(((), array.iter().map(|uuid| format!("the firmware of array {uuid}")).collect()))
    })?;
    let facts = maintained.facts.clone();
    let plan = plan_of(&path, &facts.firmware, update, place.as_ref());
    if request.dry_run {
        drop((subject, own));
        return Ok(answer(control, &path, &facts.serial, "planned", plan));
    }
    note(control, EventKind::DriveMaintenanceStarted, &path, "started", "")?;
    let (own_control, image, at) = (control.clone(), image.to_vec(), path.clone());
    let job = move || {
        let sent = send(&maintained, &image, piece);
        // The array may have lost a member during the transfer.
        let sent = sent.and_then(|()| {
            own_control.run(|m| check_use(m, &at)).map(drop).map_err(|error| error.what)
        });
        let done = sent.and_then(|()| committed(&maintained, &at, update));
        drop((subject, own));
        done
    };
    let done = bounded::ask(&format!("firmware of {path}"), FIRMWARE_LIMIT, job);
    let warning = match done.map_err(|silent| ControlError::from(silent).what).flatten() {
        Ok(warning) => warning,
        Err(why) => {
            note(control, EventKind::DriveMaintenanceFailed, &path, "failed", &why)?;
            let what = format!("the firmware of {path} is not updated: {why}");
            return Err(ControlError::device(what));
        }
    };
    let cause = warning.clone().unwrap_or_default();
    note(control, EventKind::DriveMaintenanceFinished, &path, "finished", &cause)?;
    let answer = answer(control, &path, &facts.serial, "changed", plan);
    Ok(DriveChange { warnings: warning.into_iter().collect(), ..answer })
}

/// Records an event about an update.
fn note(
    control: &Control,
    kind: EventKind,
    path: &str,
    what: &str,
    cause: &str,
) -> Result<(), ControlError> {
    let what = format!("the firmware update of {path} {what}");
    control.with(|m| m.record(Note::new(kind, format!("drive/{path}"), what).cause(cause)))
}

/// Identifies a drive, and reads its slots.
fn look(subject: &Subject) -> Result<(Maintained, Slots), ControlError> {
    let (path, source) = (&subject.path, Arc::clone(&subject.source));
    let job = move || {
        let maintained = Maintained::of(source)?;
        let slots = Slots::parse(&maintained.page(read_slots())?);
        Ok((maintained, slots))
    };
    let looked = bounded::ask(&format!("firmware slots of {path}"), LOOK_LIMIT, job)?;
    looked.map_err(|why: String| {
        ControlError::device(format!("the firmware slots of {path} cannot be read: {why}"))
    })
}

fn checked(request: &UpdateFirmwareRequest) -> Result<Update, ControlError> {
    let word = if request.activate.is_empty() { "reset" } else { &request.activate };
    let activation = Activation::from_word(word).ok_or_else(|| {
        ControlError::usage(format!("there is no activation {word:?}; use now or reset"))
    })?;
    let slot = u8::try_from(request.slot).ok().filter(|slot| *slot <= 7);
    let slot = slot.ok_or_else(|| {
        ControlError::usage(format!("there is no firmware slot {}; use 1 to 7", request.slot))
    })?;
    Ok(Update { slot, activation })
}

fn check_image(image: &[u8]) -> Result<(), ControlError> {
    if image.is_empty() || !image.len().is_multiple_of(4) || image.len() > IMAGE_BYTES_MAX {
        return Err(ControlError::usage(format!(
            "the image has {} bytes; an image of firmware has a multiple of 4 bytes, up to {} MiB",
            image.len(),
            IMAGE_BYTES_MAX >> 20
        )));
    }
    Ok(())
}

/// Refuses a drive that another program uses, and a drive whose array depends on it. Returns the place of a member.
fn check_use(manager: &Manager, path: &str) -> Result<Option<Place>, ControlError> {
    let machine = manager.drives.machine();
    let named = || machine.drives().into_iter().find(|drive| drive.path == path);
    let node = machine.at_node(path).or_else(named);
    let open = manager.drives.all().iter().find(|open| {
        let medium = open.medium.as_ref().map(|(identity, _)| identity);
        let node = node.as_ref().map(|node| &node.identity);
        open.drive.path == path || medium.is_some() && medium == node
    });
    if let Some(node) = &node {
        check_siblings(manager, node)?;
    }
    let Some(open) = open else {
        return match node.and_then(|node| node.user) {
            Some(user) => Err(ControlError::refused(format!(
                "{path} is in use: {user}; unmount the drive, disable its swap, or stop the devices that are built on \
                 the drive, and try again"
            ))),
            None => Ok(None),
        };
    };
    let identity = open.drive.device.identity();
    manager.maintenance.refuse_running(&identity)?;
    if let Some((name, slot)) = manager.records.promised(&identity, None) {
        return Err(ControlError::refused(format!(
            "{path} is the replacement of member {slot} of array {name}; try again when the replace has finished"
        )));
    }
    let found = manager.running.iter().find_map(|r| Some((r, r.slot_of(&identity)?)));
    let Some((running, slot)) = found else { return Ok(None) };
    let status = running.array.status();
    let (uuid, name) = (running.uuid(), status.name.to_string());
    check_redundancy(&Place { uuid, name, slot, status }).map(Some)
}

/// Refuses a drive if another namespace of its controller is in use: the update concerns the whole controller.
fn check_siblings(manager: &Manager, node: &KernelDrive) -> Result<(), ControlError> {
    let is_sibling = |other: &KernelDrive| {
        other.path != node.path && other.pci.iter().any(|address| node.pci.contains(address))
    };
    let siblings = manager.drives.machine().drives().into_iter().filter(is_sibling);
    let is_open = |drive: &KernelDrive| {
        let medium = |open: &OpenDrive| open.medium.as_ref().map(|(identity, _)| identity.clone());
        manager.drives.all().iter().any(|open| medium(open).as_ref() == Some(&drive.identity))
    };
    let used = siblings.into_iter().find(|drive| drive.user.is_some() || is_open(drive));
    let Some(used) = used else { return Ok(()) };
    Err(ControlError::refused(format!(
        "{} shares its controller with {}, which is in use; an update concerns both, so stop using {} first",
        node.path, used.path, used.path
    )))
}

/// Refuses a member whose failure the array does not tolerate, also if other members are being rebuilt.
fn check_redundancy(place: &Place) -> Result<Place, ControlError> {
    let Place { uuid, name, slot, status } = place;
    let absent = absent_members(status);
    let without = absent.with(MemberIndex(*slot as u8));
    if absent.iter().next().is_some() || !status.geometry.tolerates(without) {
        return Err(ControlError::refused(format!(
            "member {slot} of array {name} cannot be updated now: the array must have all members in sync, and \
             tolerate the failure of this member; rebuild the other members first, or stop the array"
        )));
    }
    let (uuid, name, slot, status) = (uuid.clone(), name.clone(), *slot, status.clone());
    Ok(Place { uuid, name, slot, status })
}

/// Returns the bytes of a piece of the image.
fn check_functions(
    path: &str,
    maintained: &Maintained,
    update: Update,
    is_member: bool,
) -> Result<u32, ControlError> {
    let (functions, firmware) = (maintained.functions, maintained.functions.firmware);
    let refuse = |why: String| Err(ControlError::state(format!("{path} {why}")));
    if !functions.updates {
        return refuse("does not support firmware updates".to_owned());
    }
    if !firmware.can_write(update.slot) {
        return refuse(format!("cannot store an image in slot {}", update.slot));
    }
    if update.activation == Activation::Now {
        if !firmware.activates_now {
            return refuse(format!(
                "cannot activate firmware without a reset; activate the image at the next reset: {}",
                reset_of(path, Reset::Controller)
            ));
        }
        if is_member && firmware.pause_ms_max == 0 {
            return refuse(
                "does not report how long it stops executing commands during the activation; activate the image at \
                 the next reset, or stop the array first"
                    .to_owned(),
            );
        }
        if is_member && firmware.pause_ms_max > FIRMWARE_PAUSE_MS_MAX {
            return refuse(format!(
                "may stop executing commands for {} ms during the activation, and a member for at most \
                 {FIRMWARE_PAUSE_MS_MAX} ms; activate the image at the next reset, or stop the array first",
                firmware.pause_ms_max
            ));
        }
    }
    let Some(piece) = firmware.piece_bytes(functions.transfer_bytes) else {
        return refuse("reports a granularity of images that exceeds its transfers".to_owned());
    };
    Ok(piece)
}

fn plan_of(path: &str, running: &str, update: Update, place: Option<&Place>) -> Vec<String> {
    let slot = match update.slot {
        0 => "a slot that the drive chooses".to_owned(),
        slot => format!("slot {slot}"),
    };
    let when = match update.activation {
        Activation::AtReset => "at the next reset",
        Activation::Now => "immediately",
    };
    let mut plan: Vec<String> = place
        .map(|Place { name, slot, .. }| {
            format!("{path} is member {slot} of array {name}, which serves on")
        })
        .into_iter()
        .collect();
    plan.push(format!("transfer the image to {path} (running firmware: {running})"));
    plan.push(format!("store the image in {slot}, and activate it {when}"));
    plan
}

/// Transfers an image in pieces.
fn send(maintained: &Maintained, image: &[u8], piece_bytes: u32) -> Result<(), String> {
    let mut offset = 0;
    for piece in image.chunks(piece_bytes as usize) {
        maintained.data(download(offset, piece.to_vec()))?;
        offset += piece.len() as u32;
    }
    Ok(())
}

/// Stores the transferred image. Returns what remains to be done, if anything.
fn committed(
    maintained: &Maintained,
    path: &str,
    update: Update,
) -> Result<Option<String>, String> {
    let status = maintained.status(commit(update.slot, update.activation))?;
    let needs = |reset| Some(format!("the image runs after a reset: {}", reset_of(path, reset)));
    match Committed::of(status) {
        Committed::Done if update.activation == Activation::Now => Ok(None),
        Committed::Done => Ok(needs(Reset::Controller)),
        Committed::Needs(reset) => Ok(needs(reset)),
        Committed::Rejected(rejection) => Err(rejected(rejection).to_owned()),
        Committed::Failed(status) => Err(format!("Firmware Commit failed with {status}")),
    }
}

const fn rejected(rejection: Rejection) -> &'static str {
    match rejection {
        Rejection::Slot => "the drive has no such slot, or it is read-only; name another slot",
        Rejection::Image => {
            "the image is damaged, or is for another drive; compare its checksum and the model"
        }
        Rejection::Time => {
            "the activation would take longer than the drive reported; activate it at the next reset"
        }
        Rejection::Prohibited => "the drive does not permit this image, such as an older revision",
        Rejection::Pieces => "parts of the image are missing or overlap; try again",
    }
}

/// Describes how to reset the drive.
fn reset_of(path: &str, reset: Reset) -> String {
    match reset {
        Reset::Controller if pci_address(path).is_some() => {
            "return the drive to the kernel and take it again, or restart the host".to_owned()
        }
        Reset::Controller => {
            format!("nvme reset on the controller of {path}, or a restart of the host")
        }
        Reset::Subsystem => {
            format!(
                "nvme subsystem-reset on the controller of {path}, or a power cycle of the drive"
            )
        }
        Reset::Conventional => "a power cycle of the drive".to_owned(),
    }
}
