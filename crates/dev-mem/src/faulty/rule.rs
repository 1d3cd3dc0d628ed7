//! What goes wrong, where and how often.

use super::random::Random;
use strake_block::{IoErrorKind, Op};
use strake_units::{Lba, LbaRange, Nanos};

/// A set of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ops(u8);

impl Ops {
    /// Reads.
    pub const READ: Self = Self(1);
    /// Writes.
    pub const WRITE: Self = Self(2);
    /// Flushes.
    pub const FLUSH: Self = Self(4);
    /// Deallocations.
    pub const DEALLOCATE: Self = Self(8);
    /// Write-zeroes.
    pub const ZEROES: Self = Self(16);
    /// All operations.
    pub const ANY: Self = Self(31);

    /// The operations of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn of(op: &Op) -> Self {
        match op {
            Op::Read { .. } => Self::READ,
            Op::Write { .. } => Self::WRITE,
            Op::Flush => Self::FLUSH,
            Op::Deallocate { .. } => Self::DEALLOCATE,
            Op::WriteZeroes { .. } => Self::ZEROES,
        }
    }
}

/// Which of the operations that fit a rule it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Each.
    Always,
    /// The n-th, counted from 1.
    Nth(u64),
    /// Every n-th.
    Every(u64),
    /// Each with this chance in a million, by the plan's seed.
    PerMillion(u32),
}

/// How finely a write tears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TearUnit {
    /// At multiples of 512 bytes of the device, even inside a block of 4096.
    B512,
    /// At multiples of 4096 bytes of the device.
    B4096,
}

impl TearUnit {
    pub(super) const fn bytes(self) -> u64 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }

    /// Where a write of the bytes `start..end` stops: at `start` (nothing written) or at a multiple of the
    /// unit before `end`.
    pub(super) fn cut(self, start: u64, end: u64, random: &mut Random) -> u64 {
        let first = (start / self.bytes() + 1) * self.bytes();
        let cuts = if first < end { (end - 1 - first) / self.bytes() + 1 } else { 0 };
        match random.below(cuts + 1) {
            0 => start,
            n => first + (n - 1) * self.bytes(),
        }
    }
}

/// What is said about a torn write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TearEnd {
    /// That it worked.
    Success,
    /// That it failed.
    Error(IoErrorKind),
}

/// What goes wrong with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is not done and fails.
    Fail(IoErrorKind),
    /// It is done and answered so much later.
    Delay(Nanos),
    /// It is done, and answered so much later than the one before of those that its queue has.
    OneByOne(Nanos),
    /// It is neither done nor answered until [`FaultPlan::release`](super::FaultPlan::release).
    Hang,
    /// Of a write or write-zeroes only a beginning is done, its end chosen by the seed: nothing, or up to some
    /// multiple of the unit. Other operations are not affected.
    Tear {
        /// Where it may tear.
        unit: TearUnit,
        /// What is said about it.
        end: TearEnd,
    },
    /// It is done at another place. What then lies outside the device is lost. A flush is not affected.
    Misdirect {
        /// First block it is done at.
        to: Lba,
    },
    /// It is not done and succeeds. A read returns whatever its buffers held.
    Lose,
    /// One bit of a read's answer, or of what a write stores, is wrong. Other operations are not affected.
    Corrupt,
    /// The device is removed from now on, this operation included.
    Vanish,
}

/// Names a rule of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId(pub(super) u64);

/// A fault and the operations it strikes. The first rule of a plan that strikes an operation decides; later
/// rules do not see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    ops: Ops,
    range: Option<LbaRange>,
    when: When,
    limit: u64,
    effect: Effect,
}

impl Rule {
    /// `effect` for each of `ops`, anywhere, without end.
    #[must_use]
    pub const fn new(ops: Ops, effect: Effect) -> Self {
        Self { ops, range: None, when: When::Always, limit: u64::MAX, effect }
    }

    /// Only operations that touch a block of `range`.
    #[must_use]
    pub const fn within(mut self, range: LbaRange) -> Self {
        self.range = Some(range);
        self
    }

    /// Only some of them.
    #[must_use]
    pub const fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    /// At most `times` times.
    #[must_use]
    pub const fn limit(mut self, times: u64) -> Self {
        self.limit = times;
        self
    }
}

/// A rule in force.
#[derive(Debug)]
pub(super) struct Armed {
    pub(super) id: RuleId,
    rule: Rule,
    random: Random,
    seen: u64,
    pub(super) struck: u64,
}

impl Armed {
    pub(super) fn new(id: RuleId, rule: Rule, seed: u64) -> Self {
        // Each rule draws from a stream of its own, so that adding one does not change what others do.
        let mut mix = Random::new(seed ^ id.0.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self { id, rule, random: Random::new(mix.next()), seen: 0, struck: 0 }
    }

    /// The effect on `op`, which touches `range`, and a seed for its details; `None` when it is spared.
    pub(super) fn strike(&mut self, op: &Op, range: LbaRange) -> Option<(Effect, u64)> {
        let rule = &self.rule;
        let fits =
            rule.ops.0 & Ops::of(op).0 != 0 && rule.range.is_none_or(|part| part.overlaps(range));
        if !fits || self.struck >= rule.limit {
            return None;
        }
        self.seen += 1;
        let strikes = match rule.when {
            When::Always => true,
            When::Nth(n) => self.seen == n,
            When::Every(n) => n > 0 && self.seen.is_multiple_of(n),
            When::PerMillion(chance) => self.random.below(1_000_000) < u64::from(chance),
        };
        if !strikes {
            return None;
        }
        self.struck += 1;
        Some((rule.effect, self.random.next()))
    }
}
