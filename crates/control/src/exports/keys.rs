//! The keys of hosts that connect over NVMe/TCP.

use strake_api::v1::AddHostRequest;
use strake_export_nvmet::{Keys, Secret, TlsKey, TlsKeyError};
use strake_wording::say;

use crate::error::ControlError;
use crate::record::store::{Config, ExportRecord, HostRecord};

/// The valid keys of a recorded host at a target, newest first.
#[derive(Default)]
pub(crate) struct HostKeys {
    /// What it has to prove itself with.
    pub(crate) proof: Vec<Keys>,
    /// What it has to use TLS with.
    pub(crate) tls: Vec<TlsKey>,
}

/// The keys of a host, with replaced ones that `record` still has. A random value that no host knows replaces a covered
/// one.
pub(crate) fn keys_of(record: &HostRecord) -> Result<HostKeys, ControlError> {
    let read = |text: &str| text.parse::<Secret>().map_err(|e| bad(record, "secret", &e));
    let read_key = |text: &str| {
        text.parse::<TlsKey>().map_err(|e: TlsKeyError| bad(record, "key for TLS", &e))
    };
    let pair = |host: Secret, controller: &str| {
        let controller = Some(controller).filter(|text| !text.is_empty()).map(read);
        Ok::<_, ControlError>(Keys { host, controller: controller.transpose()? })
    };
    let tls = match record.tls_key.as_str() {
        "" if record.needs_tls() => Some(fresh_tls_key()?),
        "" => None,
        text => Some(read_key(text)?),
    };
    let proof = match record.secret.as_str() {
        "" if !record.needs_proof() => None,
        _ if record.lacks_secrets() => Some(pair(unknown()?, &record.controller_secret)?),
        text => Some(pair(read(text)?, &record.controller_secret)?),
    };
    let old = record.old_secrets.as_ref();
    let old = old.map(|old| pair(read(&old.secret)?, &old.controller_secret));
    let old_tls = record.old_tls_key.as_ref().map(|old| read_key(&old.tls_key));
    Ok(HostKeys {
        proof: proof.into_iter().chain(old.transpose()?).collect(),
        tls: tls.into_iter().chain(old_tls.transpose()?).collect(),
    })
}

fn bad(record: &HostRecord, what: &str, error: &dyn std::error::Error) -> ControlError {
    ControlError::usage(format!("the {what} of host {} cannot be used: {error}", record.nqn))
}

/// A random secret that no host knows.
pub(crate) fn unknown() -> Result<Secret, ControlError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(no_random)?;
    Ok(Secret::from(bytes))
}

fn no_random(error: getrandom::Error) -> ControlError {
    ControlError::device(format!("the kernel returned no random bytes: {error}"))
}

/// A random key for TLS that no host has yet.
pub(crate) fn fresh_tls_key() -> Result<TlsKey, ControlError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(no_random)?;
    Ok(TlsKey::from(bytes))
}

/// Refuses a secure export to which one of its hosts could not connect. Passes over a host whose key is covered, and
/// one with neither key nor secret: that connects to nothing before it has its key again.
pub(crate) fn check_keys(export: &ExportRecord, config: &Config) -> Result<(), ControlError> {
    let Some(nvme) = export.nvme.as_ref().filter(|nvme| nvme.secure) else { return Ok(()) };
    let known = |name: &str| config.hosts.iter().find(|host| host.nqn == name);
    let may_have =
        |host: &HostRecord| host.needs_tls() || host.secret.is_empty() && host.covered.is_nothing();
    match nvme.hosts.iter().find(|name| !known(name).is_some_and(may_have)) {
        None => Ok(()),
        Some(name) => {
            let what = format!(
                "host {name} has no TLS key and could not connect to a secure export: give the host a key first ("
            );
            let (nqn, new_tls_key) = (name.clone(), true);
            let add = AddHostRequest { nqn, new_tls_key, ..Default::default() };
            Err(ControlError::state(
                say(what).run(add).say("), or create the export without TLS, or without this host"),
            ))
        }
    }
}
