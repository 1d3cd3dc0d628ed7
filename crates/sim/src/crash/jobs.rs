//! Jobs of an array during the requests of a history.

use strake_engine::{Consistency, ScrubMode};

use super::case::{Case, Step};
use super::disk::Lie;
use crate::rng::{Rng, mix};

/// A job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// A replacement fills the slot of a member that is out.
    Replace(u8),
    /// A replace: the copy of a serving member to a spare, which then becomes the member.
    Copy(u8),
    /// A member that is out is re-added, and receives the writes that it lacks.
    Readd(u8),
    /// A scrub, with or without repair.
    Scrub(ScrubMode),
    /// A change of the consistency mode.
    Mode(Consistency),
}

impl Job {
    /// The slot that a spare fills.
    pub(super) const fn slot_of_spare(self) -> Option<u8> {
        match self {
            Self::Replace(slot) | Self::Copy(slot) => Some(slot),
            Self::Readd(_) | Self::Scrub(_) | Self::Mode(_) => None,
        }
    }

    /// Its name in counts.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Replace(_) => "during_rebuild",
            Self::Copy(_) => "during_copy",
            Self::Readd(_) => "during_readd",
            Self::Scrub(_) => "during_scrub",
            Self::Mode(_) => "during_mode_change",
        }
    }

    /// The steps that start it. It may or may not have finished when the requests follow.
    pub(super) fn steps(self, rng: &mut Rng) -> [Step; 2] {
        let most = rng.pick(&[8, 64, 400]);
        [Step::Job(self), Step::Rounds(rng.below(most))]
    }
}

/// Modes with guarantees after a crash.
const MODES: [Consistency; 3] = [Consistency::Resync, Consistency::Safe, Consistency::Strict];

/// A drawn case with a job.
pub(super) fn case(seed: u64, number: u64, lie: Lie) -> Case {
    // The same number of each kind of array as of each kind of job, in varying combinations.
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
