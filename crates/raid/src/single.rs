//! The direct path of requests of one strip of one band, without a task. [`whole_stripe()`](crate::whole_stripe()) is
//! the direct path of whole stripes.
//!
//! Only [`single()`] makes this decision. A shard describes its members ([`MemberFacts`]), computes [`Sets`] from this
//! description once per turn, removes the members that are not usable for a stripe, and calls the function. The result
//! contains the members of every part. Each result is a possible result of [`plan()`](crate::plan()) for the same
//! request; tests compare the two. A request without a result needs a task, which calls [`plan()`](crate::plan()).
//!
//! | result | condition for every involved member |
//! |---|---|
//! | [`Read`](Single::Read) | is in sync, accepts I/Os, and reads do not avoid it; all copies are consistent |
//! | [`Recover`](Single::Recover) | as for `Read`, and has no replacement; parity is trusted; the strip is hidden |
//! | [`Update`](Single::Update) | is in sync, has no replacement, is not logged; parity is trusted; no data is lost |
//! | [`Record`](Single::Record) | as for `Update`, but is logged; absent parities are left out, one is present |
//! | [`Mirror`](Single::Mirror) | as for `Update`, with consistent copies instead of trusted parity |
//!
//! No result contains a member with listed bad blocks. There is no [`Record`](Single::Record) while any member of the
//! array has a replacement, or while some shard has not applied the absence of a member.

use strake_units::{Lba, LbaRange, MemberIndex, MemberSet, PositionSet, StripSet};

use crate::band::Band;
use crate::geometry::{Geometry, Place};
use crate::level::Scheme;
use crate::stripe_map::{StripeMap, low_bits};

/// Maximum number of strips that a small write writes: its own strip and the parities, or its copies.
pub const PARTS_MAX: usize = 5;

/// A range of one strip of one band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The first block.
    pub place: Place,
    /// The index of the band in the stripe.
    pub index: u16,
    /// Number of blocks, at least 1.
    pub blocks: u32,
    /// The positions of the strips of the stripe. Strips and positions are valid only for parity schemes.
    pub map: StripeMap,
}

impl Spot {
    /// The band.
    #[inline]
    #[must_use]
    pub const fn band(&self) -> Band {
        Band { stripe: self.place.stripe, index: self.index }
    }

    /// Returns the address of the range in the data area of every member of the stripe.
    #[inline]
    #[must_use]
    pub const fn member_lba(&self) -> Lba {
        self.map.member_lba(self.place.offset)
    }

    /// Returns the member with the strip; with copies, the first such member.
    #[inline]
    #[must_use]
    pub const fn own_member(&self, geometry: &Geometry) -> MemberIndex {
        match geometry.scheme() {
            Scheme::Copies(copies) => self.map.member(self.place.strip * copies),
            Scheme::Parity(_) => self.map.member(self.map.position_of_data(self.place.strip)),
        }
    }

    /// Returns all members with the strip.
    #[inline(always)]
    const fn own_members(&self, geometry: &Geometry) -> MemberSet {
        let copies = PositionSet::from_bits(low_bits(geometry.copies()));
        MemberSet::from_bits(copies.bits() << self.own_member(geometry).0)
    }

    /// Returns the members at `positions` of the stripe.
    #[inline]
    #[must_use]
    pub const fn members_at(&self, positions: PositionSet) -> MemberSet {
        MemberSet::from_bits(positions.bits() << self.map.first_member)
    }
}

/// The kind of access of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The request reads.
    Read,
    /// The request writes data.
    Write,
    /// The request writes data, and the redo log contains the write.
    LoggedWrite,
}

/// The writes that need a complete record in the redo log before the write: small writes with [`Access::LoggedWrite`],
/// and writes of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged {
    /// Writes to stripes with one of these members.
    With(MemberSet),
    /// Writes to groups with a member that is not in sync or has a replacement. Other small writes have a
    /// partial-write record, and other writes of tasks a complete record.
    Impaired,
}

impl Default for Logged {
    fn default() -> Self {
        Self::With(MemberSet::EMPTY)
    }
}

