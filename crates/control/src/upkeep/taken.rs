//! Drives that are taken again at a start: driver overrides do not survive a restart of the host.
//!
//! A drive is found by its serial number, at any address. Operations that a crash interrupted are completed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use strake_api::v1::{ReleaseDrivesRequest, TakeDrivesRequest};
use strake_block::IoErrorKind;
use strake_dev_nvme::host::SCHEME;
use strake_dev_nvme::{Binder, Claims, Host, Picture, Untaken};

use crate::bounded::{Job, side_by_side};
use crate::commands::release::give_back;
use crate::commands::take::{Target, binder_of, note_taken, reserved_at};
use crate::control::{Control, Reserved};
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::limits::{RETRY_EVERY, TAKE_AGAIN_LIMIT, TAKE_AGAIN_RETRY, TAKE_AGAIN_TRIES};
use crate::manager::Manager;
use crate::record::store::{Aim, TakenRecord};

/// The place and state of a recorded drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The kernel drives the drive, at this address.
    Driven(String),
    /// The daemon started to bind or to release the drive at the recorded address, in this boot of the host.
    Begun,
    /// The drive at the recorded address is bound to VFIO. It is this drive or another one.
    Bound,
    /// The drive was not found; contains the reason.
    Nowhere(String),
}

/// Finds the drive of `record`. `driven` contains the addresses at which the kernel drives it. `last` is the function
/// at the recorded address. `is_others` is set if another drive was recorded there later. `boot` is the current boot of
/// the host.
fn find(
    record: &TakenRecord,
    boot: &str,
    driven: &[String],
    last: Option<&Picture>,
    is_others: bool,
) -> Found {
    let is_bound = last.is_some_and(Picture::is_bound);
    let has_no_driver = last.is_some_and(|last| last.driver.is_none());
    let is_between =
        last.is_some_and(Picture::is_between) || (record.aim == Aim::Release && has_no_driver);
    // An operation of an earlier boot no longer applies: a present override belongs to another program.
    let is_begun = record.aim != Aim::Taken && record.boot == boot;
    match driven {
        // The drive at the recorded address is the other drive.
        [address] if is_bound && is_others => Found::Driven(address.clone()),
        _ if is_bound && is_begun => Found::Begun,
        _ if is_bound && record.aim != Aim::Release => Found::Bound,
        [address] => Found::Driven(address.clone()),
        [] if is_between && is_begun => Found::Begun,
        [] if has_no_driver => Found::Nowhere(
            "no drive of this host has its serial number; the device at its address has no driver, so the serial \
                number of that device is unknown"
                .to_owned(),
        ),
        [] => Found::Nowhere("no drive of this host has its serial number".to_owned()),
        several => Found::Nowhere(format!(
            "drives at several addresses have its serial number: {}",
            several.join(", ")
        )),
    }
}

/// Finds the drive of `record` on `host`; `all` contains the records of all drives.
pub(crate) fn look_for(host: &Host, record: &TakenRecord, all: &[TakenRecord]) -> Found {
    let mut driven = host.addresses_of(&record.serial);
    let identity = record.identity();
    driven.retain(|address| {
        let there = host.picture(address).and_then(|picture| picture.identity);
        there.is_some_and(|there| identity.matches(&there))
    });
    let latest = all.iter().rev().find(|other| other.address == record.address);
    let is_others = latest.is_some_and(|latest| latest.serial != record.serial);
    find(record, &host.boot(), &driven, host.picture(&record.address).as_ref(), is_others)
}

