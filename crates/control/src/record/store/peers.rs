//! What is recorded of remote drives and of hosts, with their secrets.

use serde::{Deserialize, Serialize};
use strake_api::v1::ConnectDriveRequest;

/// Secrets that belong to a record and are not in it: nothing may connect as if they had never been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Covered {
    /// What the host proves itself with.
    #[serde(default)]
    pub secret: bool,
    /// What the target proves itself with.
    #[serde(default)]
    pub controller_secret: bool,
    /// What TLS is used with.
    #[serde(default)]
    pub tls_key: bool,
}

impl Covered {
    /// True when there is none.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// These and those of the three that are not empty.
    fn and(self, secret: &str, controller_secret: &str, tls_key: &str) -> Self {
        Self {
            secret: self.secret || !secret.is_empty(),
            controller_secret: self.controller_secret || !controller_secret.is_empty(),
            tls_key: self.tls_key || !tls_key.is_empty(),
        }
    }

    /// Takes out what is given again.
    pub(crate) fn uncover(&mut self, secret: &str, controller_secret: &str, tls_key: &str) {
        self.secret &= secret.is_empty();
        self.controller_secret &= controller_secret.is_empty();
        self.tls_key &= tls_key.is_empty();
    }

    /// The request that gives all of it again for the drive at `address`.
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

/// A drive of another machine.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteRecord {
    /// Where it is, which is its name.
    pub address: String,
    /// Where else it is reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The name under which its target knows us.
    pub host_nqn: String,
    /// The identifier that goes with it, a UUID.
    pub host_id: String,
    /// Seconds for which I/O is held while the connection is lost; 0 for what is usual.
    #[serde(default)]
    pub hold_s: u32,
    /// What we prove ourselves with, in the interchange format; empty when the target does not ask for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub secret: String,
    /// What the target proves itself with; empty when it need not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub controller_secret: String,
    /// What TLS is used with, in the interchange format; empty without.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tls_key: String,
    /// What it needs besides before it is connected.
    #[serde(default, skip_serializing_if = "Covered::is_nothing")]
    pub covered: Covered,
}

impl std::fmt::Debug for RemoteRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteRecord").field("address", &self.address).finish_non_exhaustive()
    }
}

impl RemoteRecord {
    /// The same without its secrets, and with what it needs in place of them.
    #[must_use]
    pub fn masked(&self) -> Self {
        let (secret, controller_secret, tls_key) = Default::default();
        let covered = self.covered.and(&self.secret, &self.controller_secret, &self.tls_key);
        Self { secret, controller_secret, tls_key, covered, ..self.clone() }
    }
}

/// A host that has to prove who it is when it connects over NVMe/TCP.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostRecord {
    /// Its name.
    pub nqn: String,
    /// What it proves itself with, in the interchange format; empty when it need not.
    pub secret: String,
    /// What the target proves itself with to it; empty when it does not.
    #[serde(default)]
    pub controller_secret: String,
    /// What it uses TLS with, in the interchange format; empty when it need not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tls_key: String,
    /// What it has to use besides, which is not known, so that it cannot connect.
    #[serde(default, skip_serializing_if = "Covered::is_nothing")]
    pub covered: Covered,
}

impl std::fmt::Debug for HostRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostRecord").field("nqn", &self.nqn).finish_non_exhaustive()
    }
}

impl HostRecord {
    /// Whether it has to prove who it is. One of which nothing at all is known was written before it was recorded what
    /// is covered, and must not be believed by its name.
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

    /// Whether something is not known that the host would have to connect with.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.lacks_secrets() || self.needs_tls() && self.tls_key.is_empty()
    }

    /// Whether it had a secret, or the target one for it, that is not known.
    #[must_use]
    pub fn lacks_secrets(&self) -> bool {
        let lacks_its = self.needs_proof() && self.secret.is_empty();
        lacks_its || self.covered.controller_secret && self.controller_secret.is_empty()
    }

    /// The same without its secrets, and with what it needs in place of them.
    #[must_use]
    pub fn masked(&self) -> Self {
        let covered = self.covered.and(&self.secret, &self.controller_secret, &self.tls_key);
        Self { nqn: self.nqn.clone(), covered, ..Self::default() }
    }
}
