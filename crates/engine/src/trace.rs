//! Traces: where the time of a request went.
//!
//! Every core records one of [`SAMPLED_OF`] requests, and the slowest request of every second. A record is a fixed
//! number of words in a ring of the core ([`TraceRing`]), which the control plane reads without locks.
//!
//! Every request is measured, because the slowest request is known only at its end:
//!
//! | request | stages |
//! |---|---|
//! | direct read, degraded read, small write | computed from the start times in its entry, only if it is recorded |
//! | part of a request that a task executes | a [`Trail`] of the task, and the [`Arrival`] in the queue of the band |
//! | part that another core executes | its [`Stages`] travel with the answer |
//!
//! A request with several parts has the stages of the part that completed last. Time in no stage counts as
//! [`Stage::Queued`].
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
    /// Waits for memory, for a message of another core or for a queue of a drive.
    Queued,
    /// Attempts that failed: a member failed or was too slow, and the request was executed in another way.
    Retried,
    /// Waits for earlier requests of the same part of the stripe, or for a task.
    Band,
    /// Waits until the write-intent bitmap on the members contains the region.
    Intent,
    /// Reads from members.
    Read,
    /// Writes a record to the redo log.
    Log,
    /// Writes to members, and waits until members that failed a write are out of use.
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

    /// True if I/Os of members end the stage.
    const fn has_ios(self) -> bool {
        match self {
            Self::Retried | Self::Read | Self::Log | Self::Write | Self::Flush => true,
            Self::Queued | Self::Band | Self::Intent => false,
        }
    }

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

    /// Returns `self` after further failed attempts.
    pub(crate) fn after(mut self, retried: Retried) -> Self {
        let at = Stage::Retried as usize;
        self.ticks[at] = self.ticks[at].saturating_add(retried.ticks);
        if retried.member != NO_MEMBER {
            self.members[at] = retried.member;
        }
        self
    }

    /// Returns the failed attempts of a request that failed as a whole after `took`. `retried`: its earlier attempts.
    pub(crate) fn all_failed(&self, retried: Retried, took: Nanos) -> Retried {
        let all = self.after(retried);
        Retried { ticks: ticks(took), member: all.members[Stage::Retried as usize] }
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

    /// Makes the stages fill `took`. Time in no stage was spent in a queue. The stages may exceed `took`: failed
    /// attempts may overlap the part that completed last, and turns of two cores begin at different times. Then the
    /// stages are shortened, the failed attempts first.
    fn fill(&mut self, took: Nanos) {
        let rest = |stages: &Self| Nanos(took.0.saturating_sub(stages.sum().0));
        let cut = [Stage::Retried, Stage::Band, Stage::Intent];
        for stage in cut.into_iter().chain(Stage::ALL.into_iter().rev()) {
            let excess = ticks(Nanos((self.sum().0 + 15).saturating_sub(took.0)));
            let place = &mut self.ticks[stage as usize];
            *place = place.saturating_sub(excess);
        }
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

/// The failed attempts of a request, or of a part.
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

/// The arrival of an operation in the queue of its band.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The time of the arrival at the core that owns the band.
    pub(crate) queued: Nanos,
    /// Attempts before the arrival.
    pub(crate) retried: Retried,
}

impl Arrival {
    /// An arrival at `now`, without earlier attempts.
    pub(crate) const fn at(now: Nanos) -> Self {
        Self { queued: now, retried: Retried::NEVER }
    }

    /// An arrival at `now` after an attempt that failed after `took`, because of `member` if known.
    pub(crate) fn after_attempt(now: Nanos, took: Nanos, member: Option<MemberIndex>) -> Self {
        let mut arrival = Self::at(now);
        arrival.retried.add(took, member);
        arrival
    }
}

/// The stages of a task in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trail {
    begun: Nanos,
    stages: Stages,
    stage: Stage,
    /// Start of the stage.
    since: Nanos,
    /// The stages before the present attempt, and the start of the attempt.
    before: Stages,
    attempt: Nanos,
}

impl Trail {
    /// Starts in `stage` at `now`.
    pub(crate) const fn begin(stage: Stage, now: Nanos) -> Self {
        let (stages, before) = (Stages::NONE, Stages::NONE);
        Self { begun: now, stages, stage, since: now, before, attempt: now }
    }

    /// Enters `stage` at `now`. `member`: the last I/O of the former stage was an I/O of this member.
    pub(crate) fn enter(&mut self, stage: Stage, now: Nanos, member: Option<MemberIndex>) {
        self.stages = self.until(now, member);
        (self.stage, self.since) = (stage, now);
    }

    /// Starts an attempt at `now`, in [`Stage::Queued`].
    pub(crate) fn begin_attempt(&mut self, now: Nanos) {
        self.enter(Stage::Queued, now, None);
        (self.before, self.attempt) = (self.stages, now);
    }

    /// The attempt failed at `now`, because of `member` if known. The time of the attempt counts as
    /// [`Stage::Retried`]. The next attempt starts.
    pub(crate) fn retry(&mut self, now: Nanos, member: Option<MemberIndex>) {
        let took = now.since(self.attempt);
        self.stages = self.before.with(Stage::Retried, took, member);
        (self.stage, self.since) = (Stage::Queued, now);
        self.begin_attempt(now);
    }

    /// Returns the stages, if the task ends at `now`. `member`: the last I/O was an I/O of this member.
    pub(crate) fn ended(&self, now: Nanos, member: Option<MemberIndex>) -> TaskStages {
        TaskStages { begun: self.begun, stages: self.until(now, member) }
    }

    fn until(&self, now: Nanos, member: Option<MemberIndex>) -> Stages {
        let member = member.filter(|_| self.stage.has_ios());
        self.stages.with(self.stage, now.since(self.since), member)
    }
}

/// The stages of a task that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskStages {
    begun: Nanos,
    stages: Stages,
}

impl TaskStages {
    /// Returns the stages of an operation that the task executed.
    pub(crate) fn of(&self, arrival: &Arrival) -> Stages {
        let waited = self.begun.since(arrival.queued);
        self.stages.with(Stage::Band, waited, None).after(arrival.retried)
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