/// Takes drives that could not be taken before, because the module vfio-pci was not loaded, or the drive was absent or
/// in use. A drive that failed to start is not tried again without a command.
pub(crate) fn take_late(control: &Control) -> Result<(), ControlError> {
    let records = control.with(|m| {
        let is_soon = m.late_takes.last.is_some_and(|at| at.elapsed() < RETRY_EVERY);
        if is_soon || m.stopping {
            return None;
        }
        m.late_takes.last = Some(Instant::now());
        let all = m.records.taken.clone();
        let may_come_up = |record: &&TakenRecord| !m.late_takes.failed.contains(&record.serial);
        let late = all.iter().filter(|record| record.is_taken()).filter(may_come_up);
        Some((late.cloned().collect::<Vec<_>>(), all))
    })?;
    let Some((late, all)) = records else { return Ok(()) };
    let binder = binder_of(control)?;
    let found = late.into_iter().map(|record| (look_for(binder.host(), &record, &all), record));
    let late = found.filter(|(found, _)| matches!(found, Found::Driven(_)));
    take_found(control, &binder, late.map(|(found, record)| (record, found)).collect())
}

/// Takes recorded drives again, concurrently, and completes operations that a crash interrupted. The start does not
/// wait longer than the limit; the threads of late drives continue.
pub(crate) fn take_again(control: &Control) -> Result<(), ControlError> {
    let records = control.with(|m| m.records.taken.clone())?;
    if records.is_empty() {
        return Ok(());
    }
    let binder = binder_of(control)?;
    let look = |record: &TakenRecord| (record.clone(), look_for(binder.host(), record, &records));
    take_found(control, &binder, records.iter().map(look).collect())
}

/// Takes the drives that were found, or completes the operations that were started on them.
fn take_found(
    control: &Control,
    binder: &Binder,
    found: Vec<(TakenRecord, Found)>,
) -> Result<(), ControlError> {
    if let Err(error) = follow(control, &found) {
        for (record, _) in &found {
            report(control, record, &format!("its new address cannot be recorded: {error}"));
        }
        return Ok(());
    }
    let mut named = BTreeMap::new();
    let mut jobs: Vec<Job<()>> = Vec::new();
    for (record, found) in found {
        let (own, binder, job_record) = (control.clone(), binder.clone(), record.clone());
        let job = move || {
            if let Err(why) = resume(&own, &binder, &job_record, found) {
                report(&own, &job_record, &why);
            }
        };
        jobs.push((record.serial.clone(), Box::new(job)));
        named.insert(record.serial.clone(), record);
    }
    let (_, late) = side_by_side(jobs, Instant::now() + TAKE_AGAIN_LIMIT);
    for record in late.iter().filter_map(|serial| named.get(serial)) {
        let seconds = TAKE_AGAIN_LIMIT.as_secs();
        let why = format!("it has not answered for {seconds} s; the start continues without it");
        report(control, record, &why);
    }
    Ok(())
}

/// Records the current addresses of drives, before the first write.
fn follow(control: &Control, found: &[(TakenRecord, Found)]) -> Result<(), ControlError> {
    let mut moved = Vec::new();
    for (record, found) in found {
        if let Found::Driven(address) = found
            && *address != record.address
        {
            moved.push(TakenRecord { address: address.clone(), ..record.clone() });
        }
    }
    if moved.is_empty() {
        return Ok(());
    }
    control.run(|m| {
        moved.retain(|new| {
            let known = m.records.taken_of(&new.serial);
            known.is_some_and(|known| found.iter().any(|(record, _)| record == known))
        });
        m.records.change(|config| config.move_taken(moved))
    })
}

fn report(control: &Control, record: &TakenRecord, why: &str) {
    if let Err(error) = control.with(|m| report_in(m, record, why)) {
        tracing::warn!(serial = %record.serial, reason = %error, "not reported: {why}");
    }
}

/// Reports why a drive was not taken: immediately, or when its block device is no longer held back.
fn report_in(manager: &mut Manager, record: &TakenRecord, why: &str) {
    let late = &mut manager.late_takes;
    let is_failed = late.failed.contains(&record.serial);
    let mut held = late.held_back.values_mut();
    match held.find(|held| held.serial == record.serial).filter(|_| !is_failed) {
        Some(held) => held.why = Some(why.to_owned()),
        None => note_not_taken(manager, record, why),
    }
}

