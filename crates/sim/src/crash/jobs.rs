//! What an array does beside serving clients when a crash cuts a history short.

use strake_engine::{Consistency, ScrubMode};

use super::case::{Case, Step};
use super::disk::Lie;
use crate::rng::{Rng, mix};

/// Something that takes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// A fresh drive takes the place of a member that is out, and is filled.
    Replace(u8),
    /// A fresh drive is filled beside a member that serves, and takes its place then.
    Copy(u8),
    /// A member that is out comes back, and gets what it missed.
    Readd(u8),
    /// Everything is read and compared, and repaired.
    Scrub(ScrubMode),
    /// The array is given another consistency mode.
    Mode(Consistency),
}

impl Job {
    /// The slot that a fresh drive is for.
    pub(super) const fn slot_of_spare(self) -> Option<u8> {
        match self {
            Self::Replace(slot) | Self::Copy(slot) => Some(slot),
            Self::Readd(_) | Self::Scrub(_) | Self::Mode(_) => None,
        }
    }

    /// What it is counted as.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Replace(_) => "during_rebuild",
            Self::Copy(_) => "during_copy",
            Self::Readd(_) => "during_readd",
            Self::Scrub(_) => "during_scrub",
            Self::Mode(_) => "during_mode_change",
        }
    }

    /// The steps that begin it. Whether it is over when the requests follow is open.
    pub(super) fn steps(self, rng: &mut Rng) -> [Step; 2] {
        let most = rng.pick(&[8, 64, 400]);
        [Step::Job(self), Step::Rounds(rng.below(most))]
    }
}

/// Modes that promise something.
const MODES: [Consistency; 3] = [Consistency::Resync, Consistency::Safe, Consistency::Strict];

/// A case that is drawn, and has a job.
pub(super) fn case(seed: u64, number: u64, lie: Lie) -> Case {
    // As many of each kind of array as of each kind of job, and not always the same together.
    let mut case = Case::draw(mix(seed ^ 0x6a6f_6273), number / 5, lie);
    case.seed = mix(case.seed ^ number);
    let mut rng = Rng::new(mix(case.seed));
    if case.mode == Consistency::None {
        case.mode = rng.pick(&MODES);
    }
    (case.around, case.cores) = (false, 1);
    let any = rng.below(case.members as u64) as u8;
    if case.failed.is_empty() && matches!(number % 5, 0 | 2) {
        case.failed.push(any);
    }
    let out = case.failed.first().copied();
    let job = match (number % 5, out) {
        (0, Some(out)) => Job::Replace(out),
        (2, Some(out)) => Job::Readd(out),
        (1, _) => {
            let serves = |slot: &u8| !case.failed.contains(slot);
            let slots: Vec<u8> = (0..case.members as u8).filter(serves).collect();
            Job::Copy(rng.pick(&slots))
        }
        (3, _) => Job::Scrub(ScrubMode::Repair),
        _ => {
            let others: Vec<_> = MODES.into_iter().filter(|mode| *mode != case.mode).collect();
            Job::Mode(rng.pick(&others))
        }
    };
    case.pulled &= !matches!(job, Job::Readd(_));
    case.job = Some(job);
    case
}
