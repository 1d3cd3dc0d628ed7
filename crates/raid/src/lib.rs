//! The arithmetic of redundancy: the location of each block, and the blocks that a request must read, compute and
//! write.
//!
//! **What it is.** [`Geometry`] maps array addresses to stripes, strips and members. [`plan()`] turns one request on
//! one band of one stripe into a [`Plan`]: reads, strips to recover, writes. [`single()`] gives the same answer in a
//! few bytes for the requests of one strip that need no task, and [`whole_stripe()`] for those of a whole
//! stripe. [`MemberState`] and [`ConditionSet`] define the effect of failures.
//! [`Regions`] defines how the array is divided into regions of the write-intent bitmap and among cores. All functions
//! are pure.
//!
//! **What it must never do.** No I/O, clock, threads, randomness, `unsafe`, or allocation; no parity bytes (a plan
//! names the strips to compute, but does not compute them); no state between calls. It depends on `strake-units` only.
//!
//! **Where to start.** [`geometry`] for the layout, then [`mod@plan`] for the write strategies, then [`mod@single`],
//! then [`state`].

#![forbid(unsafe_code)]

pub mod band;
pub mod condition;
mod divisor;
mod error;
pub mod geometry;
pub mod level;
pub mod plan;
pub mod region;
mod shape;
pub mod single;
pub mod state;
mod stripe_map;
pub mod whole;

pub use band::{Band, Bands, Piece, Pieces, Segment, SegmentList};
pub use condition::{Condition, ConditionSet};
pub use error::GeometryError;
pub use geometry::{Geometry, GeometrySpec, Place, Role, nearest_strip_bytes};
pub use level::{Level, LevelError, LevelRequest, Scheme};
pub use plan::{
    Lost, Plan, Purpose, Query, Strategy, StripeHealth, Transfer, Window, hull, plan, plan_into,
};
pub use region::{REGION_BYTES_MIN, REGIONS_MAX, Regions};
pub use single::{Access, Logged, MemberFacts, PARTS_MAX, Parts, Sets, Single, Spot, single};
pub use state::{IllegalTransition, MemberEvent, MemberState, absent_members, members_where};
pub use stripe_map::StripeMap;
pub use whole::{WholeStripe, whole_stripe};

/// Maximum number of members of an array in all groups, which is the size of the member table in a label.
pub const MEMBERS_MAX: usize = 64;

/// Maximum number of copies of one strip, which are the members of a RAID 1.
pub const COPIES_MAX: usize = 8;

/// Maximum height of a band in bytes. It bounds the scratch memory of one stripe operation.
pub const BAND_BYTES_MAX: u32 = 128 * 1024;

/// Maximum number of reads, and of writes, of one plan: at most one per position of a stripe's group.
pub const TRANSFERS_MAX: usize = 64;

/// Minimum strip size in bytes.
pub const STRIP_BYTES_MIN: u32 = 4 * 1024;

/// Maximum strip size in bytes.
pub const STRIP_BYTES_MAX: u32 = 1024 * 1024;

/// Identifier of the layout that this crate computes, recorded in every label. A different mapping of blocks to members
/// would get a different number (md's RAID 0 once changed its mapping without recording it, Linux c84a1372df92; arrays
/// written by both kernels cannot be distinguished).
pub const LAYOUT_ID: u16 = 1;

// A strip contains at least one block of the largest block size, a transfer list can contain a whole stripe, and a set
// of members fits in 64 bits.
const _: () = assert!(STRIP_BYTES_MIN >= 4096);
const _: () = assert!(TRANSFERS_MAX >= MEMBERS_MAX && MEMBERS_MAX <= 64);
const _: () = assert!(BAND_BYTES_MAX.is_power_of_two() && BAND_BYTES_MAX >= STRIP_BYTES_MIN);

#[cfg(test)]
mod tests;
