//! Measurements of Strake beside what others offer, in one run.
//!
//! **What it is.** `strake bench run NAME`: each benchmark answers one line of the project's list of goals
//! with a [`Report`]. What ours is compared with runs in the same process, on the same bytes, in turns with
//! ours, and its results are compared with ours before the clock runs.
//!
//! **What it must never do.** Be needed to use the product: the library it compares with is opened at run time
//! ([`isal`]), and without it a report has our numbers only and says so. It prints nothing and knows no command
//! line. `unsafe` is only in [`isal`] and [`bandwidth`].
//!
//! **Where to start.** [`g9`] for what is measured, [`measure`] for how.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod bandwidth;
pub mod g9;
// Functions of a C library.
#[allow(unsafe_code)]
pub mod isal;
pub mod machine;
pub mod measure;
pub mod page;
pub mod plot;
pub mod pool;
pub mod report;

pub use report::{Memory, Report, Row};
