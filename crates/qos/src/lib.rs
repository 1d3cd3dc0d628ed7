//! Limits of I/O: how many requests and bytes per second a volume, an export or a pool may use.
//!
//! **What it is.** A [`Limit`] is a rate with a burst. [`Request::cost`] is what a request of a host uses. The budget
//! of a limit belongs to its *home*, one core: [`Home`] leases it to the cores in [`Cells`]. Each cell has one writer,
//! so cores share no lock and no counter that two of them change. A [`Lease`] is the part of one core, and a
//! [`Limiter`] admits the requests of one device queue to all leases that hold for it.
//!
//! **What it must never do.** No I/O, clock, threads, randomness or `unsafe`: time is an argument. Nothing here
//! allocates per request.
//!
//! **Where to start.** [`home`] for the distribution, [`limiter`] for the path of a request, and
//! `docs/decisions/0048-qos-limits.md` for the reasons.

#![forbid(unsafe_code)]

pub mod cells;
pub mod cost;
pub mod home;
pub mod lease;
pub mod limiter;
pub mod limits;
pub mod value;

pub use cells::{Board, Cells, Throttled};
pub use cost::{Direction, Request, Usage};
pub use home::{Home, Next};
pub use lease::{CallHome, Lease, QueueId};
pub use limiter::Limiter;
pub use value::{Aspect, Counts, Limit, LimitError, LimitSet, Measure, RequestRate};

#[cfg(test)]
mod tests;
