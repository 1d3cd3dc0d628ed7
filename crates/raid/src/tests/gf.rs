//! GF(256) over 0x11d, in a slow and simple implementation.

use std::sync::LazyLock;

/// Returns a product by repeated doubling ("Russian peasant"): x^8 = x^4 + x^3 + x^2 + 1.
fn multiply_slowly(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        let carry = a & 0x80 != 0;
        a <<= 1;
        if carry {
            a ^= 0x1d;
        }
        b >>= 1;
    }
    product
}

/// A table of all products, because the tests need millions of them.
static PRODUCTS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    (0..=u16::MAX).map(|pair| multiply_slowly((pair >> 8) as u8, pair as u8)).collect()
});

pub(super) fn multiply(a: u8, b: u8) -> u8 {
    PRODUCTS[usize::from(a) << 8 | usize::from(b)]
}

/// Returns the inverse, which is found by search.
pub(super) fn invert(a: u8) -> u8 {
    (1..=255).find(|b| multiply(a, *b) == 1).unwrap_or_else(|| panic!("{a} has no inverse"))
}

/// Returns the coefficient of data strip `d` in parity `j` of `m`. Up to three parities have rows of ones, 2^d, 4^d.
/// More parities use a matrix without singular square parts (here a Cauchy matrix), because plans do not depend on the
/// matrix.
pub(super) fn coefficient(m: usize, j: usize, d: usize) -> u8 {
    let power = |base: u8| (0..d).fold(1, |product, _| multiply(product, base));
    match (m, j) {
        (1..=3, 0) => 1,
        (1..=3, 1) => power(2),
        (1..=3, 2) => power(4),
        _ => invert((j ^ (m + d)) as u8),
    }
}

/// Solves `matrix * x = values`, both given row by row; the matrix is square and not singular.
pub(super) fn solve(mut matrix: Vec<Vec<u8>>, mut values: Vec<u8>) -> Vec<u8> {
    let size = values.len();
    for column in 0..size {
        let pivot = (column..size)
            .find(|row| matrix[*row][column] != 0)
            .unwrap_or_else(|| panic!("singular: {matrix:?}"));
        matrix.swap(column, pivot);
        values.swap(column, pivot);
        let scale = invert(matrix[column][column]);
        matrix[column].iter_mut().for_each(|entry| *entry = multiply(*entry, scale));
        values[column] = multiply(values[column], scale);
        let pivot_row = matrix[column].clone();
        for row in (0..size).filter(|row| *row != column) {
            let factor = matrix[row][column];
            for (entry, above) in matrix[row].iter_mut().zip(&pivot_row) {
                *entry ^= multiply(factor, *above);
            }
            values[row] ^= multiply(factor, values[column]);
        }
    }
    values
}

#[test]
fn the_field_is_a_field() {
    for a in 1..=255u8 {
        assert_eq!(multiply(a, invert(a)), 1);
        assert_eq!(multiply(a, 1), a);
    }
    assert_eq!(multiply(0x80, 2), 0x1d);
}
