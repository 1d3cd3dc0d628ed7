//! The map of a pool while it is in use: the interface to a driver.

use std::collections::BTreeMap;

use crate::blocks::Blocks;
use crate::body::Body;
use crate::epoch::Epoch;
use crate::error::{Error, ErrorKind};
use crate::ids::{ClusterId, Number, OperationId, Ring, Start, VolumeId};
use crate::limits::OPERATIONS_MAX;
use crate::operation::{Progress, Wait};
use crate::record::Record;
use crate::shape::Shape;
use crate::space::PoolSpace;
#[cfg(test)]
use crate::space::VolumeSpace;
use crate::state::MapState;
use crate::step_kind::StepKind;
use crate::tables::{Part, Parts, Source, Tables, Volume};
use crate::waiting::{Revoked, Waiting};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Operation {
    body: Body,
    released: Released,
    wait: Option<Wait>,
}

/// The last step of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Released {
    /// No step, or the step has completed.
    No,
    /// The driver executes the step.
    Yes(StepKind),
    /// The step failed. The operation ends when it is advanced.
    Failed(StepKind),
}

/// The map of a pool: its tables, its rings, and the operations in progress.
///
/// A driver starts an operation with [`begin`](Self::begin), and calls [`advance`](Self::advance) until the operation
/// has finished. In between it executes the released steps and calls [`completed`](Self::completed) or
/// [`failed`](Self::failed). It writes the records of each ring in order, stably, and calls [`stable`](Self::stable).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VolumeMap {
    pub(crate) state: MapState,
    operations: BTreeMap<OperationId, Operation>,
    waiting: Waiting,
    next_operation: u64,
    is_read_only: bool,
    revoked: Vec<Revoked>,
}

/// A whole cluster that a part of a volume refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// The cluster.
    pub cluster: ClusterId,
    /// True if the part may also be written in place.
    pub is_writable: bool,
}

impl VolumeMap {
    /// Returns the map of a new pool without volumes. Two checkpoints must be written before anything else. For the
    /// nonce, see [`open`](Self::open).
    ///
    /// # Errors
    /// If the shape is out of bounds.
    pub fn create(shape: Shape, nonce: u64) -> Result<Self, Error> {
        let shape = shape.check()?;
        let start = Start { number: 1, nonce };
        let next = vec![Number(1); usize::from(shape.rings)];
        Ok(Self::from_state(MapState::of(Tables::new(shape), &next, Vec::new(), (0, start))))
    }

    pub(crate) fn from_state(state: MapState) -> Self {
        let (operations, waiting) = (BTreeMap::new(), Waiting::default());
        let revoked = Vec::new();
        Self { state, operations, waiting, next_operation: 1, is_read_only: false, revoked }
    }

