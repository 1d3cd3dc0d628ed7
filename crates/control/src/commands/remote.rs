//! Commands that connect and disconnect remote drives, and record them. `upkeep/remotes.rs` reconnects them.
//!
//! The duration of a connect depends on the remote controller, so the lock of the manager is never held meanwhile: a
//! command that names such a drive first connects it, and a separate thread connects recorded drives.

use std::sync::Arc;

use strake_api::v1::{
    ConnectDriveRequest, DisconnectDriveRequest, Drive as DriveMessage, DriveChange,
    ListDrivesRequest,
};
use strake_block::BlockDevice;
use strake_dev_fabrics::{FabricsDevice, ReservationMode};
use strake_engine::Drive;
use strake_export_nvmet::nqn;
use strake_units::{Nanos, Uuid};
use strake_wording::{command, replace, say};

use crate::commands::claims::refuse_members;
use crate::control::Control;
use crate::drives::DriveKind;
use crate::drives::address::{address_of, is_remote};
use crate::error::ControlError;
use crate::manager::Manager;
use crate::names::drive_key;
use crate::record::store::{Covered, RemoteRecord};
use crate::remedy::{FILE, connect, disconnect, remove_spare};
use crate::remote::paths::{check_paths, check_same_keys, leads_over, refuse_taken_over};
use crate::remote::record::{check_hold, check_secrets, known_as_asked, refusal};
use crate::state::running::Running;

/// Returns the key that reserves a connect or disconnect of the drive at `address`.
pub(crate) fn remote_key(address: &str) -> String {
    format!("remote {address}")
}

impl Control {
    /// Connects to a remote namespace and records it. A repeated request is "unchanged". The same namespace at another
    /// address is another path to the drive.
    ///
    /// # Errors
    /// If the address is invalid, the controller cannot be reached or refuses, or its namespace is unusable.
    pub fn connect_drive(
        &self,
        request: &ConnectDriveRequest,
    ) -> Result<DriveChange, ControlError> {
        let path = address_of(&request.address)?.to_string();
        let (aim, _reserved) = self.reserve(|m| {
            m.check_open()?;
            let name = m.records.drive_of(&path)?.map(|record| remote_key(&record.address));
            let keys = [remote_key(&path)].into_iter().chain(name).collect();
            Ok((aim_of(m, &path, request)?, keys))
        })?;
        let reservation =
            if request.take_over { ReservationMode::TakeOver } else { ReservationMode::Claim };
        let result = match aim {
            Aim::Nothing => "unchanged",
            Aim::Connect(record) => connect_new(self, &record, reservation)?,
            Aim::Path(record) => {
                connect_path(self, &record, reservation)?;
                "changed"
            }
            Aim::Rekey(record) => {
                // Without this check, a wrong secret would be noticed only at the next reconnect.
                drop(record.connect(ReservationMode::Off, Nanos(0))?);
                self.run(|m| rekey_remote(m, &record))?;
                "changed"
            }
        };
        let drive = Some(self.drive(&path)?);
        Ok(DriveChange { result: result.to_owned(), drive, ..DriveChange::default() })
    }

    /// Disconnects a remote drive, or one of its paths, and removes its record. The reservation of the drive is
    /// released, so that other hosts may use the drive. If the controller cannot be informed, the answer contains a
    /// warning.
    ///
    /// # Errors
    /// If there is no such drive, or an array or a spare uses it.
    pub fn disconnect_drive(
        &self,
        request: &DisconnectDriveRequest,
    ) -> Result<DriveChange, ControlError> {
        let path = address_of(&request.address)?.to_string();
        let ((name, is_unreserved), _reserved) = self.reserve(|m| {
            m.check_open()?;
            let name = m.records.name_of(&path);
            let device = m.drives.remote(&name);
            let is_unreserved = device.is_some_and(|device| device.is_reserved().is_none());
            let open = m.drives.remote(&name).map(|device| drive_key(&device.identity()));
            if open.as_ref().is_some_and(|key| m.reserved.contains(key)) {
                return Err(ControlError::state(format!("{path} is in use by another command")));
            }
            let keys = [remote_key(&path), remote_key(&name)].into_iter().chain(open);
            Ok(((name, is_unreserved), keys.collect()))
        })?;
        let drive = self.drive(&path).ok();
        let warnings = if name == path {
            let record = self.run(|m| forget_remote(m, &path))?;
            let failed = if is_unreserved { None } else { record.release().err() };
            failed.map(|error| unreleased(&path, &error)).into_iter().collect()
        } else {
            self.run(|m| forget_path(m, &name, &path))?;
            Vec::new()
        };
        let result = "changed".to_owned();
        Ok(DriveChange { result, drive, warnings, ..DriveChange::default() })
    }
}

