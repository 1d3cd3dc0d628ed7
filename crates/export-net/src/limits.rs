//! Every limit of this crate. Limits that differ between exports are arguments: [`Setup`](crate::Setup),
//! [`PoolSizes`](crate::PoolSizes).

use std::time::Duration;
use strake_units::Nanos;

/// Pause in accepting after a lack of file descriptors: the listening socket stays readable, so a retry without a pause
/// would spin.
pub const REST: Nanos = Nanos(100 * Nanos::MILLI.0);

/// Length of the kernel's queue of connections that wait for an accept.
pub const BACKLOG: i32 = 1024;

/// Connections accepted in one round, between two passes over the candidates: all waiting connections, so that a peer
/// behind many rejected ones does not wait for them.
pub const ACCEPTS_PER_ROUND: usize = BACKLOG as usize;

/// Rejections at the limit of an address since the last pause, after which accepting pauses again.
pub const REFUSALS_UNTIL_REST: usize = 4;

/// The length of this pause, which starts after the round that reached the limit. Other peers wait no longer than this.
pub const REST_AFTER_REFUSALS: Nanos = Nanos(100 * Nanos::MILLI.0);

/// Time for which a negotiation is protected when there is no room for another one; later, a candidate of the address
/// with the most candidates is closed.
pub const UNDISTURBED_TIME: Nanos = Nanos(100 * Nanos::MILLI.0);

/// Time in which one address may use [`COMPUTE_TIME_PER_ADDRESS`].
pub const COMPUTE_WINDOW: Nanos = Nanos::SECOND;

/// Time of costly steps that are executed for the peers of one address in a window: a tenth of one processor, enough
/// for some fifty authentications per second.
pub const COMPUTE_TIME_PER_ADDRESS: Nanos = Nanos(100 * Nanos::MILLI.0);

/// Time for which a connection keeps its own memory after all of that memory was returned.
pub const REST_AFTER_USE: Nanos = Nanos::SECOND;

/// Orders of control threads that are executed in one turn.
pub const ORDERS_PER_TURN: usize = 4;

/// Events that are read from the kernel at once.
pub const EVENTS_PER_TURN: usize = 64;

/// Completions that are taken from a device queue at once.
pub const COMPLETIONS_PER_POLL: usize = 128;

/// `sendmsg` calls of one connection in one turn.
pub const SENDS_PER_TURN: usize = 4;

/// Interval at which a removal repeats its orders for connections that reach their core late.
pub const REPEAT_AFTER: Duration = Duration::from_millis(20);

/// The longest silence of a TCP peer whose machine failed, until the kernel ends the connection.
pub const DEAD_PEER_TIME_MAX: Duration = Duration::from_secs(120);

/// Silence after which TCP probes a peer.
pub const PROBE_AFTER: Duration = Duration::from_secs(60);

/// Interval of these probes.
pub const PROBE_EVERY: Duration = Duration::from_secs(15);

const _: () = assert!(PROBE_AFTER.as_secs() < DEAD_PEER_TIME_MAX.as_secs());
