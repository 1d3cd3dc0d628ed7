//! Bounds of everything that waits or repeats.

use std::time::Duration;

/// How long one attempt to connect may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Attempts to reach a daemon that was just started, [`START_RETRY`] apart: ten seconds on a busy machine. A daemon
/// answers within two, whatever its drives do.
pub const START_ATTEMPTS: u32 = 200;

/// How long `daemon start` waits for arrays that are still being started once the daemon answers.
pub const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a daemon that does not answer has to be gone once it was killed.
pub const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a daemon has to answer a call about itself.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the completion of a command waits for the daemon: a shell waits with it.
pub const COMPLETION_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a drive has to show that it answers, when one is looked for that does not.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time between two attempts to reach a daemon that was just started or stopped.
pub const START_RETRY: Duration = Duration::from_millis(50);

/// Attempts to see a stopping daemon go, [`START_RETRY`] apart: 45 seconds, since it has 35 to drain its exports and to
/// stop its arrays.
pub const STOP_ATTEMPTS: u32 = 900;

/// Bytes of the daemon's log shown when it does not start.
pub const LOG_TAIL_BYTES: usize = 2000;

/// Shortest time between two answers of a watched array.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// Time between two looks at answers that the daemon does not send by itself.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Largest configuration read from a file, in bytes: what fits in a message, with room for the rest of it.
pub const CONFIG_BYTES_MAX: u64 = (strake_api::limits::MESSAGE_BYTES_MAX - (64 << 10)) as u64;

/// Largest telemetry log, in bytes.
pub const TELEMETRY_BYTES_MAX: u64 = 64 << 20;

/// Largest file with the address of a hook, in bytes.
pub const ADDRESS_BYTES_MAX: u64 = 4096;
