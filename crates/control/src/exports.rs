//! What offers arrays to clients: servers, the keys of hosts, and what requests come to.

pub(crate) mod address_reports;
pub(crate) mod exposure;
pub(crate) mod keys;
pub(crate) mod limits_in_use;
pub(crate) mod offered;
pub(crate) mod referral;
pub(crate) mod rejections;
pub(crate) mod requests;
pub(crate) mod servers;
