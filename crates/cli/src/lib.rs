//! `strake`: the command line of Strake.
//!
//! **What it is.** It turns `strake <object> <verb> [NAME] --long-flags` into one call of the daemon's interface,
//! prints the answer as a table or, in JSON, as the message itself, and exits with a code that a script can act on.
//! A command that may lose something calls twice: a dry run, whose plan it asks about, and then the command. Others:
//! [`wait`](mod@wait) waits for a state, [`demo`] runs the whole product on sparse files, `bench` starts the program
//! `strake-bench`, `completions` and `man` call nothing.
//!
//! **What it must never do.** Decide anything about arrays: the daemon says what is allowed and why not, so that every
//! client gets the same answer. Open a drive, or contain code that measures. Print anything but the answer to
//! standard output, so that JSON can be piped.
//!
//! **Where to start.** [`args`] for the grammar, [`run`](mod@run) for what each command does, [`tables`] for the
//! output, [`exit`] for the exit codes, [`demo`] for the demonstration.

#![forbid(unsafe_code)]

pub mod args;
pub mod beside;
pub mod commands;
pub mod connect;
pub mod daemon;
pub mod demo;
pub mod error;
pub mod exit;
pub mod keep;
pub mod limits;
pub mod manual;
pub mod paths;
pub mod run;
pub mod secret;
pub mod tables;
pub mod wait;
pub mod watch;

pub use run::main;
pub use strake_terminal::{examples, output};
