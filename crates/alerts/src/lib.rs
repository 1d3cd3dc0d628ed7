//! Tells somebody outside about events.
//!
//! **What it is.** A hook is somebody to tell: a web address ([`HookSpec::kind`] `webhook`), a mail address
//! (`email`) or a program on this machine (`exec`). [`Alerts`] holds the hooks; [`Alerts::offer`] puts an event into
//! the queue of every hook that asks for events this bad, and a thread of its own delivers, retries, keeps a pace and
//! counts. Whoever owns the hooks records [`Alerts::specs`] and brings them back with [`Alerts::restore`].
//!
//! A webhook gets a POST of the event as JSON: the fields of the message `Event` of the interface, `version`
//! ([`DOCUMENT_VERSION`]) and `host`; the header [`EVENT_HEADER`] has the number of the event, the same when a try is
//! repeated. A program gets the same JSON on its standard input. What came faster than the pace allows arrives as one
//! event of kind `events_held_back`.
//!
//! **What it must never do.** It never makes whoever offers an event wait or fail; it never delivers an event
//! about a hook that fails; it never shows credentials in a listing, an error or a log; it never runs a program
//! through a shell, nor one that others could have exchanged. It does not decide what an event is.
//!
//! **Where to start.** [`Alerts`], then `hook.rs` for the life of an event, `pace.rs` for when it goes out, and
//! `webhook.rs`, `mail.rs`, `exec.rs` for how.

#![forbid(unsafe_code)]

mod alerts;
mod clock;
mod error;
mod exec;
mod hook;
pub mod limits;
mod mail;
mod net;
mod notice;
mod pace;
mod severity;
mod spec;
mod text;
mod way;
mod webhook;

pub use alerts::{Added, Alerts, KIND_HOOK_FAILED, Settings, Stopped};
pub use clock::{Clock, Sleep, SystemClock};
pub use error::{AlertError, AlertErrorKind};
pub use limits::Limits;
pub use notice::DOCUMENT_VERSION;
pub use spec::HookSpec;
pub use webhook::EVENT_HEADER;

#[cfg(test)]
mod tests;
