//! The placement of an array's bytes on its members, written only from docs/on-disk.md ("Layout of data"): tests of the
//! engine use no geometry from the code under test.

use strake_raid::Level;
use strake_units::MemberSet;

/// Bytes before a member's data (docs/on-disk.md, "Places").
const BEFORE_DATA: u64 = 16 << 20;

/// Bytes behind the data, up to the end of the device rounded down to [`PAGE_OF_END`].
const BEHIND_DATA: u64 = 4 << 20;

/// The end of a device is rounded down to a multiple of this.
const PAGE_OF_END: u64 = 4096;

/// The parameters of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The level.
    pub level: Level,
    /// Members of all groups.
    pub members: usize,
    /// Members of one group, for RAID 50, 60 and 70.
    pub group_size: Option<u8>,
    /// Bytes of a strip.
    pub strip_bytes: u32,
    /// Bytes of the smallest drive.
    pub drive_bytes: u64,
}

/// The mapping between array addresses and members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    groups: u64,
    /// Members of a group.
    width: u64,
    /// Data strips of a stripe.
    data: u64,
    /// Parity strips of a stripe.
    parities: u64,
    /// The number of copies of a data strip.
    copies: u64,
    strip_bytes: u64,
    rows: u64,
}

/// The position of a byte: the stripe, the strip, and the offset in the strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Stripe, from 0.
    pub stripe: u64,
    /// Data strip, from 0.
    pub strip: u64,
    /// Offset in the strip in bytes.
    pub at: u64,
}

impl Placement {
    /// The placement of an array with these parameters.
    #[must_use]
    pub fn of(asked: &Asked) -> Self {
        let members = asked.members as u64;
        let (copies, parities) = match asked.level {
            Level::Raid0 => (1, 0),
            Level::Raid1 => (members, 0),
            Level::Raid10 => (2, 0),
            Level::Raid5 | Level::Raid50 => (1, 1),
            Level::Raid6 | Level::Raid60 => (1, 2),
            Level::Raid73 | Level::Raid70 => (1, 3),
            Level::Parity(parities) => (1, u64::from(parities)),
        };
        let width = asked.group_size.map_or(members, u64::from);
        let strip_bytes = u64::from(asked.strip_bytes);
        let end = asked.drive_bytes / PAGE_OF_END * PAGE_OF_END;
        Self {
            groups: members / width,
            width,
            data: (width - parities) / copies,
            parities,
            copies,
            strip_bytes,
            rows: end.saturating_sub(BEFORE_DATA + BEHIND_DATA) / strip_bytes,
        }
    }

    /// Data strips of a stripe.
    #[must_use]
    pub const fn data(&self) -> u64 {
        self.data
    }

    /// Parity strips of a stripe.
    #[must_use]
    pub const fn parities(&self) -> u64 {
        self.parities
    }

    /// The number of copies of a data strip.
    #[must_use]
    pub const fn copies(&self) -> u64 {
        self.copies
    }

    /// Bytes of a strip.
    #[must_use]
    pub const fn strip_bytes(&self) -> u64 {
        self.strip_bytes
    }

    /// Stripes of the array.
    #[must_use]
    pub const fn stripes(&self) -> u64 {
        self.rows * self.groups
    }

