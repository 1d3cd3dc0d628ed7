//! Other discovery services that hosts are referred to (Base, section 3.1.2.3).

use crate::limits::REFERRALS_MAX;
use std::net::SocketAddr;
use strake_export_net::{ExportError, ExportErrorKind};
use strake_nvme_wire::log::{DISCOVERY_BYTES, Family, Portal, Security};
use strake_nvme_wire::{log, nqn};

/// Another discovery service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    /// Where it is.
    pub address: SocketAddr,
    /// Its name: that of all discovery subsystems, or one of its own.
    pub nqn: String,
}

impl Referral {
    /// Whether it refers to this address, which may be written as one of IPv6 although it is of IPv4.
    pub(crate) fn is_at(&self, address: SocketAddr) -> bool {
        let canonical = |address: SocketAddr| (address.ip().to_canonical(), address.port());
        canonical(self.address) == canonical(address)
    }

    /// As an entry of the discovery page.
    pub(crate) fn entry(&self) -> [u8; DISCOVERY_BYTES] {
        let compose = |portal: &Portal<'_>| log::discovery_referral(&self.nqn, portal);
        with_portal(self.address, Security::NotSpecified, compose)
    }
}

/// What `compose` makes of an address.
pub(crate) fn with_portal<T>(
    address: SocketAddr,
    security: Security,
    compose: impl FnOnce(&Portal<'_>) -> T,
) -> T {
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let family = if address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
    compose(&Portal { family, address: &ip, port: &port, security })
}

/// Refuses referrals that a host could do nothing with.
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
