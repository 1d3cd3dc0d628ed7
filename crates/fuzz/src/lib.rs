//! Inputs for tests of parsers and peers: random bytes, damaged valid bytes, and a corpus of recorded inputs.
//!
//! **What it is.** [`runs`] calls a test with a few fixed seeds and as many new ones, and prints the seed of a failed
//! call. A [`Chance`] makes the random decisions of a seed. [`damage()`] changes bytes of a valid exchange of messages,
//! and [`disorder`] changes the order of its parts. [`corpus()`] reads the exchanges recorded in `corpus/`, and
//! [`feed`] passes all these inputs to one parser.
//!
//! **What it must never do.** Be part of a product. Decide anything that does not follow from the seed.
//!
//! **Where to start.** [`runs`], and a test that uses it.

#![forbid(unsafe_code)]

use std::env;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

mod corpus;
mod damage;
mod reported;

use reported::Reported;

pub use corpus::{Case, corpus, hex};
pub use damage::{damage, disorder};
pub use reported::Shown;
pub use strake_testkit::Chance;

/// Runs this many seeds instead of the few that every change can wait for.
const RUNS: &str = "STRAKE_FUZZ_RUNS";
/// Runs this seed and no other.
const SEED: &str = "STRAKE_FUZZ_SEED";

fn setting(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// Calls `one` with `few` seeds, or as many as `STRAKE_FUZZ_RUNS` says. Every second one is the same in every run, the
/// others are fresh. `STRAKE_FUZZ_SEED` has one of them run again, by itself.
///
/// # Panics
/// When `one` does, after saying with which seed, or when a setting is no number.
pub fn runs(few: u64, mut one: impl FnMut(u64)) {
    if let Some(seed) = setting(SEED) {
        return one(seed);
    }
    let count = setting(RUNS).unwrap_or(few);
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let fresh = time.map_or(0, |time| time.as_secs() << 20);
    println!("fresh seeds from {fresh}");
    for run in 0..count {
        let seed = if run % 2 == 0 { run / 2 } else { fresh + run / 2 };
        let reported = Reported::of(format!("run again with {SEED}={seed}"));
        one(seed);
        drop(reported);
    }
}

/// The folder of this crate, where the corpus is.
fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[cfg(test)]
mod tests;

/// Calls `read` with every part of the exchanges that are kept, and then, as [`runs`] does, with bytes at random,
/// with what `invent` makes, and with kept parts, most of them damaged.
///
/// # Panics
/// When `read` does, after saying with which seed.
pub fn feed(few: u64, invent: impl Fn(&mut Chance) -> Vec<u8>, read: impl Fn(&[u8])) {
    let cases = ["to-target", "to-host"].into_iter().flat_map(corpus);
    let kept: Vec<Vec<u8>> = cases.flat_map(|case| case.parts).collect();
    kept.iter().for_each(|bytes| read(bytes));
    runs(few, |seed| {
        let mut chance = Chance::new(seed);
        let mut bytes = match chance.below(3) {
            0 => {
                let length = chance.below(300);
                chance.bytes(length)
            }
            1 => invent(&mut chance),
            _ => kept[chance.below(kept.len())].clone(),
        };
        for _ in 0..chance.below(4) {
            damage(&mut bytes, &mut chance);
        }
        read(&bytes);
    });
}
