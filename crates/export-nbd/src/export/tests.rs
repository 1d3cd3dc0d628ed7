//! Tests of the properties that are reported to clients, and of the split of requests.

use super::*;
use crate::wire::transmission_flag::{
    CAN_MULTI_CONN, HAS_FLAGS, READ_ONLY, SEND_CACHE, SEND_FAST_ZERO, SEND_FLUSH, SEND_FUA,
    SEND_TRIM, SEND_WRITE_ZEROES,
};
use strake_block::VolatileCache;
use strake_units::BlockSize;

const KIB: u32 = 1 << 10;

fn info() -> DeviceInfo {
    DeviceInfo {
        identity: "test".into(),
        blocks: 1 << 20,
        block_size: BlockSize::B4096,
        io_bytes_max: 1 << 20,
        io_bytes_optimal: 0,
        cache: VolatileCache::Absent,
        deallocate: DeallocateReads::Zeroes,
        fast_zeroes: true,
        read_only: false,
    }
}

fn facts(info: &DeviceInfo) -> Facts {
    Facts::of(info, Agreement::default(), false)
}

#[test]
fn flags_say_what_the_device_can() {
    let check = |info: DeviceInfo, read_only: bool, want: u16| {
        let flags = Facts::of(&info, Agreement::default(), read_only).flags();
        assert_eq!(flags, want, "{info:?} {read_only}");
    };
    let common = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_CACHE | CAN_MULTI_CONN;
    let writing = common | SEND_WRITE_ZEROES | SEND_FAST_ZERO;
    check(info(), false, writing | SEND_TRIM);
    let without = DeviceInfo { deallocate: DeallocateReads::Unsupported, ..info() };
    check(without, false, writing);
    check(info(), true, common | READ_ONLY);
    check(DeviceInfo { read_only: true, ..info() }, false, common | READ_ONLY);
}

#[test]
fn the_preferred_size_is_a_power_of_two_that_fits_the_optimal_one() {
    let check = |optimal: u32, want: u32| {
        let facts = facts(&DeviceInfo { io_bytes_optimal: optimal, ..info() });
        assert_eq!(facts.preferred_bytes(), want, "{optimal}");
    };
    check(0, 4 * KIB);
    check(512, 4 * KIB);
    check(64 * KIB, 64 * KIB);
    check(768 * KIB, 256 * KIB);
    check(1 << 31, REQUEST_BYTES_MAX);
}

#[test]
fn long_requests_are_cut_where_the_device_likes_it() {
    // All in KiB: largest I/O, optimal size, begin and end of a request, and the pieces it is cut into.
    let check = |max: u32, optimal: u32, begin: u64, end: u64, want: &[usize]| {
        let info =
            DeviceInfo { io_bytes_max: max * KIB, io_bytes_optimal: optimal * KIB, ..info() };
        let facts = facts(&info);
        let (mut at, end) = (begin << 10, end << 10);
        let mut pieces = Vec::new();
        while at < end {
            let piece = facts.piece(at, end);
            pieces.push(piece >> 10);
            at += piece as u64;
        }
        assert_eq!(pieces, want, "{max} {optimal} {begin} {end}");
    };
    check(1024, 0, 0, 4, &[4]);
    check(1024, 0, 4, 2052, &[1024, 1024]);
    check(4096, 0, 0, 2048, &[1024, 1024]);
    check(1024, 768, 0, 2048, &[768, 768, 512]);
    check(1024, 768, 4, 2048, &[764, 768, 512]);
    check(1024, 256, 128, 2048, &[896, 1024]);
    // If the optimal size is larger than the maximum I/O size, no I/O crosses an optimal boundary.
    check(512, 768, 0, 1536, &[512, 256, 512, 256]);
    check(20, 0, 0, 50, &[20, 20, 10]);
}
