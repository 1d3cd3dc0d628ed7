//! Messages to the service manager (sd_notify(3)).
//!
//! One datagram has one or more lines `NAME=VALUE`. Pure functions decide what is sent; [`Service::send`] is the only
//! effect. Without `NOTIFY_SOCKET`, nothing is sent.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strake_api::v1::Array;

/// Time limit for the service manager to accept a datagram.
const SEND_LIMIT: Duration = Duration::from_secs(1);

/// Minimum number of messages within one watchdog period, so that three may be late or lost.
const MESSAGES_PER_PERIOD: u32 = 4;

/// Maximum time between two messages, so that the status is current.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// Maximum number of arrays that a status names.
const NAMES_MAX: usize = 4;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The daemon answers on its socket.
    Ready,
    /// The clean stop has started.
    Stopping,
    /// Upkeep is running.
    Alive,
    /// The current activity of the daemon, in one line.
    Status(String),
}

/// The datagram with `messages`.
pub fn datagram(messages: &[Message]) -> String {
    let line = |message: &Message| match message {
        Message::Ready => "READY=1\n".to_owned(),
        Message::Stopping => "STOPPING=1\n".to_owned(),
        Message::Alive => "WATCHDOG=1\n".to_owned(),
        // A line break would start another message.
        Message::Status(text) => format!("STATUS={}\n", text.replace(['\n', '\r'], " ")),
    };
    messages.iter().map(line).collect()
}

/// The line that describes `arrays`.
pub fn summary(arrays: &[Array]) -> String {
    let all = match arrays.len() {
        0 => return "Serving, no arrays".to_owned(),
        1 => "Serving 1 array".to_owned(),
        count => format!("Serving {count} arrays"),
    };
    let named: Vec<String> = arrays.iter().filter_map(named).collect();
    if named.is_empty() {
        return format!("{all}, all online");
    }
    let rest = match named.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{all}: {}{rest}", named[..named.len().min(NAMES_MAX)].join(", "))
}

/// The array with its states; `None` if it is only online.
fn named(array: &Array) -> Option<String> {
    let states: Vec<&str> =
        array.states.iter().map(String::as_str).filter(|state| *state != "online").collect();
    (!states.is_empty()).then(|| format!("{} {}", array.name, states.join(" ")))
}

/// The environment variables that the service manager sets.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `NOTIFY_SOCKET`.
    pub socket: Option<OsString>,
    /// `WATCHDOG_USEC`.
    pub watchdog_us: Option<OsString>,
    /// `WATCHDOG_PID`.
    pub watchdog_pid: Option<OsString>,
}

impl Environment {
    /// Returns the environment of this process.
    pub fn of_process() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            socket: variable("NOTIFY_SOCKET"),
            watchdog_us: variable("WATCHDOG_USEC"),
            watchdog_pid: variable("WATCHDOG_PID"),
        }
    }

    /// The time within which process `pid` must send [`Message::Alive`] again (sd_watchdog_enabled(3)).
    pub fn period(&self, pid: u32) -> Option<Duration> {
        let number = |value: &OsStr| value.to_str()?.parse::<u64>().ok();
        if let Some(theirs) = &self.watchdog_pid
            && number(theirs) != Some(u64::from(pid))
        {
            return None;
        }
        let us = number(self.watchdog_us.as_deref()?).filter(|us| *us > 0)?;
        Some(Duration::from_micros(us))
    }
}

/// Returns the address `name`: an absolute path, or `@` and the name of an abstract socket.
pub fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(PathBuf::from(name)),
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => Err(io::Error::other("it is neither an absolute path nor an abstract socket")),
    }
}

/// The service manager, if there is one.
#[derive(Clone, Debug)]
pub struct Service {
    peer: Option<Arc<(UnixDatagram, SocketAddr)>>,
    period: Option<Duration>,
}

impl Service {
    /// Returns the service manager that `environment` names for process `pid`. If it cannot be reached, this is logged.
    pub fn new(environment: &Environment, pid: u32) -> Self {
        let peer = environment.socket.as_deref().and_then(|name| match open(name) {
            Ok(peer) => Some(Arc::new(peer)),
            Err(error) => {
                tracing::warn!(socket = ?name, %error, "NOTIFY_SOCKET cannot be used");
                None
            }
        });
        Self { peer, period: environment.period(pid) }
    }

    /// Sends `messages` as one datagram. A failure is logged.
    pub fn send(&self, messages: &[Message]) {
        let Some(peer) = &self.peer else { return };
        let (socket, address) = &**peer;
        if let Err(error) = socket.send_to_addr(datagram(messages).as_bytes(), address) {
            tracing::warn!(%error, ?messages, "the service manager cannot be notified");
        }
    }

    /// Time between two messages while the daemon serves; `None` without a service manager.
    pub fn every(&self) -> Option<Duration> {
        let watched = self.period.map(|period| period / MESSAGES_PER_PERIOD);
        let every = watched.map_or(STATUS_EVERY, |watched| watched.min(STATUS_EVERY));
        self.peer.as_ref().map(|_| every)
    }
}

fn open(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = address(name)?;
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_LIMIT))?;
    Ok((socket, address))
}

/// Decides when the next message is due.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    every: Option<Duration>,
    sent: Option<Instant>,
}

impl Pace {
    /// Creates a pace of one message each `every`; `None` is no message.
    pub fn new(every: Option<Duration>) -> Self {
        Self { every, sent: None }
    }

    /// Returns whether a message is due at `now`. If so, it counts as sent.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let Some(every) = self.every else { return false };
        let due = self.sent.is_none_or(|sent| now.saturating_duration_since(sent) >= every);
        if due {
            self.sent = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests;
