//! Tests that a check finds wrong stripes, and the wrong strip if this is possible.

use super::{codes, inputs, strips, textbook};
use crate::{Code, Verdict, check};

/// Bytes per strip. They are more than one column of scratch memory for every shape.
const LEN: usize = if cfg!(miri) { 3 } else { 9000 };

/// Checks a stripe with these bytes flipped: (strip, offset, bits).
fn verdict(code: &Code, whole: &[Vec<u8>], flips: &[(usize, usize, u8)]) -> Verdict {
    let mut whole = whole.to_vec();
    for &(strip, offset, bits) in flips {
        whole[strip][offset] ^= bits;
    }
    let (data, parity) = whole.split_at(code.data());
    check(code, &inputs(data), &inputs(parity)).expect("a correct request")
}

fn shapes() -> &'static [(usize, usize)] {
    if cfg!(miri) {
        &[(1, 1), (2, 2), (1, 4)]
    } else {
        &[(1, 1), (1, 2), (4, 1), (6, 2), (62, 2), (5, 3), (4, 4), (10, 7), (32, 32)]
    }
}

#[test]
fn a_clean_stripe() {
    for &(k, m) in shapes() {
        let whole = textbook::stripe(k, m, &strips(1, k, LEN));
        for code in codes(k, m) {
            assert_eq!(verdict(&code, &whole, &[]), Verdict::Clean, "{code:?}");
            let empty = vec![Vec::new(); k + m];
            assert_eq!(verdict(&code, &empty, &[]), Verdict::Clean, "{code:?}");
        }
    }
}

#[test]
fn each_single_wrong_strip() {
    for &(k, m) in shapes() {
        let whole = textbook::stripe(k, m, &strips(2, k, LEN));
        for code in codes(k, m) {
            for strip in 0..k + m {
                let flips = [(strip, 0, 0x40), (strip, LEN / 2, 0xff), (strip, LEN - 1, 1)];
                let expected =
                    if m == 1 { Verdict::Inconsistent } else { Verdict::OneWrong(strip) };
                assert_eq!(verdict(&code, &whole, &flips), expected, "{code:?}: {strip}");
                assert_eq!(verdict(&code, &whole, &flips[2..]), expected, "{code:?}: {strip}");
            }
        }
    }
}

#[test]
fn two_wrong_strips() {
    for &(k, m) in shapes() {
        let whole = textbook::stripe(k, m, &strips(3, k, LEN));
        for code in codes(k, m) {
            for (a, b) in [(0, 1), (0, k), (k - 1, k + m - 1), (k, k + m - 1)] {
                if a == b || b >= k + m {
                    continue;
                }
                let both = Verdict::TwoWrong(a, b);
                let apart = [(a, 1, 0x11), (b, LEN - 1, 0x22)];
                let expected = if m >= 3 { both } else { Verdict::Inconsistent };
                assert_eq!(verdict(&code, &whole, &apart), expected, "{code:?}");
                // At one offset, four parities are needed to distinguish two wrong strips from two others.
                let same = [(a, 1, 0x11), (b, 1, 0x22)];
                match m {
                    1 => assert_eq!(verdict(&code, &whole, &same), Verdict::Inconsistent),
                    // The next test checks the wrong results of two parities.
                    2 => {}
                    3 => {
                        let found = verdict(&code, &whole, &same);
                        assert!([both, Verdict::Inconsistent].contains(&found), "{found:?}");
                    }
                    _ => assert_eq!(verdict(&code, &whole, &same), both, "{code:?}"),
                }
            }
        }
    }
}

/// The documented limit: with two parities, two wrong strips at one offset can have the same effect as one other wrong
/// strip.
#[test]
fn two_parities_can_be_fooled_by_two_wrong_strips() {
    let whole = textbook::stripe(3, 2, &strips(4, 3, LEN));
    for code in codes(3, 2) {
        // An error e in strip 2 adds e to P and {04} e to Q; the test adds the same to the parities.
        assert_eq!(verdict(&code, &whole, &[(3, 1, 1), (4, 1, 4)]), Verdict::OneWrong(2));
        assert_eq!(verdict(&code, &whole, &[(3, 1, 1), (4, 1, 8)]), Verdict::Inconsistent);
    }
}

/// With three parities, one offset allows several pairs, and further offsets leave one.
#[test]
fn two_strips_wrong_all_over() {
    let shapes: &[(usize, usize)] =
        if cfg!(miri) { &[(2, 3)] } else { &[(5, 3), (61, 3), (20, 6)] };
    for &(k, m) in shapes {
        let whole = textbook::stripe(k, m, &strips(5, k, LEN));
        for code in codes(k, m) {
            for (a, b) in [(0, 1), (1, k), (k - 1, k + m - 1), (k, k + 1)] {
                let wrong = |strip, factor: usize| {
                    (0..LEN.min(40)).map(move |at| (strip, at, 1 + (at * factor % 255) as u8))
                };
                let flips: Vec<_> = wrong(a, 7).chain(wrong(b, 31)).collect();
                assert_eq!(verdict(&code, &whole, &flips), Verdict::TwoWrong(a, b), "{code:?}");
            }
        }
    }
}

#[test]
fn three_wrong_strips_are_not_taken_for_two() {
    // With five parities, any two stripes differ in at least six strips, so that no change of two strips makes a stripe
    // with three wrong strips consistent.
    for (k, m) in if cfg!(miri) { vec![(1, 5)] } else { vec![(4, 5), (10, 7), (32, 32)] } {
        let whole = textbook::stripe(k, m, &strips(6, k, LEN));
        for code in codes(k, m) {
            let flips = [(0, 1, 0x11), (k, 1, 0x22), (k + m - 1, 1, 0x33)];
            assert_eq!(verdict(&code, &whole, &flips), Verdict::Inconsistent, "{code:?}");
            let apart = [(0, 0, 0x11), (k, 1, 0x22), (k + m - 1, 2, 0x33)];
            assert_eq!(verdict(&code, &whole, &apart), Verdict::Inconsistent, "{code:?}");
        }
    }
}
