//! Members that are so much slower than their peers that reads avoid them.
//!
//! A drive that is sick without failing (*fail-slow*: Gunawi et al., FAST'18) makes a whole array as slow as itself.
//! While redundancy is left, what it holds can be reconstructed from the rest of the stripe. Each shard decides for the
//! reads it hands out, once a second, from the reads it saw itself.
//!
//! A member is an outlier when the 99th percentile of its reads lies beyond Tukey's outer fence of the others
//! (`Q3 + 3 (Q3 - Q1)`), and is more than [`TIMES_MEDIAN`] times their median, and is more than [`WORTH`]: with four
//! peers that are all alike the fence alone leaves no margin. When all members are slow, none is an outlier.

use strake_units::{MemberIndex, MemberSet, Nanos};

/// How many times slower than the median of its peers a member is before it is left out.
const TIMES_MEDIAN: u64 = 8;

/// What a read by way of the rest of the stripe is worth: below it, waiting is cheaper for everybody.
const WORTH: Nanos = Nanos(5 * Nanos::MILLI.0);

/// How long a member is left out before it is tried again, unless its probes say better: ZFS's `sit out` period.
pub(crate) const SIT_OUT: Nanos = Nanos(600 * Nanos::SECOND.0);

/// How long it is left out at least.
pub(crate) const SIT_OUT_MIN: Nanos = Nanos(10 * Nanos::SECOND.0);

/// Of this many reads for a member that sits out one goes there nevertheless, to see how it is.
pub(crate) const PROBE_EVERY: u32 = 64;

/// Times in a row, a second apart, that a member is an outlier before it is left out.
const CONVICTED: u8 = 2;

/// The members whose 99th percentile (`None`: too few reads to tell) is out of all proportion to the others'.
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

/// Who sits out, and since when.
pub(crate) struct SitOuts {
    /// Members that sit out.
    out: MemberSet,
    since: [Nanos; 64],
    /// Times in a row that a member was an outlier.
    suspected: [u8; 64],
    /// Counts reads that avoided the member, to send a probe now and then.
    passed: u32,
}

/// What changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Members that sit out from now on.
    pub(crate) began: MemberSet,
    /// Members that are read again.
    pub(crate) ended: MemberSet,
}

impl SitOuts {
    pub(crate) const fn new() -> Self {
        Self { out: MemberSet::EMPTY, since: [Nanos(0); 64], suspected: [0; 64], passed: 0 }
    }

    /// Members that sit out.
    pub(crate) const fn members(&self) -> MemberSet {
        self.out
    }

    /// Whether a read for `member` avoids it. Now and then one does not, to see how it is.
    pub(crate) fn passes(&mut self, member: MemberIndex) -> bool {
        if !self.out.contains(member) {
            return false;
        }
        self.passed = self.passed.wrapping_add(1);
        !self.passed.is_multiple_of(PROBE_EVERY)
    }

    /// Checks the members' percentiles, about once a second. `covered` says whether the stripes can do without some
    /// members; when they cannot do without all outliers, reading around some of them is of no use.
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
