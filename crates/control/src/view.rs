//! What people and scripts see: messages of the interface, made of what is known.

pub(crate) mod array;
pub(crate) mod doubt;
pub(crate) mod health;
pub(crate) mod queues;
pub(crate) mod stats;
