//! The requests of a queue, each in a slot from `submit` to `poll`.

use crate::limits::SLOT_BITS;
use std::mem::{self, ManuallyDrop};
use strake_block::{Io, IoErrorKind, Op, Token};
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

/// No command is outstanding.
const NOTHING: u32 = u32::MAX;

/// One request.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) op: Option<Op>,
    pub(crate) token: Token,
    /// Blocks of the request that are not done.
    pub(crate) left: u64,
    /// Blocks of the outstanding command.
    pub(crate) blocks: u32,
    /// The identifier of the outstanding command.
    expects: u32,
    /// Counts the commands of the slot, in the upper bits of the command identifier.
    turn: u16,
    pub(crate) ages: Ages,
    pub(crate) loan: Loan,
    pub(crate) stage: Stage,
    /// Whether the command is the whole request, and uses no loan.
    pub(crate) is_whole: bool,
}

impl Slot {
    pub(crate) const fn empty() -> Self {
        Self {
            op: None,
            token: Token(0),
            left: 0,
            blocks: 0,
            expects: NOTHING,
            turn: 0,
            ages: Ages { age: 0, held: 0, tries: 0 },
            loan: Loan::None,
            stage: Stage::Free,
            is_whole: false,
        }
    }

    /// Stores a request that is to be sent in pieces, or later.
    pub(crate) fn fill(&mut self, io: Io) {
        (self.op, self.token, self.stage) = (Some(io.op), io.token, Stage::Ready);
        (self.ages, self.is_whole) = (Ages::default(), false);
    }

    /// Stores a request that is sent now as one command; returns its identifier. Its blocks are counted when needed.
    #[inline(always)]
    pub(crate) fn fill_whole(
        &mut self,
        token: Token,
        index: SlotIndex,
        op: impl FnOnce() -> Op,
    ) -> u16 {
        debug_assert!(self.op.is_none(), "a free slot holds no request");
        // The old value is `None`; forgetting it avoids the call that drops it.
        let _nothing = ManuallyDrop::new(self.op.replace(op()));
        (self.token, self.is_whole) = (token, true);
        self.ages = Ages { age: 0, held: 0, tries: 1 };
        self.stage = Stage::Sent;
        self.next_turn(index)
    }

    /// Determines the number of blocks of a request that was sent as a whole.
    pub(crate) fn know_size(&mut self, block: BlockSize) {
        if mem::take(&mut self.is_whole) {
            self.left = self.op().range(block).blocks;
            self.blocks = self.left as u32;
        }
    }

    #[inline(always)]
    fn next_turn(&mut self, index: SlotIndex) -> u16 {
        self.turn = self.turn.wrapping_add(1 << SLOT_BITS);
        let cid = self.turn | index;
        self.expects = cid.into();
        cid
    }

    /// The operation of a slot that is not free.
    pub(crate) fn op(&self) -> &Op {
        self.op.as_ref().expect("a slot in use holds a request")
    }

    /// Records a new command, and returns its identifier.
    pub(crate) fn send(&mut self, index: SlotIndex, blocks: u32) -> u16 {
        (self.stage, self.blocks, self.is_whole) = (Stage::Sent, blocks, false);
        (self.ages.age, self.ages.tries) = (0, self.ages.tries + 1);
        self.next_turn(index)
    }

    /// Whether this is the identifier of the outstanding command. If so, the command is no longer outstanding.
    #[inline(always)]
    pub(crate) fn is_answered(&mut self, cid: u16) -> bool {
        let is_it = self.expects == u32::from(cid);
        if is_it {
            self.expects = NOTHING;
        }
        is_it
    }

    /// Ensures that the command can no longer be answered.
    pub(crate) const fn forget(&mut self) {
        self.expects = NOTHING;
    }

    /// Returns the identifier of the last command.
    pub(crate) const fn cid(&self, index: SlotIndex) -> u16 {
        self.turn | index
    }
}