/// Connects a recorded or new drive, and puts it in use.
fn connect_new(
    control: &Control,
    record: &RemoteRecord,
    reservation: ReservationMode,
) -> Result<&'static str, ControlError> {
    let settled_at = control.run(|m| m.past.may_connect())?;
    // The drive is checked first, because a drive that the kernel has connected and a local array uses must not be
    // reserved.
    let seen = record.connect(ReservationMode::Off, settled_at)?;
    control.run(|m| match m.drives.remote(&record.address) {
        Some(_) => Ok(()),
        None => m.drives.refuse_duplicate(&record.address, &seen),
    })?;
    drop(seen);
    let device = record.connect(reservation, settled_at)?;
    let is_new = device.was_reserved_now();
    control.run(|m| adopt_remote(m, record, device)).inspect_err(|_| {
        // A recorded drive is ours, and may have been connected meanwhile.
        let is_known = |m: &mut Manager| Ok(m.records.is_recorded(&record.address));
        if is_new && control.run(is_known).is_ok_and(|known| !known) {
            // The drive is unused here, so its reservation is released for other hosts. The caller gets the first
            // error.
            let _ = record.release();
        }
    })
}

/// Connects the remote drives in `drives` that are not connected, as `drive connect` does. A dry run connects none.
///
/// # Errors
/// The errors of [`connect_drive`](Control::connect_drive).
pub(crate) fn connect_named<'a>(
    control: &Control,
    drives: impl IntoIterator<Item = &'a String>,
    dry_run: bool,
) -> Result<(), ControlError> {
    for address in drives.into_iter().filter(|path| is_remote(path) && !dry_run) {
        let path = address_of(address)?.to_string();
        if !control.with(|m| m.drives.remote(&m.records.name_of(&path)).is_some())? {
            control.connect_drive(&ConnectDriveRequest {
                address: path,
                ..ConnectDriveRequest::default()
            })?;
        }
    }
    Ok(())
}

/// Records a connected drive. Returns the result word of the command.
pub(crate) fn adopt_remote(
    manager: &mut Manager,
    record: &RemoteRecord,
    device: FabricsDevice,
) -> Result<&'static str, ControlError> {
    manager.check_open()?;
    if manager.drives.remote(&record.address).is_some() {
        // Upkeep connected the recorded drive meanwhile.
        if manager.records.remotes.contains(record) {
            return Ok("unchanged");
        }
        rekey_remote(manager, record)?;
        return Ok("changed");
    }
    let device = Arc::new(device);
    manager.past.note_use(&device);
    manager.drives.refuse_duplicate(&record.address, &device)?;
    let known = manager.records.is_recorded(&record.address);
    if !manager.records.remotes.contains(record) {
        manager.records.put_remote(record)?;
    }
    add_remote(manager, record, device);
    Ok(if known { "changed" } else { "created" })
}

/// Sets new secrets for the next connections to a drive.
fn rekey_remote(manager: &mut Manager, record: &RemoteRecord) -> Result<(), ControlError> {
    let (keys, tls) = (record.keys()?, record.tls_key()?);
    manager.records.put_remote(record)?;
    if let Some(device) = manager.drives.remote(&record.address) {
        device.set_keys(keys);
        device.set_tls_key(tls);
    }
    Ok(())
}

fn add_remote(manager: &mut Manager, record: &RemoteRecord, device: Arc<FabricsDevice>) {
    manager.remotes.forget_failure(&record.address);
    manager.drives.add_remote(record.address.clone(), device);
}

fn forget_remote(manager: &mut Manager, path: &str) -> Result<RemoteRecord, ControlError> {
    let record = manager.records.remotes.iter().find(|record| record.address == path).cloned();
    let Some(record) = record else {
        let what = say(format!("{path} is not connected; ")).run(ListDrivesRequest {});
        return Err(ControlError::not_found(what.say(" shows connected drives")));
    };
    refuse_needed(manager, path)?;
    manager.records.change(|config| config.remotes.retain(|record| record.address != path))?;
    manager.remotes.forget(&record);
    manager.close_unused_drives();
    Ok(record)
}

