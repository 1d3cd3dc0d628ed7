//! Operations of the map: the execution of their steps, and their ends.

use std::collections::VecDeque;
use std::sync::mpsc;

use strake_block::{BufMut, Durability, IoError, IoErrorKind, Op, Reunion, Sg, SgMut};
use strake_units::Nanos;
use strake_volume_map::{
    Blocks, ClusterId, Done, Error, ErrorKind, OperationId, Part as Source, Progress, Request,
    Source as From, Stability, Step, Wait,
};

use super::requests::HostPart;
use super::roots::RootWrite;
use super::{Driver, Transfer, io_error};
use crate::limits::{COPIES_MAX, STARVED_DELETING, STARVED_MAX};
use crate::request::Answer;

/// Who gets the result of an operation.
pub(super) enum Owner {
    /// A part of a request of a host.
    Host { request: u32, part: HostPart },
    /// A request of an operator.
    Operator { reply: mpsc::Sender<Result<Answer, Error>> },
    /// The driver: a sweep.
    Sweep,
    /// The driver, or an operator who asked for it: a checkpoint.
    Checkpoint { reply: Option<mpsc::Sender<Result<Answer, Error>>> },
}

/// An operation in progress.
pub(super) struct Running {
    pub(super) owner: Owner,
    /// I/Os of the present step in progress.
    transfers: u32,
    /// The first error of the step.
    error: Option<IoError>,
    copy: Option<Copying>,
    /// Since when the operation waits for a free cluster.
    starved_since: Option<Nanos>,
}

impl Running {
    pub(super) fn new(owner: Owner) -> Self {
        Self { owner, transfers: 0, error: None, copy: None, starved_since: None }
    }

    /// I/Os of the present step in progress.
    pub(super) const fn parts(&self) -> u32 {
        self.transfers
    }

    /// Adds I/Os to the present step.
    pub(super) const fn begin_parts(&mut self, count: u32) {
        self.transfers += count;
    }

    pub(super) const fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Fails the present step when all its I/Os have ended.
    pub(super) fn fail(&mut self, error: IoError) {
        self.error.get_or_insert(error);
    }
}

/// A copy to a cluster: its parts are read into one buffer, and then written.
struct Copying {
    to: ClusterId,
    /// The first block of the buffer.
    first: u16,
    back: Reunion,
    /// What is written, in blocks of the cluster.
    runs: Vec<Blocks>,
    is_writing: bool,
}

/// The sweeps of volumes that are being deleted.
pub(super) struct Sweeps {
    is_running: bool,
    /// False if no volume is being deleted, or if the last sweep failed.
    is_due: bool,
}

impl Sweeps {
    /// Returns the state after a start: the previous one may have been deleting volumes.
    pub(super) const fn after_start() -> Self {
        Self { is_running: false, is_due: true }
    }

    /// True if the space of deleted volumes returns.
    const fn is_active(&self) -> bool {
        self.is_running || self.is_due
    }

    /// Time for which a write waits for a free cluster.
    pub(super) const fn starved_limit(&self) -> Nanos {
        if self.is_active() { STARVED_DELETING } else { STARVED_MAX }
    }
}

/// The limit of copies in progress.
#[derive(Default)]
pub(super) struct Copies {
    active: usize,
    waiting: VecDeque<(OperationId, Vec<Source>, ClusterId, Option<Blocks>)>,
}

/// Joins blocks that follow each other.
fn runs_of(mut all: Vec<Blocks>) -> Vec<Blocks> {
    all.sort_by_key(|blocks| blocks.first);
    let mut runs: Vec<Blocks> = Vec::new();
    for blocks in all.into_iter().filter(|blocks| blocks.count > 0) {
        match runs.last_mut() {
            Some(last) if last.end() == u32::from(blocks.first) => last.count += blocks.count,
            Some(_) | None => runs.push(blocks),
        }
    }
    runs
}

impl Driver {
    /// Continues an operation, and executes its step.
    pub(super) fn advance(&mut self, id: OperationId) {
        if !self.starved.is_empty() {
            self.starved.retain(|(starved, _)| *starved != id);
        }
        match self.map.advance(id) {
            Progress::Do(step) => self.execute(id, step),
            Progress::Wait(Wait::Space) => {
                let now = self.now;
                let since = *self.running(id).starved_since.get_or_insert(now);
                self.starved.push((id, since));
            }
            Progress::Wait(Wait::Checkpoint) => self.checkpoints.is_wanted = true,
            Progress::Wait(_) => {}
            Progress::Finished(result) => self.finish(id, result),
        }
    }

