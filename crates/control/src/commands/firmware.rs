//! Firmware of NVMe drives: its slots, and the update by an image.

mod transfer;

use std::sync::Arc;
use std::time::Instant;

use strake_api::v1::{
    DriveChange, Firmware, FirmwareSlot, GetFirmwareRequest, UpdateFirmwareRequest,
};
use strake_dev_uring::KernelDrive;
use strake_engine::ArrayStatus;
use strake_nvme_wire::maintenance::firmware::{
    Activation, IMAGE_BYTES_MAX, Reset, Slots, read_slots,
};
use strake_units::MemberIndex;

use crate::bounded;
use crate::commands::begun::Begun;
use crate::commands::erase::answer;
use crate::commands::maintain::{Subject, kernel_drive};
use crate::control::{Control, Reserved};
use crate::drives::OpenDrive;
use crate::drives::maintenance::Maintained;
use crate::error::ControlError;
use crate::events::EventKind;
use crate::limits::{FIRMWARE_PAUSE_MS_MAX, LOOK_LIMIT};
use crate::manager::Manager;
use crate::policy::members::absent_members;
use crate::state::maintenance::Operation;
use transfer::{Gate, committed, reset_of, send};

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
    let mut subject = Subject::named(control, &request.path)?;
    let path = subject.path.clone();
    let place = control.run(|m| check_use(m, &path))?;
    let (maintained, _) = look(&subject)?;
    control.run(|m| subject.check_same(m, &maintained.facts.serial))?;
    let piece_bytes = check_functions(&path, &maintained, update, place.is_some())?;
    let array = place.as_ref().map(|place| place.uuid.clone());
    let (_, turn) = control.reserve(|m| {
        check_use(m, &path)?;
        Ok(((), array.iter().map(|uuid| format!("the firmware of array {uuid}")).collect()))
    })?;
    let facts = maintained.facts.clone();
    let plan = plan_of(&path, &facts.firmware, update, place.as_ref());
    if request.dry_run {
        drop((subject, turn));
        return Ok(answer(control, &path, &facts.serial, "planned", plan));
    }
    let begun = hold(control, &mut subject, &maintained)?;
    let gate = Gate::default();
    let (image, held) = (image.to_vec(), (begun, subject, turn));
    let transfer = Transfer { maintained, image, piece_bytes, update, gate: gate.clone() };
    let limit = control.with(|m| m.options.firmware_limit)?;
    let deadline = Instant::now() + limit * 2 / 5;
    let own = control.clone();
    let job = move || transfer.execute(&own, held, deadline);
    let done = match bounded::ask(&format!("firmware of {path}"), limit, job) {
        Ok(done) => done,
        Err(silent) => Err(if gate.abandon() {
            format!("{}; the image is not committed", ControlError::from(silent).what)
        } else {
            format!(
                "{}; the drive may have stored the image, so read its firmware slots",
                ControlError::from(silent).what
            )
        }),
    };
    let warning = done.map_err(|why| {
        ControlError::device(format!("the firmware of {path} is not updated: {why}"))
    })?;
    let answer = answer(control, &path, &facts.serial, "changed", plan);
    Ok(DriveChange { warnings: warning.into_iter().collect(), ..answer })
}

/// An update that is ready to be executed.
struct Transfer {
    maintained: Maintained,
    image: Vec<u8>,
    piece_bytes: u32,
    update: Update,
    gate: Gate,
}

