//! Tests of the crate. Small cases are enumerated: the tests run plans on real bytes with [`interpret`], and compare
//! the result with the content of the array according to the simple [`oracle`].

mod errors;
mod exhaustive;
mod gf;
mod interpret;
mod layout;
mod levels;
mod oracle;
mod ranges;
mod regions;
mod single;
mod states;
mod strategies;
mod whole;
mod wide;

use strake_units::{BlockSize, Set};

use crate::{Geometry, GeometrySpec, Level};

/// Returns a geometry of `members` in one group, or in groups of `group_size`, with strips of `strip_blocks` blocks of
/// 4 KiB and `rows` stripes.
fn geometry(
    level: Level,
    members: usize,
    group_size: Option<u8>,
    strip_blocks: u32,
    rows: u64,
) -> Geometry {
    Geometry::new(&GeometrySpec {
        level,
        members,
        group_size,
        strip_bytes: strip_blocks * 4096,
        block_size: BlockSize::B4096,
        member_blocks: rows * u64::from(strip_blocks),
    })
    .unwrap_or_else(|error| panic!("{error}"))
}

/// Returns every set of indices below `count`.
fn every_set<K>(count: u8) -> impl Iterator<Item = Set<K>> {
    (0..1 << count).map(Set::from_bits)
}

/// Level, members, group size: every kind of array with at most 6 members, and the grouped levels small.
const SMALL: [(Level, usize, Option<u8>); 25] = [
    (Level::Raid0, 1, None),
    (Level::Raid0, 2, None),
    (Level::Raid0, 3, None),
    (Level::Raid0, 4, None),
    (Level::Raid0, 5, None),
    (Level::Raid1, 2, None),
    (Level::Raid1, 3, None),
    (Level::Raid1, 4, None),
    (Level::Raid1, 5, None),
    (Level::Raid1, 6, None),
    (Level::Raid10, 4, None),
    (Level::Raid10, 6, None),
    (Level::Raid5, 3, None),
    (Level::Raid5, 4, None),
    (Level::Raid5, 5, None),
    (Level::Raid5, 6, None),
    (Level::Raid6, 4, None),
    (Level::Raid6, 5, None),
    (Level::Raid6, 6, None),
    (Level::Raid73, 5, None),
    (Level::Raid73, 6, None),
    (Level::Parity(4), 6, None),
    (Level::Raid50, 6, Some(3)),
    (Level::Raid60, 8, Some(4)),
    (Level::Raid70, 10, Some(5)),
];
