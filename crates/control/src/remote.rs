//! Drives of other machines: connected to by a command, remembered, and connected to again after a restart.
//!
//! Connecting takes as long as the target does, so it is never done under the lock of the manager: whatever names such
//! a drive is told to connect it first, and one that is recorded is connected by a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use strake_api::v1::{
    ConnectDriveRequest, DisconnectDriveRequest, Drive as DriveMessage, DriveChange,
};
use strake_block::BlockDevice;
use strake_dev_fabrics::address::SCHEME;
use strake_dev_fabrics::{Address, FabricsDevice, Reason, ReservationMode};
use strake_engine::Drive;
use strake_reactor::monotonic;
use strake_units::Nanos;

use crate::control::Control;
use crate::drives::DriveKind;
use crate::error::ControlError;
use crate::limits::{REMOTE_RETRY_MAX, REMOTE_RETRY_MIN};
use crate::manager::{Manager, Running, drive_key};
use crate::store::{Prepared, RemoteRecord};
use losses::Reported;
use record::Aim;
pub(crate) use record::check_secrets;

mod discover;
mod losses;
pub(crate) mod past;
pub(crate) mod paths;
mod process;
mod record;

/// What is being done about recorded drives.
#[derive(Default)]
pub(crate) struct Remotes {
    /// Addresses that a thread connects to just now.
    connecting: BTreeSet<String>,
    /// Those of which the last try has failed.
    failed: BTreeMap<String, Failed>,
    /// Reserved for drives that were forgotten while they were being connected: it is to be given up.
    orphans: Vec<RemoteRecord>,
    reported: Reported,
}

/// A recorded drive that could not be connected.
struct Failed {
    why: String,
    /// When it is tried again, and how long was waited for that.
    next: Instant,
    back_off: Duration,
}

impl Failed {
    fn after(before: Option<&Self>, why: String) -> Self {
        let back_off = before.map_or(REMOTE_RETRY_MIN, |b| b.back_off * 2).min(REMOTE_RETRY_MAX);
        Self { why, next: Instant::now() + back_off, back_off }
    }
}

/// Whether `path` names a drive of another machine.
pub(crate) fn is_remote(path: &str) -> bool {
    path.starts_with(SCHEME)
}

/// Whether what is at `path` can be found there by another daemon later.
pub(crate) fn outlasts(path: &str) -> bool {
    path.starts_with('/') || is_remote(path)
}

/// What is reserved while the drive at `address` is connected or disconnected.
fn remote_key(address: &str) -> String {
    format!("remote {address}")
}

/// The address in its usual form.
pub(crate) fn address_of(text: &str) -> Result<Address, ControlError> {
    text.parse().map_err(|error| ControlError::usage(format!("{error}")))
}

impl Control {
    /// Connects to a remote namespace and records it. The same again is "unchanged", and the same at
    /// another place another path to it.
    ///
    /// # Errors
    /// When the address is none, the target cannot be reached or refuses, or its namespace is none that can be used.
    pub fn connect_drive(
        &self,
        request: &ConnectDriveRequest,
    ) -> Result<DriveChange, ControlError> {
        let path = address_of(&request.address)?.to_string();
        let (aim, _reserved) = self.reserve(|m| {
            m.check_open()?;
            let name = m.drive_of(&path)?.map(|record| remote_key(&record.address));
            let keys = [remote_key(&path)].into_iter().chain(name).collect();
            Ok((m.aim_of(&path, request)?, keys))
        })?;
        let reservation =
            if request.take_over { ReservationMode::TakeOver } else { ReservationMode::Claim };
        let result = match aim {
            Aim::Nothing => "unchanged",
            Aim::Connect(record) => self.connect_new(&record, reservation)?,
            Aim::Path(record) => {
                self.connect_path(&record, reservation)?;
                "changed"
            }
            Aim::Rekey(record) => {
                // A secret that does not work would be found out only when the connection is lost.
                drop(record.connect(ReservationMode::Off, Nanos(0))?);
                self.run(|m| m.rekey_remote(&record))?;
                "changed"
            }
        };
        let drive = Some(self.drive(&path)?);
        Ok(DriveChange { result: result.to_owned(), drive, ..DriveChange::default() })
    }

