//! The part of the queue of a volume that sends I/Os to the device below without the pool core.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use strake_block::{CompletionBatch, Io, IoError, IoErrorKind, IoQueue, Op, Readiness, Token};
use strake_units::{Lba, Nanos};
use strake_volume_map::{Blocks, Direct};

use crate::device::Below;
use crate::grace::{Half, Section};
use crate::slab::Slab;
use crate::view::View;

/// A request that was not sent.
pub(crate) enum Back {
    /// The pool core must execute it.
    ForPool(Io),
    /// The device has no room.
    Full(Io),
}

/// A request in progress.
struct Sent {
    token: Token,
    /// The first block of the volume.
    at: Lba,
    half: Half,
}

/// The direct way to the device below.
pub(crate) struct DirectQueue {
    queue: Box<dyn IoQueue>,
    below: Below,
    view: Arc<View>,
    section: Arc<Section>,
    sent: Slab<Sent>,
    /// Requests that are sent together.
    staged: VecDeque<Io>,
    /// Writes in progress.
    writes: u32,
    cluster_blocks: u64,
}

/// A request that is in the section.
struct Entered {
    /// The first block of the device.
    to: Lba,
    half: Half,
    /// The first block of the volume.
    at: Lba,
}

/// The range of a request that is in one part of a volume.
struct InPart {
    part: u32,
    blocks: Blocks,
    /// The block of the volume after the request.
    end: u64,
}

impl DirectQueue {
    pub(crate) fn new(
        queue: Box<dyn IoQueue>,
        below: &Below,
        view: Arc<View>,
        section: Arc<Section>,
        depth: u32,
    ) -> Self {
        let cluster_blocks = u64::from(below.layout.shape.cluster_blocks);
        let (below, sent) = (below.clone(), Slab::new(depth as usize));
        let staged = VecDeque::with_capacity(depth as usize);
        Self { queue, below, view, section, sent, staged, writes: 0, cluster_blocks }
    }

    /// Sends a request to the device if the view has its cluster.
    #[allow(clippy::result_large_err)]
    pub(crate) fn submit(&mut self, io: Io) -> Result<(), Back> {
        let Some(entered) = self.enter(&io.op) else { return Err(Back::ForPool(io)) };
        let Io { token, op } = self.begin(io, entered);
        let sent = match op {
            Op::Read { at, data } => self.queue.submit_read(token, at, data),
            Op::Write { at, data, durability } => {
                self.queue.submit_write(token, at, data, durability)
            }
            op @ (Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. }) => {
                unreachable!("{op:?} has no cluster")
            }
        };
        sent.map_err(|back| Back::Full(self.take_back(back)))
    }

    /// Accepts a request for the next [`submit_staged`](Self::submit_staged) if the view has its cluster.
    #[allow(clippy::result_large_err)]
    pub(crate) fn stage(&mut self, io: Io) -> Result<(), Io> {
        let Some(entered) = self.enter(&io.op) else { return Err(io) };
        let io = self.begin(io, entered);
        self.staged.push_back(io);
        Ok(())
    }

    /// Sends the accepted requests. Returns those for which the device has no room to the front of `batch`, and returns
    /// their number.
    pub(crate) fn submit_staged(&mut self, batch: &mut VecDeque<Io>) -> u32 {
        self.queue.submit_batch(&mut self.staged);
        let count = self.staged.len() as u32;
        while let Some(back) = self.staged.pop_back() {
            let io = self.take_back(back);
            batch.push_front(io);
        }
        count
    }

    /// Enters the section, and returns the cluster of a request, if the view has it.
    fn enter(&self, op: &Op) -> Option<Entered> {
        let (at, bytes, is_write) = match op {
            Op::Read { at, data } => (*at, data.len(), false),
            Op::Write { at, data, .. } => (*at, data.len(), true),
            Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => return None,
        };
        let InPart { part, blocks, end } = self.in_part(at, bytes)?;
        let half = self.section.enter(&self.below.grace);
        // The size may change until the request is in the section.
        let is_in = end <= self.view.blocks.load(Ordering::Acquire);
        let Some(direct) = self.find(part, is_write).filter(|_| is_in) else {
            self.section.leave(half);
            return None;
        };
        Some(Entered { to: self.below.layout.cluster(direct.cluster, blocks), half, at })
    }

    /// Returns the request for the device.
    fn begin(&mut self, mut io: Io, entered: Entered) -> Io {
        let Entered { to, half, at } = entered;
        self.writes += u32::from(matches!(io.op, Op::Write { .. }));
        io.token = Token(u64::from(self.sent.insert(Sent { token: io.token, at, half })));
        set_start(&mut io.op, to);
        io
    }

    /// Returns the request of the user for a request that the device did not accept.
    fn take_back(&mut self, mut back: Io) -> Io {
        let Sent { token, at, half } = self.sent.remove(back.token.0 as u32);
        self.writes -= u32::from(matches!(back.op, Op::Write { .. }));
        self.section.leave(half);
        back.token = token;
        set_start(&mut back.op, at);
        back
    }

    /// Returns the part of a request that is in one part of the volume.
    fn in_part(&self, at: Lba, bytes: usize) -> Option<InPart> {
        let size = self.below.layout.block_size;
        let (count, rest) = (bytes as u64 >> size.shift(), bytes & (size.bytes() as usize - 1));
        let (part, first) = (at.0 / self.cluster_blocks, at.0 % self.cluster_blocks);
        let end = at.0.checked_add(count)?;
        if count == 0 || rest != 0 || first + count > self.cluster_blocks {
            return None;
        }
        let blocks = Blocks { first: first as u16, count: count as u16 };
        Some(InPart { part: u32::try_from(part).ok()?, blocks, end })
    }

    /// Returns the cluster of a part for an I/O that is in the section.
    fn find(&self, part: u32, is_write: bool) -> Option<Direct> {
        let grace = &self.below.grace;
        // After a lost write, no other write may be acknowledged: the device may still execute the lost one.
        let is_held = is_write && (grace.holds_writes() || grace.has_lost_write());
        if !self.section.is_open() || grace.is_closed() || is_held {
            return None;
        }
        self.view.get(part).filter(|direct| direct.is_writable || !is_write)
    }

    pub(crate) fn ring_doorbell(&mut self, now: Nanos) {
        self.queue.ring_doorbell(now);
    }

    /// Moves completions into `batch`, as far as there is room.
    pub(crate) fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        let before = batch.len();
        self.queue.poll(now, batch);
        for done in &mut batch.as_mut_slice()[before..] {
            let Sent { token, at, half } = self.sent.remove(done.token.0 as u32);
            if matches!(done.op, Op::Write { .. }) {
                self.writes -= 1;
                if done.result.is_err_and(is_lost) {
                    self.below.grace.lose_write();
                }
            }
            done.token = token;
            set_start(&mut done.op, at);
            self.section.leave(half);
        }
    }

    pub(crate) fn readiness(&self) -> Readiness {
        self.queue.readiness()
    }
}

impl Drop for DirectQueue {
    fn drop(&mut self) {
        if self.writes > 0 {
            self.below.grace.lose_write();
        }
        self.section.end();
    }
}

/// True if the device may still execute a write that ended with this error.
pub(crate) const fn is_lost(error: IoError) -> bool {
    matches!(error.kind, IoErrorKind::Timeout | IoErrorKind::Aborted | IoErrorKind::Gone)
}

fn set_start(op: &mut Op, start: Lba) {
    match op {
        Op::Read { at, .. } | Op::Write { at, .. } => *at = start,
        Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {}
    }
}
