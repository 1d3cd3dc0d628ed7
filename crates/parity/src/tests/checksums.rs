//! Tests that the checksums are those of their standards, at every length and alignment.

use super::strips;
use crate::checksum::{crc32c, crc32c_append, crc64_nvme};

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
            assert_eq!(
                crc32c_append(crc32c(&bytes[..start]), slice),
                crc32c(&bytes[..start + len])
            );
            assert_eq!(crc64_nvme(slice), reflected(slice, 0x9a6c_9329_ac4b_c9b5, u64::MAX));
        }
    }
}

#[test]
fn long_messages_have_the_same_checksum_in_one_and_in_two_pieces() {
    let len = if cfg!(miri) { 300 } else { 2 * 4096 + 77 };
    let bytes = strips(1, 1, len).remove(0);
    for cut in [0, 1, 8, 77, len / 2, len - 1, len] {
        let (start, rest) = bytes.split_at(cut);
        assert_eq!(u64::from(crc32c(rest)), reflected(rest, 0x82f6_3b78, 0xffff_ffff));
        assert_eq!(crc32c_append(crc32c(start), rest), crc32c(&bytes));
    }
}

/// On a host with wide carry-less multiplication, the other function is used.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
fn the_crc_instruction_gives_the_same_checksum() {
    let bytes = strips(1, 1, 3 * 4096 + 77).remove(0);
    for len in [0, 7, 8, 4095, 4096, 4097, 8192, bytes.len()] {
        for start in [0, 3, 8] {
            let slice = &bytes[start.min(len)..len];
            if let Some(state) = crate::kernels::crc32c_by_instruction(!0, slice) {
                assert_eq!(u64::from(!state), reflected(slice, 0x82f6_3b78, 0xffff_ffff));
            }
        }
    }
}
