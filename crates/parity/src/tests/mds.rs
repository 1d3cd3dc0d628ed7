//! Tests that any k strips of a stripe determine the rest, which means that every square submatrix of the coefficients
//! has an inverse. The documentation of `Code` contains the proof. These tests check its premises and its small cases.

use super::{strips, textbook};
use crate::{Code, PARITY_MAX, STRIPS_MAX};

fn code(k: usize, m: usize) -> Code {
    Code::new(k, m).expect("a code within the limits")
}

/// Returns true if these rows and columns of the coefficients have an inverse, by textbook elimination.
fn invertible(code: &Code, rows: &[usize], columns: &[usize]) -> bool {
    let cell = |&j: &usize| columns.iter().map(|&d| code.coefficient(j, d)).collect();
    let matrix: Vec<Vec<u8>> = rows.iter().map(cell).collect();
    textbook::solve(&matrix, &vec![vec![0]; rows.len()]).is_some()
}

/// Returns the set bits of a mask.
fn bits(mask: u32) -> Vec<usize> {
    (0..32).filter(|bit| mask >> bit & 1 != 0).collect()
}

/// Every supported code has the documented coefficients, which are the premises of the proof.
#[test]
fn every_offered_code_has_the_documented_coefficients() {
    let longest = if cfg!(miri) { 6 } else { STRIPS_MAX - 1 };
    for m in 1..=PARITY_MAX.min(longest) {
        // A coefficient depends only on d, j and m >= 4, so that the widest code contains all of them.
        let table = textbook::coefficients(longest, m);
        for k in 1..=longest.min(STRIPS_MAX - m) {
            let code = code(k, m);
            assert_eq!((code.data(), code.parity()), (k, m));
            for (j, row) in table.iter().enumerate() {
                for (d, &expected) in row.iter().enumerate().take(k) {
                    assert_eq!(code.coefficient(j, d), expected, "{k}+{m}, row {j}, column {d}");
                }
            }
            assert!((0..k).all(|d| code.coefficient(0, d) == 1), "{k}+{m}: P is not XOR");
            assert_eq!(code.coefficient(m, 0), 0);
            assert_eq!(code.coefficient(0, k), 0);
        }
    }
}

/// The points of the Cauchy construction, which the test derives from the coefficients, are distinct.
///
/// With the first row all ones, 1 / g\[j\]\[d\] = (x_j + y_d) / (x_0 + y_d) = 1 + (x_j + x_0) / (x_0 + y_d),
/// so 1 + 1 / g\[j\]\[d\] = a_j * b_d with a_j = x_j + x_0 and b_d = 1 / (x_0 + y_d). Distinct a_j mean
/// distinct x_j and distinct b_d mean distinct y_d; x_j = y_d would make 1 / g\[j\]\[d\] zero.
#[test]
fn cauchy_points_are_distinct() {
    use std::collections::BTreeSet;
    use textbook::{reciprocal, times};
    for (k, m) in if cfg!(miri) { vec![(3, 4)] } else { vec![(60, 4), (48, 16), (32, 32)] } {
        let code = code(k, m);
        let term = |j, d| 1 ^ reciprocal(code.coefficient(j, d));
        // The rows and columns are ratios a_j / a_1 and b_d / b_0.
        let unit = reciprocal(term(1, 0));
        let rows: Vec<u8> = (0..m).map(|j| times(term(j, 0), unit)).collect();
        let columns: Vec<u8> = (0..k).map(|d| times(term(1, d), unit)).collect();
        assert_eq!(rows.iter().collect::<BTreeSet<_>>().len(), m, "{k}+{m}: rows");
        assert_eq!(columns.iter().collect::<BTreeSet<_>>().len(), k, "{k}+{m}: columns");
        for (j, &row) in rows.iter().enumerate() {
            for (d, &column) in columns.iter().enumerate() {
                let product = times(times(row, column), term(1, 0));
                assert_eq!(term(j, d), product, "{k}+{m}: not a Cauchy matrix at {j}, {d}");
            }
        }
    }
}

/// The test checks every minor of P, Q and R, up to the widest code.
#[test]
fn every_loss_with_up_to_three_parities() {
    for (k, m) in if cfg!(miri) { vec![(4, 3)] } else { vec![(63, 1), (62, 2), (61, 3)] } {
        let code = code(k, m);
        for a in 0..k {
            assert!((0..m).all(|j| code.coefficient(j, a) != 0), "{k}+{m}: {a}");
            for b in a + 1..k {
                for rows in [[0, 1], [0, 2], [1, 2]].iter().filter(|rows| rows[1] < m) {
                    assert!(invertible(&code, rows, &[a, b]), "{k}+{m}: {rows:?} {a} {b}");
                }
                for c in (b + 1..k).filter(|_| m == 3) {
                    assert!(invertible(&code, &[0, 1, 2], &[a, b, c]), "{k}+{m}: {a} {b} {c}");
                }
            }
        }
    }
}

/// The test checks every minor of small Cauchy codes.
#[test]
fn every_loss_with_a_small_cauchy_code() {
    for (k, m) in if cfg!(miri) { vec![(2, 4)] } else { vec![(16, 4), (12, 5), (8, 8)] } {
        let code = code(k, m);
        for columns in 1..1_u32 << k {
            let size = columns.count_ones();
            for rows in (1..1_u32 << m).filter(|rows| rows.count_ones() == size) {
                assert!(invertible(&code, &bits(rows), &bits(columns)), "{rows:b} {columns:b}");
            }
        }
    }
}

/// The test checks random minors of every supported Cauchy code.
#[test]
fn random_losses_with_every_cauchy_code() {
    for m in 4..=if cfg!(miri) { 5 } else { PARITY_MAX } {
        for k in 1..=if cfg!(miri) { 3 } else { STRIPS_MAX - m } {
            let code = code(k, m);
            let seed = (k * 64 + m) as u64;
            let weights = &strips(seed, 2, STRIPS_MAX);
            let size = 1 + usize::from(weights[0][0]) % k.min(m);
            // The indices of the `size` smallest weights are a random subset.
            let pick = |weights: &[u8], count: usize| {
                let mut order: Vec<usize> = (0..count).collect();
                order.sort_by_key(|&index| weights[index]);
                order.truncate(size);
                order
            };
            let (rows, columns) = (pick(&weights[0], m), pick(&weights[1], k));
            assert!(invertible(&code, &rows, &columns), "{k}+{m}: {rows:?} {columns:?}");
        }
    }
}
