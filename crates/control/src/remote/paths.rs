//! Several paths to one remote drive.
//!
//! The name of a drive is the path over which it was connected first. The same subsystem and namespace at another
//! address is a further path. It is recorded with the drive and shares all other properties with it.

use strake_api::v1::{ConnectDriveRequest, DrivePath};
use strake_dev_fabrics::limits::PATHS_MAX;
use strake_dev_fabrics::{Access, Address, FabricsDevice, PathState, PathStatus};
use strake_units::Nanos;
use strake_wording::say;

use crate::drives::address::address_of;
use crate::error::ControlError;
use crate::record::store::RemoteRecord;
use crate::remedy::{connect, disconnect};
use crate::remote::record::{keys_of, tls_key_of};

/// Whether two addresses belong to one namespace: the name of a subsystem is unique (Base, section 4.7).
pub(crate) fn same_namespace(one: &Address, other: &Address) -> bool {
    (&one.nqn, one.nsid) == (&other.nqn, other.nsid)
}

/// Refuses the record of a drive whose paths lead to different namespaces, or that has too many paths.
pub(crate) fn check_paths(record: &RemoteRecord) -> Result<(), ControlError> {
    let name = address_of(&record.address)?;
    for path in &record.paths {
        if !same_namespace(&name, &address_of(path)?) {
            return Err(ControlError::usage(format!("{path} is not a path to {name}")));
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

/// Returns the record with each address in its canonical form.
pub(crate) fn in_usual_form(record: &RemoteRecord) -> Result<RemoteRecord, ControlError> {
    let usual = |text: &String| address_of(text).map(|address| address.to_string());
    let paths = record.paths.iter().map(usual).collect::<Result<_, _>>()?;
    Ok(RemoteRecord { address: usual(&record.address)?, paths, ..record.clone() })
}

pub(crate) fn leads_over(device: &FabricsDevice, address: &Address) -> bool {
    device.paths().iter().any(|path| path.address == *address)
}

/// Refuses secrets and keys for `path` that differ from those of the drive. The path would be connected with the
/// secrets and keys of the drive, and a given key must not be ignored silently.
pub(crate) fn check_same_keys(
    path: &str,
    record: &RemoteRecord,
    request: &ConnectDriveRequest,
) -> Result<(), ControlError> {
    let (secret, controller) = (request.secret.trim(), request.controller_secret.trim());
    keys_of(path, secret, controller)?;
    tls_key_of(path, request.tls_key.trim())?;
    type Option = fn(&mut ConnectDriveRequest) -> &mut String;
    let kinds: [(_, _, _, Option); 3] = [
        (secret, &record.secret, "secret", |r| &mut r.secret),
        (controller, &record.controller_secret, "secret of its target", |r| {
            &mut r.controller_secret
        }),
        (request.tls_key.trim(), &record.tls_key, "key for TLS", |r| &mut r.tls_key),
    ];
    for (given, known, what, option) in kinds {
        if !given.is_empty() && given != known {
            let name = &record.address;
            let why = format!(
                "{path} is another path to {name}. All paths of a drive must use the same {what}, but the request \
                    differs; first: "
            );
            let mut again = connect(name);
            *option(&mut again) = "FILE".to_owned();
            return Err(ControlError::usage(say(why).run(again)));
        }
    }
    Ok(())
}

/// Refuses to connect a drive that is connected and that another host took over, because the state that is kept about
/// it is no longer valid.
pub(crate) fn refuse_taken_over(name: &str, device: &FabricsDevice) -> Result<(), ControlError> {
    if device.is_reserved() != Some(false) {
        return Ok(());
    }
    let what = format!(
        "another host took over {name} and may have written to it, so this daemon no longer uses the drive; unload \
            the array that uses the drive, or restart the daemon, then: "
    );
    Err(ControlError::state(say(what).run(disconnect(name)).say(", and connect it again")))
}

/// The message that describes a path.
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

/// The word of the specification for the access state of a path to a namespace (Base, section 8.1.1.1).
const fn word_of(access: Access) -> &'static str {
    match access {
        Access::Optimized => "optimized",
        Access::NonOptimized => "non_optimized",
        Access::Inaccessible => "inaccessible",
        Access::Lost => "persistent_loss",
        Access::Changing => "change",
    }
}

/// Describes the lost paths of a drive; `None` if no path is lost.
pub(crate) fn paths_note(paths: &[PathStatus]) -> Option<String> {
    let lost = paths.iter().filter(|path| !matches!(path.state, PathState::Up(_))).count();
    (lost > 0).then(|| format!("paths lost: {lost} of {}", paths.len()))
}
