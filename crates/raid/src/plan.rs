//! The plan for one request on one band: its reads, computations and writes.
//!
//! A plan is data: the engine, the simulator and the tests interpret the same value. An interpreter executes the reads,
//! recovers the listed strips over the window from the read data, inserts the new data, computes parity over the
//! window, and executes the writes. For [`Strategy::ReadModifyWrite`] it updates the parity; otherwise it encodes the
//! parity from all data. If a read fails, the caller requests a new plan with this position unreadable or absent.
//!
//! A position has one of three conditions. A *readable* position can be read and written. An *unreadable* position is
//! written but never read. An *absent* position is neither read nor written. Below, *hidden* means unreadable or
//! absent.
//!
//! The first matching rule determines the strategy of a write on a parity scheme:
//!
//! 1. If more strips are absent than the stripe has parities, the result is [`Lost`], because the written data might
//!    not be readable.
//! 2. If every parity strip is absent, the strategy is `Direct`: only the data is written.
//! 3. If every data strip is new over the whole window, the strategy is `FullStripe`: nothing is read.
//! 4. Otherwise the candidates are `ReadModifyWrite` and `ReconstructWrite`. `ReadModifyWrite` needs trusted parity;
//!    every written strip and every parity that is not absent must be readable. `ReconstructWrite` needs every data
//!    strip that is not new over the whole window to be readable. The candidate with fewer read transfers is chosen,
//!    then the one that reads fewer blocks, and then `ReadModifyWrite`, because it reads only members that the write
//!    accesses anyway.
//! 5. If neither is possible, the strategy is `Degraded`: as many survivors are read as the stripe has data strips, the
//!    hidden data that is not new over the whole window is recovered, and parity is encoded from all data. The result
//!    is [`Lost`] if too few strips survive.
//!
//! Then every strip with a segment and every parity is written, except absent ones. The comparison of read counts is
//! that of md with `rmw_level=1` (`handle_stripe_dirtying`, `drivers/md/raid5.c`).

use std::fmt;

use strake_units::{FixedList, PositionSet, StripeIndex};

use crate::TRANSFERS_MAX;
use crate::band::{Band, Segment};
use crate::geometry::Geometry;
use crate::level::Scheme;

mod copies;
mod parity;

/// The state of one stripe at the time of its plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StripeHealth {
    /// Positions that cannot be read or written.
    pub absent: PositionSet,
    /// Positions that are written although they cannot be read: rebuilding members, in stripes that the rebuild has not
    /// reached (so that the rebuild need not repeat a stripe), and members with unreadable blocks (so that the drive
    /// can remap these blocks).
    pub unreadable: PositionSet,
    /// False from a crash until the end of the resync of this stripe: parity (or the copies) may be inconsistent with
    /// the data.
    pub parity_trusted: bool,
}

/// The purpose of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Read the segments.
    Read,
    /// Write the segments, and the redundancy of the stripe.
    Write,
    /// Make parity (or copies) of the band consistent with its data.
    Resync,
    /// Compute the strips of members that lack the band, and write them.
    Rebuild {
        /// Positions to fill. Readable positions are not changed.
        targets: PositionSet,
    },
}

/// The input of [`plan()`].
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The band.
    pub band: Band,
    /// Health of the band's stripe.
    pub health: StripeHealth,
    /// The segments to read or write: at most one per data strip, inside the band, in ascending strip order. Without
    /// segments, [`Purpose::Resync`] and [`Purpose::Rebuild`] apply to the whole band. With segments, they apply to the
    /// columns of the segments, and a resync of copies applies only to the strips with segments.
    pub segments: &'a [Segment],
    /// The purpose.
    pub purpose: Purpose,
    /// The copy to read, modulo the number of present copies. Any number is valid.
    pub copy_hint: u8,
}

/// The strategy of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Data is only read or written; nothing is computed.
    Direct,
    /// Parity is encoded from new data alone.
    FullStripe,
    /// Parity is updated by the difference between old and new data.
    ReadModifyWrite,
    /// Parity is encoded from new data and the old data around it.
    ReconstructWrite,
    /// Strips that cannot be read are recovered from survivors first; parity is then encoded from all data.
    Degraded,
}

/// One read or write of one strip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// Position in the stripe's group: [`Geometry::member`] names the member.
    pub position: u8,
    /// Strip: data 0..k, parity k..k+m.
    pub strip: u8,
    /// First block, counted from the start of the strip: [`Geometry::member_lba`] gives the address.
    pub offset: u32,
    /// Number of blocks, at least 1.
    pub blocks: u32,
}

/// A range of columns of a band, such as the columns of a plan, in blocks from the start of the strip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Window {
    /// First block.
    pub offset: u32,
    /// Number of blocks.
    pub blocks: u32,
}

impl Window {
    /// Returns the columns of a segment.
    #[must_use]
    pub const fn of(segment: &Segment) -> Self {
        Self { offset: segment.offset, blocks: segment.blocks }
    }

    const fn end(self) -> u32 {
        self.offset + self.blocks
    }

    /// Returns the columns from the first to the last column of both windows.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let offset = self.offset.min(other.offset);
        Self { offset, blocks: self.end().max(other.end()) - offset }
    }

    /// Returns true if no column is between the two windows.
    #[must_use]
    pub const fn touches(self, other: Self) -> bool {
        self.offset <= other.end() && other.offset <= self.end()
    }
}

