//! A function in memory, for models of controllers in this process.
//!
//! Registers are words of memory that both sides read and write; the model looks at them when it is stepped. What was
//! mapped for the device is kept in a list, and every access of the model is checked against it. So a driver that names
//! memory that it did not map, or no longer maps, is found by the model.

use crate::memory::{Registers, copy_in, copy_out};
use crate::transport::{Function, Reach, Signals, Space};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a device is asked by its platform.
pub trait Endpoint: Send + Sync {
    /// Its function is reset.
    ///
    /// # Errors
    /// When it refuses.
    fn reset(&self) -> io::Result<()>;

    /// Whether it is on the bus.
    fn is_present(&self) -> bool;
}

/// What is mapped: addresses of devices, with addresses of this process and lengths.
type Mappings = BTreeMap<u64, (usize, usize)>;

/// An address space that is a list. Several functions may share it.
#[derive(Debug)]
pub struct MemorySpace {
    mappings: Mutex<Mappings>,
    reach: Reach,
}

impl Default for MemorySpace {
    fn default() -> Self {
        Self::new(Reach { addresses: 1 << 32..1 << 39, mappings_max: 1 << 16 })
    }
}

impl MemorySpace {
    /// A space in which so much can be mapped.
    #[must_use]
    pub const fn new(reach: Reach) -> Self {
        Self { mappings: Mutex::new(BTreeMap::new()), reach }
    }

    fn mappings(&self) -> MutexGuard<'_, Mappings> {
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where `bytes` bytes are that the device calls `iova`, if all of them are mapped as one.
    fn find(mappings: &Mappings, iova: u64, bytes: usize) -> Option<usize> {
        let (start, (address, length)) = mappings.range(..=iova).next_back()?;
        let offset = usize::try_from(iova - start).ok()?;
        (offset.checked_add(bytes)? <= *length).then_some(address + offset)
    }

    /// Reads as the device does. False when it is not mapped.
    #[must_use]
    pub fn read(&self, iova: u64, out: &mut [u8]) -> bool {
        let mappings = self.mappings();
        let Some(address) = Self::find(&mappings, iova, out.len()) else { return false };
        // SAFETY: what is mapped is live until it is unmapped, which waits for the lock. The model is stepped by the
        // thread that runs the driver, so that nothing changes the memory meanwhile.
        unsafe { copy_out(address, out) };
        true
    }

    /// Writes as the device does. False when it is not mapped; nothing is written then.
    #[must_use]
    pub fn write(&self, iova: u64, bytes: &[u8]) -> bool {
        let mappings = self.mappings();
        let Some(address) = Self::find(&mappings, iova, bytes.len()) else { return false };
        // SAFETY: as for `read`.
        unsafe { copy_in(address, bytes) };
        true
    }
}

impl Space for MemorySpace {
    fn reach(&self) -> Reach {
        self.reach.clone()
    }

    fn map(&self, address: usize, bytes: usize, iova: u64) -> io::Result<()> {
        let mut mappings = self.mappings();
        let end = iova.checked_add(bytes as u64).ok_or(io::ErrorKind::InvalidInput)?;
        let before = mappings.range(..end).next_back();
        let overlaps = before.is_some_and(|(start, (_, length))| start + *length as u64 > iova);
        let inside = self.reach.addresses.start <= iova && end <= self.reach.addresses.end;
        if overlaps || !inside || mappings.len() >= self.reach.mappings_max {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        mappings.insert(iova, (address, bytes));
        Ok(())
    }

    fn unmap(&self, iova: u64, bytes: usize) -> io::Result<()> {
        let mut mappings = self.mappings();
        match mappings.get(&iova) {
            Some((_, length)) if *length == bytes => {
                mappings.remove(&iova);
                Ok(())
            }
            Some(_) | None => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

/// What the platform and the interrupts of the device have signalled.
#[derive(Debug, Default)]
struct Lines {
    requested: AtomicBool,
    failed: AtomicBool,
    interrupts: AtomicU64,
}

/// The device's end.
#[derive(Clone, Debug)]
pub struct Peer {
    registers: Arc<Registers>,
    space: Arc<MemorySpace>,
    lines: Arc<Lines>,
}

impl Peer {
    /// The registers.
    #[must_use]
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// The memory of the host.
    #[must_use]
    pub fn space(&self) -> &MemorySpace {
        &self.space
    }

    /// Signals an interrupt; they are counted.
    pub fn interrupt(&self) {
        // A counter for tests; no memory depends on its order.
        self.lines.interrupts.fetch_add(1, Ordering::Relaxed);
    }

    /// The platform asks for the device.
    pub fn request_removal(&self) {
        // Partner: `signals`.
        self.lines.requested.store(true, Ordering::Release);
    }

    /// The platform reports an error of the device.
    pub fn report_error(&self) {
        // Partner: `signals`.
        self.lines.failed.store(true, Ordering::Release);
    }
}

/// The driver's end.
pub struct MemoryFunction {
    peer: Peer,
    endpoint: Arc<dyn Endpoint>,
}

impl MemoryFunction {
    /// A function with `bytes` bytes of registers, and the device's end of it. `endpoint` makes the device from that.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(
        space: &Arc<MemorySpace>,
        bytes: usize,
        endpoint: impl FnOnce(Peer) -> Arc<dyn Endpoint>,
    ) -> io::Result<Self> {
        Ok(Self::with_registers(space, Registers::of_memory(bytes)?, endpoint))
    }

    pub(crate) fn with_registers(
        space: &Arc<MemorySpace>,
        registers: Arc<Registers>,
        endpoint: impl FnOnce(Peer) -> Arc<dyn Endpoint>,
    ) -> Self {
        let peer = Peer { registers, space: Arc::clone(space), lines: Arc::default() };
        Self { endpoint: endpoint(peer.clone()), peer }
    }
}

impl Function for MemoryFunction {
    fn registers(&self) -> &Arc<Registers> {
        &self.peer.registers
    }

    fn reset(&self) -> io::Result<()> {
        self.endpoint.reset()
    }

    fn is_present(&self) -> bool {
        self.endpoint.is_present()
    }

    fn signals(&self) -> Signals {
        // Partners: the stores in `Peer`.
        Signals {
            is_requested: self.peer.lines.requested.swap(false, Ordering::Acquire),
            has_failed: self.peer.lines.failed.swap(false, Ordering::Acquire),
        }
    }
}
