//! Tests that all lost strips can be reconstructed.

use super::{codes, inputs, outputs, strips, textbook};
use crate::{Code, Recovery};

/// Recovers `want` from `known` and compares with the whole stripe.
fn check(code: &Code, whole: &[Vec<u8>], known: &[u8], want: &[u8]) {
    let recovery = Recovery::new(code, known, want).expect("a recoverable loss");
    let known_strips: Vec<Vec<u8>> = known.iter().map(|&s| whole[usize::from(s)].clone()).collect();
    let mut found = strips(3, want.len(), whole[0].len());
    recovery.apply(&inputs(&known_strips), &mut outputs(&mut found)).expect("a correct request");
    for (&strip, found) in want.iter().zip(&found) {
        assert_eq!(found, &whole[usize::from(strip)], "{code:?}: {strip} from {known:?}");
    }
}

/// Returns the strips of the stripe, divided by their bit in `lost`.
fn split(total: usize, lost: u64) -> (Vec<u8>, Vec<u8>) {
    (0..total as u8).partition(|strip| lost >> strip & 1 == 0)
}

#[test]
fn every_loss_of_every_small_code() {
    let (largest, len) = if cfg!(miri) { (4, 3) } else { (12, 70) };
    for total in 2..=largest {
        for m in 1..total {
            let k = total - m;
            let whole = textbook::stripe(k, m, &strips(total as u64, k, len));
            for lost in (0..1_u64 << total).filter(|lost| lost.count_ones() as usize <= m) {
                let (mut known, mut want) = split(total, lost);
                for code in codes(k, m) {
                    check(&code, &whole, &known, &want);
                }
                // Other orders use other parities: the last k known strips, and the wanted strips in reverse order.
                known.reverse();
                want.reverse();
                for code in codes(k, m) {
                    check(&code, &whole, &known, &want);
                }
            }
        }
    }
}

#[test]
fn only_some_of_the_lost_strips() {
    for (k, m) in [(6, 2), (5, 3), (4, 4)] {
        let whole = textbook::stripe(k, m, &strips(1, k, if cfg!(miri) { 3 } else { 300 }));
        for code in codes(k, m) {
            let known: Vec<u8> = (1..=k as u8).collect();
            check(&code, &whole, &known, &[0]);
            check(&code, &whole, &known, &[k as u8 + 1]);
            check(&code, &whole, &known, &[]);
        }
    }
}

#[test]
fn random_losses_of_wide_codes_agree_with_elimination() {
    let shapes: &[(usize, usize)] = if cfg!(miri) {
        &[(3, 4)]
    } else {
        &[(62, 2), (61, 3), (60, 4), (48, 16), (32, 32), (20, 32)]
    };
    for (round, &(k, m)) in shapes.iter().cycle().take(shapes.len() * 8).enumerate() {
        let total = k + m;
        let weights = &strips(round as u64, 1, total)[0];
        let mut order: Vec<u8> = (0..total as u8).collect();
        order.sort_by_key(|&strip| weights[usize::from(strip)]);
        let (known, want) = order.split_at(k);
        let len = if cfg!(miri) { 1 } else { 1 + round * 5 };
        let generator = textbook::generator(k, m);
        // Any bytes are valid contents of k strips; the textbook solves for the data they imply.
        let contents = strips(round as u64 + 1000, k, len);
        let rows: Vec<Vec<u8>> = known.iter().map(|&s| generator[usize::from(s)].clone()).collect();
        let data = textbook::solve(&rows, &contents).expect("any k strips determine the data");
        let whole = textbook::apply(&generator, &data);
        for code in codes(k, m) {
            check(&code, &whole, known, want);
        }
    }
}

#[test]
fn known_strips_past_the_needed_ones_are_not_read() {
    for code in codes(2, 3) {
        let whole = textbook::stripe(2, 3, &strips(8, 2, 40));
        let recovery = Recovery::new(&code, &[1, 2, 3], &[0, 4]).expect("a recoverable loss");
        let (mut data, mut parity) = (vec![0; 40], vec![0; 40]);
        for known in [vec![&whole[1][..], &whole[2]], vec![&whole[1], &whole[2], &[]]] {
            recovery.apply(&known, &mut [&mut data, &mut parity]).expect("a correct request");
            assert_eq!([&data, &parity], [&whole[0], &whole[4]]);
        }
    }
}

#[test]
fn a_recovery_is_small() {
    assert!(size_of::<Recovery>() <= 9216 + 136);
    assert!(size_of::<Code>() <= 9216 + 136);
}
