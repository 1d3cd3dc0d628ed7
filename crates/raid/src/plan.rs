//! What one request on one band reads, computes and writes.
//!
//! A plan is data: the engine, the simulator and the tests are interpreters of the same value. To run one: do the
//! reads, recover the listed strips over the window from what was read, overlay the new data, compute parity over the
//! window (update it for [`Strategy::ReadModifyWrite`], encode it from all data otherwise), do the writes. When a read
//! fails on the way, the planner is asked again with that position unreadable or absent.
//!
//! A position is in one of three conditions: readable; *unreadable*, which is written but never read; *absent*,
//! which is neither. Below, *hidden* means unreadable or absent.
//!
//! Which strategy a write on a parity scheme gets, first match wins:
//!
//! 1. more strips absent than there are parities: [`Lost`], because what is written might not be readable;
//! 2. every parity strip absent: `Direct`, the data alone is written;
//! 3. every data strip new over the whole window: `FullStripe`, nothing is read;
//! 4. of `ReadModifyWrite` (needs trusted parity, and every written strip and every parity that is not absent
//!    readable) and `ReconstructWrite` (needs every data strip that is not new over the whole window) the one
//!    with fewer read transfers; then the one that reads fewer blocks; then `ReadModifyWrite`, because it
//!    reads only members that the write visits anyway and leaves the others to other requests;
//! 5. otherwise `Degraded`: as many survivors as there are data strips are read, the hidden data that is not new over
//!    the whole window is recovered, and parity is encoded from all data; [`Lost`] when too few survive.
//!
//! Every strip with a segment and every parity is then written, except where absent. The comparison of read
//! counts is md's `rmw_level=1` (`handle_stripe_dirtying`, `drivers/md/raid5.c`).

use std::fmt;

use strake_units::{FixedList, PositionSet, StripeIndex};

use crate::TRANSFERS_MAX;
use crate::band::{Band, Segment};
use crate::geometry::Geometry;
use crate::level::Scheme;

mod copies;
mod parity;

/// What is known about one stripe when its plan is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StripeHealth {
    /// Positions that can be neither read nor written.
    pub absent: PositionSet,
    /// Positions that cannot be read but are written nevertheless: members being rebuilt, in
    /// stripes that the rebuild has not reached (so that it never has to come back), and members whose
    /// blocks turned out unreadable (so that the drive can remap them).
    pub unreadable: PositionSet,
    /// False between a crash and the end of the resync of this stripe: parity (or the copies) may not agree
    /// with the data.
    pub parity_trusted: bool,
}

/// What a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Read the segments.
    Read,
    /// Write the segments, and whatever keeps the stripe redundant.
    Write,
    /// Make parity (or copies) of the band agree with its data.
    Resync,
    /// Compute the band of members that hold none of it yet and write it to them.
    Rebuild {
        /// Positions to fill. Positions that can be read are left alone.
        targets: PositionSet,
    },
}

/// The question that [`plan()`] answers.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The band.
    pub band: Band,
    /// Health of the band's stripe.
    pub health: StripeHealth,
    /// What to read or write: at most one segment per data strip, inside the band, in ascending strip order.
    /// [`Purpose::Resync`] and [`Purpose::Rebuild`] concern the whole band when there is none, and otherwise the
    /// columns that segments have blocks in; a resync of copies then concerns the strips with segments only.
    pub segments: &'a [Segment],
    /// What for.
    pub purpose: Purpose,
    /// Which copy to read, modulo the copies that are present. Any number will do.
    pub copy_hint: u8,
}

/// How a plan reaches its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Data moves to or from where it belongs; nothing is computed.
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

/// Columns of a band: those a plan works on, for one. Counted in blocks from the start of the strip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Window {
    /// First block.
    pub offset: u32,
    /// Number of blocks.
    pub blocks: u32,
}

impl Window {
    /// The columns of a segment.
    #[must_use]
    pub const fn of(segment: &Segment) -> Self {
        Self { offset: segment.offset, blocks: segment.blocks }
    }

    const fn end(self) -> u32 {
        self.offset + self.blocks
    }

    /// The columns from the first to the last of either.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let offset = self.offset.min(other.offset);
        Self { offset, blocks: self.end().max(other.end()) - offset }
    }

    /// True when no column lies between the two.
    #[must_use]
    pub const fn touches(self, other: Self) -> bool {
        self.offset <= other.end() && other.offset <= self.end()
    }
}

/// What to do. See the [module documentation](self) for how to run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How the goal is reached.
    pub strategy: Strategy,
    /// The columns in which strips are recovered and parity is computed: the hull of the segments, or, for reads, of
    /// the segments that have to be recovered.
    pub window: Window,
    /// What to read first; one strip at most once, except that copies are all called by their data strip.
    pub reads: FixedList<Transfer, TRANSFERS_MAX>,
    /// Strips (data or parity) to recover over the window from the reads, ascending. When not empty, the
    /// reads are exactly k strips over the whole window; those of a plan for a read may reach beyond it, as far as
    /// their own segments do.
    pub recover: FixedList<u8, TRANSFERS_MAX>,
    /// What to write once everything is computed.
    pub writes: FixedList<Transfer, TRANSFERS_MAX>,
}

/// The plan cannot be made: more of the stripe is out of reach than its redundancy covers.
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
    /// A plan that does nothing.
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

/// Plans `query` on an array of `geometry`. Allocates nothing.
///
/// # Errors
/// [`Lost`] when the strips that can be read do not determine what is asked for, or those that can be
/// written could not keep what is to be written.
pub fn plan(geometry: &Geometry, query: &Query<'_>) -> Result<Plan, Lost> {
    let mut plan = Plan::new();
    plan_into(geometry, query, &mut plan)?;
    Ok(plan)
}

/// Does what [`plan()`] does, in a plan that is there already. A plan is large (its lists have room for the
/// widest stripe), and clearing one costs a fraction of making and moving one: for the data path.
///
/// # Errors
/// As [`plan()`]; the plan is then empty or unfinished and must not be run.
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

/// A query with the numbers that every branch of the planner needs.
struct View<'a> {
    geometry: &'a Geometry,
    query: &'a Query<'a>,
    /// Positions that cannot be read: absent or unreadable.
    hidden: PositionSet,
    /// Those of them that cannot be written either.
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

    /// The transfer of `strip`, which is at `position`, over the whole window.
    fn over_window(&self, position: u8, strip: u8) -> Transfer {
        Transfer { position, strip, offset: self.window.offset, blocks: self.window.blocks }
    }
}

/// The transfer of a segment that is at `position`.
fn of_segment(position: u8, segment: &Segment) -> Transfer {
    Transfer { position, strip: segment.strip, offset: segment.offset, blocks: segment.blocks }
}

/// The columns between the first and the last block of any segment.
#[must_use]
pub fn hull(segments: &[Segment]) -> Window {
    let offset = segments.iter().map(|s| s.offset).min().unwrap_or(0);
    let end = segments.iter().map(|s| s.offset + s.blocks).max().unwrap_or(0);
    Window { offset, blocks: end - offset }
}

/// What [`Query::segments`] promises.
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
