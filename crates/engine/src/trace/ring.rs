//! The ring of records of one core. The core writes it, and any thread reads it, without locks: each record has a
//! version, which is odd while the record is written (a sequence lock; Boehm, "Can Seqlocks Get Along With Programming
//! Language Memory Models?", MSPC 2012).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use strake_block::IoErrorKind;
use strake_units::{Lba, Nanos};

use super::{NO_MEMBER, STAGES, Stage, Stages, Trace, TraceOp, TraceReason};

/// Records of samples. At a million requests per second on a core, they cover half a second.
const SAMPLES: usize = 128;

/// Records of the slowest requests: about the last minute.
const SLOWEST: usize = 64;

/// Words of a record.
pub(super) const WORDS: usize = 11;

/// Errors in a record by position, from 1. 0 means success.
const ERRORS: [IoErrorKind; 11] = [
    IoErrorKind::Medium,
    IoErrorKind::Device,
    IoErrorKind::Gone,
    IoErrorKind::Timeout,
    IoErrorKind::NoSpace,
    IoErrorKind::OutOfRange,
    IoErrorKind::Misaligned,
    IoErrorKind::ReadOnly,
    IoErrorKind::Unsupported,
    IoErrorKind::Lost,
    IoErrorKind::Aborted,
];

/// Attempts to read a record that the core overwrites at the same time.
const ATTEMPTS: usize = 16;

pub(super) struct Record {
    version: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Record {
    pub(super) const fn empty() -> Self {
        Self { version: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// Stores the words. Only the core of the ring may call this function.
    pub(super) fn store(&self, words: &[u64; WORDS]) {
        let version = self.version.load(Relaxed);
        self.version.store(version + 1, Relaxed);
        fence(Release);
        for (place, word) in self.words.iter().zip(words) {
            place.store(*word, Relaxed);
        }
        self.version.store(version + 2, Release);
    }

    /// Returns the words, or `None` if the record is empty or is overwritten too often.
    pub(super) fn load(&self) -> Option<[u64; WORDS]> {
        (0..ATTEMPTS).find_map(|_| {
            let before = self.version.load(Acquire);
            let words = self.words.each_ref().map(|word| word.load(Relaxed));
            fence(Acquire);
            let same = before == self.version.load(Relaxed);
            (same && before > 0 && before.is_multiple_of(2)).then_some(words)
        })
    }
}

/// The records of one core about the requests that it accepted.
pub(crate) struct TraceRing {
    samples: Box<[Record]>,
    slowest: Box<[Record]>,
}

impl Default for TraceRing {
    fn default() -> Self {
        let records = |count| (0..count).map(|_| Record::empty()).collect();
        Self { samples: records(SAMPLES), slowest: records(SLOWEST) }
    }
}

/// The content of a record, apart from its stages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) number: u64,
    pub(super) reason: TraceReason,
    pub(super) op: TraceOp,
    pub(super) at: Lba,
    pub(super) bytes: u64,
    pub(super) accepted: Nanos,
    pub(super) took: Nanos,
    pub(super) error: Option<IoErrorKind>,
}

impl TraceRing {
    fn records(&self, reason: TraceReason) -> &[Record] {
        match reason {
            TraceReason::Sampled => &self.samples,
            TraceReason::Slowest => &self.slowest,
        }
    }

    /// Stores a record in the place of its number. Only the core of the ring may call this function.
    pub(super) fn store(&self, head: &Head, stages: &Stages) {
        let records = self.records(head.reason);
        records[head.number as usize % records.len()].store(&pack(head, stages));
    }

    /// Returns the records of core `core`, the samples first, each kind in the order of the numbers.
    pub(crate) fn read(&self, core: u16) -> Vec<Trace> {
        let of = |reason| {
            let records = self.records(reason).iter();
            let mut traces: Vec<Trace> =
                records.filter_map(|record| Some(unpack(core, reason, &record.load()?))).collect();
            traces.sort_by_key(|trace| trace.number);
            traces
        };
        [TraceReason::Sampled, TraceReason::Slowest].into_iter().flat_map(of).collect()
    }
}

fn pack(head: &Head, stages: &Stages) -> [u64; WORDS] {
    let error = head.error.and_then(|kind| ERRORS.iter().position(|known| *known == kind));
    let code = error.map_or(0, |at| at as u64 + 1);
    let pairs = stages.ticks.as_chunks::<2>().0;
    let ticks = |nth: usize| u64::from(pairs[nth][0]) | u64::from(pairs[nth][1]) << 32;
    [
        head.number,
        head.op as u64 | code << 8,
        head.at.0,
        head.bytes,
        head.accepted.0,
        head.took.0,
        ticks(0),
        ticks(1),
        ticks(2),
        ticks(3),
        u64::from_le_bytes(stages.members),
    ]
}

fn unpack(core: u16, reason: TraceReason, words: &[u64; WORDS]) -> Trace {
    let [number, what, at, bytes, accepted, took, ticks @ .., members] = *words;
    let mut stages = Stages { ticks: [0; STAGES], members: members.to_le_bytes() };
    for (nth, ticks_of) in stages.ticks.iter_mut().enumerate() {
        *ticks_of = (ticks[nth / 2] >> (32 * (nth % 2))) as u32;
    }
    let code = (what >> 8) as u8;
    let times = Stage::ALL.into_iter().map(|stage| stages.of(stage));
    let member_of = |stage: Stage| stages.members[stage as usize] != NO_MEMBER;
    Trace {
        core,
        number,
        reason,
        op: TraceOp::ALL[usize::from(what as u8).min(TraceOp::ALL.len() - 1)],
        at: Lba(at),
        bytes,
        accepted: Nanos(accepted),
        took: Nanos(took),
        error: code.checked_sub(1).and_then(|at| ERRORS.get(usize::from(at))).copied(),
        stages: times.filter(|time| time.took > Nanos(0) || member_of(time.stage)).collect(),
    }
}
