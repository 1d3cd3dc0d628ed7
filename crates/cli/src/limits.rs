//! Bounds of everything that waits or repeats.

use std::time::Duration;

/// How long one attempt to connect may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Attempts to reach a daemon that was just started, [`START_RETRY`] apart: ten seconds, since a daemon
/// assembles its arrays before it answers.
pub const START_ATTEMPTS: u32 = 200;

/// Time between two attempts to reach a daemon that was just started or stopped.
pub const START_RETRY: Duration = Duration::from_millis(50);

/// Attempts to see a stopping daemon go, [`START_RETRY`] apart: thirty seconds, since it drains its exports.
pub const STOP_ATTEMPTS: u32 = 600;

/// Bytes of the daemon's log shown when it does not start.
pub const LOG_TAIL_BYTES: usize = 2000;

/// Width of tables in columns where no terminal says otherwise.
pub const WIDTH: usize = 80;

/// Shortest time between two answers of a watched array.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(500);
