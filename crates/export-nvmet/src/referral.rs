//! Referrals of hosts to other discovery services (Base, section 3.1.2.3).

use crate::limits::REFERRALS_MAX;
use std::net::SocketAddr;
use strake_export_net::{ExportError, ExportErrorKind};
use strake_nvme_wire::log::{DISCOVERY_BYTES, Family, Portal, Security};
use strake_nvme_wire::{log, nqn};

/// Another discovery service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    /// Its address.
    pub address: SocketAddr,
    /// Its NQN: the well-known discovery NQN, or a unique one.
    pub nqn: String,
}

impl Referral {
    /// True if it refers to this address, which may be an IPv4-mapped IPv6 address.
    pub(crate) fn is_at(&self, address: SocketAddr) -> bool {
        let canonical = |address: SocketAddr| (address.ip().to_canonical(), address.port());
        canonical(self.address) == canonical(address)
    }

    /// The entry in the discovery log page.
    pub(crate) fn entry(&self) -> [u8; DISCOVERY_BYTES] {
        let compose = |portal: &Portal<'_>| log::discovery_referral(&self.nqn, portal);
        with_portal(self.address, Security::NotSpecified, compose)
    }
}

/// Calls `compose` with the text form of an address.
pub(crate) fn with_portal<T>(
    address: SocketAddr,
    security: Security,
    compose: impl FnOnce(&Portal<'_>) -> T,
) -> T {
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let family = if address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
    compose(&Portal { family, address: &ip, port: &port, security })
}

/// Rejects referrals that no host could use.
pub(crate) fn check(referrals: &[Referral]) -> Result<(), ExportError> {
    let refuse = |what| Err(ExportError::new(ExportErrorKind::BadReferral, what));
    if referrals.len() > REFERRALS_MAX {
        return refuse(format!("at most {REFERRALS_MAX} referrals"));
    }
    for Referral { address, nqn } in referrals {
        if let Err(error) = nqn::check(nqn) {
            return refuse(format!("{nqn:?} is not a valid NQN: {error}"));
        }
        if address.port() == 0 || address.ip().is_unspecified() {
            return refuse(format!("{address} is no address that a host can connect to"));
        }
    }
    Ok(())
}
