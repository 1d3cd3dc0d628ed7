//! Drives that are slower than their peers for hours. Such a drive fails no request, so that no error reveals it, and
//! delays every request to its array. The engine avoids a member that is suddenly much slower; this comparison finds a
//! drive that is moderately slower all the time.
//!
//! Peers are the other members of the array with drives of the same model and a similar number of operations: a part of
//! the array that is used more than others makes its members slower than the rest, without a fault of their drives.
//! Source: Lu et al., Perseus: A Fail-Slow Detection Framework for Cloud Storage Systems, FAST '23.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use strake_units::{Nanos, Uuid};

/// The time over which drives are compared.
const EVERY: Duration = Duration::from_secs(3600);
/// Consecutive times in which a drive must be slow: the garbage collection of a drive may take an hour.
const TIMES: u32 = 3;
/// Consecutive times without load after which earlier times are forgotten.
const IDLE_MAX: u32 = 24;
/// Operations of a member without which its mean says little.
const OPERATIONS_MIN: u64 = 1000;
/// A peer has at most this many times the operations of the median, and at least this part of it.
const SIMILAR: u64 = 2;
/// Peers without which it is unknown which drive is the exception.
const PEERS_MIN: usize = 3;
/// A slow drive takes this many times as long as its peers, and longer by at least [`EXCESS_MIN`].
const FACTOR: u64 = 2;
/// A smaller difference delays no client noticeably.
const EXCESS_MIN: Nanos = Nanos(50 * Nanos::MICRO.0);
/// If more than one in this many drives is slow, the cause is probably not a drive but what the drives share.
const ONE_IN: usize = 4;

/// Operations, and the sum of their latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) operations: u64,
    pub(crate) took: Nanos,
}

impl Work {
    /// Returns what was added since `before`. The counters of a member begin at 0 when its array is started.
    fn since(self, before: Self) -> Self {
        if self.operations < before.operations || self.took < before.took {
            return self;
        }
        let (operations, took) =
            (self.operations - before.operations, self.took.since(before.took));
        Self { operations, took }
    }

    /// Returns the mean latency, if there are enough operations.
    fn mean(self) -> Option<Nanos> {
        (self.operations >= OPERATIONS_MIN).then(|| Nanos(self.took.0 / self.operations))
    }
}

/// A member that is in sync.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) uuid: Uuid,
    /// The model of its drive.
    pub(crate) model: String,
    /// Reads since the array was started.
    pub(crate) reads: Work,
    /// Writes since the array was started.
    pub(crate) writes: Work,
}

/// Comparisons in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Streak {
    /// Those in which the member was slow.
    slow: u32,
    /// By how much, in the last of them.
    why: String,
    /// Those without load since the last with load.
    idle: u32,
}

/// What is known of members between two comparisons.
#[derive(Default)]
pub(crate) struct Slow {
    compared: Option<Instant>,
    /// Reads and writes at the last comparison.
    before: BTreeMap<Uuid, [Work; 2]>,
    streaks: BTreeMap<Uuid, Streak>,
}

impl Slow {
    /// Whether drives must be compared now.
    pub(crate) fn is_due(&self) -> bool {
        self.compared.is_none_or(|compared| compared.elapsed() >= EVERY)
    }

    /// The number of members at the last comparison.
    #[cfg(test)]
    pub(crate) fn observed(&self) -> usize {
        self.before.len()
    }

    /// Compares the members of each array. Returns those that were slow [`TIMES`] times in a row, with the reason.
    pub(crate) fn compare(&mut self, arrays: &[Vec<Observed>]) -> Vec<(Uuid, String)> {
        self.compared = Some(Instant::now());
        let mut found = Vec::new();
        for members in arrays {
            let models: BTreeSet<&String> = members.iter().map(|member| &member.model).collect();
            for model in models {
                let peers = members.iter().filter(|member| member.model == *model);
                self.compare_peers(&peers.collect::<Vec<_>>(), &mut found);
            }
        }
        let all = || arrays.iter().flatten();
        self.before = all().map(|member| (member.uuid, [member.reads, member.writes])).collect();
        self.streaks.retain(|uuid, _| all().any(|member| member.uuid == *uuid));
        found
    }

    fn compare_peers(&mut self, peers: &[&Observed], found: &mut Vec<(Uuid, String)>) {
        let means = |kind: usize| {
            let added = |peer: &&Observed| {
                let before = self.before.get(&peer.uuid).map_or(Work::default(), |b| b[kind]);
                [peer.reads, peer.writes][kind].since(before)
            };
            means_of_similar(&peers.iter().map(added).collect::<Vec<_>>())
        };
        let (reads, writes) = (means(0), means(1));
        let why = |at| {
            let reads = exception("reads", &reads, at);
            reads.or_else(|| exception("writes", &writes, at))
        };
        let slow: Vec<Option<String>> = (0..peers.len()).map(why).collect();
        let compared = (0..peers.len()).filter(|at| reads[*at].is_some() || writes[*at].is_some());
        let many = slow.iter().flatten().count() * ONE_IN > compared.count();
        for (at, (peer, why)) in peers.iter().zip(slow).enumerate() {
            let has_load = reads[at].is_some() || writes[at].is_some();
            let streak = self.streaks.entry(peer.uuid).or_default();
            match why {
                _ if many => *streak = Streak::default(),
                Some(why) => {
                    *streak = Streak { slow: streak.slow.saturating_add(1), why, idle: 0 };
                }
                None if has_load || streak.idle >= IDLE_MAX => *streak = Streak::default(),
                None => streak.idle += 1,
            }
            if streak.slow >= TIMES {
                found.push((peer.uuid, format!("for {} hours, {}", streak.slow, streak.why)));
            }
        }
    }
}

/// The mean latency of each peer; `None` for a peer with few operations, or with many more or fewer than the others.
fn means_of_similar(works: &[Work]) -> Vec<Option<Nanos>> {
    let mut counts: Vec<u64> =
        works.iter().map(|work| work.operations).filter(|n| *n >= OPERATIONS_MIN).collect();
    counts.sort_unstable();
    let Some(median) = counts.get(counts.len() / 2).copied() else {
        return vec![None; works.len()];
    };
    let similar = median / SIMILAR..=median.saturating_mul(SIMILAR);
    let mean = |work: &Work| similar.contains(&work.operations).then(|| work.mean()).flatten();
    works.iter().map(mean).collect()
}

/// Says by how much the drive at `at` is slower than the others, if it is.
fn exception(what: &str, means: &[Option<Nanos>], at: usize) -> Option<String> {
    let own = means[at]?;
    let others = means.iter().enumerate().filter(|(other, _)| *other != at);
    let mut others: Vec<Nanos> = others.filter_map(|(_, mean)| *mean).collect();
    if others.len() < PEERS_MIN {
        return None;
    }
    others.sort_unstable();
    let median = others[others.len() / 2];
    let is_slow = own.0 >= FACTOR * median.0 && own.since(median) >= EXCESS_MIN;
    let micros = |mean: Nanos| mean.0 / Nanos::MICRO.0;
    is_slow.then(|| {
        format!(
            "its {what} took {} us on average, and those of its peers {} us",
            micros(own),
            micros(median)
        )
    })
}

#[cfg(test)]
mod tests;
