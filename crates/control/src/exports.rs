//! What offers arrays to clients: servers, keys of hosts, reservations.

pub(crate) mod crowds;
pub(crate) mod keys;
pub(crate) mod referral;
pub(crate) mod rejections;
pub(crate) mod requests;
pub(crate) mod reserved;
pub(crate) mod servers;
