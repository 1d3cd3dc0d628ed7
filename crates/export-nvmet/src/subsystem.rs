//! What is served: a subsystem with its namespace, who is connected to it, and what it has done.

use crate::admit::{Ability, Access, Terms};
use crate::controller::Controller;
use crate::limits::TRANSFER_BYTES_MAX;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use strake_block::{BlockDevice, DeallocateReads, DeviceInfo, VolatileCache};
use strake_export_net::{Counters, Seats};
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
    pub(crate) seats: Seats,
    controllers: Mutex<Vec<Weak<Controller>>>,
}

/// The right to be connected to an export.
pub(crate) type Seat = strake_export_net::Seat<Served>;

impl strake_export_net::Export for Served {
    fn seats(&self) -> &Seats {
        &self.seats
    }
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
            seats: Seats::new(seats),
            controllers: Mutex::new(Vec::new()),
        }
    }

    /// Nothing panics while holding the lock, so a poisoned one guards a sound list. It is taken when a host comes,
    /// never for an I/O command.
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Controller>>> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn admits(&self, host: &str) -> bool {
        self.hosts.iter().any(|allowed| allowed == host)
    }

    /// Remembers a controller, so that I/O queues find it.
    pub(crate) fn add_controller(&self, controller: &Arc<Controller>) {
        let mut controllers = self.lock();
        controllers.retain(|known| known.strong_count() > 0);
        controllers.push(Arc::downgrade(controller));
    }

    pub(crate) fn controller(&self, id: u16) -> Option<Arc<Controller>> {
        self.lock().iter().filter_map(Weak::upgrade).find(|controller| controller.id == id)
    }

    pub(crate) fn stats(&self) -> ExportStats {
        let sum = |pick: fn(&Counters) -> &AtomicU64| {
            self.counters.iter().map(|core| pick(core).load(Ordering::Relaxed)).sum()
        };
        ExportStats {
            nqn: self.nqn.clone(),
            connections: self.seats.taken(),
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
