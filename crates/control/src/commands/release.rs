//! Release of drives to the driver of the kernel.

use std::sync::Arc;

use strake_api::v1::{DriverChange, DriverChanges, ReleaseDrivesRequest};
use strake_dev_nvme::Binder;
use strake_dev_nvme::host::SCHEME;

use crate::bounded::within;
use crate::commands::take::{
    Named, binder_of, changes, is_it, namespaces_at, refuse_member, reserve_controllers, silent,
    with_done,
};
use crate::control::{Control, Reserved};
use crate::error::ControlError;
use crate::manager::Manager;
use crate::record::store::{Aim, TakenRecord};

impl Control {
    /// Returns taken drives to the kernel. All drives are checked before the first change. For a drive of the kernel,
    /// the result is "unchanged".
    ///
    /// # Errors
    /// If a drive was not taken by [`take_drives`](Self::take_drives), is a member of a serving array, or is a spare;
    /// then nothing was changed. Also if the kernel refuses.
    pub fn release_drives(
        &self,
        request: &ReleaseDrivesRequest,
    ) -> Result<DriverChanges, ControlError> {
        let (controllers, reserved) = reserve_controllers(self, &request.drives)?;
        let reserved = Arc::new(reserved);
        let mut held = Vec::new();
        for named in controllers {
            let kept = check(self, &named)?;
            held.push((named.address, kept));
        }
        let mut drives = Vec::new();
        for (address, kept) in held {
            let change = release(self, &address, kept, &reserved, request.dry_run);
            drives.push(change.map_err(|error| with_done(error, "released", &drives))?);
        }
        Ok(changes(drives))
    }
}

/// The record of a drive to release.
enum Kept {
    /// The drive is taken, or is being taken.
    Taken(TakenRecord),
    /// The drive is recorded, but another drive is at its address.
    Elsewhere(TakenRecord),
    /// The kernel drives the drive, and there is no record.
    Free,
}

fn check(control: &Control, named: &Named) -> Result<Kept, ControlError> {
    let path = format!("{SCHEME}{}", named.address);
    let (kept, binder) = control.run(|m| {
        let open = m.drives.named(&path).map(|drive| drive.device.identity());
        refuse_member(m, &path, open.as_deref())?;
        if let Some(identity) = &open {
            m.maintenance.refuse_reset(identity)?;
        }
        Ok((kept(m, named), m.options.binder.clone()))
    })?;
    match (&kept, binder.host().picture(&named.address)) {
        (Kept::Taken(_) | Kept::Elsewhere(_), _) => Ok(kept),
        (Kept::Free, None) => Err(ControlError::not_found(format!(
            "there is no PCI device at {}; check the address with lspci",
            named.address
        ))),
        (Kept::Free, Some(picture)) if picture.is_bound() => Err(ControlError::refused(format!(
            "{path} was not taken by this daemon; return the drive to the kernel with the program that detached the \
                drive, such as driverctl"
        ))),
        (Kept::Free, Some(_)) => Ok(kept),
    }
}

/// Returns the record of a controller. Equal serial numbers do not prove that two drives are the same: while VFIO has
/// the device at the recorded address, another drive with this serial number is not the recorded drive.
fn kept(manager: &Manager, named: &Named) -> Kept {
    let Named { address, serial } = named;
    let records = &manager.records;
    let host = manager.options.binder.host();
    let there = match host.picture(address).and_then(|picture| picture.identity) {
        Some(there) => {
            records.taken_of(&there.serial).filter(|record| is_it(host, record, address))
        }
        None => records.taken_at(address),
    };
    let here = |record: &TakenRecord| TakenRecord { address: address.clone(), ..record.clone() };
    match (there, serial) {
        (Some(record), None) => Kept::Taken(here(record)),
        (Some(record), Some(serial)) if record.serial == *serial => Kept::Taken(here(record)),
        (_, Some(serial)) => match records.taken_of(serial) {
            Some(record) => Kept::Elsewhere(record.clone()),
            None => Kept::Free,
        },
        (None, None) => Kept::Free,
    }
}

