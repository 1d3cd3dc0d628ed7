//! Latencies of clients during the rebuild of an array, in simulated time.
//!
//! A [`Lab`] is an array on modelled drives, clients that load it and measure every completion, and an operator who
//! fails a member and replaces it. The engine is real, the clock is simulated: it advances to the next event, so a run
//! is exact, repeatable by seed, and independent of the host.
//!
//! The results do not include CPU time. A turn costs [`Spec::turn`] of simulated time in all cases, so results show how
//! drives share their time between clients and a rebuild, not the performance of a core; and they include no driver or
//! DMA cost.

pub mod client;
pub mod drive;
mod lab;
mod report;
pub mod restart;
mod sample;

pub use client::{Habit, Pace, Work};
pub use lab::{Lab, Spec};
pub use report::{PRIORITIES, Trial, forecasts, report, trial};
pub use sample::Sample;