    fn execute(&mut self, id: OperationId, step: Step) {
        self.running(id).error = None;
        match step {
            Step::Write { cluster, blocks, stability } => {
                self.write_blocks(id, cluster, blocks, stability);
            }
            Step::Copy { parts, to, data } => {
                self.copies.waiting.push_back((id, parts, to, data));
                self.begin_copies();
            }
            Step::Flush => {
                self.running(id).transfers = 1;
                self.send(Transfer::Step { operation: id }, Op::Flush);
            }
            Step::Pace => self.paced.push(id),
            Step::WriteRoot { place, sequence, floors } => {
                let log_from = floors.first().map_or(0, |floor| self.log.position(*floor));
                let at = self.layout.root(place);
                self.root = Some(RootWrite::new(id, at, sequence, log_from));
                self.running(id).begin_parts(1);
            }
            Step::Hold { .. } => {
                // This thread asks the map about new writes, and writes that use views see the following. The map
                // closes the epoch of earlier ones at once, before anything else is done.
                self.directs.hold_writes();
                self.map.completed(id);
                self.advance(id);
            }
            // Reads of hosts are no operations.
            Step::Read { .. } => self.map.failed(id),
        }
    }

    pub(super) fn running(&mut self, id: OperationId) -> &mut Running {
        self.operations.get_mut(&id).expect("an operation of the map is in progress")
    }

    /// Returns the data of the host for an operation.
    fn data_of(&mut self, id: OperationId) -> Sg {
        let Owner::Host { request, part } = &self.running(id).owner else { return Sg::default() };
        let (request, part) = (*request, *part);
        let shift = self.layout.block_size.shift();
        self.requests.get_mut(request).data(part, shift)
    }

    fn write_blocks(
        &mut self,
        id: OperationId,
        cluster: ClusterId,
        blocks: Blocks,
        stability: Stability,
    ) {
        let data = self.data_of(id);
        let durability = match stability {
            Stability::Cached => Durability::Normal,
            Stability::Stable => Durability::Fua,
        };
        self.running(id).transfers = 1;
        let at = self.layout.cluster(cluster, blocks);
        self.send(Transfer::Step { operation: id }, Op::Write { at, data, durability });
    }

    /// Begins the copies for which there is memory.
    fn begin_copies(&mut self) {
        while self.copies.active < COPIES_MAX
            && let Some((id, parts, to, data)) = self.copies.waiting.pop_front()
        {
            self.begin_copy(id, parts, to, data);
        }
    }

    fn begin_copy(
        &mut self,
        id: OperationId,
        parts: Vec<Source>,
        to: ClusterId,
        data: Option<Blocks>,
    ) {
        let all: Vec<_> = parts.iter().map(|part| part.blocks).chain(data).collect();
        let runs = runs_of(all);
        let (Some(first), Some(last)) = (runs.first().copied(), runs.last()) else {
            // Nothing is missing.
            return self.map.completed(id);
        };
        self.copies.active += 1;
        let count = (last.end() - u32::from(first.first)) as u16;
        let mut rest = SgMut::from(BufMut::alone(self.layout.bytes_of(count)));
        let back = Reunion::of(&rest);
        let copy = Copying { to, first: first.first, back, runs, is_writing: false };
        let host = self.data_of(id);
        let running = self.running(id);
        running.copy = Some(copy);
        // One for this function, so that the step does not end before all parts have begun.
        running.transfers = 1;
        let mut pieces = parts;
        let own = data.map(|blocks| Source { blocks, source: From::Zeroes });
        pieces.extend(own);
        pieces.sort_by_key(|part| part.blocks.first);
        let mut at = u32::from(first.first);
        for part in pieces.into_iter().filter(|part| part.blocks.count > 0) {
            let gap = u32::from(part.blocks.first) - at;
            let unused = rest.split_to(self.layout.bytes_of(gap as u16));
            self.absorb(id, unused);
            at = part.blocks.end();
            let mut piece = rest.split_to(self.layout.bytes_of(part.blocks.count));
            match part.source {
                From::Cluster(cluster) => {
                    let mut at = self.layout.cluster(cluster, part.blocks);
                    while !piece.is_empty() {
                        let bytes = piece.len().min(self.transfer_bytes);
                        let data = piece.split_to(bytes);
                        self.running(id).transfers += 1;
                        self.send(Transfer::Step { operation: id }, Op::Read { at, data });
                        at = at.plus(bytes as u64 >> self.layout.block_size.shift());
                    }
                }
                From::Zeroes => {
                    let bytes = piece.len();
                    piece.slices_mut(0, bytes).for_each(|slice| slice.fill(0));
                    if data == Some(part.blocks) {
                        let mut offset = 0;
                        for buffer in host.parts() {
                            piece.copy_from(offset, buffer.as_slice());
                            offset += buffer.len();
                        }
                    }
                    self.absorb(id, piece);
                }
            }
        }
        self.absorb(id, rest);
        self.step_part_ended(id);
    }

    /// Returns a piece of the buffer of a copy.
    fn absorb(&mut self, id: OperationId, piece: SgMut) {
        let running = self.running(id);
        if let Some(copy) = &mut running.copy
            && copy.back.absorb(piece).is_err()
        {
            running.error.get_or_insert(IoError::new(IoErrorKind::Timeout));
        }
    }

    /// An I/O of a step has completed.
    pub(super) fn step_io_completed(
        &mut self,
        id: OperationId,
        op: Op,
        result: Result<(), IoError>,
    ) {
        if let Err(error) = result {
            self.running(id).error.get_or_insert(error);
        }
        if let Op::Read { data, .. } = op {
            self.absorb(id, data);
        }
        self.step_part_ended(id);
    }

