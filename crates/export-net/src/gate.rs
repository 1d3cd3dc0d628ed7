//! The limits that hold for the requests of an export.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use strake_block::{DeviceInfo, Op};
use strake_qos::{Aspect, Board, Cells, Direction, Lease, QueueId, Request, Throttled};
use strake_reactor::CoreHandle;
use strake_units::{BlockSize, CoreIndex, Nanos};

/// A limit that is in use. Exports that share it have the same value.
pub struct SharedLimit {
    pub(crate) number: u64,
    pub(crate) aspect: Aspect,
    pub(crate) cells: Arc<Cells>,
    pub(crate) board: Arc<Board>,
    /// The core of its home.
    pub(crate) home: CoreHandle,
    /// Ends the home.
    pub(crate) on_drop: Box<dyn Fn() + Send + Sync>,
}

impl SharedLimit {
    /// What the limit counts.
    #[must_use]
    pub const fn aspect(&self) -> Aspect {
        self.aspect
    }

    /// The requests that waited for the limit.
    #[must_use]
    pub fn throttled(&self) -> Throttled {
        self.cells.throttled()
    }
}

impl Drop for SharedLimit {
    fn drop(&mut self) {
        (self.on_drop)();
    }
}

impl fmt::Debug for SharedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLimit").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The limits of an export, the narrowest first. Control threads replace them, and device queues follow.
#[derive(Debug, Default)]
pub struct LimitGate {
    /// Changes whenever the limits change; 0 before the first limit.
    version: AtomicU64,
    limits: Mutex<Vec<Arc<SharedLimit>>>,
}

impl LimitGate {
    /// Replaces the limits. Returns whether they changed.
    pub fn set(&self, limits: Vec<Arc<SharedLimit>>) -> bool {
        let mut now = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = now.len() == limits.len()
            && now.iter().zip(&limits).all(|(one, other)| Arc::ptr_eq(one, other));
        if is_same {
            return false;
        }
        *now = limits;
        // Release: pairs with the acquire in `version`. A queue that sees the number then reads these limits.
        self.version.fetch_add(1, Ordering::Release);
        true
    }

    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The version, and the leases of `core`. Locks and allocates; called after changes only.
    pub(crate) fn leases(&self, core: CoreIndex) -> (u64, Vec<(Aspect, Rc<Lease>)>) {
        let limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let leases = limits.iter().map(|limit| (limit.aspect, lease_of(limit, core)));
        (self.version(), leases.collect())
    }
}

/// What a device queue must know to obey limits.
#[derive(Clone)]
pub struct LimitedBy {
    /// The limits.
    pub gate: Arc<LimitGate>,
    /// The core of the queue.
    pub core: CoreIndex,
    /// The block size of the device.
    pub block: BlockSize,
    /// Whether the device zeroes blocks without writing them.
    pub fast_zeroes: bool,
    /// The present time.
    pub now: Nanos,
}

impl LimitedBy {
    /// The limits of a queue of the device with these properties.
    #[must_use]
    pub fn new(gate: &Arc<LimitGate>, core: CoreIndex, info: &DeviceInfo, now: Nanos) -> Self {
        let (block, fast_zeroes) = (info.block_size, info.fast_zeroes);
        Self { gate: Arc::clone(gate), core, block, fast_zeroes, now }
    }

    /// The part of a host's request that an I/O is. `None` for a flush, which no limit counts.
    pub(crate) fn request(&self, op: &Op, before: u64) -> Option<Request> {
        let (direction, bytes) = match op {
            Op::Read { data, .. } => (Direction::Read, data.len() as u64),
            Op::Write { data, .. } => (Direction::Write, data.len() as u64),
            Op::Deallocate { .. } => (Direction::Write, 0),
            Op::WriteZeroes { .. } if self.fast_zeroes => (Direction::Write, 0),
            Op::WriteZeroes { range, .. } => (Direction::Write, range.blocks << self.block.shift()),
            Op::Flush => return None,
        };
        Some(Request { direction, before, bytes })
    }
}

thread_local! {
    /// The leases of the core that runs on this thread, by the number of the limit.
    static LEASES: RefCell<Vec<(u64, Weak<Lease>)>> = const { RefCell::new(Vec::new()) };
    static QUEUES: Cell<u64> = const { Cell::new(0) };
}

/// The lease of this core, which all its queues share.
fn lease_of(limit: &SharedLimit, core: CoreIndex) -> Rc<Lease> {
    LEASES.with_borrow_mut(|leases| {
        leases.retain(|(_, lease)| lease.strong_count() > 0);
        let known = leases.iter().find(|(number, _)| *number == limit.number);
        if let Some(lease) = known.and_then(|(_, lease)| lease.upgrade()) {
            return lease;
        }
        let home = limit.home.clone();
        let (cells, board) = (Arc::clone(&limit.cells), Arc::clone(&limit.board));
        let lease = Rc::new(Lease::new(cells, board, core.at(), Box::new(move || home.wake())));
        leases.push((limit.number, Rc::downgrade(&lease)));
        lease
    })
}

/// A number that no other queue of this core has.
pub(crate) fn next_queue() -> QueueId {
    QUEUES.set(QUEUES.get() + 1);
    QueueId(QUEUES.get())
}
