//! What is recorded of drives of other machines, and what a request wants to be done about it.

use strake_api::v1::ConnectDriveRequest;
use strake_block::{DeviceError, IoErrorKind};
use strake_dev_fabrics::limits::{LOSS_TIME_MAX, LOSS_TIME_MIN};
use strake_dev_fabrics::{FabricsDevice, HostName, Options, ReservationMode};
use strake_export_nvmet::{Keys, TlsKey, nqn};
use strake_units::{Nanos, Uuid};

use super::address_of;
use super::paths::{check_paths, refuse_taken_over};
use crate::error::{ControlError, ControlErrorKind};
use crate::limits::REMOTES_MAX;
use crate::manager::{Manager, fresh_uuid};
use crate::store::{Covered, Prepared, RemoteRecord};

/// What a request to connect a drive comes to.
pub(super) enum Aim {
    /// It is as asked for.
    Nothing,
    /// It is not connected.
    Connect(RemoteRecord),
    /// It is reached over another path, which is recorded in this.
    Path(RemoteRecord),
    /// It is connected, and shall be with other secrets from the next time on.
    Rekey(RemoteRecord),
}

impl RemoteRecord {
    fn host(&self) -> Result<HostName, ControlError> {
        self.check_covered()?;
        let id: Uuid = self.host_id.parse().unwrap_or(Uuid::NIL);
        let (nqn, keys, tls) = (self.host_nqn.clone(), self.keys()?, self.tls_key()?);
        Ok(HostName { nqn, id: id.0, keys, tls })
    }

    /// Connects to it. Takes as long as the target does.
    /// Nothing is changed there before `settled_at`.
    pub(crate) fn connect(
        &self,
        reservation: ReservationMode,
        settled_at: Nanos,
    ) -> Result<FabricsDevice, ControlError> {
        let host = self.host()?;
        let addresses = self.addresses().map(address_of).collect::<Result<Vec<_>, _>>()?;
        let defaults = Options::default();
        let loss_time = match self.hold_s {
            0 => defaults.loss_time,
            seconds => Nanos::SECOND.times(seconds.into()),
        };
        let options = Options { loss_time, reservation, settled_at, ..defaults };
        let connected = FabricsDevice::connect_any(&addresses, &host, options);
        connected.map_err(|error| refusal(&error, (&host.keys, &host.tls)))
    }

    /// Gives up its reservation, if there is one of ours. Takes as long as the target does.
    pub(super) fn release(&self) -> Result<(), ControlError> {
        let host = self.host()?;
        let mut first = None;
        for address in self.addresses() {
            match FabricsDevice::release(&address_of(address)?, &host) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    first.get_or_insert(error);
                }
            }
        }
        first.map_or(Ok(()), |error| Err(refusal(&error, (&host.keys, &host.tls))))
    }

    /// Refuses a drive that is to be connected with what is not known any more: without it, it would be connected in
    /// another way than somebody has decided.
    fn check_covered(&self) -> Result<(), ControlError> {
        if self.covered.is_nothing() {
            return Ok(());
        }
        let (address, options) = (&self.address, self.covered.options());
        Err(ControlError::state(format!(
            "{address} comes from a backup, which holds no secrets and keys, and needs its own again: strake drive \
             connect {address} {options}"
        )))
    }

    /// Where it is reached.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.address).chain(&self.paths).map(String::as_str)
    }

    /// What proves who we are, and what the target proves itself with.
    pub(super) fn keys(&self) -> Result<Option<Keys>, ControlError> {
        keys_of(&self.address, &self.secret, &self.controller_secret)
    }

    /// What TLS is used with.
    pub(super) fn tls_key(&self) -> Result<Option<TlsKey>, ControlError> {
        tls_key_of(&self.address, &self.tls_key)
    }
}

/// What a key for `address`, which may be empty, is good for.
pub(super) fn tls_key_of(address: &str, text: &str) -> Result<Option<TlsKey>, ControlError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error| {
        ControlError::usage(format!("the key for TLS with {address} cannot be used: {error}"))
    })
}

/// What is said about a target that does not take us with what we have shown.
pub(super) fn refusal(
    error: &DeviceError,
    shown: (&Option<Keys>, &Option<TlsKey>),
) -> ControlError {
    if error.kind == IoErrorKind::ReadOnly {
        // It takes us, and says who has it.
        return ControlError::new(ControlErrorKind::Device, error.to_string());
    }
    let known = match shown {
        (None, None) => "",
        (Some(_), None) => ", and that it knows the same secrets",
        (None, Some(_)) => ", and that it knows the same key for TLS",
        (Some(_), Some(_)) => ", and that it knows the same secrets and the same key for TLS",
    };
    let what = format!("{error}; check the address and the target's list of hosts{known}");
    ControlError::new(ControlErrorKind::Device, what)
}

/// What two secrets for `address`, either of which may be empty, are good for.
pub(super) fn keys_of(
    address: &str,
    secret: &str,
    controller: &str,
) -> Result<Option<Keys>, ControlError> {
    let read = |text: &str| {
        text.parse().map_err(|error| {
            ControlError::usage(format!("a secret for {address} cannot be used: {error}"))
        })
    };
    let controller = match controller {
        "" => None,
        text => Some(read(text)?),
    };
    match secret {
        "" => Ok(None),
        text => Ok(Some(Keys { host: read(text)?, controller })),
    }
}

