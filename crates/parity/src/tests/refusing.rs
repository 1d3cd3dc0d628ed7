//! Tests that invalid requests return typed errors and change nothing.

use crate::{Code, CodeError, ParityMut, Recovery, accumulate, check, encode, update};

fn code() -> Code {
    Code::new(3, 2).expect("a code")
}

#[test]
fn impossible_codes() {
    let cases = [
        (0, 2, CodeError::NoData),
        (0, 0, CodeError::NoData),
        (4, 0, CodeError::NoParity),
        (64, 1, CodeError::TooManyStrips { data: 64, parity: 1 }),
        (63, 2, CodeError::TooManyStrips { data: 63, parity: 2 }),
        (65, 1, CodeError::TooManyStrips { data: 65, parity: 1 }),
        (1, 33, CodeError::TooManyStrips { data: 1, parity: 33 }),
        (33, 32, CodeError::TooManyStrips { data: 33, parity: 32 }),
        (usize::MAX, usize::MAX, CodeError::TooManyStrips { data: usize::MAX, parity: usize::MAX }),
    ];
    for (data, parity, error) in cases {
        assert_eq!(Code::new(data, parity).err(), Some(error), "{data}+{parity}");
    }
}

/// Checks the error of `encode` and `check` of a 3+2 code with buffers of these lengths.
fn check_lengths(data: &[usize], parity: &[usize], error: CodeError) {
    let data: Vec<Vec<u8>> = data.iter().map(|&len| vec![1; len]).collect();
    let mut parity: Vec<Vec<u8>> = parity.iter().map(|&len| vec![7; len]).collect();
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let stored: Vec<&[u8]> = parity.iter().map(Vec::as_slice).collect();
    assert_eq!(check(&code(), &data, &stored), Err(error));
    let mut outs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    assert_eq!(encode(&code(), &data, &mut outs), Err(error));
    assert!(parity.iter().flatten().all(|&x| x == 7), "an output was written");
}

#[test]
fn wrong_numbers_and_lengths_of_strips() {
    check_lengths(&[8, 8], &[8, 8], CodeError::CountMismatch { expected: 3, found: 2 });
    check_lengths(&[8; 4], &[8, 8], CodeError::CountMismatch { expected: 3, found: 4 });
    check_lengths(&[8; 65], &[8, 8], CodeError::CountMismatch { expected: 3, found: 65 });
    check_lengths(&[8; 3], &[8], CodeError::CountMismatch { expected: 2, found: 1 });
    check_lengths(&[8; 3], &[8; 40], CodeError::CountMismatch { expected: 2, found: 40 });
    check_lengths(&[], &[], CodeError::CountMismatch { expected: 3, found: 0 });
    check_lengths(&[8, 8, 9], &[8, 8], CodeError::LengthMismatch { expected: 8, found: 9 });
    check_lengths(&[8, 0, 8], &[8, 8], CodeError::LengthMismatch { expected: 8, found: 0 });
    check_lengths(&[8; 3], &[8, 7], CodeError::LengthMismatch { expected: 8, found: 7 });
}

/// Checks the error of `accumulate` and `update` of a 3+2 code with parities of these indices and lengths.
fn check_spread(strip: usize, data: &[u8], parity: &[(u8, usize)], error: CodeError) {
    let mut bytes: Vec<Vec<u8>> = parity.iter().map(|&(_, len)| vec![7; len]).collect();
    let indices = parity.iter().map(|&(index, _)| index);
    let mut list: Vec<ParityMut<'_>> =
        indices.zip(&mut bytes).map(|(index, bytes)| ParityMut { index, bytes }).collect();
    assert_eq!(accumulate(&code(), strip, data, &mut list), Err(error));
    assert_eq!(update(&code(), strip, data, data, &mut list), Err(error));
    assert!(bytes.iter().flatten().all(|&x| x == 7), "an output was written");
}

