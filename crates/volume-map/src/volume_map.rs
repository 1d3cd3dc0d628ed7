//! The map of a pool while it is in use: the interface to a driver.

use std::collections::BTreeMap;

use crate::blocks::Blocks;
use crate::body::Body;
use crate::error::{Error, ErrorKind};
use crate::ids::{Number, OperationId, Ring, Start, VolumeId};
use crate::limits::OPERATIONS_MAX;
use crate::operation::{Progress, Wait};
use crate::record::Record;
use crate::shape::Shape;
use crate::space::{PoolSpace, VolumeSpace};
use crate::state::MapState;
use crate::tables::{Parts, Tables, Volume};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Operation {
    body: Body,
    /// True while the driver carries a step out.
    is_released: bool,
}

/// The map of a pool: its tables, its rings, and the operations in progress.
///
/// A driver begins an operation with [`begin`](Self::begin), and calls [`advance`](Self::advance) until it has
/// finished. In between it does the released steps and calls [`completed`](Self::completed). It writes the records of
/// each ring in order, stably, and calls [`stable`](Self::stable).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VolumeMap {
    pub(crate) state: MapState,
    operations: BTreeMap<OperationId, Operation>,
    next_operation: u64,
}

impl VolumeMap {
    /// The map of a new pool without volumes. Two checkpoints must be written before anything else. The nonce is that
    /// of [`open`](Self::open).
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
        Self { state, operations: BTreeMap::new(), next_operation: 1 }
    }

    /// The shape of the pool.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.state.tables.shape
    }

    /// A volume, snapshot or clone that is not being deleted.
    #[must_use]
    pub fn volume(&self, id: VolumeId) -> Option<&Volume> {
        self.state.tables.serving(id)
    }

    /// All volumes that are not being deleted, in the order of their identifiers.
    pub fn volumes(&self) -> impl Iterator<Item = (VolumeId, &Volume)> {
        let volumes = self.state.tables.volumes.iter();
        volumes.filter(|(_, volume)| !volume.is_dying).map(|(id, volume)| (*id, volume))
    }

    /// Volumes that are being deleted. After a start, the driver begins a [`Sweep`](crate::Request::Sweep) for each.
    pub fn dying(&self) -> impl Iterator<Item = VolumeId> {
        let volumes = self.state.tables.volumes.iter();
        volumes.filter(|(_, volume)| volume.is_dying).map(|(id, _)| *id)
    }

    /// Where blocks of a cluster of a volume are read now. The time does not depend on the number of snapshots, and
    /// nothing is allocated. It is for inspection: an I/O that uses a result must be a [`Read`](crate::Request::Read).
    ///
    /// # Errors
    /// If there is no such volume.
    pub fn places(&self, id: VolumeId, index: u32, blocks: Blocks) -> Result<Parts<'_>, Error> {
        let volume = self.state.tables.serving(id).ok_or(ErrorKind::NoVolume.of(id))?;
        let cluster = self.state.tables.lookup(volume, index).1;
        Ok(self.state.tables.parts(cluster, blocks))
    }

    /// The space of the pool.
    #[must_use]
    pub fn space(&self) -> PoolSpace {
        self.state.space()
    }

    /// The space of a volume. It walks the map of the volume.
    ///
    /// # Errors
    /// If there is no such volume.
    pub fn volume_space(&self, id: VolumeId) -> Result<VolumeSpace, Error> {
        self.state.volume_space(id)
    }

    pub(crate) fn insert(&mut self, body: Body) -> Result<OperationId, Error> {
        if self.operations.len() >= OPERATIONS_MAX {
            let most = OPERATIONS_MAX as u64;
            return Err(ErrorKind::Limit { what: "operations in progress", most }.into());
        }
        let id = OperationId(self.next_operation);
        self.next_operation += 1;
        self.operations.insert(id, Operation { body, is_released: false });
        Ok(id)
    }

    /// Goes on with an operation as far as possible.
    ///
    /// # Panics
    /// If there is no such operation, or it has finished.
    pub fn advance(&mut self, id: OperationId) -> Progress {
        let mut operation = self.operations.remove(&id).expect("the operation is in progress");
        if operation.is_released {
            self.operations.insert(id, operation);
            return Progress::Wait(Wait::Step);
        }
        let progress = operation.body.advance(&mut self.state);
        if !matches!(progress, Progress::Finished(_)) {
            operation.is_released = matches!(progress, Progress::Do(_));
            self.operations.insert(id, operation);
        }
        progress
    }

    /// The released step of an operation has completed.
    ///
    /// # Panics
    /// If no step of the operation was released.
    pub fn completed(&mut self, id: OperationId) {
        let operation = self.operations.get_mut(&id).expect("the operation is in progress");
        assert!(operation.is_released, "a step completes once");
        operation.is_released = false;
    }

    /// Ends the wait for space of an operation, which then fails. False if the operation does not wait for space.
    pub fn cancel(&mut self, id: OperationId) -> bool {
        self.operations.get_mut(&id).is_some_and(|operation| operation.body.cancel())
    }

    /// The records of a ring that are not stable, in order. The driver writes them in this order.
    #[must_use]
    pub fn records(&self, ring: Ring) -> impl ExactSizeIterator<Item = &Record> {
        self.state.rings[ring.at()].records.iter()
    }

    /// Every record of a ring up to `number` is stable.
    ///
    /// # Panics
    /// If the ring has no record with this number.
    pub fn stable(&mut self, ring: Ring, number: Number) {
        let state = &mut self.state.rings[ring.at()];
        assert!(number < state.next, "only records of the ring become stable");
        while state.records.front().is_some_and(|record| record.number <= number) {
            state.records.pop_front();
        }
        state.unstable = state.unstable.max(number.next());
        self.state.forget_grown();
        self.state.settle();
    }

    /// The number from which the log of a ring must be kept: both roots can be replayed. Everything is kept while one
    /// of the two roots is of other rings.
    #[must_use]
    pub fn keep_from(&self, ring: Ring) -> Number {
        if self.state.roots_due > 0 {
            return Number(0);
        }
        let floors = self.state.floors.iter().map(|floors| floors[ring.at()]);
        floors.min().unwrap_or(Number(0))
    }
}
