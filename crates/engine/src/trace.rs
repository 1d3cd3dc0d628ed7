//! Traces: where the time of a request went.
//!
//! Every core records one of [`SAMPLED_OF`] requests, and the slowest request of every second. A record is a fixed
//! number of words in a ring of the core ([`TraceRing`]), which the control plane reads without locks.
//!
//! Every request is measured, because the slowest request is known only at its end. A part of a request therefore
//! carries its [`Stages`]: the time that it spent in each stage. A request with several parts has the stages of the
//! part that completed last. Time in no stage counts as [`Stage::Queued`].
//!
//! The resolution is one turn of the core. Computations happen within a turn, so the time of parity counts to the stage
//! that follows.

mod ring;
mod tracer;

use strake_block::IoErrorKind;
use strake_units::{Lba, MemberIndex, Nanos};

pub(crate) use ring::TraceRing;
pub(crate) use tracer::{About, Tracer};

/// A core records one of this many requests.
pub const SAMPLED_OF: u32 = 4096;

/// A stage of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waits for a place in a table, a message of another core or a queue of a drive.
    Queued,
    /// Attempts that failed: a member failed or was too slow, and the request was executed in another way.
    Retried,
    /// Waits for earlier requests of the same part of the stripe.
    Band,
    /// Waits until the write-intent bitmap on the members contains the region.
    Intent,
    /// Reads from members.
    Read,
    /// Writes a record to the redo log.
    Log,
    /// Writes to members.
    Write,
    /// Flushes members.
    Flush,
}

impl Stage {
    /// The stages in the order in which a request usually passes them.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Retried,
        Self::Band,
        Self::Intent,
        Self::Read,
        Self::Log,
        Self::Write,
        Self::Flush,
    ];

    /// Returns the name of the stage: one lower-case word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Retried => "retried",
            Self::Band => "band",
            Self::Intent => "intent",
            Self::Read => "read",
            Self::Log => "log",
            Self::Write => "write",
            Self::Flush => "flush",
        }
    }
}

/// Number of stages.
const STAGES: usize = Stage::ALL.len();

/// Times are counted in units of 2^4 ns. Longer times than 68 s count as 68 s.
const TICK_SHIFT: u32 = 4;

/// The sum of the stages may be this much too short.
const ROUNDING: Nanos = Nanos((STAGES as u64) << TICK_SHIFT);

/// No member, in the list of members.
const NO_MEMBER: u8 = u8::MAX;

/// The time that a part of a request spent in each stage, and the member whose I/O ended the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stages {
    ticks: [u32; STAGES],
    members: [u8; STAGES],
}

impl Stages {
    pub(crate) const NONE: Self = Self { ticks: [0; STAGES], members: [NO_MEMBER; STAGES] };

    /// Adds `took` to `stage`.
    #[inline]
    pub(crate) fn add(&mut self, stage: Stage, took: Nanos) {
        let place = &mut self.ticks[stage as usize];
        *place = place.saturating_add(ticks(took));
    }

    /// Records that an I/O of `member` ended `stage`.
    #[inline]
    pub(crate) fn ended_by(&mut self, stage: Stage, member: MemberIndex) {
        self.members[stage as usize] = member.0;
    }

    /// Returns `self` with `took` more in `stage`, which an I/O of `member` ended.
    #[inline]
    pub(crate) fn with(mut self, stage: Stage, took: Nanos, member: Option<MemberIndex>) -> Self {
        self.add(stage, took);
        if let Some(member) = member {
            self.ended_by(stage, member);
        }
        self
    }

    /// Returns `self` with failed attempts.
    pub(crate) fn after(mut self, retried: Retried) -> Self {
        let at = Stage::Retried as usize;
        (self.ticks[at], self.members[at]) = (retried.ticks, retried.member);
        self
    }

    fn of(&self, stage: Stage) -> StageTime {
        let member = self.members[stage as usize];
        StageTime {
            stage,
            took: Nanos(u64::from(self.ticks[stage as usize]) << TICK_SHIFT),
            member: (member != NO_MEMBER).then_some(MemberIndex(member)),
        }
    }

