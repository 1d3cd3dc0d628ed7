//! The offered exports, with their clients and counters.

use crate::admit::{Ability, Access, Terms};
use crate::handshake::{Agreement, Directory, Offer, Refusal};
use crate::limits::{DESCRIPTION_BYTES_MAX, EXPORTS_MAX, PIECE_BYTES_MAX, REQUEST_BYTES_MAX};
use crate::wire::{STRING_BYTES_MAX, transmission_flag};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strake_block::{BlockDevice, DeallocateReads, DeviceInfo, ExtentSource};
use strake_export_net::{
    ConnectionSlots, Counters, ExportError, ExportErrorKind, ExportStats, LimitGate,
    NoConnectionSlot, Removal, SharedRights,
};

/// A device under a name.
#[derive(Clone)]
pub struct Export {
    /// The name that clients request: 1 to 4096 bytes without NUL.
    pub name: String,
    /// A description for users, shown by `NBD_OPT_LIST` and `NBD_INFO_DESCRIPTION`. It has at most 256 bytes and may be
    /// empty.
    pub description: String,
    /// The device. The export has the size and the block size that the device has when the export is added.
    pub device: Arc<dyn BlockDevice>,
    /// The source of the blocks that were never written; without it every block counts as written.
    pub extents: Option<Arc<dyn ExtentSource>>,
    /// Whether writes are refused although the device accepts them.
    pub read_only: bool,
    /// The rights of the clients of this export under the reservations of other exports of the device.
    pub rights: Arc<SharedRights>,
    /// The limits of the requests of all clients; without it there are none.
    pub limits: Option<Arc<LimitGate>>,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export")
            .field("name", &self.name)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

/// The properties of a device that requests depend on, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) terms: Terms,
    /// Largest read or write for the device; a multiple of its block size.
    pub(crate) piece_bytes: u32,
    /// The preferred boundary of pieces in bytes; 0 if the device has no preference.
    pub(crate) optimal_bytes: u32,
}

impl Facts {
    fn of(info: &DeviceInfo, agreement: Agreement, read_only: bool) -> Self {
        let access = if read_only || info.read_only { Access::ReadOnly } else { Access::ReadWrite };
        let trim = match info.deallocate {
            DeallocateReads::Unsupported => Ability::Absent,
            DeallocateReads::Zeroes | DeallocateReads::Unspecified => Ability::Present,
        };
        let fast_zeroes = if info.fast_zeroes { Ability::Present } else { Ability::Absent };
        let block = info.block_size.bytes();
        let terms = Terms {
            bytes: info.bytes(),
            block: info.block_size,
            access,
            trim,
            fast_zeroes,
            agreement,
        };
        let piece_bytes = info.io_bytes_max.min(PIECE_BYTES_MAX) / block * block;
        let optimal_bytes =
            if info.io_bytes_optimal.is_multiple_of(block) { info.io_bytes_optimal } else { 0 };
        Self { terms, piece_bytes, optimal_bytes }
    }

    pub(crate) fn with(mut self, agreement: Agreement) -> Self {
        self.terms.agreement = agreement;
        self
    }

    /// Returns the number of bytes of the next piece of a request whose bytes from `at` to `end` remain. Long requests
    /// are split at the preferred boundaries of the device, so that an array receives whole stripes.
    pub(crate) fn piece(&self, at: u64, end: u64) -> usize {
        let most = u64::from(self.piece_bytes);
        if end - at <= most {
            return (end - at) as usize;
        }
        let optimal = u64::from(self.optimal_bytes);
        let cut = (at + most).checked_div(optimal).map_or(0, |strips| strips * optimal);
        if cut > at { (cut - at) as usize } else { most as usize }
    }

    /// Section "Transmission flags". Multi-connection is supported because a flush, in the device contract, covers
    /// every write that completed before it on any queue.
    fn flags(&self) -> u16 {
        let common = transmission_flag::HAS_FLAGS
            | transmission_flag::SEND_FLUSH
            | transmission_flag::SEND_FUA
            | transmission_flag::SEND_CACHE
            | transmission_flag::CAN_MULTI_CONN;
        let writing = match self.terms.access {
            Access::ReadOnly => return common | transmission_flag::READ_ONLY,
            Access::ReadWrite => {
                transmission_flag::SEND_WRITE_ZEROES | transmission_flag::SEND_FAST_ZERO
            }
        };
        match self.terms.trim {
            Ability::Present => common | writing | transmission_flag::SEND_TRIM,
            Ability::Absent => common | writing,
        }
    }

