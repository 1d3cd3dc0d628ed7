//! Every bound of this crate, each with its reason.

use std::time::Duration;

/// Hooks of one daemon. Each costs a task and a queue; more recipients than this need a hook that forwards.
pub const HOOKS_MAX: usize = 64;

/// Events that wait for one hook. Enough for every member of an array to fail and come back; what does not fit is
/// counted and summed up.
pub const QUEUE_EVENTS: usize = 64;

/// Bytes of one text of an event that are passed on; the whole text is in the daemon's own list of events.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Bytes of a target or a server; longer ones are a mistake.
pub const TARGET_BYTES_MAX: usize = 2048;

/// Bytes of `last_error`: a few lines on a terminal of 80 columns.
pub const ERROR_BYTES_MAX: usize = 400;

/// Most bytes that are read of an answer: HTTP headers, or all of a session with a mail server, in which the
/// certificates of STARTTLS are the largest part (some 10 KiB). No more than that, because the parsers start from the
/// beginning with every line: the time they take grows with the square.
pub const ANSWER_BYTES_MAX: usize = 24 << 10;

/// Bytes of an answer's body, or of a program's output, that are kept to explain a failure.
pub const EXCERPT_BYTES: usize = 200;

/// Addresses of one host that are tried.
pub const ADDRESSES_MAX: usize = 4;

/// Threads that resolve names. A resolver that hangs occupies one until it gives up by itself.
pub const RESOLVER_THREADS: usize = 4;

/// How fast a hook delivers, and how long it may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Messages that go out at once after a quiet time: one failure and what follows from it.
    pub burst: u32,
    /// Time after which one more may go out. A person cannot read faster, and mail providers block who sends faster.
    pub interval: Duration,
    /// Until a connection stands, including the name and TLS. A machine that is up answers far sooner.
    pub connect: Duration,
    /// One try of a delivery, from its beginning to its end; also how long a program may run.
    pub total: Duration,
    /// Waits between tries. Together they outlast the restart of a switch or a mail server.
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
