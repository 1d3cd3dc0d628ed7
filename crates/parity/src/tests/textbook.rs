//! An independent implementation for comparisons: Russian peasant multiplication, whole generator matrices, Gaussian
//! elimination. It shares no code with the crate and is not optimized.

/// Returns the product in GF(2^8) modulo 0x11d, over plain polynomials.
pub(super) fn times(a: u8, b: u8) -> u8 {
    let mut product: u16 = 0;
    for bit in 0..8 {
        if b & (1 << bit) != 0 {
            product ^= u16::from(a) << bit;
        }
    }
    for bit in (8..16).rev() {
        if product & (1 << bit) != 0 {
            product ^= 0x11d << (bit - 8);
        }
    }
    u8::try_from(product).expect("reduced to 8 bits")
}

/// Returns the x with a * x = 1, which is a^254, as the product of a^2, a^4, ... a^128.
pub(super) fn reciprocal(a: u8) -> u8 {
    let (mut square, mut product) = (a, 1);
    for _ in 1..=7 {
        square = times(square, square);
        product = times(product, square);
    }
    assert_eq!(times(a, product), 1, "zero has no reciprocal");
    product
}

/// Returns {base}^exponent by repeated multiplication.
pub(super) fn power(base: u8, exponent: usize) -> u8 {
    (0..exponent).fold(1, |product, _| times(product, base))
}

/// Returns the coefficients according to the documentation of `Code`.
pub(super) fn coefficients(k: usize, m: usize) -> Vec<Vec<u8>> {
    let cell = |j: usize, d: usize| match (m <= 3, j) {
        (true, 0) => 1,
        (true, 1) => power(2, d),
        (true, _) => power(4, d),
        (false, _) => {
            let (row, column) = (0x80 + j as u8, d as u8);
            times(0x80 ^ column, reciprocal(row ^ column))
        }
    };
    (0..m).map(|j| (0..k).map(|d| cell(j, d)).collect()).collect()
}

/// Returns the k data rows (identity) and the m parity rows, which compute a stripe from data.
pub(super) fn generator(k: usize, m: usize) -> Vec<Vec<u8>> {
    let identity = (0..k).map(|i| (0..k).map(|d| u8::from(i == d)).collect());
    identity.chain(coefficients(k, m)).collect()
}

/// Returns rows * strips, byte by byte.
pub(super) fn apply(rows: &[Vec<u8>], strips: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let len = strips.first().map_or(0, Vec::len);
    let byte = |row: &[u8], at: usize| {
        row.iter().zip(strips).fold(0, |sum, (&c, strip)| sum ^ times(c, strip[at]))
    };
    rows.iter().map(|row| (0..len).map(|at| byte(row, at)).collect()).collect()
}

/// Solves matrix * x = right (a vector of strips) by elimination and back substitution, or `None` if
/// the matrix is singular.
pub(super) fn solve(matrix: &[Vec<u8>], right: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let n = matrix.len();
    let mut rows: Vec<(Vec<u8>, Vec<u8>)> =
        matrix.iter().cloned().zip(right.iter().cloned()).collect();
    let subtract = |into: &mut [u8], factor: u8, from: &[u8]| {
        into.iter_mut().zip(from).for_each(|(x, &y)| *x ^= times(factor, y));
    };
    for column in 0..n {
        let pivot = (column..n).find(|&row| rows[row].0[column] != 0)?;
        rows.swap(column, pivot);
        let (top, below) = rows.split_at_mut(column + 1);
        let (pivot_row, pivot_right) = &top[column];
        for (row, right) in below {
            let factor = times(row[column], reciprocal(pivot_row[column]));
            subtract(row, factor, pivot_row);
            subtract(right, factor, pivot_right);
        }
    }
    let mut solved: Vec<Vec<u8>> = vec![Vec::new(); n];
    for row in (0..n).rev() {
        let (coefficients, mut right) = rows[row].clone();
        for later in row + 1..n {
            subtract(&mut right, coefficients[later], &solved[later]);
        }
        let scale = reciprocal(coefficients[row]);
        solved[row] = right.iter().map(|&x| times(scale, x)).collect();
    }
    Some(solved)
}

/// Returns every strip of the stripe of this data: the data, then the parities.
pub(super) fn stripe(k: usize, m: usize, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    apply(&generator(k, m), data)
}

/// Returns the parities of the stripe of this data.
pub(super) fn parity(k: usize, m: usize, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    apply(&coefficients(k, m), data)
}

/// Returns P and Q according to H. P. Anvin, "The mathematics of RAID-6", section 4: Q by Horner's rule, where each
/// multiplication by {02} is a shift and a conditional XOR of 0x1d, from the last drive to the first.
pub(super) fn anvin_p_q(data: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
    let len = data[0].len();
    let (mut p, mut q) = (vec![0; len], vec![0; len]);
    for at in 0..len {
        for strip in data.iter().rev() {
            p[at] ^= strip[at];
            let doubled = (q[at] << 1) ^ if q[at] & 0x80 != 0 { 0x1d } else { 0 };
            q[at] = doubled ^ strip[at];
        }
    }
    (p, q)
}