impl Manager {
    /// What is to be done for a request to connect the drive at `path`.
    pub(super) fn aim_of(
        &mut self,
        path: &str,
        request: &ConnectDriveRequest,
    ) -> Result<Aim, ControlError> {
        let (secret, controller) = (request.secret.trim(), request.controller_secret.trim());
        check_secrets(secret, controller)?;
        if let Some(aim) = self.aim_of_path(path, request)? {
            return Ok(aim);
        }
        let known = self.config.remotes.iter().find(|record| record.address == path).cloned();
        let mut record = match known.clone() {
            Some(known) => known_as_asked(known, request)?,
            None => self.new_record(path, request)?,
        };
        if !secret.is_empty() {
            if controller.is_empty() && !record.controller_secret.is_empty() {
                return Err(ControlError::usage(format!(
                    "{path} is connected to a target that has to prove itself; give the target's secret, too \
                     (--controller-secret-file), or, to believe it without, first: strake drive disconnect {path}"
                )));
            }
            (record.secret, record.controller_secret) = (secret.to_owned(), controller.to_owned());
        }
        if !request.tls_key.trim().is_empty() {
            record.tls_key = request.tls_key.trim().to_owned();
        }
        record.covered.uncover(secret, controller, request.tls_key.trim());
        record.keys()?;
        record.tls_key()?;
        let connected = self.drives.remote(path).is_some();
        if let Some(device) = self.drives.remote(path) {
            refuse_taken_over(path, device)?;
        }
        Ok(match known {
            Some(known) if connected && known == record => Aim::Nothing,
            Some(_) if connected => Aim::Rekey(record),
            Some(_) | None => Aim::Connect(record),
        })
    }

    fn new_record(
        &mut self,
        path: &str,
        request: &ConnectDriveRequest,
    ) -> Result<RemoteRecord, ControlError> {
        self.check_room()?;
        check_hold(request.hold_s)?;
        let (host_nqn, host_id) = self.host_name(&request.host_nqn)?;
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

    /// Whether there is room for one more record.
    fn check_room(&self) -> Result<(), ControlError> {
        if self.config.remotes.len() >= REMOTES_MAX {
            return Err(ControlError::state(format!(
                "{REMOTES_MAX} remote drives are connected, the limit of one daemon"
            )));
        }
        Ok(())
    }

    /// The record of a drive that somebody else has written, if it is one that could have been made here.
    pub(crate) fn check_remote(&self, record: &RemoteRecord) -> Result<(), ControlError> {
        self.check_room()?;
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

    /// Who we are to targets: the name asked for, or one that is made up once and kept.
    pub(super) fn host_name(&mut self, asked: &str) -> Result<(String, String), ControlError> {
        if !asked.is_empty() {
            nqn::check(asked).map_err(|error| {
                ControlError::usage(format!("{asked:?} is not a valid NQN: {error}"))
            })?;
            // A name is told with one identifier always (Base, section 1.5.27): the one in it, as Linux hosts do.
            let of_name = asked.strip_prefix(nqn::UUID_PREFIX).and_then(|id| id.parse().ok());
            let used = self.config.remotes.iter().find(|record| record.host_nqn == asked);
            let id = match (of_name, used) {
                (Some(id), _) => Uuid::to_string(&id),
                (None, Some(used)) => used.host_id.clone(),
                (None, None) => fresh_uuid()?.to_string(),
            };
            return Ok((asked.to_owned(), id));
        }
        if self.config.host.is_empty() {
            let mut config = self.config.clone();
            config.host = fresh_uuid()?.to_string();
            self.config = self.store.prepare(&config).and_then(Prepared::commit)?;
        }
        let id = self.config.host.clone();
        Ok((format!("{}{id}", nqn::UUID_PREFIX), id))
    }
}

/// Refuses secrets that are of no use together.
pub(crate) fn check_secrets(secret: &str, controller: &str) -> Result<(), ControlError> {
    if secret.is_empty() && !controller.is_empty() {
        return Err(ControlError::usage("the target proves itself only to a host with a secret"));
    }
    if !secret.is_empty() && secret == controller {
        return Err(ControlError::usage("the two secrets must not be the same"));
    }
    Ok(())
}

/// Refuses a time that requests cannot be held for; 0 stands for the usual one.
fn check_hold(seconds: u32) -> Result<(), ControlError> {
    let (least, most) = (LOSS_TIME_MIN.0 / Nanos::SECOND.0, LOSS_TIME_MAX.0 / Nanos::SECOND.0);
    if seconds != 0 && !(least..=most).contains(&seconds.into()) {
        return Err(ControlError::usage(format!(
            "requests can be held for {least} to {most} seconds"
        )));
    }
    Ok(())
}

/// The record of a drive, unless it is asked for in another way.
pub(super) fn known_as_asked(
    known: RemoteRecord,
    request: &ConnectDriveRequest,
) -> Result<RemoteRecord, ControlError> {
    let same_name = request.host_nqn.is_empty() || request.host_nqn == known.host_nqn;
    if same_name && (request.hold_s == 0 || request.hold_s == known.hold_s) {
        return Ok(known);
    }
    let path = &known.address;
    let what = format!("{path} is connected in another way; first: strake drive disconnect {path}");
    Err(ControlError::new(ControlErrorKind::Exists, what))
}
