//! Requests as the command line spells them, and texts that name requests.
//!
//! **What it is.** [`ApiCommand`] spells a request as an operator types it: in the record of commands, and where a text
//! names a command as the remedy. [`Text`] is such a text: words, and requests as data. Control composes it, the
//! interface carries its parts, and each client shows them in its own way; [`shown`] is that of the command line.
//!
//! **What it must never do.** It decides nothing and knows no array: which request is the remedy is decided where the
//! fault is found. It never spells a secret or a key.
//!
//! **Where to start.** [`Text`], then `commands.rs`, the table of all requests.

#![forbid(unsafe_code)]

mod commands;
mod text;

pub use commands::{
    ApiCommand, Command, Consent, EachRequest, Line, await_goal, command, each_request, escaped,
    every, import, is_plain, replace, show, show_scrub,
};
pub use text::{Text, has_request, say, shown};

#[cfg(test)]
mod tests;
