//! An operation in progress.

use crate::error::ErrorKind;
use crate::operation::Progress;
use crate::operation::checkpoint::Checkpoint;
use crate::operation::fill::Fill;
use crate::operation::io::Io;
use crate::operation::leader::Leader;
use crate::operation::read::Read;
use crate::operation::resize::Resize;
use crate::operation::snapshot::Cutting;
use crate::operation::sweep::Sweep;
use crate::state::MapState;
use crate::step_kind::StepKind;

/// The state of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Body {
    Io(Io),
    Read(Read),
    Fill(Fill),
    Leader(Leader),
    Cutting(Cutting),
    Sweep(Sweep),
    Resize(Resize),
    Checkpoint(Checkpoint),
}

impl Body {
    /// Continues as far as possible. The step of the last call has completed.
    pub(crate) fn advance(&mut self, map: &mut MapState) -> Progress {
        match self {
            Self::Io(io) => io.advance(map),
            Self::Read(read) => read.advance(map),
            Self::Fill(fill) => fill.advance(map),
            Self::Leader(leader) => leader.advance(map),
            Self::Cutting(cutting) => cutting.advance(map),
            Self::Sweep(sweep) => sweep.advance(map),
            Self::Resize(resize) => resize.advance(map),
            Self::Checkpoint(checkpoint) => checkpoint.advance(map),
        }
    }

    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Self::Read(_))
    }

    /// Ends an operation whose released step failed. A snapshot continues until it is removed completely.
    pub(crate) fn fail(&mut self, map: &mut MapState, step: StepKind) -> Progress {
        let kind = ErrorKind::StepFailed { step };
        match self {
            Self::Io(io) => io.fail(map, kind),
            Self::Read(read) => read.fail(map, kind),
            Self::Fill(fill) => fill.fail(map, kind),
            Self::Leader(_) => unreachable!("it has no steps"),
            Self::Cutting(cutting) => cutting.fail(map, kind),
            Self::Sweep(sweep) => sweep.fail(kind),
            Self::Resize(resize) => resize.fail(map, kind),
            Self::Checkpoint(_) => Checkpoint::fail(map, kind),
        }
    }

    /// Ends an operation that waits for a cluster with `kind`, or a cut that is not recorded. False for any other.
    pub(crate) fn cancel(&mut self, kind: ErrorKind) -> bool {
        match self {
            Self::Io(io) => io.cancel(kind),
            Self::Resize(resize) => resize.cancel(kind),
            Self::Cutting(cutting) => cutting.cancel(),
            Self::Read(_)
            | Self::Fill(_)
            | Self::Leader(_)
            | Self::Sweep(_)
            | Self::Checkpoint(_) => false,
        }
    }
}