/// A plan. The [module documentation](self) describes its interpretation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The strategy.
    pub strategy: Strategy,
    /// The columns in which strips are recovered and parity is computed: the hull of the segments or, for reads, of the
    /// segments that must be recovered.
    pub window: Window,
    /// The reads, which are executed first. A strip occurs at most once, except that all copies have the number of
    /// their data strip.
    pub reads: FixedList<Transfer, TRANSFERS_MAX>,
    /// Strips (data or parity) to recover over the window from the reads, in ascending order. If the list is not empty,
    /// the reads are exactly k strips over the whole window. In a plan for a read, a transfer may extend beyond the
    /// window, up to the end of its own segment.
    pub recover: FixedList<u8, TRANSFERS_MAX>,
    /// The writes, which are executed after all computations.
    pub writes: FixedList<Transfer, TRANSFERS_MAX>,
}

/// The error of a plan: more strips are absent than the redundancy covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The band.
    pub band: Band,
    /// The positions that cannot be read.
    pub absent: PositionSet,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "stripe {} has lost data: {} of its strips cannot be read, more than its redundancy covers; \
             bring a missing member back, or restore these blocks from a backup",
            self.band.stripe,
            self.absent.len()
        )
    }
}

impl std::error::Error for Lost {}

impl Plan {
    /// Returns an empty plan.
    #[must_use]
    pub fn new() -> Self {
        Self {
            strategy: Strategy::Direct,
            window: Window::default(),
            reads: FixedList::new(),
            recover: FixedList::new(),
            writes: FixedList::new(),
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the plan of `query` on an array of `geometry`, without allocation.
///
/// # Errors
/// [`Lost`] if the readable strips do not determine the requested data, or if the writable strips cannot preserve the
/// data to write.
pub fn plan(geometry: &Geometry, query: &Query<'_>) -> Result<Plan, Lost> {
    let mut plan = Plan::new();
    plan_into(geometry, query, &mut plan)?;
    Ok(plan)
}

/// Makes the plan of [`plan()`] in an existing plan. A plan is large, because its lists have space for the widest
/// stripe. To clear a plan needs only a fraction of the time to create and move a plan. The data path uses this
/// function.
///
/// # Errors
/// As [`plan()`]. The plan is then empty or incomplete and must not be executed.
pub fn plan_into(geometry: &Geometry, query: &Query<'_>, plan: &mut Plan) -> Result<(), Lost> {
    debug_assert!(
        segments_are_sound(geometry, query),
        "segments outside of their band or out of order"
    );
    let view = View::new(geometry, query);
    plan.strategy = Strategy::Direct;
    plan.window = view.window;
    plan.reads.clear();
    plan.recover.clear();
    plan.writes.clear();
    match geometry.scheme() {
        Scheme::Copies(_) => copies::plan(&view, plan),
        Scheme::Parity(_) => parity::plan(&view, plan),
    }
}

/// A query with the values that all functions of the planner need.
struct View<'a> {
    geometry: &'a Geometry,
    query: &'a Query<'a>,
    /// Positions that cannot be read: absent or unreadable.
    hidden: PositionSet,
    /// Hidden positions that also cannot be written.
    absent: PositionSet,
    window: Window,
}

impl<'a> View<'a> {
    fn new(geometry: &'a Geometry, query: &'a Query<'a>) -> Self {
        let all = geometry.all_positions();
        let absent = query.health.absent & all;
        let hidden = absent | query.health.unreadable & all;
        let window = match query.purpose {
            Purpose::Resync | Purpose::Rebuild { targets: _ } if query.segments.is_empty() => {
                Window { offset: geometry.band_offset(query.band), blocks: geometry.band_blocks() }
            }
            Purpose::Read | Purpose::Write | Purpose::Resync | Purpose::Rebuild { targets: _ } => {
                hull(query.segments)
            }
        };
        Self { geometry, query, hidden, absent, window }
    }

    fn stripe(&self) -> StripeIndex {
        self.query.band.stripe
    }

    fn lost(&self) -> Lost {
        Lost { band: self.query.band, absent: self.hidden }
    }

    /// Returns the transfer of `strip`, which is at `position`, over the whole window.
    fn over_window(&self, position: u8, strip: u8) -> Transfer {
        Transfer { position, strip, offset: self.window.offset, blocks: self.window.blocks }
    }
}

/// Returns the transfer of a segment at `position`.
fn of_segment(position: u8, segment: &Segment) -> Transfer {
    Transfer { position, strip: segment.strip, offset: segment.offset, blocks: segment.blocks }
}

/// Returns the columns from the first to the last block of all segments.
#[must_use]
pub fn hull(segments: &[Segment]) -> Window {
    let offset = segments.iter().map(|s| s.offset).min().unwrap_or(0);
    let end = segments.iter().map(|s| s.offset + s.blocks).max().unwrap_or(0);
    Window { offset, blocks: end - offset }
}

/// Returns true if the segments satisfy the conditions of [`Query::segments`].
fn segments_are_sound(geometry: &Geometry, query: &Query<'_>) -> bool {
    let top = geometry.band_offset(query.band);
    let bottom = top + geometry.band_blocks();
    let inside = |s: &Segment| {
        s.strip < geometry.data_strips()
            && s.blocks > 0
            && s.offset >= top
            && s.offset < bottom
            && s.blocks <= bottom - s.offset
    };
    query.segments.iter().all(inside)
        && query.segments.windows(2).all(|pair| pair[0].strip < pair[1].strip)
}
