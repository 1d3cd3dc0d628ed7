//! Remote drives: their records, connections and paths, and requests of an earlier daemon that may be in progress.

pub(crate) mod connections;
pub(crate) mod losses;
pub(crate) mod past;
pub(crate) mod paths;
pub(crate) mod process;
pub(crate) mod record;
