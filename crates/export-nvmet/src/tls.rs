//! TLS keys of hosts, and the names that a connection has authenticated with a key (`docs/decisions/0021-tls.md`).

use crate::handshake::Names;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use strake_nvme_auth::{Identity, Psk, TlsKey};
use strake_tls::{KnownKeys, Secured};

/// The TLS keys of hosts, by NQN.
#[derive(Default)]
pub(crate) struct TlsKeys(Mutex<BTreeMap<String, Vec<TlsKey>>>);

impl TlsKeys {
    pub(crate) fn set(&self, host: &str, keys: Vec<TlsKey>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match keys.is_empty() {
            false => known.insert(host.to_owned(), keys),
            true => known.remove(host),
        };
    }

    /// True if a host must use TLS.
    pub(crate) fn has(&self, host: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(host)
    }
}

impl KnownKeys for TlsKeys {
    fn meant_by(&self, identity: &[u8]) -> Vec<Psk> {
        let Some(identity) = Identity::parse(identity) else { return Vec::new() };
        let keys = {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(identity.host).cloned().unwrap_or_default()
        };
        keys.iter().flat_map(|key| key.meant_by(&identity)).collect()
    }
}

/// The host and the subsystem that the key of a connection belongs to.
pub(crate) struct Proven {
    host: String,
    subsystem: String,
}

impl Proven {
    pub(crate) fn of(secured: &Secured) -> Option<Self> {
        let identity = Identity::parse(secured.identity.as_bytes())?;
        let own = |name: &str| name.to_owned();
        Some(Self { host: own(identity.host), subsystem: own(identity.subsystem) })
    }

    pub(crate) fn is(&self, names: Names<'_>) -> bool {
        (self.host.as_str(), self.subsystem.as_str()) == (names.host, names.subsystem)
    }
}
