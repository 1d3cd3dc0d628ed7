//! Several paths to one drive of another machine.
//!
//! A drive is named by the path that it was connected by first. What another place offers of the same subsystem and
//! namespace is a further path, which is recorded with the drive and shares everything else with it.

use strake_api::v1::{ConnectDriveRequest, DrivePath};
use strake_dev_fabrics::limits::PATHS_MAX;
use strake_dev_fabrics::{Access, Address, FabricsDevice, PathState, PathStatus, ReservationMode};
use strake_units::Nanos;

use super::address_of;
use super::record::{Aim, keys_of, known_as_asked, refusal, tls_key_of};
use crate::control::Control;
use crate::error::ControlError;
use crate::manager::Manager;
use crate::store::RemoteRecord;

/// Whether two addresses are of one namespace: no other subsystem in the world has the name (Base, section 4.7).
fn same_namespace(one: &Address, other: &Address) -> bool {
    (&one.nqn, one.nsid) == (&other.nqn, other.nsid)
}

/// Refuses the record of a drive whose paths lead to different namespaces, or of which there are too many.
pub(super) fn check_paths(record: &RemoteRecord) -> Result<(), ControlError> {
    let name = address_of(&record.address)?;
    for path in &record.paths {
        if !same_namespace(&name, &address_of(path)?) {
            return Err(ControlError::usage(format!("{path} is no path to {name}")));
        }
    }
    for (at, path) in record.addresses().enumerate() {
        if record.addresses().take(at).any(|other| other == path) {
            return Err(ControlError::usage(format!("{path} is given twice")));
        }
    }
    if record.paths.len() >= PATHS_MAX {
        return Err(ControlError::usage(format!("a drive has at most {PATHS_MAX} paths")));
    }
    Ok(())
}

/// The record with each address in its usual form.
pub(crate) fn in_usual_form(record: &RemoteRecord) -> Result<RemoteRecord, ControlError> {
    let usual = |text: &String| address_of(text).map(|address| address.to_string());
    let paths = record.paths.iter().map(usual).collect::<Result<_, _>>()?;
    Ok(RemoteRecord { address: usual(&record.address)?, paths, ..record.clone() })
}

fn leads_over(device: &FabricsDevice, address: &Address) -> bool {
    device.paths().iter().any(|path| path.address == *address)
}

impl Control {
    /// Connects a drive over the last of the paths in `record` too.
    pub(super) fn connect_path(
        &self,
        record: &RemoteRecord,
        reservation: ReservationMode,
    ) -> Result<(), ControlError> {
        let Some(path) = record.paths.last() else { return Ok(()) };
        let address = address_of(path)?;
        let drive = || self.run(|m| Ok(m.drives.remote(&record.address).cloned()));
        if drive()?.is_none() {
            // It may be the only path that works.
            let settled_at = self.run(Manager::may_connect)?;
            let device = record.connect(reservation, settled_at)?;
            self.run(|m| m.adopt_remote(record, device))?;
        }
        // It may have been connected meanwhile, as it was recorded before.
        let Some(device) = drive()?.filter(|device| !leads_over(device, &address)) else {
            return Ok(());
        };
        let (keys, tls) = (record.keys()?, record.tls_key()?);
        device.add_path(&address).map_err(|error| refusal(&error, (&keys, &tls)))?;
        self.run(|m| m.put_remote(record)).inspect_err(|_| {
            // What was not recorded is not used. There is another one, or it could not have been added.
            let _ = device.remove_path(&address);
        })
    }
}

impl Manager {
    /// The drive that `path` leads to, by its name: itself unless it is recorded as a path to another one.
    pub(crate) fn name_of(&self, path: &str) -> String {
        let leads = |record: &&RemoteRecord| record.paths.iter().any(|other| other == path);
        let record = self.config.remotes.iter().find(leads);
        record.map_or_else(|| path.to_owned(), |record| record.address.clone())
    }

    /// The record of another drive than that at `path` that is the same namespace.
    pub(super) fn drive_of(&self, path: &str) -> Result<Option<RemoteRecord>, ControlError> {
        let address = address_of(path)?;
        let leads = |record: &&RemoteRecord| {
            record.address != path
                && address_of(&record.address).is_ok_and(|name| same_namespace(&name, &address))
        };
        if self.config.remotes.iter().any(|record| record.address == path) {
            return Ok(None);
        }
        Ok(self.config.remotes.iter().find(leads).cloned())
    }

