use proptest::prelude::{any, proptest};

use super::{label, uuid};
use crate::layout::HEAD_RING_OFFSET;
use crate::{
    Address, AreaLayout, Bitmap, Bits, Copy, HEAD_BYTES, LabelErrorKind, MEMBER_BYTES_MIN,
    PageRecord, REGIONS_MAX, RingScan, SEQUENCE_MAX, Sequenced, Superblock, TAIL_BYTES,
    encode_page, foreign_signature, newest, newest_page, protective_head, protective_tail,
};

pub(super) fn head(generation: u64) -> Address {
    let offset = HEAD_RING_OFFSET + generation % 64 * 4096;
    Address { copy: Copy::Head, ring_slot: (generation % 64) as u8, offset: Some(offset) }
}

pub(super) fn encoded(label: &Superblock) -> [u8; 4096] {
    label.encode(Copy::Head, head(label.generation).offset.unwrap())
}

fn kind(bytes: &[u8], address: Address) -> Option<LabelErrorKind> {
    Superblock::decode(bytes, address).err().map(|error| error.kind)
}

#[test]
fn labels_round_trip() {
    for (members, generation) in [(1, 1), (6, 63), (64, (1 << 56) - 1)] {
        let label = label(members, generation);
        assert_eq!(Superblock::decode(&encoded(&label), head(generation)), Ok(label));
    }
}

#[test]
fn a_label_notices_any_changed_byte_exhaustive() {
    let bytes = encoded(&label(6, 7));
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bad = bytes;
            bad[at] ^= flip;
            assert!(kind(&bad, head(7)).is_some(), "byte {at} ^ {flip:#x}");
        }
    }
    for len in 0..bytes.len() {
        assert_eq!(kind(&bytes[..len], head(7)), Some(LabelErrorKind::Truncated { bytes: len }));
    }
}

#[test]
fn a_torn_label_is_refused_exhaustive() {
    // Two labels of the same slot, with a difference of 64 generations.
    let (old, new) = (encoded(&label(64, 7)), encoded(&label(64, 71)));
    for cut in (512..4096).step_by(512) {
        for (first, second) in [(&new, &old), (&old, &new)] {
            let torn = [&first[..cut], &second[cut..]].concat();
            // If the exchanged halves are equal, the result is a valid record.
            let whole = torn == old || torn == new;
            assert_eq!(kind(&torn, head(7)).is_none(), whole, "torn at {cut}");
        }
    }
}

#[test]
fn a_misdirected_label_is_refused() {
    let bytes = encoded(&label(6, 7));
    let meant_for = head(7).offset.unwrap();
    let tail = Address { copy: Copy::Tail, ..head(7) };
    for wrong in [head(8), tail, Address { offset: Some(0), ..head(7) }] {
        assert_eq!(kind(&bytes, wrong), Some(LabelErrorKind::Misdirected { meant_for }));
    }
}

#[test]
fn unknown_features_are_refused_or_flagged() {
    let mut newer = label(6, 7);
    newer.incompat = 0x10;
    let want = LabelErrorKind::Incompatible { unknown: 0x10, generation: 7 };
    assert_eq!(kind(&encoded(&newer), head(7)), Some(want));
    let array = |bytes: &[u8]| Superblock::decode(bytes, head(7)).unwrap_err().array;
    assert_eq!(array(&encoded(&newer)), Some(newer.array), "it names its array");
    let mut damaged = encoded(&newer);
    damaged[48] ^= 1;
    assert_eq!(array(&damaged), None, "bytes that may be anything");
    let mut flagged = label(6, 7);
    flagged.ro_compat = 1;
    assert!(Superblock::decode(&encoded(&flagged), head(7)).unwrap().is_read_only());
    assert!(!label(6, 7).is_read_only());
}

fn ring(copy: Copy, labels: &[Superblock]) -> Vec<u8> {
    let layout = AreaLayout::of(64 << 20).unwrap();
    let (start, bytes) = layout.ring_range(copy);
    let mut ring = vec![0; bytes as usize];
    for label in labels {
        let offset = layout.slot_offset(copy, label.generation);
        let at = (offset - start) as usize;
        ring[at..at + 4096].copy_from_slice(&label.encode(copy, offset));
    }
    ring
}

