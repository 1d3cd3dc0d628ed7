//! Hosts that have to prove who they are when they connect over NVMe/TCP. Their secrets are recorded like those of
//! hooks: in the state directory, which is the daemon's alone, and in nothing that it answers or tells.

use strake_api::v1::{AddHostRequest, Host, HostChange, ListHostsResponse, RemoveHostRequest};
use strake_export_nvmet::{Keys, Secret, SecretError, nqn};

use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::limits::HOSTS_MAX;
use crate::manager::Manager;
use crate::store::HostRecord;

/// What a target has to know of a recorded host. One whose secret is covered gets one that nobody knows.
pub(crate) fn keys_of(record: &HostRecord) -> Result<Keys, ControlError> {
    let read = |text: &str| text.parse::<Secret>();
    let host = match record.secret.as_str() {
        "" => unknown()?,
        text => read(text).map_err(|e| bad(record, e))?,
    };
    let controller = match record.controller_secret.as_str() {
        "" => None,
        text => Some(read(text).map_err(|e| bad(record, e))?),
    };
    Ok(Keys { host, controller })
}

fn bad(record: &HostRecord, error: SecretError) -> ControlError {
    ControlError::usage(format!("a secret of host {} cannot be used: {error}", record.nqn))
}

/// A secret that nobody knows.
pub(crate) fn unknown() -> Result<Secret, ControlError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|e| ControlError::device(format!("the machine has no random bytes: {e}")))?;
    Ok(Secret::from(bytes))
}

fn message(record: &HostRecord) -> Host {
    Host {
        nqn: record.nqn.clone(),
        state: if record.secret.is_empty() { "locked" } else { "ready" }.to_owned(),
        bidirectional: !record.controller_secret.is_empty(),
    }
}

impl Manager {
    /// Has a host prove who it is from now on. Other secrets replace the ones it had; the same are "unchanged".
    ///
    /// # Errors
    /// When the name or a secret makes no sense, there are too many hosts, or it cannot be recorded.
    pub fn add_host(&mut self, request: &AddHostRequest) -> Result<HostChange, ControlError> {
        self.check_open()?;
        let name = &request.nqn;
        nqn::check(name).map_err(|e| ControlError::usage(format!("{name:?} is no NQN: {e}")))?;
        let record = HostRecord {
            nqn: name.clone(),
            secret: request.secret.trim().to_owned(),
            controller_secret: request.controller_secret.trim().to_owned(),
        };
        if record.secret.is_empty() {
            return Err(ControlError::usage("a host needs a secret: --secret-file FILE"));
        }
        if record.secret == record.controller_secret {
            return Err(ControlError::usage("the two secrets must not be the same"));
        }
        keys_of(&record)?;
        self.put_host(record)
    }

    /// Records a host, and has every target know it.
    pub(crate) fn put_host(&mut self, record: HostRecord) -> Result<HostChange, ControlError> {
        let keys = keys_of(&record)?;
        let mut config = self.config.clone();
        let known = config.hosts.iter().find(|h| h.nqn == record.nqn).cloned();
        let result = match &known {
            Some(known) if *known == record => "unchanged",
            Some(_) => "changed",
            None => "created",
        };
        if result == "unchanged" {
            return Ok(change(result, &record));
        }
        if known.is_none() && config.hosts.len() >= HOSTS_MAX {
            return Err(ControlError::state(format!(
                "there are {HOSTS_MAX} hosts, which is the most one daemon knows; remove one first"
            )));
        }
        config.hosts.retain(|h| h.nqn != record.nqn);
        config.hosts.push(record.clone());
        self.config = self.store.prepare(&config)?.commit()?;
        for server in self.servers.values() {
            server.set_keys(&record.nqn, Some(keys.clone()));
        }
        let what = format!("host {} has to prove who it is from now on", record.nqn);
        self.record(Note::new(EventKind::HostChanged, "daemon", what));
        Ok(change(result, &record))
    }

    /// Believes a host by its name again.
    ///
    /// # Errors
    /// When there is no such host, or that cannot be recorded.
    pub fn remove_host(&mut self, request: &RemoveHostRequest) -> Result<HostChange, ControlError> {
        self.check_open()?;
        let name = &request.nqn;
        let Some(record) = self.config.hosts.iter().find(|h| h.nqn == *name).cloned() else {
            let what = format!("there is no host {name:?}; see them with: strake host list");
            return Err(ControlError::not_found(what));
        };
        let mut users =
            self.config.exports.iter().filter(|export| {
                export.nvme.as_ref().is_some_and(|nvme| nvme.hosts.contains(name))
            });
        if let Some(export) = users.next() {
            return Err(ControlError::state(format!(
                "host {name} may connect to export {}, and would be believed by its name alone: remove the export \
                 first, or give the host another secret with: strake host add",
                export.name
            )));
        }
        let mut config = self.config.clone();
        config.hosts.retain(|h| h.nqn != *name);
        self.config = self.store.prepare(&config)?.commit()?;
        for server in self.servers.values() {
            server.set_keys(name, None);
        }
        let what = format!("host {name} has no secret any more");
        self.record(Note::new(EventKind::HostChanged, "daemon", what));
        Ok(change("changed", &record))
    }

    /// The hosts that have to prove who they are, without their secrets.
    #[must_use]
    pub fn list_hosts(&self) -> ListHostsResponse {
        ListHostsResponse { hosts: self.config.hosts.iter().map(message).collect() }
    }
}

fn change(result: &str, record: &HostRecord) -> HostChange {
    HostChange { result: result.to_owned(), host: Some(message(record)) }
}