    /// Capacity of the array in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.stripes() * self.data * self.strip_bytes
    }

    /// The member that holds a copy of a data strip, or, from [`Placement::data`] on, a parity strip.
    #[must_use]
    pub const fn member(&self, stripe: u64, strip: u64, copy: u64) -> usize {
        let (group, row) = (stripe % self.groups, stripe / self.groups);
        let position = if self.parities == 0 {
            strip * self.copies + copy
        } else {
            // Parity 0 moves one position to the left with every row; the other parity strips and the data strips
            // follow it to the right.
            let first = self.width - 1 - row % self.width;
            let behind = if strip < self.data { self.parities + strip } else { strip - self.data };
            (first + behind) % self.width
        };
        (group * self.width + position) as usize
    }

    /// True if the array tolerates the absence of the members in `absent`.
    #[must_use]
    pub fn tolerates(&self, absent: MemberSet) -> bool {
        if self.parities > 0 {
            return self.each_group().all(|group| (absent & group).len() as u64 <= self.parities);
        }
        let copies = |strip: u64| (0..self.copies).map(move |copy| strip * self.copies + copy);
        (0..self.data).all(|strip| copies(strip).any(|member| !absent.contains(member as usize)))
    }

    /// All members of the groups that contain a member of `some`.
    #[must_use]
    pub fn groups_with(&self, some: MemberSet) -> MemberSet {
        self.each_group().filter(|group| group.intersects(some)).flat_map(MemberSet::iter).collect()
    }

    /// The members of each group.
    fn each_group(&self) -> impl Iterator<Item = MemberSet> {
        let members = |group: u64| group * self.width..(group + 1) * self.width;
        (0..self.groups).map(move |group| members(group).map(|member| member as usize).collect())
    }

    /// The byte offset of a stripe's strips on its members.
    #[must_use]
    pub const fn offset(&self, stripe: u64) -> u64 {
        BEFORE_DATA + stripe / self.groups * self.strip_bytes
    }

    /// The array address of a position.
    #[must_use]
    pub const fn address(&self, spot: Spot) -> u64 {
        (spot.stripe * self.data + spot.strip) * self.strip_bytes + spot.at
    }

    /// The position of an array address.
    #[must_use]
    pub const fn spot(&self, address: u64) -> Spot {
        let strip = address / self.strip_bytes;
        Spot { stripe: strip / self.data, strip: strip % self.data, at: address % self.strip_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Placement, Spot};
    use strake_raid::Level;

    const DRIVE: u64 = 21 << 20;

    fn placement(level: Level, members: usize, group_size: Option<u8>) -> Placement {
        let drive_bytes = DRIVE + 4095;
        Placement::of(&Asked { level, members, group_size, strip_bytes: 65536, drive_bytes })
    }

    /// The table of docs/on-disk.md: data strips by stripe and member, 255 for parity strips.
    fn check(placement: &Placement, table: &[&[u64]]) {
        for (stripe, row) in (0..).zip(table) {
            for (member, number) in row.iter().enumerate().filter(|(_, number)| **number != 255) {
                let spot = placement.spot(number * 65536 + 5);
                assert_eq!((spot.stripe, spot.at), (stripe, 5), "strip {number}");
                assert_eq!(placement.member(stripe, spot.strip, 0), member, "strip {number}");
                assert_eq!(placement.address(spot), number * 65536 + 5);
            }
        }
    }

    #[test]
    fn strips_lie_where_the_published_tables_say() {
        let p = 255;
        let raid5 = placement(Level::Raid5, 4, None);
        check(&raid5, &[&[0, 1, 2, p], &[4, 5, p, 3], &[8, p, 6, 7], &[p, 9, 10, 11]]);
        let raid6 = placement(Level::Raid6, 4, None);
        check(&raid6, &[&[p, 0, 1, p], &[2, 3, p, p], &[5, p, p, 4], &[p, p, 6, 7]]);
        let raid50 = placement(Level::Raid50, 6, Some(3));
        check(&raid50, &[&[0, 1, p], &[p, p, p, 2, 3, p], &[5, p, 4], &[p, p, p, 7, p, 6]]);
        let raid10 = placement(Level::Raid10, 4, None);
        check(&raid10, &[&[0, p, 1, p], &[2, p, 3, p]]);
        assert_eq!((raid10.member(0, 0, 1), raid10.member(0, 1, 1)), (1, 3));
        assert_eq!((raid6.member(0, 2, 0), raid6.member(0, 3, 0)), (3, 0));
    }

    #[test]
    fn rows_and_offsets_follow_from_the_smallest_drive() {
        let raid50 = placement(Level::Raid50, 6, Some(3));
        assert_eq!((raid50.stripes(), raid50.bytes()), (32, 64 * 65536));
        assert_eq!(
            (raid50.offset(0), raid50.offset(1), raid50.offset(2)),
            (16 << 20, 16 << 20, (16 << 20) + 65536)
        );
        assert_eq!(raid50.address(Spot { stripe: 1, strip: 1, at: 0 }), 3 * 65536);
    }
}
