//! The namespace of a device: its configuration, its properties for hosts, and its counters.

use crate::admit::{Ability, Access, Terms};
use crate::kept::{Kept, Ledger};
use crate::limits::TRANSFER_BYTES_MAX;
use crate::range_lock::Gate;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use strake_block::{BlockDevice, DeallocateReads, DeviceInfo};
use strake_export_net::{ConnectionSlots, Counters, LimitGate};
use strake_nvme_wire::identify::{Deallocated, Namespace, nguid_of};
use strake_nvme_wire::reservation::capabilities;

/// A device as a namespace of a subsystem.
#[derive(Clone)]
pub struct Export {
    /// The NQN of the subsystem.
    pub nqn: String,
    /// The namespace ID, from 1 to [`NAMESPACES_MAX`](crate::limits::NAMESPACES_MAX).
    pub namespace: u32,
    /// The permanent identifier of the namespace.
    pub uuid: [u8; 16],
    /// The device. Its size and block size are read when it is added. Without a device, hosts may connect, and the
    /// namespace is reported as inaccessible.
    pub device: Option<Arc<dyn BlockDevice>>,
    /// Reject writes even if the device accepts them.
    pub read_only: bool,
    /// The persistent record of reservations; without it, reservations do not persist through a power loss.
    pub ledger: Option<Arc<dyn Ledger>>,
    /// NQNs of the hosts that may connect, at least one. All namespaces of a subsystem have the same list.
    pub hosts: Vec<String>,
    /// Reject hosts without TLS, including hosts that have no key. All namespaces of a subsystem have the same setting.
    pub secure: bool,
    /// The limits of the requests of all hosts to the namespace; without it there are none.
    pub limits: Option<Arc<LimitGate>>,
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

/// The properties of a device that hosts see, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) terms: Terms,
    pub(crate) page: Namespace,
}

impl Facts {
    /// Returns `None` if the device has a smaller transfer limit than controllers report (MDTS). `instance` differs for
    /// every device, including the device of a restarted array.
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
            nguid: nguid_of(&export.uuid),
            instance,
        };
        Some(Self { terms, page })
    }
}

/// A served device.
pub(crate) struct Served {
    pub(crate) namespace: u32,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) facts: Facts,
    pub(crate) kept: Arc<Kept>,
    /// One entry per data core of the target.
    pub(crate) counters: Box<[Counters]>,
    /// The range locks for fused commands.
    pub(crate) gate: Arc<Gate>,
    /// The limits of requests.
    pub(crate) limits: Option<Arc<LimitGate>>,
    /// The queues of the device. Closed when the device is no longer served.
    pub(crate) connection_slots: ConnectionSlots,
}

/// A device that accepts no new commands, while I/O may be in flight.
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

    /// Waits at most `time_max` until no I/O is in flight and every queue of the device is closed; returns whether this
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
        (gate, limits): (Arc<Gate>, Option<Arc<LimitGate>>),
        cores: usize,
    ) -> Self {
        let counters = (0..cores).map(|_| Counters::default()).collect();
        let connection_slots = ConnectionSlots::new(u32::MAX);
        Self { namespace, device, facts, kept, counters, gate, limits, connection_slots }
    }
}