fn release(
    control: &Control,
    address: &str,
    kept: Kept,
    reserved: &Arc<Reserved>,
    dry_run: bool,
) -> Result<DriverChange, ControlError> {
    let forget = |record: &TakenRecord| {
        format!("delete the record that the drive {} is taken", record.serial)
    };
    let (serial, plan) = match &kept {
        Kept::Free => {
            let (path, serial) = name_of(control, address)?;
            return Ok(DriverChange { result: "unchanged".into(), path, serial, plan: Vec::new() });
        }
        Kept::Elsewhere(record) => (record.serial.clone(), vec![forget(record)]),
        Kept::Taken(record) => {
            let picture = binder_of(control)?.host().picture(address);
            let writes = picture.map(|picture| picture.to_release()).unwrap_or_default();
            let mut plan = vec![
                format!("record that the drive {} is to be released", record.serial),
                format!("close {SCHEME}{address}"),
            ];
            plan.extend(writes.iter().map(ToString::to_string));
            plan.push(forget(record));
            (record.serial.clone(), plan)
        }
    };
    let result = if dry_run { "planned" } else { "changed" }.to_owned();
    match &kept {
        Kept::Taken(record) if !dry_run => give_back(control, record, reserved)?,
        Kept::Elsewhere(record) if !dry_run => {
            control.run(|m| m.records.change(|config| config.drop_taken(&record.serial)))?;
        }
        Kept::Taken(_) | Kept::Elsewhere(_) | Kept::Free => {}
    }
    let path = match kept {
        Kept::Elsewhere(record) => format!("{SCHEME}{}", record.address),
        Kept::Taken(_) | Kept::Free => name_of(control, address)?.0,
    };
    Ok(DriverChange { result, path, serial, plan })
}

/// Returns the kernel's name of the drive at `address`, and its serial number.
fn name_of(control: &Control, address: &str) -> Result<(String, String), ControlError> {
    let machine = control.with(|m| m.drives.machine().clone())?;
    let drive = namespaces_at(&machine, address).into_iter().next();
    Ok(drive
        .map_or_else(|| (address.to_owned(), String::new()), |drive| (drive.path, drive.serial)))
}

/// Returns a controller to the kernel, removes its record, and switches off the LED of its slot. The intended release
/// is recorded first, so that the next start completes it. If the release exceeds the limit, the drive stays reserved
/// until the release ends.
pub(crate) fn give_back(
    control: &Control,
    record: &TakenRecord,
    reserved: &Arc<Reserved>,
) -> Result<(), ControlError> {
    let path = format!("{SCHEME}{}", record.address);
    let binder = binder_of(control)?;
    let boot = binder.host().boot();
    let leaving = TakenRecord { aim: Aim::Release, boot, ..record.clone() };
    let machine = control.with(|m| m.drives.machine().clone())?;
    let light = machine.slot_at(&record.address).and_then(|slot| slot.light);
    control.run(|m| {
        m.records.change(|config| config.put_taken(leaving))?;
        m.drives.close_pci(&path);
        light.iter().for_each(|light| m.lights.clear(light));
        Ok(())
    })?;
    let (own, own_record) = (control.clone(), record.clone());
    let reserved = Arc::clone(reserved);
    let job = move || {
        let ended = end_release(&own, &binder, &own_record);
        drop(reserved);
        ended
    };
    let next = "the release is completed when the drive answers, at the next start of the daemon, or by another \
                release";
    let limit = control.with(|m| m.options.bind_limit)?;
    within("drive release", limit, job).unwrap_or_else(|| Err(silent(&record.address, limit, next)))
}

/// Releases a drive and records the result. A drive that is still bound stays taken.
fn end_release(
    control: &Control,
    binder: &Binder,
    record: &TakenRecord,
) -> Result<(), ControlError> {
    let Err(error) = binder.release(&record.address) else {
        tracing::info!(address = %record.address, serial = %record.serial, "drive given back");
        return control.run(|m| m.records.change(|config| config.drop_taken(&record.serial)));
    };
    let is_bound = binder.host().picture(&record.address).is_some_and(|picture| picture.is_bound());
    if is_bound && record.is_taken() {
        control.run(|m| m.records.change(|config| config.put_taken(record.clone())))?;
    }
    Err(ControlError::device(error.to_string()))
}
