//! Delivers events to the operator: by webhook, by e-mail or by a program.
//!
//! **What it is.** A hook names a receiver: a web address ([`HookSpec::kind`] `webhook`), a mail address (`email`) or a
//! program on this host (`exec`), and the least severity of its events. [`Alerts`] holds the hooks. [`Alerts::offer`]
//! puts an event into the queue of each hook, if the event has at least the severity of the hook; a thread per hook
//! delivers, retries, limits the rate and counts. The control plane records [`Alerts::specs`] and restores them with
//! [`Alerts::restore`].
//!
//! A webhook receives a POST with the event as JSON: the fields of the message `Event` of the interface, `version`
//! ([`DOCUMENT_VERSION`]) and `host`. The header [`EVENT_HEADER`] carries the number of the event, the same in every
//! retry. A program receives the same JSON on standard input. Events above the rate limit arrive as one event of kind
//! `events_held_back`.
//!
//! **What it must never do.** Make the caller of `offer` wait or fail. Deliver an event about a failed hook. Show
//! credentials in a listing, an error or a log. Run a program through a shell, an interpreter of
//! standard input, or a program that another user could have replaced. Define the kinds of events.
//!
//! **Where to start.** [`Alerts`], then `hook.rs` for the life of an event, `pace.rs` for the rate limit, and
//! `webhook.rs`, `mail.rs`, `exec.rs` for the delivery, and `program.rs` for the permitted programs.

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
mod program;
mod severity;
mod spec;
mod text;
mod way;
mod webhook;

pub use alerts::{Added, Alerts, KIND_HOOK_FAILED, Settings, Stopped};
pub use clock::{Clock, Sleep, SystemClock};
pub use error::{AlertError, AlertErrorKind};
pub use exec::TRY_AGAIN;
pub use limits::Limits;
pub use notice::DOCUMENT_VERSION;
pub use program::Programs;
pub use spec::HookSpec;
pub use webhook::EVENT_HEADER;

#[cfg(test)]
mod tests;
