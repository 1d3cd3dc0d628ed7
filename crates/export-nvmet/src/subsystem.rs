//! What is served: a subsystem with its namespace, who is connected to it, and what it has done.

use crate::admit::{Ability, Access, Terms};
use crate::controller::Controller;
use crate::limits::TRANSFER_BYTES_MAX;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use strake_block::{BlockDevice, DeallocateReads, DeviceInfo, VolatileCache};
use strake_nvme_wire::identify::{Deallocated, Namespace};

/// A device as the namespace of a subsystem.
#[derive(Clone)]
pub struct Export {
    /// The subsystem's name: an NQN.
    pub nqn: String,
    /// What identifies the namespace for good.
    pub uuid: [u8; 16],
    /// What is served. Its size and block size are those at the time it is added.
    pub device: Arc<dyn BlockDevice>,
    /// Refuse writes even if the device takes them.
    pub read_only: bool,
    /// NQNs of the hosts that may connect, at least one.
    pub hosts: Vec<String>,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export")
            .field("nqn", &self.nqn)
            .field("read_only", &self.read_only)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

/// What an export has done since it was added. Read while it runs, so the figures are not of one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportStats {
    /// The subsystem's name.
    pub nqn: String,
    /// Queues connected now, admin queues among them.
    pub connections: u32,
    /// Reads answered with data.
    pub reads: u64,
    /// Bytes sent in answer to them.
    pub read_bytes: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Deallocations and zeroings that succeeded.
    pub effects: u64,
    /// I/O commands answered with an error.
    pub errors: u64,
}

/// Counts of one data core for one export. One thread writes, so an update is a plain load and store; 128 bytes apart,
/// because x86 fetches cache lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) effects: AtomicU64,
    pub(crate) errors: AtomicU64,
}

/// Adds to a counter that only this thread writes. Relaxed: a counter orders nothing.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// What of a device matters to hosts, taken once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) terms: Terms,
    pub(crate) namespace: Namespace,
    pub(crate) cache: VolatileCache,
}

impl Facts {
    /// `None` when the device takes less at once than a controller can say (MDTS): two pages.
    pub(crate) fn of(info: &DeviceInfo, read_only: bool) -> Option<Self> {
        let access = if read_only || info.read_only { Access::ReadOnly } else { Access::ReadWrite };
        let (deallocate, deallocated) = match info.deallocate {
            DeallocateReads::Unsupported => (Ability::Absent, Deallocated::Unspecified),
            DeallocateReads::Unspecified => (Ability::Present, Deallocated::Unspecified),
            DeallocateReads::Zeroes => (Ability::Present, Deallocated::Zeroes),
        };
        let takes = info.io_bytes_max.min(TRANSFER_BYTES_MAX);
        let transfer_bytes = 1_u32 << takes.checked_ilog2()?;
        if transfer_bytes < 2 * PAGE_BYTES {
            return None;
        }
        let terms = Terms {
            blocks: info.blocks,
            block: info.block_size,
            transfer_bytes,
            access,
            deallocate,
        };
        let namespace = Namespace {
            blocks: info.blocks,
            block_log2: info.block_size.shift() as u8,
            deallocated,
            write_protected: access == Access::ReadOnly,
            optimal_blocks: u16::try_from(info.io_bytes_optimal >> info.block_size.shift())
                .unwrap_or(0),
        };
        Some(Self { terms, namespace, cache: info.cache })
    }

    /// MDTS, and any other limit on bytes: a power of two of pages.
    pub(crate) const fn pages_log2(bytes: u64) -> u8 {
        (bytes / PAGE_BYTES as u64).ilog2() as u8
    }
}

/// The unit of limits: the smallest page of a controller (CAP.MPSMIN).
const PAGE_BYTES: u32 = 4096;

