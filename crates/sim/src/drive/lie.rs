//! False completions of a drive: it completes a write, but does not execute it as requested.

use strake_block::Durability;

use super::SimDrive;
use super::state::{Change, DriveState, apply};
use crate::medium::{Medium, PAGE};

/// The fault of a write to the data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// The write is lost.
    Lost,
    /// The write is executed this number of bytes away from its address, with a wrap around at the end of the `used`
    /// area.
    Misdirected {
        /// The distance from the right address.
        by: u64,
        /// Bytes of the data area that hold members' strips.
        used: u64,
    },
}

/// The fault in force, and the content that the drive would have without it.
pub(super) struct Reported {
    lie: Lie,
    truth: Medium,
}

impl SimDrive {
    /// Applies `lie` to writes to the data area from now on.
    pub fn begin_lie(&self, lie: Lie) {
        let mut state = self.state();
        let truth = state.visible.clone();
        state.reported = Some(Reported { lie, truth });
    }

    /// Ends the fault. Returns the content that the drive would have without the fault.
    ///
    /// Panics if there is no fault.
    #[must_use]
    pub fn end_lie(&self) -> Medium {
        self.state().reported.take().expect("it lied until now").truth
    }

    /// The content as a read would return it.
    #[must_use]
    pub fn medium(&self) -> Medium {
        self.state().visible.clone()
    }

    /// Flips a bit of the byte at `offset`.
    pub fn flip(&self, offset: u64, bit: u32) {
        let mut byte = [0];
        self.state().visible.read(offset, &mut byte);
        self.overwrite(offset, &[byte[0] ^ 1 << bit]);
    }

    /// Sets the page at `offset` to its content in `truth`.
    pub fn correct(&self, offset: u64, truth: &Medium) {
        let page = truth.page_bytes(offset);
        let mut state = self.state();
        let count = state.unflushed.len();
        state.destage(count);
        state.visible.write_page(offset, page.clone());
        state.stable.write_page(offset, page);
    }
}

impl DriveState {
    /// Executes a write, with the fault in force.
    pub(super) fn write(&mut self, offset: u64, change: Change, durability: Durability) {
        let Some(reported) = self.reported.as_mut().filter(|_| offset >= strake_ondisk::HEAD_BYTES)
        else {
            return self.change(offset, change, durability);
        };
        if offset >= self.spec.bytes - strake_ondisk::TAIL_BYTES {
            return self.change(offset, change, durability);
        }
        apply(&mut reported.truth, offset, &change);
        match reported.lie {
            Lie::Lost => {}
            Lie::Misdirected { by, used } => {
                let at = (offset - strake_ondisk::HEAD_BYTES + by) % used;
                self.change(strake_ondisk::HEAD_BYTES + at, change, durability);
            }
        }
    }
}

/// The offsets of pages in which two media differ.
#[must_use]
pub fn differing(one: &Medium, other: &Medium, bytes: std::ops::Range<u64>) -> Vec<u64> {
    let pages = bytes.step_by(PAGE);
    pages.filter(|at| one.page_bytes(*at) != other.page_bytes(*at)).collect()
}
