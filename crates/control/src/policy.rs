//! Pure decisions. The functions do not wait for drives, and do not depend on [`Manager`](crate::Manager) or
//! [`Control`](crate::Control). `media`, `report`, `returns`, `search`, `sick` and `slow` also keep observations, and
//! `returns` and `slow` read the clock.

pub(crate) mod advice;
pub(crate) mod candidates;
pub(crate) mod doubt;
pub(crate) mod lights;
pub(crate) mod media;
pub(crate) mod members;
pub(crate) mod report;
pub(crate) mod returns;
#[cfg(test)]
mod samples;
pub(crate) mod scrub;
pub(crate) mod search;
pub(crate) mod sick;
pub(crate) mod slow;
pub(crate) mod spares;
pub(crate) mod verdict;
