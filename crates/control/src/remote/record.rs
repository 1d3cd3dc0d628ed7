//! The records of remote drives, and the connection from a record.

use strake_api::v1::{ConnectDriveRequest, DiscoverDrivesRequest};
use strake_block::{DeviceError, DeviceRemedy, IoErrorKind};
use strake_dev_fabrics::limits::{LOSS_TIME_MAX, LOSS_TIME_MIN};
use strake_dev_fabrics::{FabricsDevice, HostName, Options, ReservationMode};
use strake_export_nvmet::{Keys, TlsKey};
use strake_units::{Nanos, Uuid};
use strake_wording::{ApiCommand, say};

use crate::drives::address::address_of;
use crate::error::{ControlError, ControlErrorKind};
use crate::record::store::RemoteRecord;
use crate::remedy::{FILE, disconnect};

impl RemoteRecord {
    fn host(&self) -> Result<HostName, ControlError> {
        self.check_covered()?;
        let id: Uuid = self.host_id.parse().unwrap_or(Uuid::NIL);
        let (nqn, keys, tls) = (self.host_nqn.clone(), self.keys()?, self.tls_key()?);
        Ok(HostName { nqn, id: id.0, keys, tls })
    }

    /// Connects to the drive. Blocks until the target answers or the attempt times out. Changes nothing at the target
    /// before `settled_at`.
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
        connected.map_err(|error| refusal(&error, (&host.keys, &host.tls), self.again()))
    }

    /// Releases the reservation that this host holds on the drive, if any. Blocks until the target answers or the
    /// attempt times out.
    pub(crate) fn release(&self) -> Result<(), ControlError> {
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
        first.map_or(Ok(()), |error| Err(refusal(&error, (&host.keys, &host.tls), self.again())))
    }

    /// Refuses a drive whose record lost its secrets or keys. Without them, the drive would be connected in a way that
    /// differs from the decision of the operator.
    fn check_covered(&self) -> Result<(), ControlError> {
        if self.covered.is_nothing() {
            return Ok(());
        }
        let address = &self.address;
        let what = format!(
            "{address} comes from a backup, which contains no secrets or keys; give the secrets and keys again: "
        );
        Err(ControlError::state(say(what).run(self.covered.connect_again(address))))
    }

    /// Returns the addresses of all paths of the drive.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.address).chain(&self.paths).map(String::as_str)
    }

    /// Returns the request that connects the drive as recorded; the operator must choose secrets and keys.
    pub(crate) fn again(&self) -> ConnectDriveRequest {
        ConnectDriveRequest {
            address: self.address.clone(),
            host_nqn: self.host_nqn.clone(),
            hold_s: self.hold_s,
            secret: to_choose(&self.secret),
            controller_secret: to_choose(&self.controller_secret),
            tls_key: to_choose(&self.tls_key),
            take_over: false,
        }
    }

    /// Returns the secrets for the authentication of this host and of the controller.
    pub(crate) fn keys(&self) -> Result<Option<Keys>, ControlError> {
        keys_of(&self.address, &self.secret, &self.controller_secret)
    }

    /// Returns the key for TLS.
    pub(crate) fn tls_key(&self) -> Result<Option<TlsKey>, ControlError> {
        tls_key_of(&self.address, &self.tls_key)
    }
}

/// Parses the TLS key for `address`; an empty text is no key.
pub(crate) fn tls_key_of(address: &str, text: &str) -> Result<Option<TlsKey>, ControlError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error| {
        ControlError::usage(format!("the TLS key for {address} cannot be used: {error}"))
    })
}

/// Replaces a given secret or key with a placeholder, which the operator must replace.
pub(crate) fn to_choose(given: &str) -> String {
    if given.is_empty() { String::new() } else { FILE.to_owned() }
}

/// A request to a target, which can be sent again with the secret, key or consent that the target requires.
pub(crate) trait ToTarget: ApiCommand {
    /// Returns this request with the secret, the key or the consent that is the remedy; the operator must choose a
    /// secret and a key. `None` if the request has no such field.
    fn with(self, remedy: DeviceRemedy) -> Option<Self>
    where
        Self: Sized;
}

impl ToTarget for ConnectDriveRequest {
    fn with(self, remedy: DeviceRemedy) -> Option<Self> {
        Some(match remedy {
            DeviceRemedy::Secret => Self { secret: FILE.to_owned(), ..self },
            DeviceRemedy::TlsKey => Self { tls_key: FILE.to_owned(), ..self },
            DeviceRemedy::TakeOver => Self { take_over: true, ..self },
        })
    }
}

impl ToTarget for DiscoverDrivesRequest {
    fn with(self, remedy: DeviceRemedy) -> Option<Self> {
        Some(match remedy {
            DeviceRemedy::Secret => Self { secret: FILE.to_owned(), ..self },
            DeviceRemedy::TlsKey => Self { tls_key: FILE.to_owned(), ..self },
            DeviceRemedy::TakeOver => return None,
        })
    }
}

/// The error for a target that rejects this host with the secrets and keys `shown`. `again` is the request to the
/// target, without secrets and keys.
pub(crate) fn refusal(
    error: &DeviceError,
    shown: (&Option<Keys>, &Option<TlsKey>),
    again: impl ToTarget,
) -> ControlError {
    let known = match shown {
        (None, None) => "",
        (Some(_), None) => ", and that the target has the same secrets",
        (None, Some(_)) => ", and that the target has the same TLS key",
        (Some(_), Some(_)) => ", and that the target has the same secrets and the same TLS key",
    };
    let what = say(error.to_string());
    // The remedy does not ask for a secret or key that was already given.
    let remedy = error.remedy.filter(|remedy| match remedy {
        DeviceRemedy::Secret => shown.0.is_none(),
        DeviceRemedy::TlsKey => shown.1.is_none(),
        DeviceRemedy::TakeOver => true,
    });
    let what = match remedy.and_then(|remedy| again.with(remedy)) {
        Some(request) => what.say(": ").run(request),
        None => what,
    };
    // A target that reports the host that holds the drive has accepted this host.
    let what = match error.kind {
        IoErrorKind::ReadOnly => what,
        _ => what.say(format!("; check the address and the target's list of hosts{known}")),
    };
    ControlError::new(ControlErrorKind::Device, what)
}

