//! Tests that compare the field and its tables with plain polynomial arithmetic.

use super::textbook;
use crate::gf;

#[test]
fn every_product_is_the_polynomial_one() {
    for a in (0..=255).step_by(if cfg!(miri) { 15 } else { 1 }) {
        for b in (0..=255).step_by(if cfg!(miri) { 51 } else { 1 }) {
            let product = textbook::times(a, b);
            assert_eq!(gf::mul(a, b), product, "{a} * {b}");
            assert_eq!(gf::mul_fast(a, b), product, "{a} * {b} by table");
            assert_eq!(affine(gf::AFFINE[usize::from(a)], b), product, "{a} * {b} by matrix");
        }
    }
}

/// Computes the affine instruction on one byte as in the Intel SDM (GF2P8AFFINEQB, `affine_byte`): result bit i is the
/// parity of byte 7 - i of the matrix AND the input.
fn affine(matrix: u64, x: u8) -> u8 {
    let rows = matrix.to_le_bytes();
    (0..8).fold(0, |sum, i| sum | (((rows[7 - i] & x).count_ones() as u8 & 1) << i))
}

#[test]
fn inverses_and_powers() {
    assert_eq!(gf::inverse(0), 0);
    for a in (1..=255).step_by(if cfg!(miri) { 127 } else { 1 }) {
        let inverse = gf::inverse(a);
        assert_eq!(textbook::times(a, inverse), 1, "1 / {a}");
    }
    for exponent in [0, 1, 2, 7, 8, 61, 255] {
        for base in [0, 1, 2, 4, 255] {
            assert_eq!(gf::pow(base, exponent), textbook::power(base, exponent));
        }
    }
}

#[test]
fn two_generates_every_nonzero_element() {
    let mut powers: Vec<u8> = (0..255).map(|exponent| gf::pow(2, exponent)).collect();
    powers.sort_unstable();
    assert_eq!(powers, (1..=255).collect::<Vec<u8>>());
}
