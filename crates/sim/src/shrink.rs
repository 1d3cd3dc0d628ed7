//! Reduces failing runs: the same seed with fewer requests, clients, shards and kinds of faults, while it fails in the
//! same way.

use crate::faults::Kind;
use crate::rng::Rng;
use crate::shape::Shape;
use crate::world::{Limits, Report, Settings};

/// Largest number of tried runs.
const RUNS_MAX: u32 = 400;

/// Number of words that identify a violation.
const WORDS: usize = 4;

/// A reduced run that fails.
#[derive(Debug)]
pub struct Shrunk {
    /// Its limits.
    pub limits: Limits,
    /// The result.
    pub report: Report,
    /// The number of tried runs.
    pub runs: u32,
}

/// The smallest run of `seed` that was found to fail in the same way as the run with `settings`; `None` if that run
/// does not fail. `run` executes a run.
pub fn shrink(
    seed: u64,
    settings: Settings,
    run: impl Fn(u64, Settings) -> Report,
) -> Option<Shrunk> {
    let report = run(seed, settings);
    let way = way(report.violation.as_ref()?);
    let mut best = Shrunk { limits: settings.limits, report, runs: 1 };
    loop {
        let smaller = smaller(seed, &best.limits).into_iter().find_map(|limits| {
            if best.runs == RUNS_MAX {
                return None;
            }
            best.runs += 1;
            let report = run(seed, Settings { limits, ..settings });
            let same = report.violation.as_ref().is_some_and(|what| self::way(what) == way);
            same.then_some((limits, report))
        });
        match smaller {
            Some((limits, report)) => (best.limits, best.report) = (limits, report),
            None => return Some(best),
        }
    }
}

/// The kind of a failure: the first words of its message without numbers of this run.
fn way(violation: &str) -> Vec<String> {
    let common = |word: &&str| !word.contains(|c: char| c.is_ascii_digit());
    violation.split_whitespace().filter(common).take(WORDS).map(str::to_owned).collect()
}

/// The next reductions to try, the largest first.
fn smaller(seed: u64, limits: &Limits) -> Vec<Limits> {
    let now = Shape::draw(&mut Rng::new(seed)).within(limits);
    let mut all = Vec::new();
    if now.cores > 1 {
        all.push(Limits { cores: Some(1), ..*limits });
    }
    if now.clients > 1 {
        all.push(Limits { clients: Some(1), ..*limits });
        all.push(Limits { clients: Some(now.clients - 1), ..*limits });
    }
    let requests = [now.requests / 2, now.requests * 3 / 4, now.requests.saturating_sub(1)];
    let fewer = requests.into_iter().filter(|requests| (1..now.requests).contains(requests));
    all.extend(fewer.map(|requests| Limits { requests: Some(requests), ..*limits }));
    let kinds = Kind::ALL.into_iter().filter(|kind| !limits.without.has(*kind));
    all.extend(kinds.map(|kind| Limits { without: limits.without.with(kind), ..*limits }));
    all
}