#[test]
fn the_newest_valid_label_of_a_ring_is_found() {
    for copy in [Copy::Head, Copy::Tail] {
        let labels: Vec<_> = (60..70).map(|generation| label(6, generation)).collect();
        let mut ring = ring(copy, &labels);
        let scan = newest(&ring, copy);
        assert_eq!(
            (scan.newest.as_ref(), scan.valid, scan.damaged.count_ones()),
            (labels.last(), 10, 0)
        );
        ring[(69 % 64) * 4096 + 700] ^= 1;
        let scan = newest(&ring, copy);
        assert_eq!(
            (scan.newest.as_ref(), scan.valid, scan.damaged.count_ones()),
            (Some(&labels[8]), 9, 1)
        );
    }
}

#[test]
fn an_older_label_never_stands_in_for_one_not_understood() {
    let mut newer = label(6, 9);
    newer.incompat = 0x10;
    let scan = newest(&ring(Copy::Head, &[label(6, 8), newer.clone()]), Copy::Head);
    assert!(scan.newest.is_none() && scan.refused.is_some());
    let scan = newest(&ring(Copy::Head, &[newer, label(6, 10)]), Copy::Head);
    assert!(scan.newest.is_some() && scan.refused.is_none());
}

/// A scan of a ring from its end, three slots at a time and without the blank slots, has the same result.
#[test]
fn a_ring_that_is_scanned_in_parts_shows_the_same() {
    let mut newer = label(6, 71);
    newer.incompat = 0x10;
    let twice = Superblock { generation: 66, ..newer.clone() };
    let sound: Vec<_> = (60..70).map(|generation| label(6, generation)).collect();
    for (copy, labels) in [
        (Copy::Head, sound.clone()),
        (Copy::Tail, [&sound[..], &[newer.clone()]].concat()),
        (Copy::Tail, vec![newer, twice]),
        (Copy::Head, Vec::new()),
    ] {
        let mut ring = ring(copy, &labels);
        for (damaged, at) in [(false, 0), (true, 5 * 4096), (true, (68 % 64) * 4096 + 9)] {
            ring[at] ^= u8::from(damaged);
            let mut parts = RingScan::default();
            for (nth, part) in ring.chunks(3 * 4096).enumerate().rev() {
                if part.iter().any(|byte| *byte != 0) {
                    parts.add_slots(nth * 3, part, copy);
                }
            }
            parts.prefer_refusal();
            assert_eq!(parts, newest(&ring, copy));
        }
    }
}

fn page(sequence: u64, held: u64, bits: &[u8]) -> ([u8; 4096], Sequenced<PageRecord>) {
    let content = Sequenced { sequence, record: PageRecord { held, bits: bits.to_vec() } };
    (encode_page(uuid(1), Bitmap::WriteIntent, 0, &content), content)
}

#[test]
fn a_page_notices_any_changed_byte_exhaustive() {
    let mut bits = Bits::new(REGIONS_MAX);
    [0, 7, 8, 32_511].into_iter().for_each(|region| bits.set(region));
    let (bytes, content) = page(4, 0, bits.page_bytes(0));
    let found = |bytes: &[u8], array, bitmap, page| newest_page(bytes, &[], array, bitmap, page);
    let whole = found(&bytes, uuid(1), Bitmap::WriteIntent, 0);
    assert_eq!(whole, Some(content));
    for at in 0..bytes.len() {
        let mut bad = bytes;
        bad[at] ^= 0x10;
        assert_eq!(found(&bad, uuid(1), Bitmap::WriteIntent, 0), None, "byte {at}");
    }
    assert_eq!(found(&bytes, uuid(1), Bitmap::Written, 0), None);
    assert_eq!(found(&bytes, uuid(1), Bitmap::WriteIntent, 1), None);
    assert_eq!(found(&bytes, uuid(2), Bitmap::WriteIntent, 0), None);
    assert_eq!(found(&bytes[..4095], uuid(1), Bitmap::WriteIntent, 0), None);
}

#[test]
fn a_torn_page_leaves_the_one_before() {
    let page = |sequence, byte| page(sequence, 0, &[byte; 4064]).0;
    let (old_a, b, new_a) = (page(4, 1), page(5, 2), page(6, 3));
    let check = |a: &[u8], b: &[u8], want: Option<u64>| {
        let found = newest_page(a, b, uuid(1), Bitmap::WriteIntent, 0);
        assert_eq!(found.map(|page| page.sequence), want);
    };
    check(&old_a, &b, Some(5));
    check(&new_a, &b, Some(6));
    for cut in (512..4096).step_by(512) {
        check(&[&new_a[..cut], &old_a[cut..]].concat(), &b, Some(5));
    }
    check(&[0; 4096], &[0; 4096], None);
    // If the slots are exchanged, both count as damaged.
    check(&b, &new_a, None);
}

