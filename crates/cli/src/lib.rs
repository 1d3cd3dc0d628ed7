//! `strake`: the command line of Strake.
//!
//! **What it is.** It turns `strake <object> <verb> [NAME] --long-flags` into one call of the daemon's
//! interface, prints the answer as a table for people or as the message itself in JSON, and ends with an exit
//! code that a script can act on. [`demo`] is the whole product on sparse files in one command.
//!
//! **What it must never do.** It decides nothing about arrays: what is allowed, and why not, is the daemon's to
//! say, so that every client hears the same. It touches no drive. It prints nothing but the answer to standard
//! output, so that JSON can be piped.
//!
//! **Where to start.** [`args`] for the grammar, [`run`](mod@run) for what each command does, [`tables`] for what
//! people see, [`exit`] for the exit codes, [`demo`] for the first minute.

#![forbid(unsafe_code)]

pub mod args;
pub mod commands;
pub mod connect;
pub mod daemon;
pub mod demo;
pub mod error;
pub mod examples;
pub mod exit;
pub mod keep;
pub mod limits;
pub mod manual;
pub mod output;
pub mod paths;
pub mod run;
pub mod secret;
pub mod tables;
pub mod wait;
pub mod watch;

pub use run::main;
