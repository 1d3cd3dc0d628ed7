//! An operation in progress.

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
    /// Goes on as far as possible. The step of the last call has completed.
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

    /// Ends an operation that waits for space. False if it does not.
    pub(crate) fn cancel(&mut self) -> bool {
        match self {
            Self::Io(io) => io.cancel(),
            Self::Resize(resize) => resize.cancel(),
            Self::Read(_)
            | Self::Fill(_)
            | Self::Leader(_)
            | Self::Cutting(_)
            | Self::Sweep(_)
            | Self::Checkpoint(_) => false,
        }
    }
}
