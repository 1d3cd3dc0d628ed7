//! The output of the programs of Strake.
//!
//! **What it is.** An answer is printed as a table that fits the terminal, or as one JSON document ([`output`]).
//! [`grid`] lays out tables, [`text`] folds and shortens text. [`examples`] and [`manual`] read the examples of a
//! command's help and write its manual page.
//!
//! **What it must never do.** Know a command or a message of the interface: `cli` and `bench` share this crate. Print
//! anything but the answer to standard output, so that JSON can be piped.
//!
//! **Where to start.** [`output::Output`], then [`grid::Grid`].

#![forbid(unsafe_code)]

pub mod error;
pub mod examples;
pub mod grid;
pub mod limits;
pub mod manual;
pub mod output;
pub mod text;

pub use error::{Error, ErrorKind};
