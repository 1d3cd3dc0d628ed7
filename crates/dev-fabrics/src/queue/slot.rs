//! The requests of a queue. Each occupies a slot from `submit` to `poll`.

use crate::link::Terms;
use crate::queue::outbox::{Asked, Out};
use crate::queue::piece::{Ability, Piece};
use strake_block::{Durability, Io, IoError, IoErrorKind, Op};
use strake_units::Nanos;

/// The bits of a CID that identify a slot. The higher bits distinguish the commands of one slot, so that a late or
/// repeated completion is not taken for the next command.
const SLOT_BITS: u32 = 10;

const _: () = assert!(1 << SLOT_BITS >= crate::limits::DEPTH_MAX);

/// The index of a slot of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotIndex(u16);

impl SlotIndex {
    /// The index of slot `at`, below [`DEPTH_MAX`](crate::limits::DEPTH_MAX).
    pub(crate) const fn of(at: usize) -> Self {
        Self(at as u16)
    }
}

/// The stage of a request; see the diagram of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The slot has no request.
    Free,
    /// The request waits until the target accepts another command.
    Ready,
    /// The request is not sent before this time. If its attempts are exhausted, it then fails with this error.
    Settling { not_before: Nanos, failure: IoErrorKind },
    /// A PDU of the request waits to be sent, or is being sent.
    Sending,
    /// The command was sent and has not completed.
    Waiting,
    /// The request has completed.
    Over(Result<(), IoError>),
}

/// One request.
pub(crate) struct Slot {
    io: Option<Io>,
    pub(crate) stage: Stage,
    /// The number of completed blocks.
    done: u64,
    /// The current or last command.
    pub(crate) piece: Piece,
    generation: u16,
    pub(crate) tries: u8,
    /// The time of the last progress; `None` before the request was sent or checked.
    pub(crate) since: Option<Nanos>,
    /// The changes that a flush covers, see [`Cache`](crate::cache::Cache).
    pub(crate) covers: u64,
    pub(crate) sent_at: Nanos,
    /// Bytes of the piece that were received or requested.
    pub(crate) moved: u32,
    /// Whether received data was damaged.
    pub(crate) damaged: bool,
    pub(crate) out: Out,
}

impl Slot {
    fn empty() -> Self {
        Self {
            io: None,
            stage: Stage::Free,
            done: 0,
            piece: Piece::default(),
            generation: 0,
            tries: 0,
            since: None,
            covers: 0,
            sent_at: Nanos::default(),
            moved: 0,
            damaged: false,
            out: Out::default(),
        }
    }

    /// The operation of a slot that is not free.
    pub(crate) fn op(&mut self) -> &mut Op {
        &mut self.io.as_mut().expect("a slot in use holds a request").op
    }

    /// True if the request changes blocks.
    pub(crate) fn changes(&mut self) -> bool {
        match self.op() {
            Op::Write { .. } | Op::Deallocate { .. } | Op::WriteZeroes { .. } => true,
            Op::Read { .. } | Op::Flush => false,
        }
    }

    /// True if the request changes blocks and needs a flush to be stable.
    pub(crate) fn needs_flush(&mut self) -> bool {
        match self.op() {
            Op::Write { durability, .. } | Op::WriteZeroes { durability, .. } => {
                *durability == Durability::Normal
            }
            Op::Deallocate { .. } => true,
            Op::Read { .. } | Op::Flush => false,
        }
    }

    /// True if the request has made no progress for `hold`, and none of its commands can still be executed.
    pub(crate) fn is_overdue(&mut self, now: Nanos, hold: Nanos) -> bool {
        let since = *self.since.get_or_insert(now);
        let settled = match self.stage {
            Stage::Settling { not_before, .. } => now >= not_before,
            Stage::Free | Stage::Ready | Stage::Sending | Stage::Waiting | Stage::Over(_) => true,
        };
        settled && now.since(since) >= hold
    }