    /// Ends a part of a step, and the step with its last part.
    pub(super) fn step_part_ended(&mut self, id: OperationId) {
        let running = self.running(id);
        running.transfers -= 1;
        if running.transfers > 0 {
            return;
        }
        let is_read = running.copy.as_ref().is_some_and(|copy| !copy.is_writing);
        if is_read && running.error.is_none() {
            return self.write_copy(id);
        }
        let was_copy = running.copy.take().is_some();
        match running.error {
            Some(_) => self.map.failed(id),
            None => self.map.completed(id),
        }
        if was_copy {
            self.copies.active -= 1;
            self.begin_copies();
        }
    }

    /// Writes the buffer of a copy.
    fn write_copy(&mut self, id: OperationId) {
        let Some(mut copy) = self.running(id).copy.take() else { return };
        let buffer = std::mem::take(&mut copy.back).complete().ok().and_then(SgMut::into_single);
        let Some(buffer) = buffer else {
            self.running(id).error.get_or_insert(IoError::new(IoErrorKind::Timeout));
            self.running(id).copy = Some(Copying { is_writing: true, ..copy });
            self.running(id).transfers = 1;
            return self.step_part_ended(id);
        };
        let data = Sg::from(buffer.freeze());
        let mut count = 0;
        for run in &copy.runs {
            let offset = self.layout.bytes_of(run.first - copy.first);
            let data = data.slice(offset, self.layout.bytes_of(run.count));
            let at = self.layout.cluster(copy.to, *run).bytes(self.layout.block_size);
            count += self.send_writes(Transfer::Step { operation: id }, at, &data);
        }
        let running = self.running(id);
        running.transfers = count;
        running.copy = Some(Copying { is_writing: true, ..copy });
    }

    /// Ends the pace steps of the last turn.
    pub(super) fn end_pace_steps(&mut self) -> usize {
        let paced = std::mem::take(&mut self.paced);
        paced.iter().for_each(|id| self.map.completed(*id));
        paced.len()
    }

    /// Ends waits for space that have lasted too long, or that nothing can end: the write fails, and its host may
    /// repeat it.
    pub(super) fn settle_starved(&mut self) -> usize {
        if self.starved.is_empty() {
            return 0;
        }
        let is_alone = self.operations.len() == self.starved.len()
            && self.transfers.len() == 0
            && !self.directs.are_awaited(&self.map)
            && self.map.woken().is_none();
        let is_vain = !self.is_serving() || (is_alone && !self.sweeps.is_active());
        let (limit, now) = (self.sweeps.starved_limit(), self.now);
        let is_over = |since: Nanos| is_vain || now.0 >= since.0 + limit.0;
        let starved = self.starved.iter();
        let over: Vec<_> = starved.filter(|(_, since)| is_over(*since)).copied().collect();
        for (id, _) in &over {
            self.map.cancel(*id);
        }
        self.starved.retain(|entry| !over.contains(entry));
        over.len()
    }

    fn finish(&mut self, id: OperationId, result: Result<Done, Error>) {
        let Running { owner, error, .. } =
            self.operations.remove(&id).expect("an operation of the map is in progress");
        match owner {
            Owner::Host { request, .. } => {
                let result = result.map(drop).map_err(|refusal| match (refusal.kind, error) {
                    // The error of the device says more than the failed step.
                    (ErrorKind::StepFailed { .. }, Some(error)) => error,
                    (kind, _) => io_error(kind),
                });
                self.part_completed(request, result);
            }
            Owner::Operator { reply } => {
                self.operator_requests -= 1;
                if let Ok(Done::Dying(_)) = result {
                    self.sweeps.is_due = true;
                }
                self.directs.refresh_sizes(&self.map);
                // A control thread that has stopped waiting needs no answer.
                let _ = reply.send(result.map(|done| match done {
                    Done::Made(volumes) => Answer::Created(volumes),
                    Done::Done | Done::Dying(_) => Answer::Done,
                }));
            }
            Owner::Sweep => {
                // After a failure, the next deletion or the next start begins it again.
                self.sweeps = Sweeps { is_running: false, is_due: result.is_ok() };
            }
            Owner::Checkpoint { reply } => self.checkpoint_ended(id, reply, result),
        }
    }

    /// Begins to return the space of a deleted volume, one volume at a time.
    pub(super) fn sweep(&mut self) -> usize {
        let is_possible = self.is_serving() && !self.map.needs_roots();
        if !self.sweeps.is_due || self.sweeps.is_running || !is_possible {
            return 0;
        }
        let Some(volume) = self.map.dying().next() else {
            self.sweeps.is_due = false;
            return 0;
        };
        match self.map.begin(Request::Sweep { volume }) {
            Ok(id) => {
                self.sweeps.is_running = true;
                self.operations.insert(id, Running::new(Owner::Sweep));
            }
            Err(_) => self.sweeps.is_due = false,
        }
        1
    }
}
