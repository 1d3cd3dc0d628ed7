//! Remote drives: their records, connections and paths, and what an earlier daemon may have under way there.

pub(crate) mod connections;
pub(crate) mod losses;
pub(crate) mod past;
pub(crate) mod paths;
pub(crate) mod process;
pub(crate) mod record;