/// Refuses a drive that an array or a spare uses, connected or not.
fn refuse_needed(manager: &Manager, path: &str) -> Result<(), ControlError> {
    if let Some(device) = manager.drives.remote(path) {
        let device: Arc<dyn BlockDevice> = Arc::<FabricsDevice>::clone(device);
        refuse_members(manager, &[Drive { device, path: path.to_owned() }])?;
    }
    let is_member = |running: &&Running| {
        running.array.status().members.iter().any(|member| member.path == path)
    };
    let running = manager.running.iter().find(is_member).map(|r| r.array.name().to_string());
    let waiting = manager.records.arrays.iter().find(|array| {
        manager.position_of(&array.uuid).is_none() && array.drives.iter().any(|drive| drive == path)
    });
    if let Some(name) = running.or_else(|| waiting.map(|array| array.name.clone())) {
        let what = format!("{path} belongs to array {name}; replace the member first (");
        let text = say(what).run(replace(name, None, "")).say("), or unload the array");
        return Err(ControlError::refused(text));
    }
    if manager.records.spares.iter().any(|spare| spare.path == path) {
        let what = format!("{path} is a spare; remove the spare first: ");
        return Err(ControlError::refused(say(what).run(remove_spare(path))));
    }
    Ok(())
}

/// Returns recorded drives that have not been connected since the start of the daemon.
pub(crate) fn absent_remotes(manager: &Manager) -> Vec<DriveMessage> {
    let absent = |record: &&RemoteRecord| manager.drives.remote(&record.address).is_none();
    let message = |record: &RemoteRecord| DriveMessage {
        path: record.address.clone(),
        kind: DriveKind::Remote.word().to_owned(),
        state: "failed".to_owned(),
        note: manager.remotes.absence(&record.address),
        ..DriveMessage::default()
    };
    manager.records.remotes.iter().filter(absent).map(message).collect()
}

pub(crate) fn unreleased(path: &str, error: &ControlError) -> String {
    format!(
        "the reservation of {path} could not be released: {}. Another host must take the drive over: {}",
        error.what,
        command(&ConnectDriveRequest { take_over: true, ..connect(path) })
    )
}

/// Connects the last path in `record` of a drive.
fn connect_path(
    control: &Control,
    record: &RemoteRecord,
    reservation: ReservationMode,
) -> Result<(), ControlError> {
    let Some(path) = record.paths.last() else { return Ok(()) };
    let address = address_of(path)?;
    let drive = || control.with(|m| m.drives.remote(&record.address).cloned());
    if drive()?.is_none() {
        // This path may be the only working path.
        let settled_at = control.run(|m| m.past.may_connect())?;
        let device = record.connect(reservation, settled_at)?;
        control.run(|m| adopt_remote(m, record, device))?;
    }
    // Upkeep may have connected the recorded path meanwhile.
    let Some(device) = drive()?.filter(|device| !leads_over(device, &address)) else {
        return Ok(());
    };
    let (keys, tls) = (record.keys()?, record.tls_key()?);
    let again = ConnectDriveRequest { address: path.clone(), ..record.again() };
    device.add_path(&address).map_err(|error| refusal(&error, (&keys, &tls), again))?;
    control.run(|m| m.records.put_remote(record)).inspect_err(|_| {
        // A path that could not be recorded is not used. The drive has another path.
        let _ = device.remove_path(&address);
    })
}

/// Returns the action for a request, if its address is a path to a recorded drive.
fn aim_of_path(
    manager: &Manager,
    path: &str,
    request: &ConnectDriveRequest,
) -> Result<Option<Aim>, ControlError> {
    let Some(record) = manager.records.drive_of(path)? else { return Ok(None) };
    let name = record.address.clone();
    let mut record = known_as_asked(record, request)?;
    check_same_keys(path, &record, request)?;
    if !record.paths.iter().any(|known| known == path) {
        record.paths.push(path.to_owned());
        check_paths(&record)?;
        return Ok(Some(Aim::Path(record)));
    }
    let address = address_of(path)?;
    Ok(Some(match manager.drives.remote(&name) {
        None => Aim::Connect(record),
        Some(device) if leads_over(device, &address) => {
            refuse_taken_over(&name, device)?;
            Aim::Nothing
        }
        Some(_) => {
            record.paths.retain(|known| known != path);
            record.paths.push(path.to_owned());
            Aim::Path(record)
        }
    }))
}