impl Transfer {
    /// Transfers and commits the image, and records the end. Returns what remains to be done, if anything.
    fn execute(
        self,
        control: &Control,
        (mut begun, subject, turn): (Begun, Subject, Reserved),
        deadline: Instant,
    ) -> Result<Option<String>, String> {
        begun.sent();
        let Self { maintained, image, piece_bytes, update, gate } = self;
        let sent = send(&maintained, &image, piece_bytes, &gate, deadline);
        // The array may have lost a member during the transfer.
        let checked = sent.and_then(|()| {
            control.run(|m| check_use(m, &subject.path)).map(drop).map_err(|error| error.what)
        });
        let entered = checked.and_then(|()| match gate.enter() {
            true => Ok(()),
            false => Err("the transfer took too long".to_owned()),
        });
        let done = entered
            .map_err(|why| format!("{why}; the image is not committed"))
            .and_then(|()| committed(&maintained, &subject.path, update));
        match &done {
            Ok(warning) => {
                let cause = warning.as_deref().unwrap_or_default();
                begun.restored(EventKind::DriveMaintenanceFinished, "finished", cause);
            }
            Err(why) => begun.failed(why),
        }
        drop((subject, turn));
        done
    }
}

/// Opens and reserves every namespace of the controller, except a member, which its array holds. Records the update, so
/// that no other command uses the namespaces.
fn hold(
    control: &Control,
    subject: &mut Subject,
    maintained: &Maintained,
) -> Result<Begun, ControlError> {
    let path = subject.path.clone();
    let node = control.with(|m| kernel_drive(m, &path))?;
    let siblings = node.map_or_else(|| Ok(Vec::new()), |node| control.with(|m| siblings(m, &node)));
    let others = siblings?.into_iter().map(|drive| drive.path);
    let mut identities = Vec::new();
    for path in std::iter::once(path.clone()).chain(others) {
        let member = control.with(|m| {
            let identity = open_at_path(m, &path)?.drive.device.identity();
            m.place_of(&identity).map(|_| identity)
        })?;
        identities.push(match member {
            Some(identity) => identity,
            None => subject.reserved.open(&path)?.device.identity(),
        });
    }
    let what = format!("the firmware update of {path} started");
    let of = (&*subject, maintained);
    Begun::record(control, Operation::Firmware, of, identities.clone(), what, |m| {
        identities.iter().try_for_each(|identity| m.maintenance.refuse_running(identity))?;
        check_use(m, &path).map(drop)
    })
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
    let node = kernel_drive(manager, path);
    if let Some(node) = &node {
        check_siblings(manager, node)?;
    }
    let Some(open) = open_at_path(manager, path) else {
        return match node.and_then(|node| node.user) {
            Some(user) => Err(ControlError::refused(format!(
                "{path} is in use: {user}; unmount the drive, disable its swap, or stop the devices that are built on \
                 the drive, and try again"
            ))),
            None => Ok(None),
        };
    };
    let identity = open.drive.device.identity();
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

/// Returns the open drive at `path`, by any of its paths.
fn open_at_path<'a>(manager: &'a Manager, path: &str) -> Option<&'a OpenDrive> {
    let node = kernel_drive(manager, path).map(|node| node.identity);
    manager.drives.all().iter().find(|open| {
        let medium = open.medium.as_ref().map(|(identity, _)| identity);
        open.drive.path == path || medium.is_some() && medium == node.as_ref()
    })
}

/// Returns the other namespaces of the controllers of a drive of the kernel.
fn siblings(manager: &Manager, node: &KernelDrive) -> Vec<KernelDrive> {
    let is_sibling = |other: &KernelDrive| {
        other.path != node.path && other.pci.iter().any(|address| node.pci.contains(address))
    };
    manager.drives.machine().drives().into_iter().filter(is_sibling).collect()
}

/// Refuses a drive if another namespace of its controller is in use: the update concerns the whole controller. The
/// daemon itself may hold it open for this update.
fn check_siblings(manager: &Manager, node: &KernelDrive) -> Result<(), ControlError> {
    let is_used = |drive: &KernelDrive| {
        let open = open_at_path(manager, &drive.path);
        let identity = open.map(|open| open.drive.device.identity());
        drive.user.is_some()
            || identity.is_some_and(|identity| {
                manager.place_of(&identity).is_some()
                    || manager.records.promised(&identity, None).is_some()
                    || manager.records.spares.iter().any(|spare| spare.identity == identity)
            })
    };
    let used = siblings(manager, node).into_iter().find(is_used);
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
