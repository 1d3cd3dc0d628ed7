//! The real binary: against a daemon that answers from a script, and on a terminal.

mod bench;
mod commands;
mod completion;
mod demo_load;
mod examples;
mod fake;
mod json;
mod maintenance;
mod piped;
mod screen;
mod terminal;
mod volumes;
