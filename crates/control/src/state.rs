//! What is known while the daemon runs: the recorded configuration in force, and each array and slot. Nothing here
//! knows [`Manager`](crate::Manager) or [`Control`](crate::Control).

pub(crate) mod entry;
pub(crate) mod growth;
pub(crate) mod late_takes;
pub(crate) mod lights;
pub(crate) mod lookup;
pub(crate) mod loss;
pub(crate) mod maintenance;
pub(crate) mod meters;
pub(crate) mod newest;
pub(crate) mod offline;
pub(crate) mod pool;
pub(crate) mod prospect;
pub(crate) mod records;
pub(crate) mod running;
pub(crate) mod start;
pub(crate) mod written;