/// Removes a path to the drive `name`.
pub(crate) fn forget_path(
    manager: &mut Manager,
    name: &str,
    path: &str,
) -> Result<(), ControlError> {
    let address = address_of(path)?;
    let mut config = manager.records.config.clone();
    for record in config.remotes.iter_mut().filter(|record| record.address == name) {
        record.paths.retain(|known| known != path);
    }
    // The record is prepared first, so that no unrecorded change happens.
    let prepared = manager.records.store.prepare(&config)?;
    if let Some(device) = manager.drives.remote(name)
        && leads_over(device, &address)
        && !device.remove_path(&address)
    {
        let what = format!(
            "{name} is connected over {path} alone; wait until another path is live, or disconnect the drive: "
        );
        return Err(ControlError::refused(say(what).run(disconnect(name))));
    }
    manager.records.config = prepared.commit()?;
    manager.remotes.reported.forget_path(path);
    Ok(())
}

/// Returns the action for a request to connect the drive at `path`.
fn aim_of(
    manager: &mut Manager,
    path: &str,
    request: &ConnectDriveRequest,
) -> Result<Aim, ControlError> {
    let (secret, controller) = (request.secret.trim(), request.controller_secret.trim());
    check_secrets(secret, controller)?;
    if let Some(aim) = aim_of_path(manager, path, request)? {
        return Ok(aim);
    }
    let known = manager.records.remotes.iter().find(|record| record.address == path).cloned();
    let mut record = match known.clone() {
        Some(known) => known_as_asked(known, request)?,
        None => new_record(manager, path, request)?,
    };
    if !secret.is_empty() {
        if controller.is_empty() && !record.controller_secret.is_empty() {
            let what = format!(
                "{path} is connected with mutual authentication; give the controller's secret, too: "
            );
            let both = ConnectDriveRequest {
                secret: FILE.to_owned(),
                controller_secret: FILE.to_owned(),
                ..connect(path)
            };
            let what = say(what).run(both).say(", or, to connect without, first: ");
            return Err(ControlError::usage(what.run(disconnect(path))));
        }
        (record.secret, record.controller_secret) = (secret.to_owned(), controller.to_owned());
    }
    if !request.tls_key.trim().is_empty() {
        record.tls_key = request.tls_key.trim().to_owned();
    }
    record.covered.uncover(secret, controller, request.tls_key.trim());
    record.keys()?;
    record.tls_key()?;
    let connected = manager.drives.remote(path).is_some();
    if let Some(device) = manager.drives.remote(path) {
        refuse_taken_over(path, device)?;
    }
    Ok(match known {
        Some(known) if connected && known == record => Aim::Nothing,
        Some(_) if connected => Aim::Rekey(record),
        Some(_) | None => Aim::Connect(record),
    })
}

fn new_record(
    manager: &mut Manager,
    path: &str,
    request: &ConnectDriveRequest,
) -> Result<RemoteRecord, ControlError> {
    manager.records.check_room()?;
    check_hold(request.hold_s)?;
    let (host_nqn, host_id) = manager.records.host_name(&request.host_nqn)?;
    Ok(RemoteRecord {
        address: path.to_owned(),
        paths: Vec::new(),
        host_nqn,
        host_id,
        hold_s: request.hold_s,
        secret: String::new(),
        controller_secret: String::new(),
        tls_key: String::new(),
        covered: Covered::default(),
    })
}

/// Checks that a record of a drive from a backup is valid here.
pub(crate) fn check_remote(manager: &Manager, record: &RemoteRecord) -> Result<(), ControlError> {
    manager.records.check_room()?;
    check_hold(record.hold_s)?;
    check_paths(record)?;
    nqn::check(&record.host_nqn).map_err(|error| {
        ControlError::usage(format!("{:?} is not a valid NQN: {error}", record.host_nqn))
    })?;
    record.host_id.parse::<Uuid>().map_err(|error| {
        ControlError::usage(format!("{:?} identifies no host: {error}", record.host_id))
    })?;
    check_secrets(&record.secret, &record.controller_secret)?;
    record.tls_key()?;
    record.keys().map(drop)
}

/// The action for a request to connect a drive.
pub(super) enum Aim {
    /// The drive is already connected as requested.
    Nothing,
    /// The drive must be connected.
    Connect(RemoteRecord),
    /// The address is another path, which this record contains.
    Path(RemoteRecord),
    /// The drive is connected. Later connections use other secrets.
    Rekey(RemoteRecord),
}
