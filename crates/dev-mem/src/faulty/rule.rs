//! The rules: kind, range and frequency of faults.

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

    /// Returns the operations of both sets.
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

/// The selection among the operations that match a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Every operation.
    Always,
    /// The n-th operation, counted from 1.
    Nth(u64),
    /// Every n-th operation.
    Every(u64),
    /// Every operation with this probability in a million, according to the seed of the plan.
    PerMillion(u32),
}

/// The unit in which a write tears.
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

    /// Returns the end of a torn write of the bytes `start..end`: `start` (nothing is written), or a multiple of the
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

/// The reported result of a torn write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TearEnd {
    /// The write reports a success.
    Success,
    /// The write reports an error.
    Error(IoErrorKind),
}

/// The fault of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The operation fails without an effect.
    Fail(IoErrorKind),
    /// The operation is executed, and completes with this delay.
    Delay(Nanos),
    /// The operation is executed, and completes this time after the previous operation with this effect in its queue.
    OneByOne(Nanos),
    /// The operation is not executed and not completed until [`FaultPlan::release`](super::FaultPlan::release).
    Hang,
    /// Only the first part of a write or write-zeroes is executed. The seed determines its end: nothing, or up to a
    /// multiple of the unit. Other operations are not affected.
    Tear {
        /// The unit of the tear.
        unit: TearUnit,
        /// The reported result.
        end: TearEnd,
    },
    /// The operation is executed at another address. Blocks outside the device are lost. A flush is not affected.
    Misdirect {
        /// The first block of the actual operation.
        to: Lba,
    },
    /// The operation succeeds without an effect. A read returns the old content of its buffers.
    Lose,
    /// One bit of the read data, or of the stored data of a write, is wrong. Other operations are not affected.
    Corrupt,
    /// The device is removed from now on, this operation included.
    Vanish,
}

/// The identifier of a rule of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId(pub(super) u64);

/// A fault and the operations that it affects. The first rule of a plan that affects an operation determines the fault;
/// later rules do not apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    ops: Ops,
    range: Option<LbaRange>,
    when: When,
    limit: u64,
    effect: Effect,
}

impl Rule {
    /// Returns a rule with `effect` for every operation of `ops`, for all blocks, without a limit.
    #[must_use]
    pub const fn new(ops: Ops, effect: Effect) -> Self {
        Self { ops, range: None, when: When::Always, limit: u64::MAX, effect }
    }

    /// Restricts the rule to operations that overlap `range`.
    #[must_use]
    pub const fn within(mut self, range: LbaRange) -> Self {
        self.range = Some(range);
        self
    }

    /// Restricts the rule to a selection of the operations.
    #[must_use]
    pub const fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    /// Limits the rule to `times` strikes.
    #[must_use]
    pub const fn limit(mut self, times: u64) -> Self {
        self.limit = times;
        self
    }
}

/// A rule of a plan with its state.
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
        // Each rule has its own stream of random numbers, so that an additional rule does not change the other rules.
        let mut mix = Random::new(seed ^ id.0.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self { id, rule, random: Random::new(mix.next()), seen: 0, struck: 0 }
    }

    /// Returns the effect on `op`, which covers `range`, and a seed for its details; `None` if the rule does not affect
    /// the operation.
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
