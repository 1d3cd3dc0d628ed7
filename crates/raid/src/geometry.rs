//! The geometry of an array: the only mapping between array addresses and members.
//!
//! Layout 1, the only one (recorded in labels as [`LAYOUT_ID`](crate::LAYOUT_ID)):
//!
//! ```text
//! stripe s belongs to group s % groups and is that group's row s / groups;
//! member = group * width + position; address on the member = row * strip + offset.
//!
//! Parity(m), width w, k = w - m data strips: parity 0 of row r is at p = w-1 - r % w, parity j at
//! (p + j) % w, data d at (p + m + d) % w. RAID 5 of four members (P parity, numbers are strips of data):
//!
//!            position 0   1   2   3
//!     row 0           0   1   2   P
//!     row 1           4   5   P   3
//!     row 2           8   P   6   7
//!     row 3           P   9  10  11
//!
//! Copies(c), k = members / c data strips: copy j of data d is at position d * c + j, in every row.
//! ```
//!
//! The parity rows are Linux md's left-symmetric layout: `ALGORITHM_LEFT_SYMMETRIC` (2) in
//! `drivers/md/raid5.h`, computed in `raid5_compute_sector` of `drivers/md/raid5.c`, where RAID 6 puts Q
//! right after P. Arrays of three and more parities continue the same way.

use std::ops::BitOr;

use strake_units::{BlockSize, Lba, MemberIndex, MemberSet, PositionSet, StripSet, StripeIndex};

use crate::divisor::Divisor;
use crate::error::GeometryError;
use crate::level::{Level, LevelRequest, Scheme};
use crate::shape::Shape;
use crate::stripe_map::{StripeMap, group_of, low_bits};
use crate::{BAND_BYTES_MAX, STRIP_BYTES_MAX, STRIP_BYTES_MIN};

/// The specification of a geometry, which [`Geometry::new`] checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeometrySpec {
    /// The level.
    pub level: Level,
    /// Members, all groups together.
    pub members: usize,
    /// Members in one group; only for RAID 50, 60, 70.
    pub group_size: Option<u8>,
    /// Bytes of one strip.
    pub strip_bytes: u32,
    /// Block size of the array and of every member.
    pub block_size: BlockSize,
    /// Data area of the smallest member, in blocks.
    pub member_blocks: u64,
}

/// A validated layout. The type is small and `Copy`, so every core has its own copy.
///
/// Methods that take a stripe, strip, position or address require an existing one. For others, which are bugs of the
/// caller, the result is undefined or the method panics, but memory access is always safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    level: Level,
    block_size: BlockSize,
    /// Positions in one group.
    width: u8,
    groups: u8,
    data_strips: u8,
    parity_strips: u8,
    copies: u8,
    strip_shift: u8,
    band_shift: u8,
    rows: u64,
    capacity_blocks: u64,
    by_data_strips: Divisor,
    by_width: Divisor,
    by_groups: Divisor,
}

/// The location of an array block within its stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The stripe.
    pub stripe: StripeIndex,
    /// The data strip, 0..k.
    pub strip: u8,
    /// Blocks from the start of the strip.
    pub offset: u32,
}

/// Returns the valid strip size nearest to `bytes`: a power of two from [`STRIP_BYTES_MIN`] to [`STRIP_BYTES_MAX`]. Of
/// two equally near sizes, the smaller one.
#[must_use]
pub fn nearest_strip_bytes(bytes: u32) -> u32 {
    let bytes = bytes.clamp(STRIP_BYTES_MIN, STRIP_BYTES_MAX);
    let above = bytes.next_power_of_two();
    let below = if above == bytes { bytes } else { above / 2 };
    if bytes - below <= above - bytes { below } else { above }
}

/// The role of a position in a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A data strip, or one copy of it.
    Data {
        /// The data strip, 0..k.
        strip: u8,
        /// Index of the copy; 0 for parity schemes.
        copy: u8,
    },
    /// A parity strip.
    Parity {
        /// Index of the parity: 0 is P, 1 is Q.
        index: u8,
    },
}