#[test]
fn wrong_spreads() {
    let bad = |index, limit| CodeError::BadStripIndex { index, limit };
    check_spread(3, &[1; 8], &[(0, 8), (1, 8)], bad(3, 3));
    check_spread(usize::MAX, &[1; 8], &[(0, 8)], bad(usize::MAX, 3));
    check_spread(0, &[1; 8], &[(0, 8), (2, 8)], bad(2, 2));
    check_spread(0, &[1; 8], &[(255, 8)], bad(255, 2));
    check_spread(0, &[1; 8], &[(1, 8), (1, 8)], CodeError::DuplicateStrip { index: 4 });
    check_spread(0, &[1; 8], &[(0, 8); 40], CodeError::DuplicateStrip { index: 3 });
    let lengths = |expected, found| CodeError::LengthMismatch { expected, found };
    check_spread(0, &[1; 8], &[(0, 8), (1, 9)], lengths(8, 9));
    check_spread(0, &[], &[(0, 1)], lengths(0, 1));
    let mut p = [7; 8];
    let mut list = [ParityMut { index: 0, bytes: &mut p }];
    assert_eq!(update(&code(), 0, &[1; 8], &[2; 7], &mut list), Err(lengths(8, 7)));
    assert_eq!(p, [7; 8]);
}

#[test]
fn no_parity_to_update_is_nothing_to_do() {
    assert_eq!(update(&code(), 2, &[1; 8], &[2; 8], &mut []), Ok(()));
    assert_eq!(accumulate(&code(), 2, &[1; 8], &mut []), Ok(()));
}

#[test]
fn impossible_recoveries() {
    let cases: [(&[u8], &[u8], CodeError); 9] = [
        (&[0, 1], &[2], CodeError::NotEnoughKnown { needed: 3, known: 2 }),
        (&[], &[], CodeError::NotEnoughKnown { needed: 3, known: 0 }),
        (&[0, 1, 5], &[2], CodeError::BadStripIndex { index: 5, limit: 5 }),
        (&[0, 1, 3], &[200], CodeError::BadStripIndex { index: 200, limit: 5 }),
        (&[0, 1, 1], &[2], CodeError::DuplicateStrip { index: 1 }),
        (&[0, 1, 3], &[2, 2], CodeError::DuplicateStrip { index: 2 }),
        (&[0, 1, 3], &[1], CodeError::DuplicateStrip { index: 1 }),
        (&[0, 1, 3, 4], &[4], CodeError::DuplicateStrip { index: 4 }),
        (&[0, 1, 3, 3], &[2], CodeError::DuplicateStrip { index: 3 }),
    ];
    for (known, want, error) in cases {
        assert_eq!(Recovery::new(&code(), known, want).err(), Some(error), "{known:?} {want:?}");
    }
}

#[test]
fn recoveries_applied_to_wrong_buffers() {
    let recovery = Recovery::new(&code(), &[0, 1, 3], &[2, 4]).expect("a recoverable loss");
    let mut out = [[7; 8]; 3];
    let [a, b, c] = &mut out;
    let strip: &[u8] = &[1; 8];
    let count = CodeError::CountMismatch { expected: 2, found: 1 };
    assert_eq!(recovery.apply(&[strip; 3], &mut [a]), Err(count));
    let count = CodeError::CountMismatch { expected: 2, found: 3 };
    assert_eq!(recovery.apply(&[strip; 3], &mut [a, b, c]), Err(count));
    let few = CodeError::NotEnoughKnown { needed: 3, known: 2 };
    assert_eq!(recovery.apply(&[strip; 2], &mut [a, b]), Err(few));
    let length = CodeError::LengthMismatch { expected: 8, found: 7 };
    assert_eq!(recovery.apply(&[strip; 3], &mut [a, &mut b[..7]]), Err(length));
    assert_eq!(recovery.apply(&[strip, strip, &strip[..7]], &mut [a, b]), Err(length));
    assert_eq!(out, [[7; 8]; 3]);
}

#[test]
fn errors_tell_a_person_what_to_do() {
    let cases = [
        (CodeError::NoData, "0 data strips"),
        (CodeError::NoParity, "0 parity strips"),
        (CodeError::TooManyStrips { data: 63, parity: 2 }, "63 data + 2 parity"),
        (CodeError::CountMismatch { expected: 3, found: 2 }, "2 buffers where the code needs 3"),
        (CodeError::LengthMismatch { expected: 8, found: 7 }, "8 and 7 bytes"),
        (CodeError::BadStripIndex { index: 5, limit: 5 }, "use one below 5"),
        (CodeError::NotEnoughKnown { needed: 3, known: 2 }, "from 2 known strips: 3 are needed"),
        (CodeError::DuplicateStrip { index: 4 }, "strip 4 is named twice"),
        (CodeError::Singular, "coefficients are damaged"),
    ];
    for (error, part) in cases {
        assert!(error.to_string().contains(part), "{error}");
    }
}
