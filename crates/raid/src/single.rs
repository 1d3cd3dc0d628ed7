//! Requests that may go the direct way, without a task: those that lie in one strip of one band.
//!
//! [`single()`] alone decides this. A shard describes its members ([`MemberFacts`]), makes [`Sets`] of that once a
//! turn, takes from them what does not hold for a stripe, and asks. The answer names the members of every part. Each
//! answer is one that [`plan()`](crate::plan()) gives to the same request, and the tests compare the two; a request
//! that gets none is for a task, which asks [`plan()`](crate::plan()).
//!
//! | answer | every member in question |
//! |---|---|
//! | [`Read`](Single::Read) | is in sync, takes I/Os, and reads do not avoid it; of several copies, all agree |
//! | [`Recover`](Single::Recover) | the same, and has no replacement; parity is trusted; the strip cannot be read |
//! | [`Update`](Single::Update) | is in sync, has no replacement, is not logged; parity is trusted, no data are lost |
//! | [`Mirror`](Single::Mirror) | the same; copies agree |
//!
//! No answer names a member with listed bad blocks.

use strake_units::{Lba, LbaRange, MemberIndex, MemberSet, PositionSet, StripSet};

use crate::band::Band;
use crate::geometry::{Geometry, Place};
use crate::level::Scheme;
use crate::stripe_map::{StripeMap, low_bits};

/// Most strips that a small write writes: its own and the parities, or its copies.
pub const PARTS_MAX: usize = 5;

/// A range of one strip of one band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Its first block.
    pub place: Place,
    /// Which band of the stripe.
    pub index: u16,
    /// Number of blocks, at least 1.
    pub blocks: u32,
    /// Where the strips of the stripe are. Its strips and positions are for parity schemes only.
    pub map: StripeMap,
}

impl Spot {
    /// The band.
    #[inline]
    #[must_use]
    pub const fn band(&self) -> Band {
        Band { stripe: self.place.stripe, index: self.index }
    }

    /// The address of the range in the data area of every member of the stripe.
    #[inline]
    #[must_use]
    pub const fn member_lba(&self) -> Lba {
        self.map.member_lba(self.place.offset)
    }

    /// The member with the strip; the first of them, of copies.
    #[inline]
    #[must_use]
    pub const fn own_member(&self, geometry: &Geometry) -> MemberIndex {
        match geometry.scheme() {
            Scheme::Copies(copies) => self.map.member(self.place.strip * copies),
            Scheme::Parity(_) => self.map.member(self.map.position_of_data(self.place.strip)),
        }
    }

    /// All members with the strip.
    #[inline(always)]
    const fn own_members(&self, geometry: &Geometry) -> MemberSet {
        let copies = PositionSet::from_bits(low_bits(geometry.copies()));
        MemberSet::from_bits(copies.bits() << self.own_member(geometry).0)
    }

    /// The members at `positions` of the stripe.
    #[inline]
    #[must_use]
    pub const fn members_at(&self, positions: PositionSet) -> MemberSet {
        MemberSet::from_bits(positions.bits() << self.map.first_member)
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes data.
    Write,
}

/// Which writes must be in the redo log as a whole before they are made, and therefore take a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged {
    /// Those of stripes with one of these members.
    With(MemberSet),
    /// Those of groups with a member that is not in sync or has a replacement: others have a partial-write record.
    Impaired,
}

impl Default for Logged {
    fn default() -> Self {
        Self::With(MemberSet::EMPTY)
    }
}

/// What a shard knows of the members of the array. By default all are absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemberFacts {
    /// In sync. Those in neither this set nor the next are absent.
    pub in_sync: MemberSet,
    /// Being rebuilt: in sync in some regions.
    pub rebuilding: MemberSet,
    /// Without a queue, or unresponsive.
    pub silent: MemberSet,
    /// Have not answered a read for long.
    pub lagging: MemberSet,
    /// Slower than their peers: reads avoid them, except for a probe now and then.
    pub sitting_out: MemberSet,
    /// Have a replacement that is being filled.
    pub paired: MemberSet,
    /// Which writes take a task because of the redo log.
    pub logged: Logged,
    /// Copies may differ somewhere in the array, after a crash.
    pub copies_may_differ: bool,
    /// Most blocks of a small write: what a partial-write record has room for.
    pub write_blocks_max: u32,
}

/// Members by what may be sent to them directly. By default nothing may.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sets {
    /// Reads of their own data.
    readable: MemberSet,
    /// The same, of requests: they may be probes, and are repeated where a member does not answer.
    served: MemberSet,
    /// Reads to recover data of others.
    sources: MemberSet,
    /// Parts of small writes.
    writable: MemberSet,
    /// Whose data have to be recovered.
    hidden: MemberSet,
    /// Of which now and then one read is a probe, which is not decided here.
    probed: MemberSet,
    rebuilding: MemberSet,
    write_blocks_max: u32,
}

impl Sets {
    /// What follows from `facts` everywhere in the array.
    #[must_use]
    pub fn of(geometry: &Geometry, facts: &MemberFacts) -> Self {
        let MemberFacts { in_sync, rebuilding, lagging, sitting_out, .. } = *facts;
        let differ = facts.copies_may_differ && geometry.copies() > 1;
        let served = if differ { MemberSet::EMPTY } else { in_sync - lagging };
        let readable = served - facts.silent - sitting_out;
        // Two devices of a member may change places before a read has completed, and a write has to reach both.
        let plain = in_sync - facts.paired;
        let logged = match facts.logged {
            Logged::With(members) => members,
            Logged::Impaired => geometry.groups_with(geometry.all_members() - plain),
        };
        let absent = geometry.all_members() - in_sync - rebuilding;
        // What is written to an array that has lost data might not be readable.
        let kept = absent.is_empty() || geometry.tolerates(absent);
        let writes = kept && geometry.has_small_writes();
        Self {
            readable,
            served,
            sources: readable & plain,
            writable: if writes { plain - logged } else { MemberSet::EMPTY },
            hidden: absent | lagging | sitting_out,
            probed: sitting_out,
            rebuilding,
            write_blocks_max: facts.write_blocks_max,
        }
    }