/// The information of a shard about the members of the array. By default, all members are absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemberFacts {
    /// Members in sync. Members that are neither in this set nor in the next one are absent.
    pub in_sync: MemberSet,
    /// Rebuilding members, which are in sync in some regions.
    pub rebuilding: MemberSet,
    /// Members without a queue, and unresponsive members.
    pub silent: MemberSet,
    /// Members that have not completed a read for a long time.
    pub lagging: MemberSet,
    /// Members that are slower than their peers. Reads avoid them, except for an occasional probe.
    pub sitting_out: MemberSet,
    /// Members with a replacement that is being filled.
    pub paired: MemberSet,
    /// Absent members whose absence some shard has not applied yet.
    pub unsettled: MemberSet,
    /// The writes that need a complete record in the redo log.
    pub logged: Logged,
    /// True if copies may differ in any region of the array after a crash.
    pub copies_may_differ: bool,
    /// Maximum number of blocks of a small write, which is the space of a partial-write record.
    pub write_blocks_max: u32,
}

/// The members that accept each kind of direct I/O. By default, all sets are empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sets {
    /// Members that accept reads of their own data.
    readable: MemberSet,
    /// Members that accept reads with a request. Such reads may be probes, and are repeated if a member does not
    /// complete them.
    served: MemberSet,
    /// Members that accept reads for a recovery of data of other members.
    sources: MemberSet,
    /// Members that accept parts of small writes.
    writable: MemberSet,
    /// Members that accept parts of small writes with a complete record.
    recordable: MemberSet,
    /// Members that accept strips of whole stripes.
    whole: MemberSet,
    /// Members without parts of any write.
    absent: MemberSet,
    /// Members whose data must be recovered.
    hidden: MemberSet,
    /// Members for which an occasional read is a probe. The caller decides about probes.
    probed: MemberSet,
    rebuilding: MemberSet,
    write_blocks_max: u32,
}

impl Sets {
    /// Returns the sets that follow from `facts` for the whole array.
    #[must_use]
    pub fn of(geometry: &Geometry, facts: &MemberFacts) -> Self {
        let MemberFacts { in_sync, rebuilding, lagging, sitting_out, .. } = *facts;
        let differ = facts.copies_may_differ && geometry.copies() > 1;
        let served = if differ { MemberSet::EMPTY } else { in_sync - lagging };
        let readable = served - facts.silent - sitting_out;
        // The two devices of a member may be exchanged before a read has completed, and a write must reach both
        // devices.
        let plain = in_sync - facts.paired;
        let logged = match facts.logged {
            Logged::With(members) => members,
            Logged::Impaired => geometry.groups_with(geometry.all_members() - plain),
        };
        let absent = geometry.all_members() - in_sync - rebuilding;
        // Data written to a failed array might not be readable.
        let kept = absent.is_empty() || geometry.tolerates(absent);
        let accepted = if kept { plain - logged } else { MemberSet::EMPTY };
        // In this mode, tasks write whole stripes with a complete record.
        let whole = match facts.logged {
            Logged::With(_) => accepted,
            Logged::Impaired => MemberSet::EMPTY,
        };
        let writes = geometry.has_small_writes();
        // A write that leaves a member out is answered when no shard uses the member, and a replacement that becomes
        // this member has all blocks.
        let records = kept && writes && facts.unsettled.is_empty() && facts.paired.is_empty();
        Self {
            readable,
            served,
            sources: readable & plain,
            writable: if writes { accepted } else { MemberSet::EMPTY },
            recordable: if records { plain & logged } else { MemberSet::EMPTY },
            whole,
            absent,
            hidden: absent | lagging | sitting_out,
            probed: sitting_out,
            rebuilding,
            write_blocks_max: facts.write_blocks_max,
        }
    }

    /// Returns the members that accept reads of their own data.
    #[inline]
    #[must_use]
    pub const fn readable(&self) -> MemberSet {
        self.readable
    }

    /// Returns the members that accept parts of small writes.
    #[inline]
    #[must_use]
    pub const fn writable(&self) -> MemberSet {
        self.writable
    }

    /// Returns the members that accept parts of small writes with a complete record.
    #[inline]
    #[must_use]
    pub const fn recordable(&self) -> MemberSet {
        self.recordable
    }

    /// Returns the members that accept strips of whole stripes.
    #[inline]
    #[must_use]
    pub const fn whole(&self) -> MemberSet {
        self.whole
    }

    /// Returns the members for which the caller must apply [`lacking`](Self::lacking) for each stripe.
    #[inline]
    #[must_use]
    pub const fn rebuilding(&self) -> MemberSet {
        self.rebuilding
    }

    /// Returns the sets for blocks that are bad on `members`.
    #[inline]
    #[must_use]
    pub fn bad(self, members: MemberSet) -> Self {
        Self {
            readable: self.readable - members,
            sources: self.sources - members,
            writable: self.writable - members,
            recordable: self.recordable - members,
            whole: self.whole - members,
            ..self
        }
    }

