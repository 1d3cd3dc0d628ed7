//! Every bound of this crate. Those that differ between exports are arguments: [`Setup`](crate::Setup),
//! [`PoolSizes`](crate::PoolSizes).

use std::time::Duration;
use strake_units::Nanos;

/// How long accepting rests when the machine has no file descriptor left: the condition stays readable, so trying at
/// once would spin.
pub const REST: Nanos = Nanos(100 * Nanos::MILLI.0);

/// Connections that the kernel keeps until they are accepted.
pub const BACKLOG: i32 = 1024;

/// Connections accepted between two looks at those already there: all that wait, so that a peer behind many that are
/// closed at once does not wait for them.
pub const ACCEPTS_PER_ROUND: usize = BACKLOG as usize;

/// Connections closed at once, for want of room for their address, since accepting rested last, until it rests again.
pub const REFUSALS_UNTIL_REST: usize = 4;

/// How long it rests then, after the round in which that came about. Others wait no longer than this.
pub const REST_AFTER_REFUSALS: Nanos = Nanos(100 * Nanos::MILLI.0);

/// How long a negotiation continues for certain when there is no room for another; later the greediest address gives
/// way.
pub const UNDISTURBED_TIME: Nanos = Nanos(100 * Nanos::MILLI.0);

/// How long a connection that used memory of its own keeps it after all of that came back.
pub const REST_AFTER_USE: Nanos = Nanos::SECOND;

/// Orders of control threads executed in one turn.
pub const ORDERS_PER_TURN: usize = 4;

/// Events taken from the kernel at once.
pub const EVENTS_PER_TURN: usize = 64;

/// Completions taken from a device queue at once.
pub const COMPLETIONS_PER_POLL: usize = 128;

/// `sendmsg` calls of one connection in one turn.
pub const SENDS_PER_TURN: usize = 4;

/// How often a removal looks for connections that arrived on their core late.
pub const REPEAT_AFTER: Duration = Duration::from_millis(20);
