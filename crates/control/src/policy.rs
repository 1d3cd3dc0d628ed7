//! Decisions: what follows from what is known. Values in, values out; nothing here waits for a drive, and nothing knows
//! [`Manager`](crate::Manager) or [`Control`](crate::Control). `report`, `returns`, `search` and `sick` also
//! remember what they saw, and `returns` reads the clock.

pub(crate) mod advice;
pub(crate) mod candidates;
pub(crate) mod doubt;
pub(crate) mod lights;
pub(crate) mod members;
pub(crate) mod report;
pub(crate) mod returns;
#[cfg(test)]
mod samples;
pub(crate) mod scrub;
pub(crate) mod search;
pub(crate) mod sick;
pub(crate) mod spares;
pub(crate) mod verdict;