    /// Members that answer reads of their own data.
    #[inline]
    #[must_use]
    pub const fn readable(&self) -> MemberSet {
        self.readable
    }

    /// Members that take parts of small writes.
    #[inline]
    #[must_use]
    pub const fn writable(&self) -> MemberSet {
        self.writable
    }

    /// Members of which [`lacking`](Self::lacking) has to be asked for each stripe.
    #[inline]
    #[must_use]
    pub const fn rebuilding(&self) -> MemberSet {
        self.rebuilding
    }

    /// Where blocks of `members` are bad.
    #[inline]
    #[must_use]
    pub fn bad(self, members: MemberSet) -> Self {
        Self {
            readable: self.readable - members,
            sources: self.sources - members,
            writable: self.writable - members,
            ..self
        }
    }

    /// Where `members` lack the stripe, or are not to be read.
    #[inline]
    #[must_use]
    pub fn lacking(self, members: MemberSet) -> Self {
        Self { readable: self.readable - members, hidden: self.hidden | members, ..self }
    }

    /// Where parity, or copies, may not agree with the data, or the shard does not know: members answer for themselves.
    #[inline]
    #[must_use]
    pub fn untrusted(self) -> Self {
        Self { sources: MemberSet::EMPTY, writable: MemberSet::EMPTY, ..self }
    }

    /// For reads that have a request: they may go to members that do not answer, or that sit out if the caller probes
    /// them. Nothing is recovered or written.
    #[inline]
    #[must_use]
    pub fn by_request(self) -> Self {
        Self { readable: self.served, ..self.untrusted() }
    }

    /// For a read that is not to be a probe.
    #[inline]
    #[must_use]
    pub fn without_probes(self) -> Self {
        Self { probed: MemberSet::EMPTY, ..self }
    }
}

/// The members that a small write is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    members: [MemberIndex; PARTS_MAX],
    count: u8,
}

impl Parts {
    /// None.
    pub const NONE: Self = Self { members: [MemberIndex(0); PARTS_MAX], count: 0 };

    #[inline(always)]
    fn new(count: u8, member: impl Fn(u8) -> MemberIndex) -> Self {
        // Beyond the last they are of no account: to compute them costs less than to count.
        Self { members: std::array::from_fn(|part| member(part as u8)), count }
    }

    /// That of its own strip, then the parities'; or those of the copies.
    #[inline]
    #[must_use]
    pub fn members(&self) -> &[MemberIndex] {
        &self.members[..usize::from(self.count)]
    }

    /// How many there are.
    #[inline]
    #[must_use]
    pub const fn count(&self) -> u8 {
        self.count
    }

    /// Where part `part` goes.
    #[inline]
    #[must_use]
    pub const fn member(&self, part: u8) -> MemberIndex {
        self.members[part as usize]
    }
}

/// The direct way of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Single {
    /// One of these members is read. They are never none, and more than one only of copies.
    Read {
        /// The members.
        members: MemberSet,
    },
    /// These strips are read over the columns of the range, and the range is recovered from them.
    Recover {
        /// As many as there are data strips.
        strips: StripSet,
    },
    /// These members are read, the parities updated by what changes, and all of it written.
    Update(Parts),
    /// The data are written to these members.
    Mirror(Parts),
}

impl Geometry {
    /// The range of `bytes` bytes at `at`, if they are whole blocks.
    #[inline]
    #[must_use]
    pub const fn range(&self, at: Lba, bytes: usize) -> Option<LbaRange> {
        let blocks = bytes >> self.block_size().shift();
        if blocks << self.block_size().shift() != bytes {
            return None;
        }
        Some(LbaRange::new(at, blocks as u64))
    }

    /// Where `range` is, if it has blocks and lies in one strip of one band of the array.
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

    /// Whether arrays of this layout have small writes: those of one strip change every parity by the difference, as
    /// cheaply as by encoding, and have at most [`PARTS_MAX`] parts.
    #[must_use]
    pub const fn has_small_writes(&self) -> bool {
        match self.scheme() {
            Scheme::Copies(copies) => copies as usize <= PARTS_MAX,
            // At most as many reads as encoding from the other data strips takes: the rule of `plan`.
            Scheme::Parity(parities) => {
                1 + parities < self.data_strips() && (parities as usize) < PARTS_MAX
            }
        }
    }
}

/// The direct way of a request for the blocks of `spot`; `None` when it takes a task.
#[inline(always)]
#[must_use]
pub fn single(geometry: &Geometry, spot: &Spot, access: Access, sets: &Sets) -> Option<Single> {
    match access {
        Access::Read => read(geometry, spot, sets),
        Access::Write => write(geometry, spot, sets),
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

/// The data strips that can be read, and for each of the others the lowest parity that can.
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
    // Layouts without small writes have no member that takes them, so there is room for the parts.
    if !needed.is_subset(sets.writable) || spot.blocks > sets.write_blocks_max {
        return None;
    }
    Some(match geometry.scheme() {
        Scheme::Copies(copies) => {
            Single::Mirror(Parts::new(copies, |copy| MemberIndex(own.0 + copy)))
        }
        Scheme::Parity(parities) => Single::Update(Parts::new(1 + parities, |part| match part {
            0 => own,
            _ => spot.map.member(spot.map.position_of_parity(part - 1)),
        })),
    })
}
