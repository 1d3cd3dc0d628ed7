//! Tests of the records of pools.

use strake_fuzz::feed;
use strake_units::Uuid;

use super::uuid;
use crate::slot::Sequenced;
use crate::{
    LOG_PAYLOAD_MAX, LogBlock, LogStart, POOL_BLOCK_BYTES, PoolHeader, PoolSlot, RootHeader,
    decode_log_block, decode_pool_header, decode_root_header, encode_log_block, encode_pool_header,
    encode_root_header, newest_pool_header,
};

fn header() -> PoolHeader {
    PoolHeader {
        pool: uuid(1),
        name: "tank".parse().expect("a name"),
        device: crate::device_mark("array:1"),
        bytes: 1 << 30,
        block_bytes: 4096,
        cluster_bytes: 256 << 10,
        clusters: 4000,
        leaf_entries: 1008,
        log_at: 256 << 10,
        log_bytes: 4 << 20,
        root_at: 5 << 20,
        root_bytes: 2 << 20,
        data_at: 9 << 20,
    }
}

#[test]
fn a_header_is_read_as_it_was_written() {
    let bytes = encode_pool_header(&header(), 5);
    let expected = Sequenced { sequence: 5, record: header() };
    assert_eq!(decode_pool_header(&bytes), PoolSlot::Header(expected));
    let hash = blake3::hash(&bytes).to_hex();
    assert_eq!(&hash[..16], "8ef9d1f6ad8d7824", "the format changes only with its version");
}

#[test]
fn a_header_with_any_wrong_byte_is_damaged_or_newer() {
    let bytes = encode_pool_header(&header(), 5);
    for at in 8..POOL_BLOCK_BYTES {
        let mut wrong = bytes;
        wrong[at] ^= 0x10;
        assert_eq!(decode_pool_header(&wrong), PoolSlot::Damaged("crc"), "byte {at}");
    }
    assert_eq!(decode_pool_header(&[0; POOL_BLOCK_BYTES]), PoolSlot::Nothing);
    assert_eq!(decode_pool_header(&bytes[..512]), PoolSlot::Nothing);
}

#[test]
fn areas_that_overlap_or_end_beyond_the_array_are_refused() {
    let wrong = |change: fn(&mut PoolHeader)| {
        let mut header = header();
        change(&mut header);
        header.wrong_field()
    };
    assert_eq!(wrong(|_| ()), None);
    assert_eq!(wrong(|header| header.block_bytes = 1024), Some("block_bytes"));
    assert_eq!(wrong(|header| header.cluster_bytes = 0), Some("cluster_bytes"));
    assert_eq!(wrong(|header| header.clusters = 0), Some("clusters"));
    assert_eq!(wrong(|header| header.leaf_entries = 0), Some("leaf_entries"));
    assert_eq!(wrong(|header| header.log_at = 4096), Some("log_at"));
    assert_eq!(wrong(|header| header.log_bytes = 4096), Some("log_bytes"));
    assert_eq!(wrong(|header| header.log_bytes = u64::MAX - 4095), Some("root_at"));
    assert_eq!(wrong(|header| header.root_at -= 4096 * 200), Some("root_at"));
    assert_eq!(wrong(|header| header.root_bytes = 0), Some("root_bytes"));
    assert_eq!(wrong(|header| header.root_bytes = 1 << 63), Some("data_at"));
    assert_eq!(wrong(|header| header.data_at -= 4096), Some("data_at"));
    assert_eq!(wrong(|header| header.bytes = 1 << 29), Some("bytes"));
    let mut overlapping = header();
    overlapping.data_at -= 4096;
    let bytes = encode_pool_header(&overlapping, 1);
    assert_eq!(decode_pool_header(&bytes), PoolSlot::Damaged("data_at"));
}

#[test]
fn the_newest_header_counts_and_a_later_version_is_never_overlooked() {
    let slot = |sequence| decode_pool_header(&encode_pool_header(&header(), sequence));
    let newest = |even, odd| match newest_pool_header([even, odd]) {
        PoolSlot::Header(header) => Some(header.sequence),
        _ => None,
    };
    assert_eq!(newest(slot(4), slot(5)), Some(5));
    assert_eq!(newest(slot(6), slot(5)), Some(6));
    assert_eq!(newest(PoolSlot::Nothing, slot(5)), Some(5));
    assert_eq!(newest(slot(4), PoolSlot::Damaged("crc")), Some(4));
    assert_eq!(newest(slot(5), PoolSlot::Nothing), None, "it is in the wrong slot");
    let newer = PoolSlot::Newer { version: 2, features: 0 };
    assert_eq!(newest_pool_header([slot(4), newer.clone()]), newer);
    assert_eq!(newest_pool_header([PoolSlot::Nothing, PoolSlot::Nothing]), PoolSlot::Nothing);
}

fn block(payload: &[u8]) -> LogBlock<'_> {
    LogBlock { sequence: 77, start: LogStart { number: 3, nonce: 9 }, is_first: true, payload }
}

#[test]
fn blocks_of_the_log_and_roots_are_read_as_they_were_written() {
    let payload: Vec<u8> = (0..LOG_PAYLOAD_MAX).map(|at| at as u8).collect();
    for length in [0, 1, 100, LOG_PAYLOAD_MAX] {
        let mut bytes = vec![0xff; POOL_BLOCK_BYTES];
        encode_log_block(uuid(1), &block(&payload[..length]), &mut bytes);
        assert_eq!(decode_log_block(&bytes, uuid(1)), Some(block(&payload[..length])));
        assert_eq!(decode_log_block(&bytes, uuid(2)), None, "it is of another pool");
        for at in (0..POOL_BLOCK_BYTES).step_by(7) {
            let mut wrong = bytes.clone();
            wrong[at] ^= 1;
            assert_eq!(decode_log_block(&wrong, uuid(1)), None, "byte {at}");
        }
    }
    let root = RootHeader { sequence: 8, bytes: 1000, image_crc: 0x1234, log_from: 55 };
    let bytes = encode_root_header(uuid(1), &root);
    assert_eq!(decode_root_header(&bytes, uuid(1)), Some(root));
    assert_eq!(decode_root_header(&bytes, uuid(2)), None);
    for at in 0..POOL_BLOCK_BYTES {
        let mut wrong = bytes;
        wrong[at] ^= 1;
        assert_eq!(decode_root_header(&wrong, uuid(1)), None, "byte {at}");
    }
}

/// Seals 4 KiB with the CRC at `at`.
fn sealed(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    bytes.resize(POOL_BLOCK_BYTES, 0);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..at]), &bytes[at + 4..]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn no_bytes_make_a_reader_panic() {
    let pool: Uuid = uuid(1);
    let read = |bytes: &[u8]| {
        for at in [60, POOL_BLOCK_BYTES - 4] {
            let bytes = sealed(bytes.to_vec(), at);
            if let PoolSlot::Header(header) = decode_pool_header(&bytes) {
                assert_eq!(header.record.wrong_field(), None);
            }
            let _ = decode_log_block(&bytes, pool);
            let _ = decode_root_header(&bytes, pool);
        }
    };
    feed(20_000, |_| encode_pool_header(&header(), 5).to_vec(), read);
    let invent_block = |_: &mut _| {
        let mut bytes = vec![0; POOL_BLOCK_BYTES];
        encode_log_block(pool, &block(&[1; 900]), &mut bytes);
        bytes
    };
    feed(20_000, invent_block, read);
}
