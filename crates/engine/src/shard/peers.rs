//! Detection of members that are much slower than their peers, so that reads avoid them.
//!
//! A slow drive that does not fail (*fail-slow*: Gunawi et al., FAST'18) makes a whole array slow. While redundancy is
//! left, the data of this drive can be reconstructed from the rest of the stripe. Once a second, each shard decides
//! about its own reads from their latencies.
//!
//! A member is an outlier when the 99th percentile of its reads lies beyond Tukey's outer fence of the others (`Q3 + 3
//! (Q3 - Q1)`), and is more than [`TIMES_MEDIAN`] times their median, and is more than [`WORTH`]. With four peers of
//! equal latency, the fence alone leaves no margin. When all members are slow, none is an outlier.

use strake_units::{MemberIndex, MemberSet, Nanos};

/// The factor by which a member must exceed the median of its peers before reads avoid the member.
const TIMES_MEDIAN: u64 = 8;

/// Minimum latency before reads avoid a member. Below this latency, a reconstruction costs more than the wait.
const WORTH: Nanos = Nanos(5 * Nanos::MILLI.0);

/// Maximum time for which reads avoid a member, unless its probes are fast before. ZFS calls this the `sit out` period.
pub(crate) const SIT_OUT: Nanos = Nanos(600 * Nanos::SECOND.0);

/// Minimum time for which reads avoid a member.
pub(crate) const SIT_OUT_MIN: Nanos = Nanos(10 * Nanos::SECOND.0);

/// One of this many reads goes to an avoided member nevertheless, as a probe.
pub(crate) const PROBE_EVERY: u32 = 64;

/// Number of consecutive checks, a second apart, in which a member must be an outlier before reads avoid it.
const CONVICTED: u8 = 2;

/// Returns the members whose 99th percentile (`None` with too few reads) is an outlier.
pub(crate) fn outliers(p99: &[Option<Nanos>]) -> MemberSet {
    let mut outliers = MemberSet::EMPTY;
    for (at, own) in p99.iter().enumerate() {
        let Some(own) = own else { continue };
        let mut others = [Nanos(0); 64];
        let mut count = 0;
        for other in
            p99.iter().enumerate().filter(|(other, _)| *other != at).filter_map(|(_, p)| *p)
        {
            others[count] = other;
            count += 1;
        }
        if count > 0 && is_outlier(*own, &mut others[..count]) {
            outliers.insert(at);
        }
    }
    outliers
}

fn is_outlier(own: Nanos, others: &mut [Nanos]) -> bool {
    others.sort_unstable();
    let quantile = |quarters: usize| others[(others.len() - 1) * quarters / 4].0;
    let (q1, median, q3) = (quantile(1), quantile(2), quantile(3));
    let fence = q3 + 3 * (q3 - q1);
    own.0 > fence && own.0 > TIMES_MEDIAN * median && own > WORTH
}

/// The members that reads avoid, and the start times.
pub(crate) struct SitOuts {
    /// Members that reads avoid.
    out: MemberSet,
    since: [Nanos; 64],
    /// Number of consecutive checks in which each member was an outlier.
    suspected: [u8; 64],
    /// Counts reads that avoided a member, for the selection of probes.
    passed: u32,
}

/// The changes of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Members that reads avoid from now on.
    pub(crate) began: MemberSet,
    /// Members that reads use again.
    pub(crate) ended: MemberSet,
}

impl SitOuts {
    pub(crate) const fn new() -> Self {
        Self { out: MemberSet::EMPTY, since: [Nanos(0); 64], suspected: [0; 64], passed: 0 }
    }

    /// Returns the members that reads avoid.
    pub(crate) const fn members(&self) -> MemberSet {
        self.out
    }

    /// Decides whether a read avoids `member`. Some reads do not avoid it, as probes.
    pub(crate) fn passes(&mut self, member: MemberIndex) -> bool {
        if !self.out.contains(member) {
            return false;
        }
        self.passed = self.passed.wrapping_add(1);
        !self.passed.is_multiple_of(PROBE_EVERY)
    }

    /// Checks the percentiles of the members, about once a second. `covered` decides whether the stripes can do without
    /// a set of members. If they cannot do without all outliers, no outlier is avoided.
    pub(crate) fn judge(
        &mut self,
        now: Nanos,
        p99: &[Option<Nanos>],
        covered: impl Fn(MemberSet) -> bool,
    ) -> Changed {
        let outliers = outliers(p99);
        let mut next = self.out;
        for (at, own) in p99.iter().enumerate() {
            let slow = outliers.contains(at);
            self.suspected[at] = if slow { self.suspected[at].saturating_add(1) } else { 0 };
            let sat = now.since(self.since[at]);
            let better = sat >= SIT_OUT_MIN && !slow && own.is_some();
            if self.out.contains(at) && (better || sat >= SIT_OUT) {
                next.remove(at);
                self.suspected[at] = 0;
            } else if self.suspected[at] >= CONVICTED {
                next.insert(at);
            }
        }
        if !covered(next) {
            next = MemberSet::EMPTY;
        }
        let changed = Changed { began: next - self.out, ended: self.out - next };
        for member in changed.began {
            self.since[member.at()] = now;
        }
        self.out = next;
        changed
    }
}

#[cfg(test)]
mod tests;