    /// Connects a recorded drive, or one that is to be recorded, and has it used.
    fn connect_new(
        &self,
        record: &RemoteRecord,
        reservation: ReservationMode,
    ) -> Result<&'static str, ControlError> {
        let settled_at = self.run(Manager::may_connect)?;
        // Looked at first: what the kernel has connected and an array here writes to must not be reserved against it.
        let seen = record.connect(ReservationMode::Off, settled_at)?;
        self.run(|m| match m.drives.remote(&record.address) {
            Some(_) => Ok(()),
            None => m.drives.refuse_duplicate(&record.address, &seen),
        })?;
        drop(seen);
        let device = record.connect(reservation, settled_at)?;
        let is_new = device.was_reserved_now();
        self.run(|m| m.adopt_remote(record, device)).inspect_err(|_| {
            // One that is recorded is ours, and may have been connected meanwhile.
            let is_known = |m: &mut Manager| Ok(m.is_recorded(&record.address));
            if is_new && self.run(is_known).is_ok_and(|known| !known) {
                // Nobody uses it, so others may. Why it is refused is told, and that is enough.
                let _ = record.release();
            }
        })
    }

    /// Ends the connection to a drive of another machine, or one of the paths to it, and forgets it. With the drive
    /// goes its reservation, so that other hosts may use it; where the target cannot be told so, that is a warning.
    ///
    /// # Errors
    /// When there is none, or an array or a spare uses it.
    pub fn disconnect_drive(
        &self,
        request: &DisconnectDriveRequest,
    ) -> Result<DriveChange, ControlError> {
        let path = address_of(&request.address)?.to_string();
        let ((name, is_unreserved), _reserved) = self.reserve(|m| {
            m.check_open()?;
            let name = m.name_of(&path);
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
            let record = self.run(|m| m.forget_remote(&path))?;
            let failed = if is_unreserved { None } else { record.release().err() };
            failed.map(|error| unreleased(&path, &error)).into_iter().collect()
        } else {
            self.run(|m| m.forget_path(&name, &path))?;
            Vec::new()
        };
        let result = "changed".to_owned();
        Ok(DriveChange { result, drive, warnings, ..DriveChange::default() })
    }

    /// Connects those of `drives` that are of other machines and not connected, as `drive connect` does; none of them
    /// in a dry run.
    ///
    /// # Errors
    /// As [`connect_drive`](Self::connect_drive).
    pub(crate) fn connect_named<'a>(
        &self,
        drives: impl IntoIterator<Item = &'a String>,
        dry_run: bool,
    ) -> Result<(), ControlError> {
        for address in drives.into_iter().filter(|path| is_remote(path) && !dry_run) {
            let path = address_of(address)?.to_string();
            if !self.run(|m| Ok(m.drives.remote(&m.name_of(&path)).is_some()))? {
                self.connect_drive(&ConnectDriveRequest {
                    address: path,
                    ..ConnectDriveRequest::default()
                })?;
            }
        }
        Ok(())
    }

    /// Connects recorded drives that are not connected, and tells which were lost and came back.
    pub(crate) fn tend_remotes(&self) -> Result<(), ControlError> {
        let (due, orphans) = self.run(|m| {
            m.tell_losses();
            m.note_associations();
            Ok((m.due_remotes(), std::mem::take(&mut m.remotes.orphans)))
        })?;
        for record in orphans {
            self.release_orphan(record)?;
        }
        for record in due {
            let (control, address) = (self.clone(), record.address.clone());
            let connect = move || {
                let settled_at = control.run(Manager::may_connect);
                let result = settled_at.and_then(|at| record.connect(ReservationMode::Claim, at));
                // Nobody is there to be told when the control plane is of no use any more.
                let _ = control.run(|m| {
                    m.end_connecting(&record, result);
                    Ok(())
                });
            };
            let started = thread::Builder::new().name("drive connect".to_owned()).spawn(connect);
            if let Err(error) = started {
                self.run(|m| {
                    m.note_failed(&address, format!("it cannot be connected: {error}"));
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}

impl Control {
    /// Has a thread give up what is reserved for a drive that was forgotten, unless that is known again.
    fn release_orphan(&self, record: RemoteRecord) -> Result<(), ControlError> {
        let Some(reserved) = self.try_reserve(vec![remote_key(&record.address)])? else {
            // Somebody connects or disconnects it just now.
            return self.run(|m| {
                m.remotes.orphans.push(record);
                Ok(())
            });
        };
        if self.run(|m| Ok(m.is_recorded(&record.address)))? {
            return Ok(());
        }
        let release = move || {
            if let Err(error) = record.release() {
                tracing::warn!(reason = %unreleased(&record.address, &error), "a reservation stays");
            }
            drop(reserved);
        };
        // Without a thread it stays, which whoever wants the drive is told.
        let _ = thread::Builder::new().name("drive release".to_owned()).spawn(release);
        Ok(())
    }
}

impl Manager {
    /// From when on drives of other machines that are connected to now may be changed, on the monotonic clock.
    ///
    /// # Errors
    /// When another process that used them with the records of this one still runs.
    fn may_connect(&mut self) -> Result<Nanos, ControlError> {
        let now = monotonic();
        match self.past.still_runs(now) {
            None => Ok(self.past.all_settled_at(now)),
            Some(pid) => Err(ControlError::state(format!(
                "process {pid}, an earlier daemon with this state directory, still runs and may write to the drive; \
                 end it first"
            ))),
        }
    }

    /// Records that a drive is used, before it is. What cannot be recorded is used all the same: the labels of arrays
    /// have the next daemon wait as well.
    fn note_association(&mut self, device: &FabricsDevice) {
        if let Err(error) = self.past.use_drive(device, monotonic()) {
            tracing::warn!(drive = %device.address(), %error, "the use of a remote drive is not recorded");
        }
    }

    /// The same for what has changed since: a drive that is reached over more paths, or a target that takes longer.
    fn note_associations(&mut self) {
        for device in self.drives.remotes() {
            self.note_association(&device);
        }
    }

    fn is_recorded(&self, address: &str) -> bool {
        self.config.remotes.iter().any(|record| record.address == address)
    }

    /// Takes note of a drive that was connected. Says whether that is new.
    pub(crate) fn adopt_remote(
        &mut self,
        record: &RemoteRecord,
        device: FabricsDevice,
    ) -> Result<&'static str, ControlError> {
        self.check_open()?;
        if self.drives.remote(&record.address).is_some() {
            // It was connected meanwhile, as it was recorded.
            if self.config.remotes.contains(record) {
                return Ok("unchanged");
            }
            self.rekey_remote(record)?;
            return Ok("changed");
        }
        let device = Arc::new(device);
        self.note_association(&device);
        self.drives.refuse_duplicate(&record.address, &device)?;
        let known = self.is_recorded(&record.address);
        if !self.config.remotes.contains(record) {
            self.put_remote(record)?;
        }
        self.add_remote(record, device);
        Ok(if known { "changed" } else { "created" })
    }

    /// Has the next connections to a drive be made with other secrets.
    fn rekey_remote(&mut self, record: &RemoteRecord) -> Result<(), ControlError> {
        let (keys, tls) = (record.keys()?, record.tls_key()?);
        self.put_remote(record)?;
        if let Some(device) = self.drives.remote(&record.address) {
            device.set_keys(keys);
            device.set_tls_key(tls);
        }
        Ok(())
    }

    /// Records a drive, which is connected to from then on.
    pub(crate) fn put_remote(&mut self, record: &RemoteRecord) -> Result<(), ControlError> {
        let mut config = self.config.clone();
        config.remotes.retain(|known| known.address != record.address);
        config.remotes.push(record.clone());
        self.config = self.store.prepare(&config).and_then(Prepared::commit)?;
        Ok(())
    }

    fn add_remote(&mut self, record: &RemoteRecord, device: Arc<FabricsDevice>) {
        self.remotes.failed.remove(&record.address);
        self.drives.add_remote(record.address.clone(), device);
    }

    fn forget_remote(&mut self, path: &str) -> Result<RemoteRecord, ControlError> {
        let record = self.config.remotes.iter().find(|record| record.address == path).cloned();
        let Some(record) = record else {
            return Err(ControlError::not_found(format!(
                "{path} is not connected; strake drive list shows what is"
            )));
        };
        self.refuse_needed(path)?;
        let mut config = self.config.clone();
        config.remotes.retain(|record| record.address != path);
        self.config = self.store.prepare(&config).and_then(Prepared::commit)?;
        self.remotes.failed.remove(path);
        self.remotes.reported.forget_drive(path);
        for address in record.addresses() {
            self.remotes.reported.forget_path(address);
        }
        self.close_unused_drives();
        Ok(record)
    }

    /// Refuses a drive that an array or a spare counts on, whether it is connected or not.
    fn refuse_needed(&self, path: &str) -> Result<(), ControlError> {
        if let Some(device) = self.drives.remote(path) {
            let device: Arc<dyn BlockDevice> = Arc::<FabricsDevice>::clone(device);
            self.refuse_members(&[Drive { device, path: path.to_owned() }])?;
        }
        let is_member = |running: &&Running| {
            running.array.status().members.iter().any(|member| member.path == path)
        };
        let running = self.running.iter().find(is_member).map(|r| r.array.name().to_string());
        let waiting = self.config.arrays.iter().find(|array| {
            self.find(&array.uuid).is_none() && array.drives.iter().any(|drive| drive == path)
        });
        if let Some(name) = running.or_else(|| waiting.map(|array| array.name.clone())) {
            return Err(ControlError::refused(format!(
                "{path} belongs to array {name}; give the member another drive first (strake array replace {name}), or \
                 unload the array"
            )));
        }
        if self.config.spares.iter().any(|spare| spare.path == path) {
            return Err(ControlError::refused(format!(
                "{path} is a spare; take it first: strake spare remove {path}"
            )));
        }
        Ok(())
    }

    /// Recorded drives that should be connected to now; they count as being connected from here on.
    fn due_remotes(&mut self) -> Vec<RemoteRecord> {
        if self.stopping {
            return Vec::new();
        }
        let Remotes { connecting, failed, .. } = &self.remotes;
        let now = Instant::now();
        let is_due = |record: &&RemoteRecord| {
            self.drives.remote(&record.address).is_none()
                && !connecting.contains(&record.address)
                && !self.reserved.contains(&remote_key(&record.address))
                && failed.get(&record.address).is_none_or(|failed| now >= failed.next)
        };
        let due: Vec<_> = self.config.remotes.iter().filter(is_due).cloned().collect();
        self.remotes.connecting.extend(due.iter().map(|record| record.address.clone()));
        due
    }

    pub(crate) fn end_connecting(
        &mut self,
        record: &RemoteRecord,
        result: Result<FabricsDevice, ControlError>,
    ) {
        self.remotes.connecting.remove(&record.address);
        let is_ours = |device: &FabricsDevice| device.is_reserved() == Some(true);
        if result.as_ref().is_ok_and(is_ours) && !self.is_recorded(&record.address) {
            // It was forgotten, perhaps before it was reserved.
            self.remotes.orphans.push(record.clone());
        }
        // Somebody may have forgotten it, or connected it by hand.
        if !self.config.remotes.contains(record) || self.drives.remote(&record.address).is_some() {
            return;
        }
        if let Err(error) = result.and_then(|device| self.adopt_remote(record, device)) {
            self.note_failed(&record.address, error.what);
        }
    }

    fn note_failed(&mut self, address: &str, why: String) {
        self.remotes.connecting.remove(address);
        let failed = Failed::after(self.remotes.failed.get(address), why);
        self.remotes.failed.insert(address.to_owned(), failed);
    }

    /// Drives that are recorded and have not been connected since the daemon started.
    pub(crate) fn absent_remotes(&self) -> Vec<DriveMessage> {
        let absent = |record: &&RemoteRecord| self.drives.remote(&record.address).is_none();
        let message = |record: &RemoteRecord| DriveMessage {
            path: record.address.clone(),
            kind: DriveKind::Remote.word().to_owned(),
            state: "failed".to_owned(),
            note: match self.remotes.failed.get(&record.address) {
                Some(failed) => format!("not connected: {}", failed.why),
                None => "not connected yet".to_owned(),
            },
            ..DriveMessage::default()
        };
        self.config.remotes.iter().filter(absent).map(message).collect()
    }

    /// Identities of connected drives of other machines, which are kept open whether something uses them or not.
    pub(crate) fn remote_identities(&self) -> Vec<String> {
        let recorded = |path: &str| self.config.remotes.iter().any(|r| r.address == path);
        let all = self.drives.all().iter().filter(|open| open.kind == DriveKind::Remote);
        let kept = all.filter(|open| recorded(&open.drive.path));
        kept.map(|open| open.drive.device.identity()).collect()
    }
}

fn unreleased(path: &str, error: &ControlError) -> String {
    format!(
        "the target of {path} could not be informed that the drive is free: {}. Another host has to take it over: \
         strake \
         drive connect {path} --take-over",
        error.what
    )
}

/// What keeps other hosts from writing to a drive.
pub(crate) fn reservation_word(device: &FabricsDevice) -> &'static str {
    match device.is_reserved() {
        Some(true) => "reserved",
        Some(false) => "taken_over",
        None => "none",
    }
}

/// What is said about a drive whose connection is lost.
pub(crate) fn lost_note(reason: Reason) -> String {
    if reason == Reason::TakenOver {
        return reason.to_string();
    }
    format!("its connection is lost and is being restored: {reason}")
}
