//! Strips of bands whose copies were made to agree while their region is not trusted.
//!
//! A region is trusted as a whole, when its resync is through. Until then this table remembers what was done of it: by
//! the resync, by reads, which make copies agree before they return one, and by writes of a whole strip of a band. A
//! strip that is on the table needs no comparison again. The table has a fixed size. A strip that was displaced from
//! it is compared once more, which does no harm.

use std::ops::Range;

use strake_raid::{Band, Geometry, Segment};

/// Places of the table: 256 KiB. They hold 128 GiB of a mirror that is read in order, in bands of 128 KiB.
const PLACES: usize = 16 * 1024;

/// Places in a row in which a group of strips may be.
const NEAR: usize = 8;

/// Strips of a group: bits of a mask.
const GROUP: u64 = 64;

/// Strips that follow each other in the order of the array. An empty place has none.
#[derive(Clone, Copy, Default)]
struct Place {
    group: u64,
    strips: u64,
}

/// A hash table of groups without chains.
pub(crate) struct AgreedStrips {
    places: Box<[Place]>,
}

impl AgreedStrips {
    /// A table that remembers nothing: of an array whose copies agree, or that has none.
    pub(crate) fn none() -> Self {
        Self { places: Box::default() }
    }

    /// An empty table.
    pub(crate) fn new() -> Self {
        Self { places: vec![Place::default(); PLACES].into() }
    }

    /// The copies of `strips` of a band agree.
    pub(crate) fn note(&mut self, geometry: &Geometry, band: Band, strips: Range<u8>) {
        if self.places.is_empty() {
            return;
        }
        for strip in strips {
            let (group, bit) = number(geometry, band, strip);
            let near = &mut self.places[near(group)];
            let found = near.iter().position(|place| place.strips == 0 || place.group == group);
            let place = &mut near[found.unwrap_or(0)];
            if place.group != group {
                *place = Place { group, strips: 0 };
            }
            place.strips |= bit;
        }
    }

    /// The band's part of `strip`, if a note of it would displace no other group. Otherwise reads all over an array
    /// that is larger than the table would copy a whole part each.
    pub(crate) fn part(&self, geometry: &Geometry, band: Band, strip: u8) -> Option<Segment> {
        let (group, _) = number(geometry, band, strip);
        let free = |place: &Place| place.strips == 0 || place.group == group;
        let has_place = self.places.get(near(group)).is_some_and(|near| near.iter().any(free));
        let (offset, blocks) = (geometry.band_offset(band), geometry.band_blocks());
        let lba = geometry.lba(strake_raid::Place { stripe: band.stripe, strip, offset });
        has_place.then_some(Segment { strip, offset, blocks, lba })
    }

    /// True when the copies of `strip` of the band were noted to agree.
    pub(crate) fn contains(&self, geometry: &Geometry, band: Band, strip: u8) -> bool {
        let (group, bit) = number(geometry, band, strip);
        let noted = |place: &Place| place.group == group && place.strips & bit != 0;
        self.places.get(near(group)).is_some_and(|near| near.iter().any(noted))
    }

    /// The same of every strip of the band.
    pub(crate) fn contains_all(&self, geometry: &Geometry, band: Band) -> bool {
        (0..geometry.data_strips()).all(|strip| self.contains(geometry, band, strip))
    }
}

/// The places in which a group may be.
fn near(group: u64) -> Range<usize> {
    // Fibonacci hashing (Knuth, TAOCP vol. 3, 6.4): groups in a row fall far apart.
    let hash = group.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let first = hash as usize % (PLACES - NEAR + 1);
    first..first + NEAR
}

/// The group of a strip of a band, and its bit there.
fn number(geometry: &Geometry, band: Band, strip: u8) -> (u64, u64) {
    let band = band.stripe.0 * u64::from(geometry.bands_per_stripe()) + u64::from(band.index);
    let number = band * u64::from(geometry.data_strips()) + u64::from(strip);
    (number / GROUP, 1 << (number % GROUP))
}

#[cfg(test)]
mod tests;