impl Geometry {
    /// Checks `spec` and computes the layout.
    ///
    /// # Errors
    /// Any [`GeometryError`]; the first that applies, in the order level, groups, strip, member size.
    pub fn new(spec: &GeometrySpec) -> Result<Self, GeometryError> {
        let shape = Shape::new(spec)?;
        let strip_bytes = spec.strip_bytes;
        if nearest_strip_bytes(strip_bytes) != strip_bytes {
            return Err(GeometryError::StripSize { strip_bytes });
        }
        let block_shift = spec.block_size.shift();
        let strip_shift = strip_bytes.trailing_zeros() - block_shift;
        let band_shift = strip_bytes.min(BAND_BYTES_MAX).trailing_zeros() - block_shift;
        let rows = spec.member_blocks >> strip_shift;
        let member_blocks = spec.member_blocks;
        if rows == 0 {
            let strip_blocks = 1 << strip_shift;
            return Err(GeometryError::MemberTooSmall { member_blocks, strip_blocks });
        }
        let raw_bytes =
            (u128::from(rows) << (strip_shift + block_shift)) * spec.members.min(64) as u128;
        if raw_bytes > i64::MAX as u128 {
            return Err(GeometryError::TooLarge { member_blocks });
        }
        let data_strips = (shape.width - shape.parity) / shape.copies;
        Ok(Self {
            level: spec.level,
            block_size: spec.block_size,
            width: shape.width,
            groups: shape.groups,
            data_strips,
            parity_strips: shape.parity,
            copies: shape.copies,
            strip_shift: strip_shift as u8,
            band_shift: band_shift as u8,
            rows,
            capacity_blocks: (rows * u64::from(shape.groups) * u64::from(data_strips))
                << strip_shift,
            by_data_strips: Divisor::new(data_strips),
            by_width: Divisor::new(shape.width),
            by_groups: Divisor::new(shape.groups),
        })
    }

    /// Returns the same layout on members with `member_blocks` blocks of data. Every block that exists in both layouts
    /// has the same location, because the size of a member determines only the number of rows.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new) about the size of members.
    pub fn resized(&self, member_blocks: u64) -> Result<Self, GeometryError> {
        Self::new(&GeometrySpec {
            level: self.level,
            members: self.members(),
            group_size: self.level.is_grouped().then_some(self.width),
            strip_bytes: self.strip_bytes(),
            block_size: self.block_size,
            member_blocks,
        })
    }