    /// Returns the preferred size of requests in bytes. It is a power of two (section "Size constraints"). If the
    /// optimal size is no power of two, it is the largest power of two that divides the optimal size.
    fn preferred_bytes(&self) -> u32 {
        let usable =
            if self.optimal_bytes == 0 { 4096 } else { 1 << self.optimal_bytes.trailing_zeros() };
        usable.clamp(4096, REQUEST_BYTES_MAX)
    }
}

/// An export in the registry.
pub(crate) struct Served {
    pub(crate) name: String,
    description: String,
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) extents: Option<Arc<dyn ExtentSource>>,
    pub(crate) facts: Facts,
    pub(crate) rights: Arc<SharedRights>,
    pub(crate) limits: Option<Arc<LimitGate>>,
    /// The counters, one for each data core of the server.
    pub(crate) counters: Box<[Counters]>,
    connection_slots: ConnectionSlots,
}

/// The right of one client to use an export.
pub(crate) type ConnectionSlot = strake_export_net::ConnectionSlot<Served>;

impl strake_export_net::Export for Served {
    fn connection_slots(&self) -> &ConnectionSlots {
        &self.connection_slots
    }
}

impl Served {
    /// The facts of a new connection: a volume may have grown since the export was added.
    pub(crate) fn facts_now(&self) -> Facts {
        let mut facts = self.facts;
        facts.terms.bytes = self.device.info().bytes();
        facts
    }

    fn offer(&self) -> Offer {
        Offer {
            name: self.name.clone(),
            description: self.description.clone(),
            bytes: self.facts_now().terms.bytes,
            flags: self.facts.flags(),
            block_bytes: self.facts.terms.block.bytes(),
            preferred_bytes: self.facts.preferred_bytes(),
            payload_bytes_max: REQUEST_BYTES_MAX,
        }
    }

    fn stats(&self) -> ExportStats {
        ExportStats::of(&self.name, 0, self.connection_slots.taken(), &self.counters)
    }
}

/// All exports of a server. Only control threads use it.
pub(crate) struct Registry {
    /// `None` once the server is stopping.
    exports: Mutex<Option<BTreeMap<String, Arc<Served>>>>,
    cores: usize,
    connections_per_export: u32,
}

impl Registry {
    pub(crate) fn new(cores: usize, connections_per_export: u32) -> Self {
        Self { exports: Mutex::new(Some(BTreeMap::new())), cores, connections_per_export }
    }