/// The page in the other slot is not certainly the newest, so that it does not count either.
#[test]
fn a_page_without_a_successor_is_lost() {
    let found = |sequence| {
        let (a, b) = (page(4, 0, &[1; 4064]).0, page(sequence, 0, &[2; 4064]).0);
        newest_page(&a, &b, uuid(1), Bitmap::WriteIntent, 0).map(|page| page.sequence)
    };
    assert_eq!(found(SEQUENCE_MAX), Some(SEQUENCE_MAX));
    assert_eq!(found(SEQUENCE_MAX + 2), None);
    assert_eq!(found(u64::MAX), None);
}

#[test]
fn a_label_without_a_successor_is_refused_by_name() {
    for generation in [1 << 56, u64::MAX] {
        let refused = kind(&encoded(&label(6, generation)), head(generation));
        let Some(LabelErrorKind::Field { name, recorded, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!((name, recorded), ("generation", generation));
    }
}

#[test]
fn a_page_says_what_every_member_held() {
    let empty = [0; 4096];
    let check = |sequence, held, want| {
        let (page, mut content) = page(sequence, held, &[7; 4064]);
        content.record.held = want;
        let found = match sequence % 2 {
            0 => newest_page(&page, &empty, uuid(1), Bitmap::WriteIntent, 0),
            _ => newest_page(&empty, &page, uuid(1), Bitmap::WriteIntent, 0),
        };
        assert_eq!(found, Some(content));
    };
    check(6, 5, 5);
    check(7, 1, 1);
    // No recorded size, a size that is not possible, and a size above the maximum.
    check(6, 0, 0);
    check(6, 6, 0);
    check(6, 9, 0);
    check(1 << 33, 1, 0);
}

#[test]
fn bits_agree_with_a_list() {
    for regions in [1, 8, 9, 32_512, 32_513, REGIONS_MAX] {
        let mut bits = Bits::new(regions);
        let wanted: Vec<u32> = (0..regions).step_by(7).chain([regions - 1]).collect();
        wanted.iter().for_each(|region| bits.set(*region));
        let pages = [Some(bits.page_bytes(0).to_vec()), Some(bits.page_bytes(1).to_vec())];
        let again = Bits::from_pages(regions, &pages);
        assert_eq!(again, bits);
        assert!(wanted.iter().all(|region| again.get(*region)));
        let mut sorted = wanted.clone();
        sorted.dedup();
        assert_eq!(again.iter_ones().collect::<Vec<_>>(), sorted);
        assert_eq!(Bits::from_pages(regions, &[None, None]).count_ones(), regions);
        bits.clear(0);
        assert!(!bits.get(0));
    }
}

#[test]
fn areas_do_not_overlap() {
    assert_eq!(AreaLayout::of(MEMBER_BYTES_MIN - 1), None);
    for bytes in [MEMBER_BYTES_MIN, MEMBER_BYTES_MIN + 512, 7_681_501_126_656] {
        let layout = AreaLayout::of(bytes).unwrap();
        let data_end = layout.data_offset() + layout.data_bytes();
        let (ring, ring_bytes) = layout.ring_range(Copy::Tail);
        assert!(layout.data_offset() == HEAD_BYTES && data_end <= ring);
        assert!(bytes - data_end >= TAIL_BYTES && layout.data_bytes().is_multiple_of(4096));
        for block in [512, 4096] {
            let gpt = protective_tail(bytes, block, uuid(9)).len() as u64;
            assert!(ring + ring_bytes <= bytes - gpt);
            let gpt = protective_head(bytes, block, uuid(9)).len() as u64;
            assert!(gpt <= layout.ring_range(Copy::Head).0);
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_never_make_decoding_panic(bytes: Vec<u8>, seed in any::<[u8; 32]>(), at in 0usize..4000) {
        let mut page = encoded(&label(6, 7));
        page[at..at + 32].copy_from_slice(&seed);
        // Valid checksums let hostile fields pass the first checks.
        let digest = blake3::hash(&page[..4076]);
        page[4076..4092].copy_from_slice(&digest.as_bytes()[..16]);
        let crc = crc32c::crc32c(&page[..4092]);
        page[4092..].copy_from_slice(&crc.to_le_bytes());
        for bytes in [&bytes[..], &page[..]] {
            let _ = Superblock::decode(bytes, head(7));
            let _ = newest(bytes, Copy::Tail);
            let _ = newest_page(bytes, bytes, uuid(1), Bitmap::WriteIntent, 0);
            let _ = foreign_signature(bytes, bytes);
        }
    }
}
