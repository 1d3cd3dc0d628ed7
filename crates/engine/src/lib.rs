//! Arrays: block devices that are built from members.
//!
//! **What it is.** [`create()`] and [`assemble()`] turn drives into an [`Assembled`] array. [`Array::start`] runs it,
//! one shard per core. [`Array::device`] is a [`BlockDevice`](strake_block::BlockDevice) like any other. A shard
//! executes the plans of `strake-raid` on the queues of its members, serializes work per band, keeps the write-intent
//! bitmap, the redo log and the labels, resynchronizes, rebuilds and scrubs.
//!
//! **What it must never do.** Compute where strips are or which strips an operation needs: `strake-raid` plans every
//! operation. Three fast paths (single-strip reads, single degraded reads, small writes) need no plan; tests compare
//! them with the planner. Read a clock or draw a random number: both are arguments, so that a simulated run replays
//! exactly. Acknowledge a write before every member that missed it is recorded as out of use.
//!
//! **Where to start.** `shard.rs`, then `shard/driver.rs` for a turn, `shard/band_task.rs` for a write,
//! `shard/leader.rs` for state changes, `shard/reconfiguration.rs` for replacements. `docs/io-path.md` follows one of
//! each.

#![forbid(unsafe_code)]

mod array;
mod assemble;
mod bad_blocks;
mod bitmaps;
mod config_record;
mod create;
mod drive;
mod error;
mod events;
mod fleet;
mod forecast;
mod grow;
mod histogram;
mod limits;
mod member_io;
mod message;
mod pacing;
mod port;
mod queue;
mod recorded;
mod roll;
mod scrub;
pub mod settling;
mod shard;
mod shared_device;
mod shared_status;
mod slab;
mod trace;
mod undelete;

pub use array::{Array, ArrayStatus, Counters, IoLimits, Options, Pending, Progress, Replacing};
pub use assemble::{
    AssemblePolicy, Assembled, Outcome, PartialWrites, Recovery, assemble, too_few, waiting,
};
pub use config_record::{config_sequence, load_config, store_config, store_config_as};
pub use create::{
    CreatePlan, CreateSpec, Ids, create, erase_foreign, plan_create, prepare_drive, refuse_occupied,
};
pub use drive::Drive;
pub use error::{ArrayError, ArrayErrorKind, ArrayRemedy};
pub use events::{ArrayEvent, ArrayEventKind};
pub use forecast::Forecast;
pub use grow::{Change, GrowPlan, claim_grown, grow, plan_change};
pub use histogram::{ArrayLatencies, Latencies, LatencyCounts};
pub use limits::IO_BYTES_MAX;
pub use member_io::{Inspection, MemberIo, Wait};
pub use pacing::Maintenance;
pub use recorded::{geometry_of, understood};
pub use scrub::{
    ScrubCounts, ScrubFinding, ScrubMode, ScrubPosition, ScrubState, ScrubStatus, ScrubVerdict,
};
pub use shared_status::{MemberCause, MemberHealth, MemberStatus};
pub use strake_ondisk::{Consistency, OnDrive, Superblock};
pub use trace::{SAMPLED_OF, Stage, StageTime, Trace, TraceOp, TraceReason};
pub use undelete::{check_destroyed, mark_destroyed, unmark_destroyed};
