//! Random programs with random stripes: every byte of an input determines a decision, and after every step the stripe
//! must be equal to the result of plain field arithmetic.
//!
//! Every change runs a short version; `cargo xtask nightly` sets STRAKE_FUZZ_RUNS for a long one. A failure prints its
//! seed, and STRAKE_FUZZ_SEED repeats the run.

use strake_fuzz::{Chance, runs};
use strake_parity::{
    Code, Kernel, ParityMut, Recovery, Residency, Verdict, accumulate, check, encode,
    encode_copying, update,
};

/// Returns the product in GF(2^8) modulo 0x11d, bit by bit, independent of the crate.
fn times(a: u8, b: u8) -> u8 {
    let product = (0..8).filter(|bit| b >> bit & 1 != 0);
    let product = product.fold(0_u16, |sum, bit| sum ^ u16::from(a) << bit);
    (8..15).rev().fold(
        product,
        |rest, bit| {
            if rest >> bit & 1 != 0 { rest ^ 0x11d << (bit - 8) } else { rest }
        },
    ) as u8
}

/// One stripe, whose parity is consistent after every step.
struct Stripe {
    code: Code,
    strips: Vec<Vec<u8>>,
}

impl Stripe {
    fn new(chance: &mut Chance) -> Stripe {
        let [most_m, most_k] = [[32, 4], [64, 8]].map(|most| most[chance.below(4).min(1)]);
        let m = 1 + chance.below(most_m);
        let k = 1 + chance.below(most_k.min(64 - m));
        let len = match chance.below(3) {
            0 => chance.below(80),
            1 => 64 * chance.below(40),
            _ => chance.below(5000),
        };
        let kernels: Vec<Kernel> = Kernel::available().collect();
        let residency = [Residency::Cache, Residency::Memory][chance.below(2)];
        let code = Code::new(k, m).expect("within the limits");
        let code = code.with_kernel(kernels[chance.below(kernels.len())]).with_residency(residency);
        let strips: Vec<Vec<u8>> = (0..k + m).map(|_| chance.bytes(len)).collect();
        let mut stripe = Stripe { code, strips };
        stripe.encode();
        stripe
    }

    fn encode(&mut self) {
        let (data, parity) = self.strips.split_at_mut(self.code.data());
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        encode(&self.code, &data, &mut parity).expect("a correct request");
    }

    fn step(&mut self, chance: &mut Chance) {
        let (k, total) = (self.code.data(), self.strips.len());
        match chance.below(4) {
            0 => self.change(chance),
            1 => self.lose(chance),
            2 => self.damage(chance),
            _ => {
                let data: Vec<&[u8]> = self.strips[..k].iter().map(Vec::as_slice).collect();
                let mut made = vec![vec![1; self.strips[0].len()]; total];
                let (copies, parity) = made.split_at_mut(k);
                let mut copies: Vec<&mut [u8]> = copies.iter_mut().map(Vec::as_mut_slice).collect();
                let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
                encode_copying(&self.code, &data, &mut copies, &mut parity).expect("correct");
                assert!(made == self.strips, "a copy differs");
            }
        }
    }

    /// Changes a data strip, by an update, or by two accumulations that remove the old bytes and add the new ones.
    fn change(&mut self, chance: &mut Chance) {
        let strip = chance.below(self.code.data());
        let (data, parity) = self.strips.split_at_mut(self.code.data());
        let new = chance.bytes(data[strip].len());
        let mut parity: Vec<ParityMut<'_>> =
            parity.iter_mut().zip(0..).map(|(bytes, index)| ParityMut { index, bytes }).collect();
        if chance.below(2) == 0 {
            update(&self.code, strip, &data[strip], &new, &mut parity).expect("correct");
        } else {
            accumulate(&self.code, strip, &data[strip], &mut parity).expect("correct");
            accumulate(&self.code, strip, &new, &mut parity).expect("correct");
        }
        data[strip] = new;
    }

    /// Loses some strips and reconstructs them.
    fn lose(&mut self, chance: &mut Chance) {
        let total = self.strips.len();
        let mut order: Vec<u8> = (0..total as u8).collect();
        for i in (1..total).rev() {
            order.swap(i, chance.below(i + 1));
        }
        let (known, lost) = order.split_at(self.code.data());
        let want = &lost[..chance.below(lost.len() + 1)];
        let recovery = Recovery::new(&self.code, known, want).expect("recoverable");
        let at = |strip: &u8| &self.strips[usize::from(*strip)];
        let sources: Vec<&[u8]> = known.iter().map(|strip| at(strip).as_slice()).collect();
        let mut found = vec![vec![7; self.strips[0].len()]; want.len()];
        let mut targets: Vec<&mut [u8]> = found.iter_mut().map(Vec::as_mut_slice).collect();
        recovery.apply(&sources, &mut targets).expect("correct");
        assert!(found.iter().zip(want).all(|(found, strip)| found == at(strip)), "{want:?}");
    }

    /// Corrupts one byte, which the check must identify.
    fn damage(&mut self, chance: &mut Chance) {
        let (len, k) = (self.strips[0].len(), self.code.data());
        let verdict = |strips: &[Vec<u8>]| {
            let all: Vec<&[u8]> = strips.iter().map(Vec::as_slice).collect();
            check(&self.code, &all[..k], &all[k..]).expect("correct")
        };
        assert_eq!(verdict(&self.strips), Verdict::Clean);
        if len == 0 || self.code.parity() < 2 {
            return;
        }
        let strip = chance.below(self.strips.len());
        let mut wrong = self.strips.clone();
        wrong[strip][chance.below(len)] ^= 1 + chance.below(255) as u8;
        assert_eq!(verdict(&wrong), Verdict::OneWrong(strip));
    }

    /// Compares some bytes of parity with plain arithmetic.
    fn verify(&self, chance: &mut Chance) {
        let (k, len) = (self.code.data(), self.strips[0].len());
        for _ in 0..if len == 0 { 0 } else { 8 } {
            let (at, j) = (chance.below(len), chance.below(self.code.parity()));
            let terms = (0..k).map(|d| times(self.code.coefficient(j, d), self.strips[d][at]));
            assert_eq!(self.strips[k + j][at], terms.fold(0, |sum, x| sum ^ x), "{j} at {at}");
        }
    }
}

#[test]
fn random_programs_keep_the_stripe_true() {
    runs(15_000, |seed| {
        let mut chance = Chance::new(seed);
        let mut stripe = Stripe::new(&mut chance);
        for _ in 0..chance.below(8) {
            stripe.step(&mut chance);
            stripe.verify(&mut chance);
        }
    });
}
