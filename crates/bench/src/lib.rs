//! Measurements of Strake beside what others offer, in one run.
//!
//! **What it is.** `strake bench run NAME`: each benchmark answers one line of the project's list of goals
//! ([`goals`]) with a [`Report`]. Arrays of memory drives run on data cores of this process ([`rig`]), under a load
//! that lives on those cores too ([`load`]); what is compared takes turns, sample by sample ([`scenario`]).
//!
//! **What it must never do.** Be needed to use the product: the library that [`g9`] compares with is opened at run
//! time ([`isal`]), and without it a report has our numbers only and says so. It prints nothing and knows no command
//! line. It never makes up a number: a row that could not be measured has none and says why. `unsafe` is only in
//! [`isal`] and [`bandwidth`].
//!
//! **Where to start.** [`goals`] for what is measured, [`ask`] for how samples become rows, [`load`] for what a data
//! core does meanwhile.

#![deny(unsafe_code)]

pub mod adhoc;
pub mod ask;
#[allow(unsafe_code)]
pub mod bandwidth;
pub mod bay;
pub mod book;
pub mod daemon;
pub mod fio;
pub mod folder;
pub mod g9;
pub mod goals;
pub mod idle;
// Functions of a C library.
#[allow(unsafe_code)]
pub mod isal;
pub mod latency;
pub mod load;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod net;
pub mod observed;
pub mod page;
pub mod plot;
pub mod pool;
pub mod profile;
pub mod rebuild;
pub mod report;
pub mod rig;
pub mod run;
pub mod scenario;
pub mod wake;

pub use report::{Report, Row};
