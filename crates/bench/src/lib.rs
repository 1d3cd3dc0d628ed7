//! Benchmarks of Strake and of peers, in one run on one machine.
//!
//! **What it is.** `strake bench run NAME`: each benchmark measures one goal of the project ([`goals`]) and returns a
//! [`Report`]. Arrays of memory drives run on data cores of this process ([`rig`]), under a load that runs on the same
//! cores ([`strake_load`]). The samples of compared cases alternate ([`scenario`]).
//!
//! **What it must never do.** Be required by the product: the library that [`g9`] compares with is opened at run time
//! ([`isal`]); without the library, a report contains only the numbers of Strake, and states the reason. Print, or know
//! a command line, outside [`program`]. Invent a number: a row that could not be measured has none and gives the
//! reason. Contain `unsafe` outside [`isal`] and [`bandwidth`].
//!
//! **Where to start.** [`goals`] for what is measured, [`ask`] for how samples become rows, [`strake_load`] for the
//! requests that a data core issues, [`program`] for the commands of `strake-bench`, which `strake bench` starts.

#![deny(unsafe_code)]

pub mod adhoc;
pub mod ask;
#[allow(unsafe_code)]
pub mod bandwidth;
pub mod bay;
pub mod book;
pub mod daemon;
pub mod drive;
pub mod fio;
pub mod folder;
pub mod g9;
pub mod goals;
pub mod idle;
// Functions of a C library.
#[allow(unsafe_code)]
pub mod isal;
pub mod latency;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod net;
pub mod observed;
pub mod page;
pub mod plot;
pub mod pool;
pub mod profile;
pub mod program;
pub mod rebuild;
pub mod report;
pub mod rig;
pub mod run;
pub mod scenario;
pub mod wake;

pub use report::{Report, Row};
