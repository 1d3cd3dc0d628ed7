//! Records of remote drives and hosts, with their secrets.

use serde::{Deserialize, Serialize};
use strake_api::v1::ConnectDriveRequest;

/// Secrets that a record requires but does not contain. Without them, no connection is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Covered {
    /// The secret of the host.
    #[serde(default)]
    pub secret: bool,
    /// The secret of the controller.
    #[serde(default)]
    pub controller_secret: bool,
    /// The TLS key.
    #[serde(default)]
    pub tls_key: bool,
}

impl Covered {
    /// True if no secret is missing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the kinds of the given nonempty secrets.
    fn and(self, secret: &str, controller_secret: &str, tls_key: &str) -> Self {
        Self {
            secret: self.secret || !secret.is_empty(),
            controller_secret: self.controller_secret || !controller_secret.is_empty(),
            tls_key: self.tls_key || !tls_key.is_empty(),
        }
    }

    /// Removes the kinds that are given again.
    pub(crate) fn uncover(&mut self, secret: &str, controller_secret: &str, tls_key: &str) {
        self.secret &= secret.is_empty();
        self.controller_secret &= controller_secret.is_empty();
        self.tls_key &= tls_key.is_empty();
    }

    /// Returns the request that provides all missing secrets for the drive at `address`.
    pub(crate) fn connect_again(self, address: &str) -> ConnectDriveRequest {
        let file = |is: bool| if is { "FILE".to_owned() } else { String::new() };
        ConnectDriveRequest {
            address: address.to_owned(),
            secret: file(self.secret),
            controller_secret: file(self.controller_secret),
            tls_key: file(self.tls_key),
            ..Default::default()
        }
    }
}

/// A remote drive.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteRecord {
    /// The address, which is the name of the drive.
    pub address: String,
    /// Addresses of further paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// NQN of this host at the controller.
    pub host_nqn: String,
    /// The host identifier, a UUID.
    pub host_id: String,
    /// Seconds for which I/O waits while the connection is lost; 0 for the default.
    #[serde(default)]
    pub hold_s: u32,
    /// The secret of this host, in the interchange format; empty without host authentication.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub secret: String,
    /// The secret of the controller; empty without mutual authentication.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub controller_secret: String,
    /// The TLS key, in the interchange format; empty without TLS.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tls_key: String,
    /// Secrets that are missing for a connection.
    #[serde(default, skip_serializing_if = "Covered::is_nothing")]
    pub covered: Covered,
}

impl std::fmt::Debug for RemoteRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteRecord").field("address", &self.address).finish_non_exhaustive()
    }
}

impl RemoteRecord {
    /// Returns the record without its secrets, with the kinds of missing secrets instead.
    #[must_use]
    pub fn masked(&self) -> Self {
        let (secret, controller_secret, tls_key) = Default::default();
        let covered = self.covered.and(&self.secret, &self.controller_secret, &self.tls_key);
        Self { secret, controller_secret, tls_key, covered, ..self.clone() }
    }
}

/// A host that must authenticate over NVMe/TCP.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostRecord {
    /// NQN of the host.
    pub nqn: String,
    /// The secret of the host, in the interchange format; empty without host authentication.
    pub secret: String,
    /// The secret of the controller; empty without mutual authentication.
    #[serde(default)]
    pub controller_secret: String,
    /// The TLS key, in the interchange format; empty without TLS.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tls_key: String,
    /// What it has to use besides, which is not known, so that it cannot connect.
    #[serde(default, skip_serializing_if = "Covered::is_nothing")]
    pub covered: Covered,
    /// Replaced secrets that are still accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_secrets: Option<OldSecrets>,
    /// A replaced TLS key that is still accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_tls_key: Option<OldTlsKey>,
}

/// Replaced secrets of a host. The secret of the controller belongs to the secret of the host.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OldSecrets {
    /// The secret of the host.
    pub secret: String,
    /// The secret of the controller; empty without mutual authentication.
    #[serde(default)]
    pub controller_secret: String,
    /// The end of the time in which they are accepted, in microseconds since 1970.
    pub until_us: u64,
}

/// A replaced TLS key of a host.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OldTlsKey {
    /// The key.
    pub tls_key: String,
    /// The end of the time in which it is accepted, in microseconds since 1970.
    pub until_us: u64,
}

impl std::fmt::Debug for HostRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostRecord").field("nqn", &self.nqn).finish_non_exhaustive()
    }
}

impl HostRecord {
    /// True if the host must authenticate. A record without any known secrets was written before missing secrets were
    /// recorded, so its host must not be accepted by its name.
    #[must_use]
    pub fn needs_proof(&self) -> bool {
        let nothing = self.secret.is_empty() && !self.needs_tls();
        !self.secret.is_empty() || self.covered.secret || nothing
    }

    /// Whether it has to use TLS.
    #[must_use]
    pub fn needs_tls(&self) -> bool {
        !self.tls_key.is_empty() || self.covered.tls_key
    }

    /// True if a required secret or key of the host is missing.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.lacks_secrets() || self.needs_tls() && self.tls_key.is_empty()
    }

    /// True if a secret of the host or the controller is missing.
    #[must_use]
    pub fn lacks_secrets(&self) -> bool {
        let lacks_its = self.needs_proof() && self.secret.is_empty();
        lacks_its || self.covered.controller_secret && self.controller_secret.is_empty()
    }

    /// True if a replaced secret or key is recorded that is no longer accepted at `now_us`.
    #[must_use]
    pub fn has_ended(&self, now_us: u64) -> bool {
        let secrets = self.old_secrets.as_ref().is_some_and(|old| old.until_us <= now_us);
        secrets || self.old_tls_key.as_ref().is_some_and(|old| old.until_us <= now_us)
    }

    /// Returns the record without replaced secrets and keys that are no longer accepted at `now_us`.
    #[must_use]
    pub fn at(&self, now_us: u64) -> Self {
        let mut current = self.clone();
        current.old_secrets.take_if(|old| old.until_us <= now_us);
        current.old_tls_key.take_if(|old| old.until_us <= now_us);
        current
    }

    /// Returns the record without its secrets, with the kinds of missing secrets instead.
    #[must_use]
    pub fn masked(&self) -> Self {
        let covered = self.covered.and(&self.secret, &self.controller_secret, &self.tls_key);
        Self { nqn: self.nqn.clone(), covered, ..Self::default() }
    }
}