    /// What is to be done for a request to connect what is a path to a recorded drive, if it is one.
    pub(super) fn aim_of_path(
        &self,
        path: &str,
        request: &ConnectDriveRequest,
    ) -> Result<Option<Aim>, ControlError> {
        let Some(record) = self.drive_of(path)? else { return Ok(None) };
        let name = record.address.clone();
        let mut record = known_as_asked(record, request)?;
        check_same_keys(path, &record, request)?;
        if !record.paths.iter().any(|known| known == path) {
            record.paths.push(path.to_owned());
            check_paths(&record)?;
            return Ok(Some(Aim::Path(record)));
        }
        let address = address_of(path)?;
        Ok(Some(match self.drives.remote(&name) {
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

    /// Does without a path to the drive `name` from now on.
    pub(super) fn forget_path(&mut self, name: &str, path: &str) -> Result<(), ControlError> {
        let address = address_of(path)?;
        let mut config = self.config.clone();
        for record in config.remotes.iter_mut().filter(|record| record.address == name) {
            record.paths.retain(|known| known != path);
        }
        // First, so that what cannot be recorded is not done.
        let prepared = self.store.prepare(&config)?;
        if let Some(device) = self.drives.remote(name)
            && leads_over(device, &address)
            && !device.remove_path(&address)
        {
            return Err(ControlError::refused(format!(
                "{name} is connected over {path} alone; wait until another path is live, or disconnect the drive: \
                 strake drive disconnect {name}"
            )));
        }
        self.config = prepared.commit()?;
        self.remotes.reported.forget_path(path);
        Ok(())
    }
}

/// Refuses secrets and keys for `path` that are not those of the drive: a path would be dialled with the drive's, and a
/// key that was given and not used is worse than none.
fn check_same_keys(
    path: &str,
    record: &RemoteRecord,
    request: &ConnectDriveRequest,
) -> Result<(), ControlError> {
    let (secret, controller) = (request.secret.trim(), request.controller_secret.trim());
    keys_of(path, secret, controller)?;
    tls_key_of(path, request.tls_key.trim())?;
    for (given, known, what, option) in [
        (secret, &record.secret, "secret", "--secret-file"),
        (controller, &record.controller_secret, "secret of its target", "--controller-secret-file"),
        (request.tls_key.trim(), &record.tls_key, "key for TLS", "--tls-key-file"),
    ] {
        if !given.is_empty() && given != known {
            let name = &record.address;
            return Err(ControlError::usage(format!(
                "{path} is another path to {name}, and a drive has one {what} for all, which is not this one; first: \
                 strake drive connect {name} {option} FILE"
            )));
        }
    }
    Ok(())
}

/// Refuses to connect a drive that is connected, and was taken over: nothing that is kept of it holds any more.
pub(super) fn refuse_taken_over(name: &str, device: &FabricsDevice) -> Result<(), ControlError> {
    if device.is_reserved() != Some(false) {
        return Ok(());
    }
    Err(ControlError::state(format!(
        "{name} was taken over by another host, which may have written to it, so it is not used any more; unload the \
         array that uses it, or restart the daemon, then: strake drive disconnect {name}, and connect it again"
    )))
}

/// What is told of a path.
pub(crate) fn message_of(path: &PathStatus) -> DrivePath {
    let (state, access, note) = match path.state {
        PathState::Up(access) => ("live", access.map_or("", word_of), String::new()),
        PathState::Down(None, _) => ("connecting", "", String::new()),
        PathState::Down(Some(reason), _) => ("lost", "", reason.to_string()),
    };
    DrivePath {
        address: path.address.to_string(),
        state: state.to_owned(),
        seconds: path.age.0 / Nanos::SECOND.0,
        used: path.used,
        access: access.to_owned(),
        reconnects: path.reconnects,
        turns: path.turns,
        note,
        last_loss: path.last.map(|reason| reason.to_string()).unwrap_or_default(),
    }
}

/// The word of the specification for a way to reach a namespace (Base, section 8.1.1.1).
const fn word_of(access: Access) -> &'static str {
    match access {
        Access::Optimized => "optimized",
        Access::NonOptimized => "non_optimized",
        Access::Inaccessible => "inaccessible",
        Access::Lost => "persistent_loss",
        Access::Changing => "change",
    }
}

/// What is remarkable about the paths of a drive that is connected.
pub(crate) fn paths_note(paths: &[PathStatus]) -> Option<String> {
    let lost = paths.iter().filter(|path| !matches!(path.state, PathState::Up(_))).count();
    (lost > 0).then(|| format!("paths lost: {lost} of {}", paths.len()))
}