    /// The shape of the pool.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.state.tables.shape
    }

    /// The number and the nonce of this start, which all its records have.
    #[must_use]
    pub fn start(&self) -> Start {
        self.state.start
    }

    /// True until the roots of a new pool, or of a new number of rings, are written.
    #[must_use]
    pub fn needs_roots(&self) -> bool {
        self.state.roots_due > 0
    }

    /// Returns a volume, snapshot or clone that is not being deleted.
    #[must_use]
    pub fn volume(&self, id: VolumeId) -> Option<&Volume> {
        self.state.tables.serving(id)
    }

    /// Returns the blocks of a volume that accept requests: without a growth whose record is not stable. `None` without
    /// such a volume.
    #[must_use]
    pub fn usable_blocks(&self, id: VolumeId) -> Option<u64> {
        self.volume(id).map(|volume| self.state.usable_blocks(volume, id))
    }

    /// Returns all volumes that are not being deleted, in the order of their identifiers.
    pub fn volumes(&self) -> impl Iterator<Item = (VolumeId, &Volume)> {
        let volumes = self.state.tables.volumes.iter();
        volumes.filter(|(_, volume)| !volume.is_dying).map(|(id, volume)| (*id, volume))
    }

    /// Returns volumes that are being deleted. After a start, the driver must [`Sweep`](crate::Request::Sweep) each.
    pub fn dying(&self) -> impl Iterator<Item = VolumeId> {
        let volumes = self.state.tables.volumes.iter();
        volumes.filter(|(_, volume)| volume.is_dying).map(|(id, _)| *id)
    }

    /// Returns the sources of blocks of a cluster of a volume. The time does not depend on the number of snapshots, and
    /// nothing is allocated. For inspection only: an I/O must use a [`Read`](crate::Request::Read).
    ///
    /// # Errors
    /// If the volume does not exist.
    pub fn places(&self, id: VolumeId, index: u32, blocks: Blocks) -> Result<Parts<'_>, Error> {
        let volume = self.state.tables.serving(id).ok_or(ErrorKind::NoVolume.of(id))?;
        let cluster = self.state.tables.lookup(volume, index).1;
        Ok(self.state.tables.parts(cluster, blocks))
    }

    /// Starts a read of blocks without an operation. Returns the source of the first of these blocks, with as many of
    /// the blocks as follow from the same source; the caller enters again for the rest. The returned epoch keeps the
    /// cluster in use until [`leave`](Self::leave). Like [`Request::Read`](crate::Request::Read), but nothing is
    /// allocated, and roots may be due.
    ///
    /// # Errors
    /// If the volume does not exist, or the blocks are not in it.
    pub fn enter_read(
        &mut self,
        id: VolumeId,
        index: u32,
        blocks: Blocks,
    ) -> Result<(Epoch, Part), Error> {
        let volume = self.state.serving(id)?;
        self.state.check_range(volume, id, index, blocks)?;
        let tables = &self.state.tables;
        let cluster = tables.lookup(volume, index).1;
        let part = match cluster.map(|cluster| (cluster, tables.partial(cluster))) {
            None => Part { blocks, source: Source::Zeroes },
            Some((cluster, None)) => Part { blocks, source: Source::Cluster(cluster) },
            Some((cluster, Some(_))) => {
                let first = tables.parts(Some(cluster), blocks).next();
                first.expect("a checked range has a block")
            }
        };
        Ok((self.state.epochs.enter(), part))
    }

    /// Starts a write of blocks in place without an operation, if the blocks need no record and no lock: the cluster is
    /// whole, only this volume refers to it, and the core holds no writes. The write enters the returned epoch until
    /// [`leave`](Self::leave). `None` means that the write needs a [`Request::Write`](crate::Request::Write). Nothing
    /// is allocated.
    ///
    /// # Errors
    /// If the volume does not exist or does not change, if the blocks are not in it, or after a failure of the log.
    pub fn enter_write(
        &mut self,
        id: VolumeId,
        index: u32,
        blocks: Blocks,
        core: Ring,
    ) -> Result<Option<(Epoch, ClusterId)>, Error> {
        if self.state.roots_due > 0 {
            return Err(ErrorKind::RootFirst.into());
        }
        if self.is_read_only {
            return Err(ErrorKind::LogFailed.into());
        }
        self.state.check_range(self.state.writable(id)?, id, index, blocks)?;
        Ok(match self.state.in_place(id, index, blocks) {
            Some(cluster) if !self.state.is_held(core) => {
                Some((self.state.epochs.enter(), cluster))
            }
            Some(_) | None => None,
        })
    }

    /// Returns the end of the leaf of a cluster of a volume if the leaf does not exist: all its clusters are unmapped.
    #[must_use]
    pub fn unmapped_until(&self, id: VolumeId, index: u32) -> Option<u32> {
        let volume = self.volume(id)?;
        let (at, _) = self.state.tables.shape.entry(index);
        let leaf = volume.root.get(at).copied()?;
        let end = (at as u32 + 1).saturating_mul(u32::from(self.state.tables.shape.leaf_entries));
        leaf.is_none().then_some(end)
    }

    /// Ends a read or write that entered this epoch. Its I/Os have completed, or none of them can still be executed.
    ///
    /// # Panics
    /// If nothing that entered this epoch is in progress.
    pub fn leave(&mut self, epoch: Epoch) {
        let needs = self.state.needs.total();
        if self.state.epochs.leave(epoch) {
            self.state.changes.are_older_back = true;
            self.state.settle();
            self.wake(needs);
        }
    }

    /// Returns the cluster of a part of a volume if reads need nothing else: the cluster is whole, and no operation
    /// changes it. The answer holds for I/Os that enter an epoch before [`revoked`](Self::revoked) returns the part or
    /// its volume. A write in place must also not begin while [`is_held`](Self::is_held), and its blocks must be in the
    /// volume.
    #[must_use]
    pub fn direct(&self, id: VolumeId, index: u32) -> Option<Direct> {
        let tables = &self.state.tables;
        let cluster = tables.lookup(tables.serving(id)?, index).1?;
        if tables.partial(cluster).is_some() || self.state.is_locked(id, index) {
            return None;
        }
        let first = Blocks { first: 0, count: 1 };
        let is_writable = self.state.in_place(id, index, first).is_some();
        Some(Direct { cluster, is_writable })
    }

    /// Returns what a driver must no longer use from earlier answers of [`direct`](Self::direct). It ends this use
    /// before it sends an I/O, a message or an answer that follows from the last call, and before its I/Os that used it
    /// [`leave`](Self::leave).
    pub fn revoked(&mut self) -> std::vec::Drain<'_, Revoked> {
        self.revoked.drain(..)
    }

    /// Enters the current epoch for I/Os that the driver counts itself, until [`leave`](Self::leave).
    pub fn enter(&mut self) -> Epoch {
        self.state.epochs.enter()
    }

    /// True if an I/O that starts now would be in a later epoch.
    #[must_use]
    pub fn is_closed(&self, epoch: Epoch) -> bool {
        self.state.epochs.is_closed(epoch)
    }

    /// True if a new write would wait for the end of a snapshot, rollback or resize.
    #[must_use]
    pub fn is_held(&self, core: Ring) -> bool {
        self.state.is_held(core)
    }

    /// The space of the pool.
    #[must_use]
    pub fn space(&self) -> PoolSpace {
        self.state.space()
    }

    /// The space of a volume. It walks the map of the volume.
    #[cfg(test)]
    pub(crate) fn volume_space(&self, id: VolumeId) -> Result<VolumeSpace, Error> {
        self.state.volume_space(id)
    }

    /// Counts the clusters of a number of leaves of a volume that no other volume or base refers to. Returns also the
    /// leaf after them, if there is one.
    ///
    /// # Errors
    /// If the volume does not exist.
    pub fn exclusive_in(
        &self,
        id: VolumeId,
        first: usize,
        leaves: usize,
    ) -> Result<(u64, Option<usize>), Error> {
        self.state.exclusive_in(id, first, leaves)
    }

    /// The clusters that are kept free for a volume.
    #[must_use]
    pub fn reserved(&self, id: VolumeId) -> u64 {
        self.state.needs.of(id)
    }

    pub(crate) fn insert(&mut self, body: Body) -> Result<OperationId, Error> {
        if self.operations.len() >= OPERATIONS_MAX {
            let most = OPERATIONS_MAX as u64;
            return Err(ErrorKind::Limit { what: "operations in progress", most }.into());
        }
        let id = OperationId(self.next_operation);
        self.next_operation += 1;
        self.waiting.wake(id);
        self.operations.insert(id, Operation { body, released: Released::No, wait: None });
        Ok(id)
    }

    /// Returns an operation to advance: it is new, its step ended, or a change may have ended its wait. `None` if no
    /// operation can continue before the next step or record ends.
    ///
    /// The cost of a change is that of the operations that it wakes: one that waits for a cluster, and all that wait
    /// for space, for the end of a hold, or for the end of another operation on whole volumes.
    #[must_use]
    pub fn woken(&self) -> Option<OperationId> {
        self.waiting.next()
    }

    #[cfg(test)]
    pub(crate) fn is_done(&self) -> bool {
        self.operations.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn is_woken(&self, id: OperationId) -> bool {
        self.waiting.is_woken(id)
    }

    /// True if the maps are equal except for the woken operations.
    #[cfg(test)]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (&self.state, &self.operations) == (&other.state, &other.operations)
    }

    /// A hash of everything except the woken operations.
    #[cfg(test)]
    pub(crate) fn hash_without_woken(&self, hasher: &mut impl std::hash::Hasher) {
        use std::hash::Hash;
        (&self.state, &self.operations, self.next_operation, self.is_read_only).hash(hasher);
    }

    /// Continues an operation as far as possible.
    ///
    /// # Panics
    /// If there is no such operation, or it has finished.
    pub fn advance(&mut self, id: OperationId) -> Progress {
        let mut operation = self.operations.remove(&id).expect("the operation is in progress");
        let before = operation.wait.take();
        self.waiting.forget(id, before);
        let needs = self.state.needs.total();
        let progress = match operation.released {
            Released::Yes(_) => Progress::Wait(Wait::Step),
            Released::No | Released::Failed(_)
                if self.is_read_only && !operation.body.is_read() =>
            {
                Progress::Finished(Err(ErrorKind::LogFailed.into()))
            }
            Released::No => operation.body.advance(&mut self.state),
            Released::Failed(step) => operation.body.fail(&mut self.state, step),
        };
        match &progress {
            Progress::Do(step) => operation.released = Released::Yes(step.kind()),
            Progress::Wait(Wait::Step) | Progress::Finished(_) => {}
            Progress::Wait(wait) => {
                operation.released = Released::No;
                operation.wait = Some(*wait);
                self.waiting.insert(id, *wait);
            }
        }
        if !matches!(progress, Progress::Finished(_)) {
            self.operations.insert(id, operation);
        }
        self.wake(needs);
        if let Some(Wait::Cluster { volume, index }) = before
            && !self.state.is_locked(volume, index)
        {
            self.waiting.wake_one(volume, index);
        }
        progress
    }

    /// Wakes the operations whose wait this call may have ended.
    fn wake(&mut self, needs_before: u64) {
        let mut changes = std::mem::take(&mut self.state.changes);
        changes.has_space |= self.state.needs.total() < needs_before;
        self.revoked.append(&mut changes.revoked);
        self.waiting.wake_changed(&changes, self.state.epochs.oldest());
    }

    /// The released step of an operation has completed.
    ///
    /// # Panics
    /// If no step of the operation was released.
    pub fn completed(&mut self, id: OperationId) {
        self.step_ended(id, |_| Released::No);
    }

    /// The released step of an operation failed, and none of its writes is still executed. The operation ends with
    /// [`ErrorKind::StepFailed`]: it releases its cluster, lock, epoch and hold. Earlier acknowledged changes are not
    /// affected. Decision 39 states the state after each failed step, and the driver's possible actions.
    ///
    /// # Panics
    /// If no step of the operation was released.
    pub fn failed(&mut self, id: OperationId) {
        self.step_ended(id, Released::Failed);
    }

    fn step_ended(&mut self, id: OperationId, how: impl FnOnce(StepKind) -> Released) {
        let operation = self.operations.get_mut(&id).expect("the operation is in progress");
        let Released::Yes(step) = operation.released else { panic!("a step ends once") };
        operation.released = how(step);
        self.waiting.wake(id);
    }

    /// Appends the next bytes of the root that a released [`Step::WriteRoot`](crate::Step::WriteRoot) writes, about as
    /// many as `bytes_max`, and returns true if these are the last ones. The pieces form an [`Image`](crate::Image) of
    /// the map at the time of the checkpoint, whatever happens between them.
    pub fn root_piece(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        self.state.tables.root_piece(out, bytes_max)
    }

    /// True while the clusters that reserved volumes need are counted again. The driver continues the count with
    /// [`recount`](Self::recount).
    #[must_use]
    pub fn is_recounting(&self) -> bool {
        self.state.needs.is_recounting()
    }

    /// Continues the count of the clusters that reserved volumes need, by this number of leaves. Space that is not
    /// needed any more becomes free for others.
    pub fn recount(&mut self, leaves: usize) {
        let needs = self.state.needs.total();
        self.state.recount(leaves);
        self.wake(needs);
    }

    /// Cancels an operation that waits for space or a checkpoint, or a snapshot, rollback or resize before its record
    /// is appended. When advanced, an operation that waited for space fails with [`ErrorKind::NoSpace`], and any other
    /// with [`ErrorKind::Cancelled`]. A released hold or pace step is withdrawn: the driver lets the core continue, and
    /// does not report the step. A released copy is reported before the operation ends.
    ///
    /// Returns false for any other operation, which continues.
    pub fn cancel(&mut self, id: OperationId) -> bool {
        let Some(operation) = self.operations.get_mut(&id) else { return false };
        let kind = match operation.wait {
            Some(Wait::Space) => ErrorKind::NoSpace,
            _ => ErrorKind::Cancelled,
        };
        let is_cancelled = operation.body.cancel(kind);
        if let Released::Yes(StepKind::Hold | StepKind::Pace) = operation.released
            && is_cancelled
        {
            operation.released = Released::No;
        }
        if is_cancelled {
            self.waiting.wake(id);
        }
        is_cancelled
    }

    /// Returns the records of a ring that are not stable, in order. The driver writes them in this order.
    #[must_use]
    pub fn records(&self, ring: Ring) -> impl ExactSizeIterator<Item = &Record> {
        self.state.rings[ring.at()].records.iter()
    }

    /// Records that every record of a ring up to `number` is stable.
    ///
    /// # Panics
    /// If the ring has no record with this number.
    pub fn stable(&mut self, ring: Ring, number: Number) {
        let needs = self.state.needs.total();
        let state = &mut self.state.rings[ring.at()];
        assert!(number < state.next, "only records of the ring become stable");
        while state.records.front().is_some_and(|record| record.number <= number) {
            state.records.pop_front();
        }
        state.unstable = state.unstable.max(number.next());
        let unstable = state.unstable;
        if ring == Ring::LEADER {
            self.state.forget_grown();
            self.state.end_needs();
        }
        self.state.settle();
        self.waiting.wake_stable(ring, unstable);
        self.wake(needs);
    }

    /// A record cannot be written. The map then serves only reads until the next start of the pool: an acknowledged
    /// change would need a record, and a write in place may need an unstable one. Every operation except reads ends
    /// with [`ErrorKind::LogFailed`] after its step. Its lock and its cluster stay taken, so that no other uses them.
    pub fn log_failed(&mut self) {
        self.is_read_only = true;
        for id in self.operations.keys() {
            self.waiting.wake(*id);
        }
    }

    /// True after [`log_failed`](Self::log_failed).
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Returns the first record number of a ring that the newest root lacks.
    #[must_use]
    pub fn newest_floor(&self, ring: Ring) -> Number {
        let floors = self.state.floors.first();
        floors.and_then(|floors| floors.get(ring.at()).copied()).unwrap_or(Number(0))
    }

    /// Returns the number from which the log of a ring must be kept, so that both roots can be replayed. `None` if the
    /// pool has no such ring: its log is not kept. While one of the two roots has different rings, every log is kept
    /// completely, including those of the earlier rings.
    #[must_use]
    pub fn keep_from(&self, ring: Ring) -> Option<Number> {
        if self.state.roots_due > 0 {
            return Some(Number(0));
        }
        let floors = self.state.floors.iter().map(|floors| floors.get(ring.at()).copied());
        floors.min().flatten()
    }
}