    fn lock(&self) -> MutexGuard<'_, Option<BTreeMap<String, Arc<Served>>>> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, export: Export) -> Result<(), ExportError> {
        let served = Arc::new(self.prepare(export)?);
        let mut exports = self.lock();
        let exports = exports.as_mut().ok_or_else(stopped)?;
        if exports.len() >= EXPORTS_MAX {
            let what = format!("cannot export {:?}: there are {EXPORTS_MAX} exports", served.name);
            return Err(ExportError::new(ExportErrorKind::TooMany, what));
        }
        match exports.entry(served.name.clone()) {
            Entry::Occupied(entry) => {
                let what = format!("there is an export named {:?} already", entry.key());
                Err(ExportError::new(ExportErrorKind::Duplicate, what))
            }
            Entry::Vacant(entry) => {
                entry.insert(served);
                Ok(())
            }
        }
    }

    fn prepare(&self, export: Export) -> Result<Served, ExportError> {
        let refuse = |why: &str| {
            let what = format!("cannot export {:?}: {why}", export.name);
            Err(ExportError::new(ExportErrorKind::BadExport, what))
        };
        let is_string = |text: &str| text.len() <= STRING_BYTES_MAX && !text.contains('\0');
        if export.name.is_empty() || !is_string(&export.name) {
            return refuse("a name has 1 to 4096 bytes, none of them NUL");
        }
        if export.description.len() > DESCRIPTION_BYTES_MAX || !is_string(&export.description) {
            return refuse("a description has at most 256 bytes, none of them NUL");
        }
        let agreement = Agreement::default();
        let facts = Facts::of(&export.device.info(), agreement, export.read_only);
        if facts.piece_bytes == 0 {
            return refuse("the maximum I/O size of its device is smaller than one block");
        }
        Ok(Served {
            name: export.name,
            description: export.description,
            device: export.device,
            extents: export.extents,
            facts,
            rights: export.rights,
            limits: export.limits,
            counters: (0..self.cores).map(|_| Counters::default()).collect(),
            connection_slots: ConnectionSlots::new(self.connections_per_export),
        })
    }

    /// Closes an export to new clients. It remains in the registry, invisible to clients, until
    /// [`forget`](Self::forget), so that its name is not free before its last I/O has completed.
    pub(crate) fn withdraw(
        &self,
        name: &str,
        removal: Removal,
    ) -> Result<Arc<Served>, ExportError> {
        let exports = self.lock();
        let exports = exports.as_ref().ok_or_else(stopped)?;
        let served = exports.get(name).ok_or_else(|| unknown(name))?;
        let taken = served.connection_slots.taken();
        match removal {
            Removal::IfUnused if taken > 0 => {
                let what = format!(
                    "export {name:?} has {taken} connected clients: disconnect them or remove it by force"
                );
                Err(ExportError::new(ExportErrorKind::InUse, what))
            }
            Removal::IfUnused | Removal::Force => {
                served.connection_slots.close();
                Ok(Arc::clone(served))
            }
        }
    }

    /// Removes a withdrawn export.
    pub(crate) fn forget(&self, served: &Arc<Served>) {
        if let Some(exports) = self.lock().as_mut() {
            exports.remove(&served.name);
        }
    }

    /// Closes the registry and returns its exports.
    pub(crate) fn close(&self) -> Vec<Arc<Served>> {
        self.lock().take().into_iter().flat_map(BTreeMap::into_values).collect()
    }

    pub(crate) fn stats(&self) -> Vec<ExportStats> {
        self.lock().iter().flat_map(BTreeMap::values).map(|export| export.stats()).collect()
    }

    /// Runs `with` on an export while it cannot be removed.
    fn look_up<R>(
        &self,
        name: &str,
        with: impl FnOnce(&Arc<Served>) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let exports = self.lock();
        let exports = exports.as_ref().ok_or(Refusal::Stopping)?;
        let found = match name {
            // Section "Option types", `NBD_OPT_EXPORT_NAME`: the empty name is the default export.
            "" if exports.len() == 1 => exports.values().next(),
            _ => exports.get(name),
        };
        let found = found.filter(|export| export.connection_slots.is_open());
        with(found.ok_or(Refusal::Unknown)?)
    }
}

/// Returns the refusal of a client that receives no connection slot.
const fn no_connection_slot(why: NoConnectionSlot) -> Refusal {
    match why {
        NoConnectionSlot::Closed => Refusal::Unknown,
        NoConnectionSlot::Full => Refusal::Full,
    }
}

fn unknown(name: &str) -> ExportError {
    ExportError::new(ExportErrorKind::Unknown, format!("there is no export named {name:?}"))
}

fn stopped() -> ExportError {
    ExportError::new(ExportErrorKind::Stopped, "the NBD server is stopping")
}

impl Directory for Registry {
    type ConnectionSlot = ConnectionSlot;

    fn list(&self, each: &mut dyn FnMut(&str, &str)) {
        let exports = self.lock();
        for export in exports
            .iter()
            .flat_map(BTreeMap::values)
            .filter(|export| export.connection_slots.is_open())
        {
            each(&export.name, &export.description);
        }
    }

    fn find(&self, name: &str) -> Result<Offer, Refusal> {
        self.look_up(name, |export| Ok(export.offer()))
    }

    fn claim(&self, name: &str) -> Result<(Offer, ConnectionSlot), Refusal> {
        // The connection slot is taken before the export can be removed, so removal waits for it.
        self.look_up(name, |export| {
            Ok((export.offer(), ConnectionSlot::take(export).map_err(no_connection_slot)?))
        })
    }
}

#[cfg(test)]
mod tests;
