//! The requests of a queue, each in a slot from `submit` to `poll`.

use crate::limits::SLOT_BITS;
use std::mem::{self, ManuallyDrop};
use strake_block::{Io, IoError, IoErrorKind, Op, Place, Token};
use strake_units::BlockSize;

/// The index of a slot of a queue.
pub(crate) type SlotIndex = u16;

/// The state of a request; see the diagram of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Free,
    Ready,
    Sent,
    Over(Result<(), IoErrorKind>),
}

/// Memory of the queue or of the device that a command uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loan {
    None,
    /// A page for a PRP list or for ranges.
    List(u16),
    /// A chunk through which the data are copied.
    Bounce(u16),
}

/// The number of times that a command was sent, and the scans since then and since the submission of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ages {
    pub(crate) age: u16,
    pub(crate) held: u16,
    pub(crate) tries: u16,
}

/// A bit of [`Slot::expects`] above the identifier: no command is outstanding.
const NOTHING: u32 = 1 << 16;
/// The end of the list of free slots: no queue has a slot of this index.
pub(crate) const NO_SLOT: SlotIndex = SlotIndex::MAX;

/// One request.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The request. A free slot has a flush, which owns nothing: an `Option` would be checked for every request.
    op: Op,
    pub(crate) token: Token,
    /// Blocks of the request that are not done.
    pub(crate) left: u64,
    /// Blocks of the outstanding command.
    pub(crate) blocks: u32,
    /// The identifier of the last command, and [`NOTHING`] unless the command is outstanding. The lower bits of the
    /// identifier are the index of the slot; the upper bits count the commands of the slot.
    expects: u32,
    /// The next free slot, if this one is free.
    next: SlotIndex,
    pub(crate) ages: Ages,
    pub(crate) loan: Loan,
    pub(crate) stage: Stage,
    /// Whether the command is the whole request, and uses no loan.
    pub(crate) is_whole: bool,
}

impl Slot {
    /// Returns free slots, each with the next one.
    pub(crate) fn free(count: u16) -> Box<[Self]> {
        let next = |index| if index + 1 == count { NO_SLOT } else { index + 1 };
        (0..count).map(|index| Self::empty(index, next(index))).collect()
    }

    const fn empty(index: SlotIndex, next: SlotIndex) -> Self {
        Self {
            op: Op::Flush,
            token: Token(0),
            left: 0,
            blocks: 0,
            expects: index as u32 | NOTHING,
            next,
            ages: Ages { age: 0, held: 0, tries: 0 },
            loan: Loan::None,
            stage: Stage::Free,
            is_whole: false,
        }
    }

    /// The next free slot.
    #[inline(always)]
    pub(crate) const fn next(&self) -> SlotIndex {
        self.next
    }

    /// Frees the slot, and puts its request into a batch. `next` is the next free slot.
    #[inline(always)]
    pub(crate) fn release(
        &mut self,
        next: SlotIndex,
        place: Place<'_>,
        result: Result<(), IoErrorKind>,
    ) {
        (self.stage, self.next) = (Stage::Free, next);
        place.put_from(self.token, &mut self.op, result.map_err(IoError::new));
    }

    /// Stores a request that is to be sent in pieces, or later.
    pub(crate) fn fill(&mut self, io: Io) {
        (self.op, self.token, self.stage) = (io.op, io.token, Stage::Ready);
        (self.ages, self.is_whole) = (Ages::default(), false);
    }

    /// Stores a request that is sent now as one command; returns its identifier. Its blocks are counted when needed.
    #[inline(always)]
    pub(crate) fn fill_whole(&mut self, token: Token, op: impl FnOnce() -> Op) -> u16 {
        debug_assert!(matches!(self.op, Op::Flush), "a free slot holds no request");
        // The old value owns nothing; forgetting it avoids the call that drops it.
        let _nothing = ManuallyDrop::new(mem::replace(&mut self.op, op()));
        (self.token, self.is_whole) = (token, true);
        self.ages = Ages { age: 0, held: 0, tries: 1 };
        self.stage = Stage::Sent;
        self.next_turn()
    }

    /// Determines the number of blocks of a request that was sent as a whole.
    pub(crate) fn know_size(&mut self, block: BlockSize) {
        if mem::take(&mut self.is_whole) {
            self.left = self.op().range(block).blocks;
            self.blocks = self.left as u32;
        }
    }

    #[inline(always)]
    fn next_turn(&mut self) -> u16 {
        let cid = (self.expects as u16).wrapping_add(1 << SLOT_BITS);
        self.expects = cid.into();
        cid
    }

    /// The operation of a slot that is not free.
    pub(crate) const fn op(&self) -> &Op {
        &self.op
    }

    /// The same to change its data.
    pub(crate) const fn op_mut(&mut self) -> &mut Op {
        &mut self.op
    }

    /// Records a new command, and returns its identifier.
    pub(crate) fn send(&mut self, blocks: u32) -> u16 {
        (self.stage, self.blocks, self.is_whole) = (Stage::Sent, blocks, false);
        (self.ages.age, self.ages.tries) = (0, self.ages.tries + 1);
        self.next_turn()
    }

    /// Whether this is the identifier of the outstanding command. If so, the command is no longer outstanding.
    #[inline(always)]
    pub(crate) const fn is_answered(&mut self, cid: u16) -> bool {
        let is_it = self.expects == cid as u32;
        if is_it {
            self.expects |= NOTHING;
        }
        is_it
    }

    /// The same for a command that is the whole request. Otherwise nothing changes.
    #[inline(always)]
    pub(crate) const fn is_answered_whole(&mut self, cid: u16) -> bool {
        self.is_whole && self.is_answered(cid)
    }

    /// Ensures that the command can no longer be answered.
    pub(crate) const fn forget(&mut self) {
        self.expects |= NOTHING;
    }

    /// Returns the identifier of the last command.
    pub(crate) const fn cid(&self) -> u16 {
        self.expects as u16
    }
}
