//! What is served: a device as a namespace, what hosts have to know of it, and what they have done to it.

use crate::admit::{Ability, Access, Terms};
use crate::kept::{Kept, Ledger};
use crate::limits::TRANSFER_BYTES_MAX;
use crate::range_lock::Gate;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use strake_block::{BlockDevice, DeallocateReads, DeviceInfo};
use strake_export_net::{ConnectionSlots, Counters};
use strake_nvme_wire::identify::{Deallocated, Namespace};
use strake_nvme_wire::reservation::capabilities;

/// A device as a namespace of a subsystem.
#[derive(Clone)]
pub struct Export {
    /// The subsystem's name: an NQN.
    pub nqn: String,
    /// The namespace's number in it, from 1 to [`NAMESPACES_MAX`](crate::limits::NAMESPACES_MAX).
    pub namespace: u32,
    /// What identifies the namespace permanently.
    pub uuid: [u8; 16],
    /// What is served. Its size and block size are those at the time it is added. While there is none, hosts may
    /// connect, and the namespace is reported as inaccessible for now.
    pub device: Option<Arc<dyn BlockDevice>>,
    /// Refuse writes even if the device takes them.
    pub read_only: bool,
    /// Where reservations outlast a loss of power; without it they cannot.
    pub ledger: Option<Arc<dyn Ledger>>,
    /// NQNs of the hosts that may connect, at least one. All namespaces of a subsystem have the same.
    pub hosts: Vec<String>,
    /// Refuse hosts without TLS, even those that have no key. The same for all namespaces of a subsystem.
    pub secure: bool,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export")
            .field("nqn", &self.nqn)
            .field("namespace", &self.namespace)
            .field("read_only", &self.read_only)
            .field("hosts", &self.hosts)
            .field("secure", &self.secure)
            .finish_non_exhaustive()
    }
}

/// What of a device matters to hosts, taken once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) terms: Terms,
    pub(crate) page: Namespace,
}

impl Facts {
    /// `None` when the device takes less at once than controllers say (MDTS). `instance` differs for every device, also
    /// for that of an array that was restarted.
    pub(crate) fn of(info: &DeviceInfo, export: &Export, instance: [u8; 16]) -> Option<Self> {
        let read_only = export.read_only || info.read_only;
        let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
        let (deallocate, deallocated) = match info.deallocate {
            DeallocateReads::Unsupported => (Ability::Absent, Deallocated::Unspecified),
            DeallocateReads::Unspecified => (Ability::Present, Deallocated::Unspecified),
            DeallocateReads::Zeroes => (Ability::Present, Deallocated::Zeroes),
        };
        if info.io_bytes_max < TRANSFER_BYTES_MAX {
            return None;
        }
        let terms = Terms { blocks: info.blocks, block: info.block_size, access, deallocate };
        let page = Namespace {
            blocks: info.blocks,
            block_log2: info.block_size.shift() as u8,
            deallocated,
            write_protected: access == Access::ReadOnly,
            optimal_blocks: u16::try_from(info.io_bytes_optimal >> info.block_size.shift())
                .unwrap_or(0),
            copy: terms.copy(),
            group: export.namespace,
            reservations: capabilities(export.ledger.is_some()),
            instance,
        };
        Some(Self { terms, page })
    }
}

/// A device being served.
pub(crate) struct Served {
    pub(crate) namespace: u32,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) facts: Facts,
    pub(crate) kept: Arc<Kept>,
    /// One per data core the target runs on.
    pub(crate) counters: Box<[Counters]>,
    /// What holds writes off while a host compares and writes.
    pub(crate) gate: Arc<Gate>,
    /// Who has a queue of the device. Closed when it is to be served no more.
    pub(crate) connection_slots: ConnectionSlots,
}

/// A device that takes no new commands, while some may be in flight.
pub struct Leaving(Option<Arc<Served>>);

impl fmt::Debug for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaving").finish_non_exhaustive()
    }
}

impl Leaving {
    pub(crate) const fn new(served: Option<Arc<Served>>) -> Self {
        Self(served)
    }

    /// Waits at most so long for the last command to end and every queue of the device to be closed; true when that has
    /// happened. Called on a control thread, never on a data core.
    #[must_use]
    pub fn is_over(&self, time_max: Duration) -> bool {
        self.0.as_ref().is_none_or(|served| served.connection_slots.wait_empty(time_max))
    }
}

impl strake_export_net::Export for Served {
    fn connection_slots(&self) -> &ConnectionSlots {
        &self.connection_slots
    }
}

impl Served {
    pub(crate) fn new(
        namespace: u32,
        device: Arc<dyn BlockDevice>,
        facts: Facts,
        kept: Arc<Kept>,
        gate: Arc<Gate>,
        cores: usize,
    ) -> Self {
        let counters = (0..cores).map(|_| Counters::default()).collect();
        let connection_slots = ConnectionSlots::new(u32::MAX);
        Self { namespace, device, facts, kept, counters, gate, connection_slots }
    }
}
