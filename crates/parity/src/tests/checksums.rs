//! Tests that the checksums are those of their standards, at every length and alignment.

use super::strips;
use crate::checksum::{crc32c, crc64_nvme};

/// Computes the remainder bit by bit, for a reflected polynomial.
fn reflected(bytes: &[u8], polynomial: u64, ones: u64) -> u64 {
    let all = bytes.iter().fold(ones, |crc, &byte| {
        (0..8).fold(crc ^ u64::from(byte), |crc, _| crc >> 1 ^ (polynomial * (crc & 1)))
    });
    all ^ ones
}

#[test]
fn check_values_of_the_standards() {
    // The check values of "123456789" are from catalogues of CRCs.
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc64_nvme(b"123456789"), 0xae8b_1486_0a79_9888);
}

#[test]
fn every_length_and_alignment() {
    let bytes = strips(1, 1, if cfg!(miri) { 70 } else { 1300 }).remove(0);
    for start in [0, 1, 7, 16] {
        for len in (0..bytes.len() - start).step_by(if cfg!(miri) { 23 } else { 1 }) {
            let slice = &bytes[start..start + len];
            assert_eq!(u64::from(crc32c(slice)), reflected(slice, 0x82f6_3b78, 0xffff_ffff));
            assert_eq!(crc64_nvme(slice), reflected(slice, 0x9a6c_9329_ac4b_c9b5, u64::MAX));
        }
    }
}