/// Records the event that a drive was not taken, unless the same reason was reported last.
pub(crate) fn note_not_taken(manager: &mut Manager, record: &TakenRecord, why: &str) {
    let last = manager.late_takes.reported.insert(record.serial.clone(), why.to_owned());
    if last.as_deref() == Some(why) {
        return;
    }
    let path = format!("{SCHEME}{}", record.address);
    let what =
        format!("drive {} (last at {path}) was not taken from the kernel again", record.serial);
    let retry = TakeDrivesRequest { drives: vec![record.serial.clone()], dry_run: false };
    let note = Note::new(EventKind::DriveNotTaken, format!("drive/{path}"), what);
    manager.record(note.cause(why).next(strake_wording::say("").run(retry)));
}

/// Completes the operation that `record` describes.
///
/// # Errors
/// The operation could not be completed. The error is a text with the reason.
pub(crate) fn resume(
    control: &Control,
    binder: &Binder,
    record: &TakenRecord,
    found: Found,
) -> Result<(), String> {
    let is_begun = record.boot == binder.host().boot();
    let may_undo = is_begun || found != Found::Bound;
    let address = match (found, record.aim) {
        (Found::Driven(_), Aim::Release) if !is_begun => return forget(control, record),
        (Found::Driven(address), _) => address,
        (Found::Begun | Found::Bound, _) => record.address.clone(),
        (Found::Nowhere(why), Aim::Taken | Aim::Again) => return Err(why),
        (Found::Nowhere(why), Aim::Take) => return forget(control, record).and(Err(why)),
        (Found::Nowhere(_), Aim::Release) => return forget(control, record),
    };
    let record = &TakenRecord { address, ..record.clone() };
    // If a command has reserved the drive, the command completes the operation.
    let keys = control.with(|m| reserved_at(m, &record.address));
    let reserved = keys.and_then(|keys| control.try_reserve(keys));
    let Some(reserved) = reserved.map_err(|error| error.to_string())? else { return Ok(()) };
    let reserved = Arc::new(reserved);
    // A command may have released the drive after it was found.
    let is_current = control.with(|m| m.records.taken_of(&record.serial) == Some(record));
    if !is_current.map_err(|error| error.to_string())? {
        return Ok(());
    }
    match record.aim {
        Aim::Taken | Aim::Again => take_as_before(control, binder, record),
        Aim::Take if !may_undo => {
            let taken = retake(control, binder, record);
            taken.or_else(|why| forget(control, record).and(Err(why)))?;
            note_taken(control, record).map_err(|error| error.to_string())
        }
        Aim::Take => complete(control, binder, record, &reserved),
        Aim::Release if is_another(control, record)? => forget(control, record),
        Aim::Release if is_named(control, record)? => keep(control, binder, record),
        Aim::Release => give_back(control, record, &reserved).map_err(|error| error.to_string()),
    }
}

/// Takes a drive again that remains taken. The start of this operation is recorded before the first write.
fn take_as_before(control: &Control, binder: &Binder, record: &TakenRecord) -> Result<(), String> {
    let boot = binder.host().boot();
    let put = |aim: Aim| {
        let record = TakenRecord { aim, boot: boot.clone(), ..record.clone() };
        let put = control.run(|m| m.records.change(|config| config.put_taken(record)));
        put.map_err(|error| error.to_string())
    };
    let is_ours = record.aim == Aim::Again && record.boot == boot;
    let picture = binder.host().picture(&record.address);
    if !is_ours && !picture.is_some_and(|picture| picture.is_bound()) {
        put(Aim::Again)?;
    }
    retake(control, binder, record)?;
    put(Aim::Taken)
}

/// Whether an array or a spare is recorded with the PCI address of the drive.
fn is_named(control: &Control, record: &TakenRecord) -> Result<bool, String> {
    let path = format!("{SCHEME}{}", record.address);
    control.with(|m| m.records.names_path(&path)).map_err(|error| error.to_string())
}

