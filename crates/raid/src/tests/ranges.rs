//! Tests that the pieces, bands and segments of a range contain every block exactly once.

use std::collections::BTreeSet;

use strake_units::{BlockSize, Lba, LbaRange};

use super::{SMALL, geometry};
use crate::{Band, Geometry, GeometrySpec, Level, Piece, Segment};

/// Checks all properties of the pieces, bands and segments of one range.
fn check(geometry: &Geometry, range: LbaRange) {
    let mut next = range.start;
    for Piece { band, segment } in geometry.pieces(range) {
        assert_eq!(segment.lba, next, "{geometry:?} {range:?}");
        check_segment(geometry, band, &segment);
        next = next.plus(segment.blocks.into());
    }
    assert_eq!(next, range.end());

    let bands: Vec<Band> = geometry.bands(range).collect();
    let touched: BTreeSet<Band> = geometry.pieces(range).map(|piece| piece.band).collect();
    assert_eq!(bands, touched.into_iter().collect::<Vec<_>>(), "{geometry:?} {range:?}");

    let from_bands: BTreeSet<(u64, Band, u8, u32)> = bands
        .iter()
        .flat_map(|band| geometry.segments(*band, range).to_vec().into_iter().map(|s| (*band, s)))
        .map(|(band, s)| (s.lba.0, band, s.strip, s.blocks))
        .collect();
    let from_pieces: BTreeSet<(u64, Band, u8, u32)> = geometry
        .pieces(range)
        .map(|p| (p.segment.lba.0, p.band, p.segment.strip, p.segment.blocks))
        .collect();
    assert_eq!(from_bands, from_pieces, "{geometry:?} {range:?}");
    for band in bands {
        let segments = geometry.segments(band, range);
        segments.iter().for_each(|segment| check_segment(geometry, band, segment));
        assert!(segments.windows(2).all(|pair| pair[0].strip < pair[1].strip));
    }
}

/// Checks that a segment is at its address and inside its band.
fn check_segment(geometry: &Geometry, band: Band, segment: &Segment) {
    let place = geometry.place(segment.lba);
    assert_eq!(
        (place.stripe, place.strip, place.offset),
        (band.stripe, segment.strip, segment.offset)
    );
    assert_eq!(geometry.band_of(place), band);
    let top = geometry.band_offset(band);
    assert!(segment.blocks > 0 && segment.offset >= top);
    assert!(segment.offset + segment.blocks <= top + geometry.band_blocks());
}

#[test]
fn every_range_of_small_arrays() {
    for (level, members, group_size) in SMALL {
        let geometry = geometry(level, members, group_size, 4, 3);
        let capacity = geometry.capacity_blocks();
        for start in 0..capacity.min(2 * geometry.stripe_data_blocks()) {
            for blocks in 0..=capacity - start {
                check(&geometry, LbaRange::new(Lba(start), blocks));
            }
        }
    }
}

/// Strips of 1 MiB have eight bands. The test uses starts and ends near every edge of a strip and of a band.
#[test]
fn ranges_near_every_edge_of_tall_strips() {
    for (level, members, strip_bytes) in
        [(Level::Raid5, 4, 1 << 20), (Level::Raid10, 4, 256 << 10), (Level::Raid1, 2, 512 << 10)]
    {
        let geometry = Geometry::new(&GeometrySpec {
            level,
            members,
            group_size: None,
            strip_bytes,
            block_size: BlockSize::B4096,
            member_blocks: 2 * u64::from(strip_bytes) / 4096,
        })
        .unwrap_or_else(|error| panic!("{error}"));
        assert!(geometry.bands_per_stripe() > 1);
        let capacity = geometry.capacity_blocks();
        let edges: BTreeSet<u64> = (0..=capacity / u64::from(geometry.band_blocks()))
            .map(|band| band * u64::from(geometry.band_blocks()))
            .flat_map(|edge| [edge.saturating_sub(1), edge, edge + 1])
            .filter(|edge| *edge <= capacity)
            .collect();
        for start in &edges {
            for end in edges.range(start..) {
                check(&geometry, LbaRange::new(Lba(*start), end - start));
            }
        }
    }
}

#[test]
fn segments_of_a_band_the_range_does_not_touch_are_none() {
    let geometry = geometry(Level::Raid5, 3, None, 2, 4);
    let range = LbaRange::new(Lba(4), 4);
    let band = |stripe| Band { stripe: strake_units::StripeIndex(stripe), index: 0 };
    assert!(geometry.segments(band(0), range).is_empty());
    assert_eq!(geometry.segments(band(1), range).len(), 2);
    assert!(geometry.segments(band(2), range).is_empty());
    assert!(geometry.bands(LbaRange::new(Lba(0), 0)).next().is_none());
}
