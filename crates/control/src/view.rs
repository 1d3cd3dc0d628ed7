//! The messages of the interface that operators and scripts receive, derived from the known state.

pub(crate) mod array;
pub(crate) mod doubt;
pub(crate) mod health;
pub(crate) mod pool;
pub(crate) mod queues;
pub(crate) mod stats;
pub(crate) mod traces;
