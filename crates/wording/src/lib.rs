//! Requests spelled as commands, and texts that name requests.
//!
//! **What it is.** [`ApiCommand`] spells a request as an operator types it, for the record of commands and for
//! remedies. [`Text`] is a text with words, and with requests as data. `control` composes the text, the API transports
//! its parts, and each client displays them. [`shown`] is the text that the command line displays.
//!
//! **What it must never do.** It makes no decisions and accesses no array: the code that finds a fault chooses the
//! remedy. It never spells a secret or a key.
//!
//! **Where to start.** [`Text`], then `commands.rs`, the table of all requests.

#![forbid(unsafe_code)]

mod commands;
mod text;

pub use commands::{
    Amendment, ApiCommand, Command, EachRequest, Line, await_goal, command, each_request, escaped,
    every, import, is_plain, replace, show, show_scrub,
};
pub use text::{Text, has_request, say, shown};

#[cfg(test)]
mod tests;