    fn sum(&self) -> Nanos {
        Nanos(self.ticks.iter().map(|ticks| u64::from(*ticks) << TICK_SHIFT).sum())
    }

    /// Makes the stages fill `took`. Time in no stage was spent in a queue. Failed attempts may overlap the part that
    /// completed last; then only the time before this part counts.
    fn fill(&mut self, took: Nanos) {
        let rest = |stages: &Self| Nanos(took.0.saturating_sub(stages.sum().0));
        let retried = std::mem::take(&mut self.ticks[Stage::Retried as usize]);
        let room = u32::try_from(rest(self).0 >> TICK_SHIFT).unwrap_or(u32::MAX);
        self.ticks[Stage::Retried as usize] = retried.min(room);
        // Each stage is rounded down.
        let queued = rest(self);
        if queued >= ROUNDING {
            self.add(Stage::Queued, queued);
        }
    }
}

/// Returns `took` in units of 2^4 ns.
#[inline]
fn ticks(took: Nanos) -> u32 {
    u32::try_from(took.0 >> TICK_SHIFT).unwrap_or(u32::MAX)
}

/// The failed attempts of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retried {
    ticks: u32,
    member: u8,
}

impl Retried {
    pub(crate) const NEVER: Self = Self { ticks: 0, member: NO_MEMBER };

    /// Adds an attempt that failed after `took`, because of `member` if known.
    pub(crate) fn add(&mut self, took: Nanos, member: Option<MemberIndex>) {
        self.ticks = self.ticks.saturating_add(ticks(took));
        self.member = member.map_or(self.member, |member| member.0);
    }
}

/// The stages of a part in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trail {
    stages: Stages,
    stage: Stage,
    since: Nanos,
}

impl Trail {
    /// Starts in `stage` at `now`.
    pub(crate) const fn begin(stage: Stage, now: Nanos) -> Self {
        Self { stages: Stages::NONE, stage, since: now }
    }

    /// Enters `stage` at `now`. `member`: the last I/O of the former stage was an I/O of this member.
    pub(crate) fn enter(&mut self, stage: Stage, now: Nanos, member: Option<MemberIndex>) {
        self.stages = self.ended(now, member);
        (self.stage, self.since) = (stage, now);
    }

    /// Returns the stages, if the part ends at `now`.
    pub(crate) fn ended(&self, now: Nanos, member: Option<MemberIndex>) -> Stages {
        self.stages.with(self.stage, now.since(self.since), member)
    }
}

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceOp {
    /// A read.
    Read,
    /// A write.
    Write,
    /// Zeroes are written.
    WriteZeroes,
    /// Blocks are deallocated.
    Deallocate,
    /// A flush.
    Flush,
}

impl TraceOp {
    const ALL: [Self; 5] =
        [Self::Read, Self::Write, Self::WriteZeroes, Self::Deallocate, Self::Flush];
}

/// Why a request was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceReason {
    /// It is one of [`SAMPLED_OF`].
    Sampled,
    /// It is the slowest request of a second on its core.
    Slowest,
}

/// The time that a request spent in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// The time in units of 16 ns, at most 68 s.
    pub took: Nanos,
    /// The member whose I/O ended the stage, if known.
    pub member: Option<MemberIndex>,
}

/// A recorded request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The core that accepted the request.
    pub core: u16,
    /// Number of the record among the records of its core with the same reason, from 1.
    pub number: u64,
    /// Why the request was recorded.
    pub reason: TraceReason,
    /// Kind of the request.
    pub op: TraceOp,
    /// First block of the request in the array.
    pub at: Lba,
    /// Bytes of the request.
    pub bytes: u64,
    /// When the request was accepted, on the clock of the cores (`CLOCK_MONOTONIC`).
    pub accepted: Nanos,
    /// From the acceptance to the answer.
    pub took: Nanos,
    /// The error, if the request failed.
    pub error: Option<IoErrorKind>,
    /// The stages in which the request spent time, in the order of [`Stage::ALL`].
    pub stages: Vec<StageTime>,
}

#[cfg(test)]
mod tests;
