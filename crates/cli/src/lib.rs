//! `strake`: the command line of Strake.
//!
//! **What it is.** `strake <object> <verb> [NAME] --long-flags` becomes one call of the daemon's API. The answer is
//! printed as a table or as JSON, and the exit code is for scripts. A command that may lose something makes two calls:
//! a dry run, whose plan the operator confirms, and then the command. Other commands: [`wait`](mod@wait) waits for a
//! state, [`demo`] shows Strake on sparse files, `bench` starts the program `strake-bench`, and `completions` and `man`
//! make no call. [`completion`] answers the shell.
//!
//! **What it must never do.** Decide about arrays: the daemon decides what is allowed, so that every client gets the
//! same answer. Open a drive, or contain measuring code. Print anything except the answer to standard output, so that
//! JSON can be piped.
//!
//! **Where to start.** [`args`] for the grammar, [`run`](mod@run) for the commands, [`tables`] for the output, [`exit`]
//! for the exit codes, [`demo`] for the demonstration.

#![forbid(unsafe_code)]

pub mod again;
pub mod args;
pub mod beside;
pub mod collector;
pub mod commands;
pub mod completion;
pub mod connect;
pub mod daemon;
pub mod demo;
pub mod error;
pub mod exit;
pub mod fold;
pub mod keep;
pub mod limits;
pub mod manual;
pub mod paths;
pub mod rates;
pub mod run;
pub mod secret;
pub mod service;
pub mod spans;
pub mod tables;
pub mod wait;
pub mod watch;

pub use run::main;
pub use strake_terminal::{examples, output};