/// Parses the two secrets for `address`; an empty text is no secret.
pub(crate) fn keys_of(
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

/// Refuses an invalid combination of secrets.
pub(crate) fn check_secrets(secret: &str, controller: &str) -> Result<(), ControlError> {
    if secret.is_empty() && !controller.is_empty() {
        return Err(ControlError::usage("a controller secret works only with a host secret"));
    }
    if !secret.is_empty() && secret == controller {
        return Err(ControlError::usage("the two secrets must not be the same"));
    }
    Ok(())
}

/// Refuses a hold time outside the limits; 0 is the default time.
pub(crate) fn check_hold(seconds: u32) -> Result<(), ControlError> {
    let (least, most) = (LOSS_TIME_MIN.0 / Nanos::SECOND.0, LOSS_TIME_MAX.0 / Nanos::SECOND.0);
    if seconds != 0 && !(least..=most).contains(&seconds.into()) {
        return Err(ControlError::usage(format!(
            "requests can be held for {least} to {most} seconds"
        )));
    }
    Ok(())
}

/// Returns the record of a drive, unless `request` has other options.
pub(crate) fn known_as_asked(
    known: RemoteRecord,
    request: &ConnectDriveRequest,
) -> Result<RemoteRecord, ControlError> {
    let same_name = request.host_nqn.is_empty() || request.host_nqn == known.host_nqn;
    if same_name && (request.hold_s == 0 || request.hold_s == known.hold_s) {
        return Ok(known);
    }
    let path = &known.address;
    let what = format!("{path} is connected with other options; first: ");
    Err(ControlError::exists(say(what).run(disconnect(path))))
}

#[cfg(test)]
mod tests {
    use super::{refusal, to_choose};
    use crate::record::store::{Covered, RemoteRecord};
    use strake_api::v1::DiscoverDrivesRequest;
    use strake_block::{DeviceError, DeviceRemedy, IoErrorKind};

    fn error(kind: IoErrorKind, remedy: DeviceRemedy) -> DeviceError {
        let refused = DeviceError::new(kind, "nvme-tcp://a/b", "it refuses");
        DeviceError { remedy: Some(remedy), ..refused }
    }

    fn record(secret: &str) -> RemoteRecord {
        RemoteRecord {
            address: "nvme-tcp://a/b".to_owned(),
            paths: Vec::new(),
            host_nqn: "nqn.a:b".to_owned(),
            host_id: String::new(),
            hold_s: 0,
            secret: secret.to_owned(),
            controller_secret: String::new(),
            tls_key: String::new(),
            covered: Covered::default(),
        }
    }

    /// History: the remedy was a flag in the text of the driver. The remedy is now a request, which must not contain a
    /// given secret.
    #[test]
    fn what_a_target_asks_for_is_a_request_without_secrets() {
        let check = |kind, remedy, secret: &str, request: &str| {
            let refused = refusal(&error(kind, remedy), (&None, &None), record(secret).again());
            let start = "nvme-tcp://a/b: it refuses: strake drive connect nvme-tcp://a/b --host-nqn nqn.a:b";
            assert!(refused.what.starts_with(&format!("{start}{request}")), "{refused}");
            assert!(!format!("{refused:?}").contains("DHHC"), "{refused:?}");
        };
        let (gone, read_only) = (IoErrorKind::Gone, IoErrorKind::ReadOnly);
        check(gone, DeviceRemedy::Secret, "", " --secret-file FILE; check the address");
        check(gone, DeviceRemedy::TlsKey, "", " --tls-key-file FILE; check the address");
        check(gone, DeviceRemedy::TlsKey, "DHHC-1:x", " --secret-file FILE --tls-key-file FILE");
        check(read_only, DeviceRemedy::TakeOver, "DHHC-1:x", " --secret-file FILE --take-over");
    }

    #[test]
    fn a_key_that_was_shown_is_not_asked_for() {
        let key = "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:".parse();
        let shown = Some(key.expect("it is a key"));
        let error = error(IoErrorKind::Gone, DeviceRemedy::TlsKey);
        let refused = refusal(&error, (&None, &shown), record("").again());
        let what = "nvme-tcp://a/b: it refuses; check the address and the target's list of hosts, and that the target \
            has the same TLS key";
        assert_eq!(refused.what, what);
    }

    #[test]
    fn a_discovery_service_is_not_taken_over() {
        let check = |remedy, secret: &str, request: &str| {
            let address = "nvme-tcp://a".to_owned();
            let again =
                DiscoverDrivesRequest { address, secret: to_choose(secret), ..Default::default() };
            let refused = refusal(&error(IoErrorKind::Gone, remedy), (&None, &None), again);
            let start = "nvme-tcp://a/b: it refuses";
            assert!(refused.what.starts_with(&format!("{start}{request}; check")), "{refused}");
        };
        let discover = ": strake drive discover nvme-tcp://a --secret-file FILE";
        check(DeviceRemedy::Secret, "", discover);
        check(DeviceRemedy::TlsKey, "DHHC-1:x", &format!("{discover} --tls-key-file FILE"));
        check(DeviceRemedy::TakeOver, "", "");
    }
}