    /// Returns the sets for a stripe that `members` lack, or that must not be read from them.
    #[inline]
    #[must_use]
    pub fn lacking(self, members: MemberSet) -> Self {
        Self { readable: self.readable - members, hidden: self.hidden | members, ..self }
    }

    /// Returns the sets for a stripe whose parity or copies may be inconsistent with the data, or unknown to the shard.
    /// Only reads of the own data of members remain.
    #[inline]
    #[must_use]
    pub fn untrusted(self) -> Self {
        let none = MemberSet::EMPTY;
        Self { sources: none, writable: none, recordable: none, whole: none, ..self }
    }

    /// Returns the sets for reads with a request. Such reads may use unresponsive members, and also slow members that
    /// the caller probes. The sets allow no recovery and no write.
    #[inline]
    #[must_use]
    pub fn by_request(self) -> Self {
        Self { readable: self.served, ..self.untrusted() }
    }

    /// Returns the sets for a read that must not be a probe.
    #[inline]
    #[must_use]
    pub fn without_probes(self) -> Self {
        Self { probed: MemberSet::EMPTY, ..self }
    }
}

/// The members of the parts of a small write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    members: [MemberIndex; PARTS_MAX],
    count: u8,
    /// The parities, which are the parts after the first, as a mask of their indices.
    parities: u8,
}

impl Parts {
    /// No parts.
    pub const NONE: Self = Self { members: [MemberIndex(0); PARTS_MAX], count: 0, parities: 0 };

    #[inline(always)]
    fn new(count: u8, parities: u8, member: impl Fn(u8) -> MemberIndex) -> Self {
        // Entries after the last part are not used: to compute them is faster than to count.
        let mut members = [MemberIndex(0); PARTS_MAX];
        for (part, place) in members.iter_mut().enumerate() {
            *place = member(part as u8);
        }
        Self { members, count, parities }
    }

    /// Returns the member of the own strip and then those of the parities, or the members of the copies.
    #[inline]
    #[must_use]
    pub fn members(&self) -> &[MemberIndex] {
        &self.members[..usize::from(self.count)]
    }

    /// Returns the number of parts.
    #[inline]
    #[must_use]
    pub const fn count(&self) -> u8 {
        self.count
    }

    /// Returns the indices of the parities that are written, in the order of their parts. Only for parity schemes.
    #[inline]
    pub fn parities(&self) -> impl Iterator<Item = u8> + use<> {
        let mut rest = self.parities;
        std::iter::from_fn(move || {
            let index = rest.trailing_zeros() as u8;
            rest &= rest.wrapping_sub(1);
            (index < 8).then_some(index)
        })
    }

    /// Returns the member of part `part`.
    #[inline]
    #[must_use]
    pub const fn member(&self, part: u8) -> MemberIndex {
        self.members[part as usize]
    }
}

/// The direct path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Single {
    /// One of these members is read. The set is not empty, and has more than one member only with copies.
    Read {
        /// The members.
        members: MemberSet,
    },
    /// These strips are read over the columns of the range, and the range is recovered from them.
    Recover {
        /// The strips; their number is that of the data strips.
        strips: StripSet,
    },
    /// These members are read, the parities are updated by the difference, and all parts are written.
    Update(Parts),
    /// For a logged write: like `Update`, but all parts are recorded in the redo log before they are written. Parities
    /// on absent members are left out.
    Record(Parts),
    /// The data is written to these members.
    Mirror(Parts),
}

impl Geometry {
    /// Returns the range of `bytes` bytes at `at`, or `None` if `bytes` is not a multiple of the block size.
    #[inline]
    #[must_use]
    pub const fn range(&self, at: Lba, bytes: usize) -> Option<LbaRange> {
        let blocks = bytes >> self.block_size().shift();
        if blocks << self.block_size().shift() != bytes {
            return None;
        }
        Some(LbaRange::new(at, blocks as u64))
    }

    /// Returns the position of `range`, or `None` if the range is empty or not in one strip of one band of the array.
    #[inline(always)]
    #[must_use]
    pub const fn spot(&self, range: LbaRange) -> Option<Spot> {
        if range.blocks == 0 || range.start.0 >= self.capacity_blocks() {
            return None;
        }
        let place = self.place(range.start);
        let band_blocks = self.band_blocks();
        if range.blocks > (band_blocks - (place.offset & (band_blocks - 1))) as u64 {
            return None;
        }
        let (index, map) = (self.band_of(place).index, self.stripe_map(place.stripe));
        Some(Spot { place, index, blocks: range.blocks as u32, map })
    }