    /// Composes the command for the next piece.
    pub(crate) fn begin(&mut self, ability: &Ability, terms: &Terms, index: SlotIndex, now: Nanos) {
        let done = self.done;
        self.piece = Piece::next(self.op(), done, ability);
        self.generation = self.generation.wrapping_add(1);
        self.tries += 1;
        self.sent_at = now;
        self.since.get_or_insert(now);
        (self.moved, self.damaged) = (0, false);
        self.stage = Stage::Sending;
        let cid = self.generation << SLOT_BITS | index.0;
        let Self { io, piece, out, .. } = self;
        let op = &io.as_ref().expect("a slot in use holds a request").op;
        self.moved = piece.compose(op, (ability, terms), cid, out);
    }

    /// Completes the piece. Returns true if the request is complete.
    pub(crate) fn advance(&mut self, ability: &Ability) -> bool {
        self.done += self.piece.blocks;
        (self.tries, self.since) = (0, None);
        self.done >= self.op().range(ability.block).blocks
    }

    /// Composes the next data PDU of an R2T.
    pub(crate) fn send_data(&mut self, asked: Asked, ability: &Ability, terms: &Terms) {
        let length = (asked.until - asked.from).min(terms.data_bytes_max);
        let piece = self.piece;
        let data = piece.data(self.op(), ability, (asked.from, length));
        self.out.data_for(asked, data, terms);
    }

    /// Releases data that waited to be sent.
    pub(crate) fn forget_sent(&mut self) {
        self.out.clear();
    }

    /// Extends the wait, if the request changes blocks.
    pub(crate) fn wait_until(&mut self, time: Nanos) {
        if self.changes()
            && let Stage::Settling { not_before, .. } = &mut self.stage
        {
            *not_before = time.max(*not_before);
        }
    }
}

/// A fixed number of slots.
pub(crate) struct Slots {
    slots: Box<[Slot]>,
    free: Vec<u16>,
}

impl Slots {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            slots: (0..count).map(|_| Slot::empty()).collect(),
            free: (0..count as u16).rev().collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn are_free(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    pub(crate) fn any(&self, is: impl Fn(&Slot) -> bool) -> bool {
        self.slots.iter().any(is)
    }

    /// Puts a request into a slot, or returns it if there is none.
    // Returning the request is the contract of `IoQueue::submit`.
    #[allow(clippy::result_large_err)]
    pub(crate) fn take(&mut self, io: Io) -> Result<SlotIndex, Io> {
        let Some(at) = self.free.pop() else { return Err(io) };
        let slot = &mut self.slots[usize::from(at)];
        slot.io = Some(io);
        (slot.stage, slot.done, slot.tries, slot.since) = (Stage::Ready, 0, 0, None);
        Ok(SlotIndex(at))
    }

    pub(crate) fn peek(&self, index: SlotIndex) -> &Slot {
        &self.slots[usize::from(index.0)]
    }

    pub(crate) fn get(&mut self, index: SlotIndex) -> &mut Slot {
        &mut self.slots[usize::from(index.0)]
    }

    /// The slot of a CID, if its command was sent and has not completed.
    pub(crate) fn find(&mut self, cid: u16) -> Option<(SlotIndex, &mut Slot)> {
        let at = cid & ((1 << SLOT_BITS) - 1);
        let slot = self.slots.get_mut(usize::from(at))?;
        let current = slot.generation << SLOT_BITS == cid & !((1 << SLOT_BITS) - 1);
        let sent = matches!(slot.stage, Stage::Sending | Stage::Waiting);
        (current && sent).then_some((SlotIndex(at), slot))
    }

    /// Removes a completed request and its result.
    pub(crate) fn end(&mut self, index: SlotIndex) -> (Io, Result<(), IoError>) {
        let slot = self.get(index);
        let stage = std::mem::replace(&mut slot.stage, Stage::Free);
        let (Some(io), Stage::Over(result)) = (slot.io.take(), stage) else {
            unreachable!("only a request that is over ends");
        };
        self.free.push(index.0);
        (io, result)
    }
}
