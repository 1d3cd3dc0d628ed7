//! The limits of this crate, each with its reason.

use std::time::Duration;

/// Maximum number of hooks of one daemon. Each hook needs a task and a queue; more recipients need a hook that
/// forwards.
pub const HOOKS_MAX: usize = 64;

/// Maximum number of events that wait for one hook. This suffices for every member of an array to fail and to return.
/// Events that do not fit are counted and summarized.
pub const QUEUE_EVENTS: usize = 64;

/// Maximum number of bytes of one text of an event in a message; the event list of the daemon contains the whole text.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Maximum number of bytes of a target or a server.
pub const TARGET_BYTES_MAX: usize = 2048;

/// Maximum number of bytes of `last_error`: a few lines on a terminal with 80 columns.
pub const ERROR_BYTES_MAX: usize = 400;

/// Maximum number of bytes that are read of an answer: HTTP headers, or a whole session with a mail server, in which
/// the certificates of STARTTLS are the largest part (about 10 KiB). The limit is low because the parsers start from
/// the beginning with every line, so their time grows with the square of the size.
pub const ANSWER_BYTES_MAX: usize = 24 << 10;

/// Number of bytes of the body of an answer, or of the output of a program, that are kept to explain a failure.
pub const EXCERPT_BYTES: usize = 200;

/// Maximum number of addresses of one host that are tried.
pub const ADDRESSES_MAX: usize = 4;

/// Number of threads that resolve names. An unresponsive resolver occupies one thread until its own time limit.
pub const RESOLVER_THREADS: usize = 4;

/// The limits of the rate and the duration of deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of messages that are sent without delay after a quiet time: one failure and its consequences.
    pub burst: u32,
    /// Time after which one more message may be sent. A person cannot read faster, and mail providers block faster
    /// senders.
    pub interval: Duration,
    /// Time limit to establish a connection, including the name lookup and TLS. A running host answers much sooner.
    pub connect: Duration,
    /// Time limit of one attempt of a delivery, and of the run of a program.
    pub total: Duration,
    /// Waits between attempts. Their sum is longer than the restart of a switch or a mail server.
    pub backoff: Vec<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            burst: 10,
            interval: Duration::from_secs(30),
            connect: Duration::from_secs(10),
            total: Duration::from_secs(30),
            backoff: [2, 15, 60, 240].map(Duration::from_secs).to_vec(),
        }
    }
}