/// Takes a drive again that an array or a spare needs, and does not complete its release.
fn keep(control: &Control, binder: &Binder, record: &TakenRecord) -> Result<(), String> {
    let record = &TakenRecord { aim: Aim::Again, ..record.clone() };
    take_as_before(control, binder, record)?;
    let path = format!("{SCHEME}{}", record.address);
    let what = format!("the release of drive {} ({path}) was not completed", record.serial);
    let note = Note::new(EventKind::DriveKept, format!("drive/{path}"), what);
    let cause = "an array or a spare is recorded with it";
    let retry = ReleaseDrivesRequest { drives: vec![record.serial.clone()], dry_run: false };
    let next = strake_wording::say("to release it, unload the array or remove the spare, and: ");
    control.events().record(note.cause(cause).next(next.run(retry)));
    Ok(())
}

/// Completes the take command that a crash interrupted, or undoes it.
fn complete(
    control: &Control,
    binder: &Binder,
    record: &TakenRecord,
    reserved: &Arc<Reserved>,
) -> Result<(), String> {
    let taken = retake(control, binder, record);
    let taken = taken.and_then(|()| note_taken(control, record).map_err(|error| error.to_string()));
    taken.map_err(|why| match give_back(control, record, reserved) {
        Ok(()) => format!("{why}; the command that took the drive was interrupted and is undone"),
        Err(error) => format!("{why}; {error}"),
    })
}

fn forget(control: &Control, record: &TakenRecord) -> Result<(), String> {
    let forgotten = control.run(|m| m.records.change(|config| config.drop_taken(&record.serial)));
    forgotten.map_err(|error| error.to_string())
}

/// Whether another drive is recorded at the address of `record`.
fn is_another(control: &Control, record: &TakenRecord) -> Result<bool, String> {
    let at = control.with(|m| m.records.taken_at(&record.address).map(|at| at.serial.clone()));
    let at = at.map_err(|error| error.to_string())?;
    Ok(at.is_some_and(|serial| serial != record.serial))
}

/// Takes a drive again. If this fails, the changes to the host are undone, and the drive remains recorded.
fn retake(control: &Control, binder: &Binder, record: &TakenRecord) -> Result<(), String> {
    let words = |error: ControlError| error.to_string();
    let target = scanned(control, &record.address).map_err(words)?;
    let identity = record.identity();
    if target.picture.is_bound() {
        return retry(|| binder.take(&target.picture, &identity, Claims::default()))
            .map_err(|error| error.to_string());
    }
    target.refuse_obstacles().map_err(words)?;
    control.run(|m| target.refuse_open(m)).map_err(words)?;
    let claims = target.claim(binder).map_err(words)?;
    match binder.take(&target.picture, &identity, claims) {
        Ok(()) => Ok(()),
        Err(Untaken::Changed(error)) => Err(error.to_string()),
        Err(Untaken::Failed(error)) => {
            let failed = |m: &mut Manager| m.late_takes.failed.insert(record.serial.clone());
            control.with(failed).map_err(words)?;
            Err(match binder.release(&record.address) {
                Ok(()) => format!("{error}; the drive was given back to the kernel"),
                Err(undo) => {
                    format!("{error}; the drive could not be given back to the kernel: {undo}")
                }
            })
        }
    }
}

/// Returns the target at `address`. Waits for a limited time while the kernel scans it, because the kernel shows a
/// controller before its namespaces.
fn scanned(control: &Control, address: &str) -> Result<Target, ControlError> {
    for _ in 1..TAKE_AGAIN_TRIES {
        let target = Target::look(control, address)?;
        if !target.is_still_scanned() {
            return Ok(target);
        }
        thread::sleep(TAKE_AGAIN_RETRY);
    }
    Target::look(control, address)
}

/// Repeats `take` for a limited time, because the kernel closes the devices of a killed process some time after its
/// end. An error that states that another drive is at the address is not repeated.
fn retry(take: impl Fn() -> Result<(), Untaken>) -> Result<(), Untaken> {
    for _ in 1..TAKE_AGAIN_TRIES {
        match take() {
            Err(Untaken::Failed(error)) if error.kind != IoErrorKind::Gone => {
                thread::sleep(TAKE_AGAIN_RETRY);
            }
            done => return done,
        }
    }
    take()
}
