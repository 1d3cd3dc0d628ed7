//! How clients fare while an array is rebuilt, in simulated time.
//!
//! A [`Lab`] is an array on modelled drives, clients that load it and take the time of every answer, and an operator
//! who fails a member and puts a fresh drive in. The engine is the real one; the clock is not: it jumps to whatever
//! happens next, so a run is exact, repeatable by seed, and independent of the machine it runs on.
//!
//! What the numbers do not hold: the time that a CPU takes. A turn costs [`Spec::turn`] of simulated time whatever it
//! does, so results tell how drives share their time between clients and a rebuild, not what a core can do; and
//! they hold no driver or DMA cost.

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