    /// Returns true if arrays of this layout have small writes. A write to one strip must update every parity by the
    /// difference with at most as many reads as an encoding, and must have at most [`PARTS_MAX`] parts.
    #[must_use]
    pub const fn has_small_writes(&self) -> bool {
        match self.scheme() {
            Scheme::Copies(copies) => copies as usize <= PARTS_MAX,
            // The update needs at most as many reads as an encoding from the other data strips. This is the rule of
            // `plan`.
            Scheme::Parity(parities) => {
                1 + parities < self.data_strips() && (parities as usize) < PARTS_MAX
            }
        }
    }
}

/// Returns the direct path of a request for the blocks of `spot`, or `None` if the request needs a task.
#[inline(always)]
#[must_use]
pub fn single(geometry: &Geometry, spot: &Spot, access: Access, sets: &Sets) -> Option<Single> {
    match access {
        Access::Read => read(geometry, spot, sets),
        Access::Write => write(geometry, spot, sets),
        Access::LoggedWrite => record(geometry, spot, sets),
    }
}

#[inline(always)]
fn read(geometry: &Geometry, spot: &Spot, sets: &Sets) -> Option<Single> {
    let own = spot.own_members(geometry);
    let members = own & sets.readable;
    if !members.is_empty() {
        return Some(Single::Read { members });
    }
    if sets.sources.is_empty() || own.intersects(sets.probed) {
        return None;
    }
    match geometry.scheme() {
        Scheme::Copies(_) => None,
        Scheme::Parity(_) => recover(geometry, spot, sets),
    }
}

/// Returns a recovery from the readable data strips and, for each other data strip, the lowest readable parity.
fn recover(geometry: &Geometry, spot: &Spot, sets: &Sets) -> Option<Single> {
    let strips_of = |members| spot.map.strips_of_positions(spot.map.positions_of_members(members));
    let hidden = strips_of(sets.hidden);
    if !hidden.contains(spot.place.strip) {
        return None;
    }
    let data = geometry.all_data_strips();
    let mut parities = (geometry.all_strips() - data - hidden).iter();
    let mut strips = data - hidden;
    for _ in data & hidden {
        strips.insert(parities.next()?);
    }
    strips.is_subset(strips_of(sets.sources)).then_some(Single::Recover { strips })
}

#[inline(always)]
fn write(geometry: &Geometry, spot: &Spot, sets: &Sets) -> Option<Single> {
    let own = spot.own_member(geometry);
    let needed = match geometry.scheme() {
        Scheme::Copies(_) => spot.own_members(geometry),
        Scheme::Parity(_) => spot.members_at(spot.map.parity_positions()).with(own),
    };
    // In layouts without small writes, no member accepts parts, so that the parts always fit.
    if !needed.is_subset(sets.writable) || spot.blocks > sets.write_blocks_max {
        return None;
    }
    Some(match geometry.scheme() {
        Scheme::Copies(copies) => {
            Single::Mirror(Parts::new(copies, 0, |copy| MemberIndex(own.0 + copy)))
        }
        Scheme::Parity(parities) => {
            let member = |part| match part {
                0 => own,
                _ => spot.map.member(spot.map.position_of_parity(part - 1)),
            };
            Single::Update(Parts::new(1 + parities, low_bits(parities) as u8, member))
        }
    })
}

/// Returns a small write with a complete record, for a strip that is present. At least one parity must be present too.
#[inline(never)]
fn record(geometry: &Geometry, spot: &Spot, sets: &Sets) -> Option<Single> {
    let Scheme::Parity(parities) = geometry.scheme() else { return None };
    let own = spot.own_member(geometry);
    let kept = spot.members_at(spot.map.parity_positions()) - sets.absent;
    let accepted = kept.with(own).is_subset(sets.recordable);
    if kept.is_empty() || !accepted || spot.blocks > sets.write_blocks_max {
        return None;
    }
    let mut parts = Parts { count: 1, ..Parts::NONE };
    parts.members[0] = own;
    for index in 0..parities {
        let member = spot.map.member(spot.map.position_of_parity(index));
        if kept.contains(member) {
            parts.members[usize::from(parts.count)] = member;
            parts.count += 1;
            parts.parities |= 1 << index;
        }
    }
    Some(Single::Record(parts))
}
