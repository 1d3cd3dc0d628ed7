//! A function in memory, for models of controllers in this process.
//!
//! Registers are words of memory that both sides read and write; the model reads them when it is stepped. A list holds
//! the mappings for the device, and every access of the model is checked against it. Thus the model detects a driver
//! that names memory that is not, or no longer, mapped.

use crate::memory::{Registers, copy_in, copy_out};
use crate::transport::{Function, Reach, Signals, Space};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The requests of a platform to its device.
pub trait Endpoint: Send + Sync {
    /// Resets the function.
    ///
    /// # Errors
    /// The device refuses.
    fn reset(&self) -> io::Result<()>;

    /// Whether the device is on the bus.
    fn is_present(&self) -> bool;
}

/// The mappings: addresses for devices, with addresses of this process and lengths.
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
    /// Returns a space with these limits.
    #[must_use]
    pub const fn new(reach: Reach) -> Self {
        Self { mappings: Mutex::new(BTreeMap::new()), reach }
    }

    fn mappings(&self) -> MutexGuard<'_, Mappings> {
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address of `bytes` bytes at `iova` of the device, if one mapping contains all of them.
    fn find(mappings: &Mappings, iova: u64, bytes: usize) -> Option<usize> {
        let (start, (address, length)) = mappings.range(..=iova).next_back()?;
        let offset = usize::try_from(iova - start).ok()?;
        (offset.checked_add(bytes)? <= *length).then_some(address + offset)
    }

    /// Keeps the mappings as they are until the result is dropped: for a device that accesses the memory many times.
    #[must_use]
    pub fn hold(&self) -> Held<'_> {
        Held { mappings: self.mappings() }
    }

    /// Reads as the device does. Returns false if the range is not mapped.
    #[must_use]
    pub fn read(&self, iova: u64, out: &mut [u8]) -> bool {
        self.hold().read(iova, out)
    }

    /// Writes as the device does. If the range is not mapped, returns false and writes nothing.
    #[must_use]
    pub fn write(&self, iova: u64, bytes: &[u8]) -> bool {
        self.hold().write(iova, bytes)
    }
}

/// The memory of a [`MemorySpace`] while no mapping changes.
#[derive(Debug)]
pub struct Held<'a> {
    mappings: MutexGuard<'a, Mappings>,
}

impl Held<'_> {
    /// Reads as the device does. Returns false if the range is not mapped.
    #[must_use]
    pub fn read(&self, iova: u64, out: &mut [u8]) -> bool {
        let Some(address) = MemorySpace::find(&self.mappings, iova, out.len()) else {
            return false;
        };
        // SAFETY: mapped memory is live until it is unmapped, which waits for the lock. The driver accesses ring
        // entries as atomic words. It leaves all other memory that a command names to the device until the completion,
        // also if another thread steps the model. Shadow doorbells are halves of words: the thread of the driver steps
        // a model that has them.
        unsafe { copy_out(address, out) };
        true
    }

    /// Writes as the device does. If the range is not mapped, returns false and writes nothing.
    #[must_use]
    pub fn write(&self, iova: u64, bytes: &[u8]) -> bool {
        let Some(address) = MemorySpace::find(&self.mappings, iova, bytes.len()) else {
            return false;
        };
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

/// Signals of the platform and interrupts of the device.
#[derive(Debug, Default)]
struct Lines {
    requested: AtomicBool,
    failed: AtomicBool,
    interrupts: AtomicU64,
}

/// The device's side of the function.
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

    /// Signals an interrupt, which is counted.
    pub fn interrupt(&self) {
        // The counter is for tests; no memory depends on its order.
        self.lines.interrupts.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the platform request the device back.
    pub fn request_removal(&self) {
        // Partner: `signals`.
        self.lines.requested.store(true, Ordering::Release);
    }

    /// Makes the platform report an error of the device.
    pub fn report_error(&self) {
        // Partner: `signals`.
        self.lines.failed.store(true, Ordering::Release);
    }
}

/// The driver's side of the function.
pub struct MemoryFunction {
    peer: Peer,
    endpoint: Arc<dyn Endpoint>,
}

impl MemoryFunction {
    /// Returns a function with `bytes` bytes of registers. `endpoint` creates the device from its side of the function.
    ///
    /// # Errors
    /// There is no memory.
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
