//! Persistent state: the files of the state directory, and the records on members.

pub(crate) mod access;
pub(crate) mod doubt_file;
pub(crate) mod files;
pub(crate) mod member;
pub(crate) mod reserved;
pub(crate) mod scrub_file;
pub(crate) mod store;
