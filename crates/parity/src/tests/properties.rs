//! Tests of properties with random shapes, lengths, offsets and contents.

use proptest::prelude::{Just, Strategy, any};
use proptest::test_runner::{Config, TestRunner};

use super::{accumulated, codes, encoded, inputs, outputs, strips, textbook, updated};
use crate::{Recovery, STRIPS_MAX, Verdict, check};

/// A random stripe, and a random order of its strips.
#[derive(Clone, Debug)]
struct Case {
    k: usize,
    m: usize,
    len: usize,
    seed: u64,
    order: Vec<u8>,
}

impl Case {
    fn data(&self) -> Vec<Vec<u8>> {
        strips(self.seed, self.k, self.len)
    }

    /// Returns a random data strip.
    fn strip(&self) -> usize {
        self.seed as usize % self.k
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let (widest, longest) = if cfg!(miri) { (8, 20_usize) } else { (STRIPS_MAX, 1500) };
    let shape = (1..=32_usize.min(widest - 1))
        .prop_flat_map(move |m| (1..=widest - m, Just(m), 0..=longest, any::<u64>()));
    shape.prop_flat_map(|(k, m, len, seed)| {
        let order = Just((0..(k + m) as u8).collect::<Vec<u8>>()).prop_shuffle();
        order.prop_map(move |order| Case { k, m, len, seed, order })
    })
}

/// Checks a property with random cases; proptest prints the smallest failing case.
fn for_all(property: impl Fn(&Case)) {
    // The nightly checks set the number. The default is small.
    let count = std::env::var("STRAKE_PARITY_CASES").ok().and_then(|count| count.parse().ok());
    let config = Config {
        cases: if cfg!(miri) { 2 } else { count.unwrap_or(200) },
        // Failing cases are added as separate tests, and Miri has no files.
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&cases(), |case| {
        property(&case);
        Ok(())
    });
    assert!(outcome.is_ok(), "{outcome:?}");
}

#[test]
fn kernels_agree_with_the_portable_one() {
    for_all(|case| {
        let data = case.data();
        let mut all = codes(case.k, case.m).map(|code| (encoded(&code, &data), code));
        let (first, _) = all.next().expect("the portable kernel at least");
        for (parity, code) in all {
            assert_eq!(parity, first, "{code:?}");
        }
    });
}

#[test]
fn encoding_is_the_textbook_product() {
    for_all(|case| {
        let data = case.data();
        // The textbook is slow, and its bytes do not depend on each other, so that the test compares only a sample.
        let sample: Vec<usize> = (0..case.len).step_by(97).collect();
        let take = |strip: &Vec<u8>| sample.iter().map(|&at| strip[at]).collect::<Vec<u8>>();
        let sampled: Vec<Vec<u8>> = data.iter().map(take).collect();
        let expected = textbook::parity(case.k, case.m, &sampled);
        for code in codes(case.k, case.m) {
            let found: Vec<Vec<u8>> = encoded(&code, &data).iter().map(take).collect();
            assert_eq!(found, expected, "{code:?}");
        }
    });
}

#[test]
fn accumulating_every_strip_is_encoding() {
    for_all(|case| {
        for code in codes(case.k, case.m) {
            let data = case.data();
            assert_eq!(accumulated(&code, &data), encoded(&code, &data), "{code:?}");
        }
    });
}

#[test]
fn updating_is_encoding_again_and_touches_only_listed_parities() {
    for_all(|case| {
        let strip = case.strip();
        let before = case.data();
        let mut after = before.clone();
        after[strip] = strips(!case.seed, 1, case.len).remove(0);
        let parities = case.order.iter().filter_map(|&s| usize::from(s).checked_sub(case.k));
        let which: Vec<usize> = parities.take(1 + case.seed as usize % case.m).collect();
        for code in codes(case.k, case.m) {
            let (old, new) = (encoded(&code, &before), encoded(&code, &after));
            let found = updated(&code, &old, &which, strip, [&before[strip], &after[strip]]);
            for (j, found) in found.iter().enumerate() {
                let expected = if which.contains(&j) { &new[j] } else { &old[j] };
                assert_eq!(found, expected, "{code:?}: parity {j}, updating {which:?}");
            }
        }
    });
}

#[test]
fn any_k_strips_give_the_others() {
    for_all(|case| {
        let data = case.data();
        let (known, want) = case.order.split_at(case.k);
        for code in codes(case.k, case.m) {
            let whole: Vec<Vec<u8>> = data.iter().cloned().chain(encoded(&code, &data)).collect();
            let pick = |strips: &[u8]| -> Vec<Vec<u8>> {
                strips.iter().map(|&s| whole[usize::from(s)].clone()).collect()
            };
            let recovery = Recovery::new(&code, known, want).expect("a recoverable loss");
            let mut found = strips(1, want.len(), case.len);
            let request = recovery.apply(&inputs(&pick(known)), &mut outputs(&mut found));
            assert_eq!(request, Ok(()));
            assert_eq!(found, pick(want), "{code:?}: {want:?} from {known:?}");
        }
    });
}

#[test]
fn one_wrong_byte_is_found() {
    for_all(|case| {
        if case.len == 0 || case.m == 1 {
            return;
        }
        let wrong = usize::from(case.order[0]);
        let data = case.data();
        for code in codes(case.k, case.m) {
            let mut whole: Vec<Vec<u8>> =
                data.iter().cloned().chain(encoded(&code, &data)).collect();
            whole[wrong][case.seed as usize % case.len] ^= 1 + (case.seed >> 8) as u8 % 255;
            let (data, parity) = whole.split_at(case.k);
            let verdict = check(&code, &inputs(data), &inputs(parity));
            assert_eq!(verdict, Ok(Verdict::OneWrong(wrong)), "{code:?}");
        }
    });
}