    /// Checks that the N of a request such as `8+4` matches the members.
    ///
    /// # Errors
    /// [`GeometryError::DataStripsMismatch`] if it does not match.
    pub fn check_request(&self, request: &LevelRequest) -> Result<(), GeometryError> {
        match request.data_strips {
            Some(wanted) if wanted != self.data_strips => Err(GeometryError::DataStripsMismatch {
                wanted,
                data_strips: self.data_strips,
                parity_strips: self.parity_strips,
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// The level.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// The scheme of each group.
    #[inline]
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        if self.parity_strips == 0 {
            Scheme::Copies(self.copies)
        } else {
            Scheme::Parity(self.parity_strips)
        }
    }

    /// Members, all groups together.
    #[must_use]
    pub const fn members(&self) -> usize {
        self.width as usize * self.groups as usize
    }

    /// Groups.
    #[must_use]
    pub const fn groups(&self) -> usize {
        self.groups as usize
    }

    /// Members in one group, which is the number of positions of a stripe.
    #[must_use]
    pub const fn width(&self) -> u8 {
        self.width
    }

    /// Data strips per stripe (k); copies count once.
    #[must_use]
    pub const fn data_strips(&self) -> u8 {
        self.data_strips
    }

    /// Parity strips per stripe (m).
    #[must_use]
    pub const fn parity_strips(&self) -> u8 {
        self.parity_strips
    }

    /// Number of copies of each data strip; 1 for parity schemes.
    #[must_use]
    pub const fn copies(&self) -> u8 {
        self.copies
    }

    /// Block size of the array and its members.
    #[must_use]
    pub const fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// Blocks of one strip.
    #[inline]
    #[must_use]
    pub const fn strip_blocks(&self) -> u32 {
        1 << self.strip_shift
    }

    /// Bytes of one strip.
    #[must_use]
    pub const fn strip_bytes(&self) -> u32 {
        self.strip_blocks() << self.block_size.shift()
    }

    /// Blocks of one strip within one band: the strip, but at most [`BAND_BYTES_MAX`].
    #[must_use]
    pub const fn band_blocks(&self) -> u32 {
        1 << self.band_shift
    }

    /// Bands of one stripe.
    #[must_use]
    pub const fn bands_per_stripe(&self) -> u16 {
        1 << (self.strip_shift - self.band_shift)
    }

    /// Array blocks in one stripe.
    #[must_use]
    pub const fn stripe_data_blocks(&self) -> u64 {
        (self.data_strips as u64) << self.strip_shift
    }

    /// Stripes of the whole array.
    #[must_use]
    pub const fn stripes(&self) -> u64 {
        self.rows * self.groups as u64
    }

    /// Blocks that the array offers.
    #[inline]
    #[must_use]
    pub const fn capacity_blocks(&self) -> u64 {
        self.capacity_blocks
    }

    /// Blocks used of each member's data area: its whole strips.
    #[must_use]
    pub const fn member_blocks_used(&self) -> u64 {
        self.rows << self.strip_shift
    }

    /// Returns the location of array block `lba`.
    #[inline]
    #[must_use]
    pub const fn place(&self, lba: Lba) -> Place {
        let strips = lba.0 >> self.strip_shift;
        let (stripe, strip) = self.by_data_strips.divide(strips);
        Place {
            stripe: StripeIndex(stripe),
            strip: strip as u8,
            offset: (lba.0 & (self.strip_blocks() as u64 - 1)) as u32,
        }
    }

    /// Returns the array address of `place`; the inverse of [`Geometry::place`].
    #[must_use]
    pub const fn lba(&self, place: Place) -> Lba {
        let strips = place.stripe.0 * self.data_strips as u64 + place.strip as u64;
        Lba((strips << self.strip_shift) + place.offset as u64)
    }

    /// The row of `stripe` within its group.
    #[inline]
    #[must_use]
    pub const fn row(&self, stripe: StripeIndex) -> u64 {
        self.by_groups.divide(stripe.0).0
    }

    /// The group that `stripe` belongs to.
    #[inline]
    #[must_use]
    pub const fn group(&self, stripe: StripeIndex) -> usize {
        self.by_groups.divide(stripe.0).1 as usize
    }

    /// Returns the role of `position` in `stripe`.
    #[must_use]
    pub const fn role(&self, stripe: StripeIndex, position: u8) -> Role {
        if self.parity_strips == 0 {
            return Role::Data { strip: position / self.copies, copy: position % self.copies };
        }
        let first = self.first_parity(stripe);
        let after =
            if position >= first { position - first } else { position + self.width - first };
        if after < self.parity_strips {
            Role::Parity { index: after }
        } else {
            Role::Data { strip: after - self.parity_strips, copy: 0 }
        }
    }

    /// Returns the position with `role` in `stripe`; the inverse of [`Geometry::role`].
    #[inline]
    #[must_use]
    pub const fn position(&self, stripe: StripeIndex, role: Role) -> u8 {
        match role {
            Role::Data { strip, copy } if self.parity_strips == 0 => strip * self.copies + copy,
            Role::Data { strip, copy: _ } => {
                self.after_first_parity(stripe, self.parity_strips + strip)
            }
            Role::Parity { index } => self.after_first_parity(stripe, index),
        }
    }

    /// Returns the member at `position` of `stripe`.
    #[inline]
    #[must_use]
    pub const fn member(&self, stripe: StripeIndex, position: u8) -> MemberIndex {
        MemberIndex(self.group(stripe) as u8 * self.width + position)
    }

    /// Returns the member that has (a copy of) the strip of `place`.
    #[inline]
    #[must_use]
    pub const fn data_member(&self, place: Place, copy: u8) -> MemberIndex {
        let role = Role::Data { strip: place.strip, copy };
        self.member(place.stripe, self.position(place.stripe, role))
    }

    /// Returns the position of `member` in `stripe`, or `None` if the stripe belongs to another group.
    #[must_use]
    pub const fn position_of_member(&self, stripe: StripeIndex, member: MemberIndex) -> Option<u8> {
        if member.0 as usize / self.width as usize == self.group(stripe) {
            Some(member.0 % self.width)
        } else {
            None
        }
    }

    /// The address of block `offset` of every strip of `stripe`, in the data area of its member.
    #[inline]
    #[must_use]
    pub const fn member_lba(&self, stripe: StripeIndex, offset: u32) -> Lba {
        Lba((self.row(stripe) << self.strip_shift) + offset as u64)
    }

    /// Returns the array block of which block `at` of the data area of `member` is (a copy of) the data; `None` for
    /// parity, and for blocks that the array does not use.
    #[must_use]
    pub const fn data_at(&self, member: MemberIndex, at: Lba) -> Option<Lba> {
        let (row, group) = (at.0 >> self.strip_shift, member.0 / self.width);
        if row >= self.rows || group as usize >= self.groups() {
            return None;
        }
        let stripe = StripeIndex(row * self.groups as u64 + group as u64);
        match self.role(stripe, member.0 % self.width) {
            Role::Data { strip, copy: _ } => {
                let offset = (at.0 & (self.strip_blocks() as u64 - 1)) as u32;
                Some(self.lba(Place { stripe, strip, offset }))
            }
            Role::Parity { index: _ } => None,
        }
    }

    /// True if every block is readable without the members in `absent`.
    #[must_use]
    pub fn tolerates(&self, absent: MemberSet) -> bool {
        self.redundancy(absent).is_some()
    }

    /// Returns the minimum number of members in `returning` that must return, with the best choice, before every block
    /// is readable without the other members in `absent`; `None` if even all of them do not suffice.
    #[must_use]
    pub fn needed(&self, absent: MemberSet, returning: MemberSet) -> Option<usize> {
        let mut without = absent - returning;
        if !self.tolerates(without) {
            return None;
        }
        // Members lose data only together with others of their unit, and each unit tolerates the same number of absent
        // members. Therefore a member that can stay absent in addition to the members chosen before can do so in some
        // best choice.
        for member in absent & returning {
            if self.tolerates(without.with(member)) {
                without.insert(member);
            }
        }
        Some((absent - without).len())
    }

    /// Returns the number of any further members that may fail without the members in `absent`; `None` if data are
    /// already lost.
    #[must_use]
    pub fn redundancy(&self, absent: MemberSet) -> Option<u8> {
        // A unit is a set of members that lose data together: the copies of one strip, or one group.
        let (unit_width, spare) = match self.scheme() {
            Scheme::Copies(copies) => (copies, copies - 1),
            Scheme::Parity(parity) => (self.width, parity),
        };
        let units = self.members() / unit_width as usize;
        let worst = (0..units)
            .map(|unit| group_of(absent, unit as u32 * u32::from(unit_width), unit_width))
            .map(|gone| gone.len() as u8)
            .max()
            .unwrap_or(0);
        spare.checked_sub(worst)
    }

    /// Returns the positions of `members` in `stripe`.
    #[must_use]
    pub const fn positions_of_members(
        &self,
        stripe: StripeIndex,
        members: MemberSet,
    ) -> PositionSet {
        group_of(members, self.group(stripe) as u32 * self.width as u32, self.width)
    }

    /// The members of the array.
    #[inline]
    #[must_use]
    pub const fn all_members(&self) -> MemberSet {
        MemberSet::first_n(self.members())
    }

    /// The positions of a stripe.
    #[inline]
    #[must_use]
    pub const fn all_positions(&self) -> PositionSet {
        PositionSet::first_n(self.width as usize)
    }

    /// The strips of a stripe, data and parity. Only for parity schemes.
    #[inline]
    #[must_use]
    pub const fn all_strips(&self) -> StripSet {
        StripSet::first_n(self.width as usize)
    }

    /// The data strips of a stripe.
    #[inline]
    #[must_use]
    pub const fn all_data_strips(&self) -> StripSet {
        StripSet::first_n(self.data_strips as usize)
    }

    /// The positions of the copies of data strip `strip`. Only for copies, whose positions are equal in every stripe.
    #[inline]
    #[must_use]
    pub const fn positions_of_copies(&self, strip: u8) -> PositionSet {
        PositionSet::from_bits(low_bits(self.copies) << (strip * self.copies))
    }

    /// The members of the groups that have a member in `some`.
    #[must_use]
    pub fn groups_with(&self, some: MemberSet) -> MemberSet {
        let group = |at: usize| low_bits(self.width) << (at * usize::from(self.width));
        let groups = (0..self.groups()).map(group).map(MemberSet::from_bits);
        groups.filter(|members| members.intersects(some)).fold(MemberSet::EMPTY, BitOr::bitor)
    }

    /// The position of parity 0 in `stripe`.
    #[inline]
    const fn first_parity(&self, stripe: StripeIndex) -> u8 {
        self.width - 1 - self.by_width.divide(self.row(stripe)).1 as u8
    }

    /// The position `count` places after parity 0, around the end of the group.
    #[inline]
    const fn after_first_parity(&self, stripe: StripeIndex, count: u8) -> u8 {
        let position = self.first_parity(stripe) + count;
        if position >= self.width { position - self.width } else { position }
    }

    /// The strips at `positions` of `stripe`. Only for parity schemes, where the two are one to one.
    #[must_use]
    pub const fn strips_of_positions(
        &self,
        stripe: StripeIndex,
        positions: PositionSet,
    ) -> StripSet {
        self.stripe_map(stripe).strips_of_positions(positions)
    }

    /// Returns the location of the strips of `stripe`. Only for parity schemes.
    #[inline(always)]
    #[must_use]
    pub const fn stripe_map(&self, stripe: StripeIndex) -> StripeMap {
        let (row, group) = self.by_groups.divide(stripe.0);
        StripeMap {
            width: self.width,
            parity_strips: self.parity_strips,
            data_strips: self.data_strips,
            first_parity: self.width - 1 - self.by_width.divide(row).1 as u8,
            first_member: group as u8 * self.width,
            start: Lba(row << self.strip_shift),
        }
    }

    /// The position of strip number `strip` of a plan: data 0..k, parity k..k+m. For copies, the result is the first of
    /// their positions.
    #[must_use]
    pub const fn position_of_strip(&self, stripe: StripeIndex, strip: u8) -> u8 {
        if self.parity_strips == 0 {
            return strip * self.copies;
        }
        let count = if strip < self.data_strips {
            strip + self.parity_strips
        } else {
            strip - self.data_strips
        };
        self.after_first_parity(stripe, count)
    }
}
