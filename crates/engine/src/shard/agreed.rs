//! Strips of bands whose copies are known to be consistent while their region is not trusted.
//!
//! A region is trusted as a whole when its resync has finished. Until then, this table records its consistent strips:
//! strips that the resync has processed, strips whose copies a read made consistent before it returned one, and strips
//! of a band that a write covered completely. A strip in the table needs no further comparison. The table has a fixed
//! size. A strip that was evicted is compared once more, which is harmless.

use std::ops::Range;

use strake_raid::{Band, Geometry, Segment};

/// Entries of the table, which needs 256 KiB. The entries cover 128 GiB of a mirror that is read sequentially, in bands
/// of 128 KiB.
const PLACES: usize = 16 * 1024;

/// Number of adjacent entries in which a group of strips may be.
const NEAR: usize = 8;

/// Strips in a group, which are the bits of a mask.
const GROUP: u64 = 64;

/// A group of consecutive strips of the array. An empty entry has none.
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
    /// Creates a table that records nothing, for an array whose copies are consistent, or without copies.
    pub(crate) fn none() -> Self {
        Self { places: Box::default() }
    }

    /// Creates an empty table.
    pub(crate) fn new() -> Self {
        Self { places: vec![Place::default(); PLACES].into() }
    }

    /// Records that the copies of `strips` of a band are consistent.
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

    /// Returns the part of `strip` in the band, if its entry would evict no other group. Without this condition, random
    /// reads of an array that is larger than the table would each copy a whole part.
    pub(crate) fn part(&self, geometry: &Geometry, band: Band, strip: u8) -> Option<Segment> {
        let (group, _) = number(geometry, band, strip);
        let free = |place: &Place| place.strips == 0 || place.group == group;
        let has_place = self.places.get(near(group)).is_some_and(|near| near.iter().any(free));
        let (offset, blocks) = (geometry.band_offset(band), geometry.band_blocks());
        let lba = geometry.lba(strake_raid::Place { stripe: band.stripe, strip, offset });
        has_place.then_some(Segment { strip, offset, blocks, lba })
    }

    /// True if the copies of `strip` of the band are recorded as consistent.
    pub(crate) fn contains(&self, geometry: &Geometry, band: Band, strip: u8) -> bool {
        let (group, bit) = number(geometry, band, strip);
        let noted = |place: &Place| place.group == group && place.strips & bit != 0;
        self.places.get(near(group)).is_some_and(|near| near.iter().any(noted))
    }

    /// True if the copies of every strip of the band are recorded as consistent.
    pub(crate) fn contains_all(&self, geometry: &Geometry, band: Band) -> bool {
        (0..geometry.data_strips()).all(|strip| self.contains(geometry, band, strip))
    }
}

/// Returns the entries in which a group may be.
fn near(group: u64) -> Range<usize> {
    // Fibonacci hashing (Knuth, TAOCP vol. 3, 6.4): it distributes consecutive groups widely.
    let hash = group.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let first = hash as usize % (PLACES - NEAR + 1);
    first..first + NEAR
}

/// Returns the group of a strip of a band, and the bit of the strip.
fn number(geometry: &Geometry, band: Band, strip: u8) -> (u64, u64) {
    let band = band.stripe.0 * u64::from(geometry.bands_per_stripe()) + u64::from(band.index);
    let number = band * u64::from(geometry.data_strips()) + u64::from(strip);
    (number / GROUP, 1 << (number % GROUP))
}

#[cfg(test)]
mod tests;
