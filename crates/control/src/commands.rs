//! What clients ask for: one module for each group of commands, from check to answer.

pub(crate) mod backup;
pub(crate) mod claims;
pub(crate) mod clean;
pub(crate) mod create;
pub(crate) mod discover;
pub(crate) mod doctor;
pub(crate) mod exports;
pub(crate) mod grow;
pub(crate) mod hooks;
pub(crate) mod hosts;
pub(crate) mod import;
pub(crate) mod jobs;
pub(crate) mod locate;
pub(crate) mod members;
pub(crate) mod readd;
pub(crate) mod referrals;
pub(crate) mod remote;
pub(crate) mod remove;
pub(crate) mod reservations;
pub(crate) mod scan;
pub(crate) mod scrub;
pub(crate) mod settings;
pub(crate) mod show;
pub(crate) mod spares;
pub(crate) mod undelete;
pub(crate) mod upgrade;