/// An export in the registry.
pub(crate) struct Served {
    pub(crate) nqn: String,
    pub(crate) uuid: [u8; 16],
    hosts: Vec<String>,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) facts: Facts,
    /// One per data core the target runs on.
    pub(crate) counters: Box<[Counters]>,
    seats: Mutex<Seats>,
    left: Condvar,
}

struct Seats {
    taken: u32,
    max: u32,
    door: Door,
    controllers: Vec<Weak<Controller>>,
}

/// Whether an export takes new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    /// It is being removed; to hosts it is not there any more.
    Closed,
}

/// The right to be connected to an export, and the proof that it cannot be removed yet. Dropped by whoever serves the
/// connection, after the last of its I/O came home.
pub(crate) struct Seat {
    pub(crate) export: Arc<Served>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.export.lock().taken -= 1;
        self.export.left.notify_all();
    }
}

/// Why nobody can sit down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSeat {
    /// The export is going.
    Closed,
    /// All seats are taken.
    Full,
}

impl Served {
    pub(crate) fn new(export: Export, facts: Facts, cores: usize, seats: u32) -> Self {
        Self {
            nqn: export.nqn,
            uuid: export.uuid,
            hosts: export.hosts,
            device: export.device,
            facts,
            counters: (0..cores).map(|_| Counters::default()).collect(),
            seats: Mutex::new(Seats {
                taken: 0,
                max: seats,
                door: Door::Open,
                controllers: Vec::new(),
            }),
            left: Condvar::new(),
        }
    }

    /// Nothing panics while holding the lock, so a poisoned one guards a sound number. It is taken when a host comes
    /// or goes, never for an I/O command.
    fn lock(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn admits(&self, host: &str) -> bool {
        self.hosts.iter().any(|allowed| allowed == host)
    }

    pub(crate) fn sit(self: &Arc<Self>) -> Result<Seat, NoSeat> {
        let mut seats = self.lock();
        match seats.door {
            Door::Closed => return Err(NoSeat::Closed),
            Door::Open if seats.taken >= seats.max => return Err(NoSeat::Full),
            Door::Open => {}
        }
        seats.taken += 1;
        drop(seats);
        Ok(Seat { export: Arc::clone(self) })
    }

    /// Remembers a controller, so that I/O queues find it.
    pub(crate) fn add_controller(&self, controller: &Arc<Controller>) {
        let mut seats = self.lock();
        seats.controllers.retain(|known| known.strong_count() > 0);
        seats.controllers.push(Arc::downgrade(controller));
    }

    pub(crate) fn controller(&self, id: u16) -> Option<Arc<Controller>> {
        let seats = self.lock();
        seats.controllers.iter().filter_map(Weak::upgrade).find(|controller| controller.id == id)
    }

    /// Waits until nobody sits here. False when it took too long.
    pub(crate) fn wait_empty(&self, patience: Duration) -> bool {
        let result = self.left.wait_timeout_while(self.lock(), patience, |seats| seats.taken > 0);
        let (seats, _) = result.unwrap_or_else(PoisonError::into_inner);
        seats.taken == 0
    }

    pub(crate) fn is_open(&self) -> bool {
        self.lock().door == Door::Open
    }

    /// Takes no new connections from now on.
    pub(crate) fn close(&self) {
        self.lock().door = Door::Closed;
    }

    pub(crate) fn connections(&self) -> u32 {
        self.lock().taken
    }

    pub(crate) fn stats(&self) -> ExportStats {
        let sum = |pick: fn(&Counters) -> &AtomicU64| {
            self.counters.iter().map(|core| pick(core).load(Ordering::Relaxed)).sum()
        };
        ExportStats {
            nqn: self.nqn.clone(),
            connections: self.connections(),
            reads: sum(|c| &c.reads),
            read_bytes: sum(|c| &c.read_bytes),
            writes: sum(|c| &c.writes),
            written_bytes: sum(|c| &c.written_bytes),
            flushes: sum(|c| &c.flushes),
            effects: sum(|c| &c.effects),
            errors: sum(|c| &c.errors),
        }
    }
}
