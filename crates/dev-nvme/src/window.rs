//! The memory that controllers reach, and its addresses for them.
//!
//! Arenas are mapped as a whole, once, for all devices of an address space; each has a *table*: a static PRP list in
//! which entry *i* is the address of its page *i*. The list of a command is then a position in the table, so that no
//! list is built. A list that would cross a page of the table is built by the queue.

use crate::limits::PAGE;
use crate::memory::SharedMemory;
use crate::transport::Space;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strake_block::{Arena, Follower, follow};

/// Alignment of mappings of arenas, so that an IOMMU can use huge pages if the arena does.
const HUGE: u64 = 2 << 20;
/// Bytes of a PRP.
const PRP: u64 = 8;
/// Entries of a page of a table.
const ENTRIES_LOG2: u32 = 9;
const PAGE_LOG2: u32 = 12;

const _: () = assert!(1 << PAGE_LOG2 == PAGE && (PAGE as u64) / PRP == 1 << ENTRIES_LOG2);

/// A range of addresses of this process that controllers reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region {
    start: usize,
    bytes: usize,
    iova: u64,
    table: u64,
}

/// The description of the data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prps {
    /// Two PRPs.
    Two(u64, u64),
    /// The first page, and the address of a list of the later pages, with `count` entries.
    List(u64, u64, usize),
}

impl Region {
    /// Returns the address for controllers of `bytes` bytes at `address`, if they are in the region.
    pub(crate) const fn find(&self, address: usize, bytes: usize) -> Option<u64> {
        let offset = address.wrapping_sub(self.start);
        if offset < self.bytes && bytes <= self.bytes - offset {
            Some(self.iova + offset as u64)
        } else {
            None
        }
    }

    /// Returns the PRPs of `bytes` bytes, at least one, at `iova` of controllers in this region.
    pub(crate) const fn prps(&self, iova: u64, bytes: usize) -> Prps {
        let first = (iova - self.iova) >> PAGE_LOG2;
        let last = (iova + bytes as u64 - 1 - self.iova) >> PAGE_LOG2;
        let second = self.iova + ((first + 1) << PAGE_LOG2);
        if last == first {
            Prps::Two(iova, 0)
        } else if last == first + 1 {
            Prps::Two(iova, second)
        } else if (first + 1) >> ENTRIES_LOG2 == last >> ENTRIES_LOG2 {
            Prps::Two(iova, self.table + (first + 1) * PRP)
        } else {
            Prps::List(iova, second, (last - first) as usize)
        }
    }
}

/// Memory of the driver that controllers reach.
pub(crate) struct Block {
    pub(crate) memory: Arc<SharedMemory>,
    pub(crate) iova: u64,
    window: Arc<Window>,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes at {:#x})", self.memory.bytes(), self.iova)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.window.unmap(self.iova, self.memory.bytes());
    }
}

/// Memory of the driver with its own table of one page.
#[derive(Debug)]
pub(crate) struct Tabled {
    block: Block,
    region: Region,
    table: Block,
}

impl Tabled {
    /// Bytes of the memory and of its table.
    pub(crate) fn bytes(&self) -> usize {
        self.block.memory.bytes() + self.table.memory.bytes()
    }

    /// Returns the PRPs of `bytes` bytes, at least one, at `offset`.
    pub(crate) fn prps(&self, offset: usize, bytes: usize) -> (u64, u64) {
        let iova = self.block.iova + offset as u64;
        match self.region.prps(iova, bytes) {
            Prps::Two(first, second) => (first, second),
            Prps::List(..) => unreachable!("the table is one page"),
        }
    }

    /// Copies `bytes` into the memory from byte `at` on.
    pub(crate) fn put(&self, at: usize, bytes: &[u8]) {
        self.block.memory.put(at, bytes);
    }

    /// Copies bytes from byte `at` on out of the memory.
    pub(crate) fn get(&self, at: usize, out: &mut [u8]) {
        self.block.memory.get(at, out);
    }
}

struct State {
    /// The lowest address that was never used.
    next: u64,
    /// Free address ranges, with their lengths.
    free: Vec<(u64, u64)>,
    regions: Arc<[Region]>,
    /// The arenas of the regions. An arena stays as long as controllers may reach it.
    arenas: Vec<Arc<Arena>>,
    tables: Vec<(SharedMemory, u64)>,
}

/// An address space and its mappings.
pub struct Window {
    space: Arc<dyn Space>,
    state: Mutex<State>,
    /// Increases when a region is added or removed.
    version: AtomicU64,
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window").field("regions", &self.state().regions).finish_non_exhaustive()
    }
}

impl Window {
    /// The window of an address space.
    #[must_use]
    pub fn new(space: Arc<dyn Space>) -> Arc<Self> {
        let state = State {
            next: space.reach().addresses.start,
            free: Vec::new(),
            regions: Arc::default(),
            arenas: Vec::new(),
            tables: Vec::new(),
        };
        Arc::new(Self { space, state: Mutex::new(state), version: AtomicU64::new(0) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves addresses for `bytes` bytes, congruent to `like` modulo a huge page if `like` is given.
    fn reserve(&self, bytes: u64, like: Option<u64>) -> io::Result<u64> {
        let mut state = self.state();
        let same = |(start, length): &(u64, u64)| {
            *length == bytes && like.is_none_or(|address| address % HUGE == start % HUGE)
        };
        if let Some(at) = state.free.iter().position(same) {
            return Ok(state.free.swap_remove(at).0);
        }
        let offset = like.map_or(0, |address| address % HUGE);
        let start = match like {
            Some(_) => state.next.next_multiple_of(HUGE) + offset,
            None => state.next,
        };
        let end = start.checked_add(bytes).filter(|end| *end <= self.space.reach().addresses.end);
        state.next =
            end.ok_or_else(|| io::Error::other("all addresses of the IOMMU are in use"))?;
        Ok(start)
    }

    fn map_new(&self, bytes: usize) -> io::Result<(SharedMemory, u64)> {
        let memory = SharedMemory::new(bytes)?;
        let iova = self.reserve(memory.bytes() as u64, None)?;
        self.map_reserved(memory.address(), memory.bytes(), iova)?;
        Ok((memory, iova))
    }

    /// Maps memory at reserved addresses. After an error, the addresses are free.
    fn map_reserved(&self, address: usize, bytes: usize, iova: u64) -> io::Result<()> {
        let free = |_: &io::Error| self.state().free.push((iova, bytes as u64));
        self.space.map(address, bytes, iova).inspect_err(free)
    }

    /// Unmaps memory. Addresses that cannot be unmapped are not used again.
    fn unmap(&self, iova: u64, bytes: usize) {
        if self.space.unmap(iova, bytes).is_ok() {
            self.state().free.push((iova, bytes as u64));
        }
    }

    /// Allocates zeroed memory that controllers reach.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> io::Result<Block> {
        let (memory, iova) = self.map_new(bytes)?;
        Ok(Block { memory: Arc::new(memory), iova, window: Arc::clone(self) })
    }

    /// Does the same with a table, for at most 2 MiB.
    pub(crate) fn allocate_tabled(self: &Arc<Self>, bytes: usize) -> io::Result<Tabled> {
        debug_assert!(bytes <= PAGE << ENTRIES_LOG2, "the table is one page");
        let (block, table) = (self.allocate(bytes)?, self.allocate(PAGE)?);
        fill_table(&table.memory, block.iova, bytes);
        let region =
            Region { start: block.memory.address(), bytes, iova: block.iova, table: table.iova };
        Ok(Tabled { block, region, table })
    }

    /// Makes an arena visible to controllers. It remains visible and allocated as long as the window exists.
    ///
    /// # Errors
    /// The kernel refuses, for example because of the limit on locked memory.
    pub fn map_arena(&self, arena: &Arc<Arena>) -> io::Result<()> {
        if self.state().arenas.iter().any(|known| Arc::ptr_eq(known, arena)) {
            return Ok(());
        }
        self.map_range(arena.address_range())?;
        self.state().arenas.push(Arc::clone(arena));
        Ok(())
    }

    /// Makes the arenas of all pools of the process visible to controllers, including later ones, as long as each
    /// exists. Data in an arena that the kernel does not map are copied.
    pub fn follow_pools(self: &Arc<Self>) {
        let follower: Arc<dyn Follower> = Arc::<Self>::clone(self);
        follow(&follower);
    }

    fn map_range(&self, Range { start, end }: Range<usize>) -> io::Result<()> {
        let bytes = end - start;
        let iova = self.reserve(bytes as u64, Some(start as u64))?;
        self.map_reserved(start, bytes, iova)?;
        let table = self.map_new(bytes / PAGE * PRP as usize);
        let (table, table_iova) = table.inspect_err(|_| self.unmap(iova, bytes))?;
        fill_table(&table, iova, bytes);
        let mut state = self.state();
        let region = Region { start, bytes, iova, table: table_iova };
        state.regions = state.regions.iter().copied().chain([region]).collect();
        state.tables.push((table, table_iova));
        // Partner: `version`. A queue that does not see the region yet copies the data.
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Removes a range whose memory is about to be freed. No command uses it: each command keeps its buffers.
    fn unmap_range(&self, range: &Range<usize>) {
        let mut state = self.state();
        let Some(at) = state.regions.iter().position(|region| region.start == range.start) else {
            return;
        };
        let gone = state.regions[at];
        let keeps = |region: &&Region| region.start != gone.start;
        state.regions = state.regions.iter().filter(keeps).copied().collect();
        // Partner: `version`. This precedes the reuse of the addresses for other memory.
        self.version.fetch_add(1, Ordering::Release);
        let table = state.tables.iter().position(|(_, iova)| *iova == gone.table);
        let table = table.map(|at| state.tables.swap_remove(at));
        let mut unmap = |iova, bytes| {
            // Addresses that cannot be unmapped are not used again.
            if self.space.unmap(iova, bytes).is_ok() {
                state.free.push((iova, bytes as u64));
            }
        };
        unmap(gone.iova, gone.bytes);
        if let Some((memory, iova)) = &table {
            unmap(*iova, memory.bytes());
        }
    }

    /// A counter that increases when a region is added or removed.
    pub(crate) fn version(&self) -> u64 {
        // Partner: `map_arena`.
        self.version.load(Ordering::Acquire)
    }

    /// The present regions.
    pub(crate) fn regions(&self) -> Arc<[Region]> {
        Arc::clone(&self.state().regions)
    }
}

/// Writes the addresses of all pages from `iova` on.
fn fill_table(table: &SharedMemory, iova: u64, bytes: usize) {
    for (page, word) in (0..).zip(&table.words()[..bytes / PAGE]) {
        // A lock publishes the table together with the region.
        word.store((iova + page * PAGE as u64).to_le(), Ordering::Relaxed);
    }
}

impl Follower for Window {
    fn added(&self, arena: Range<usize>) {
        // Without the mapping, data in the arena are copied, and the copies are counted.
        let _ = self.map_range(arena);
    }

    fn removed(&self, arena: Range<usize>) {
        self.unmap_range(&arena);
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let regions = state.regions.iter().map(|region| (region.iova, region.bytes));
        let tables = state.tables.iter().map(|(memory, iova)| (*iova, memory.bytes()));
        for (iova, bytes) in regions.chain(tables) {
            // A mapping that cannot be removed ends with the address space.
            let _ = self.space.unmap(iova, bytes);
        }
    }
}

/// A queue's view of the window: the last used region is tried first.
#[derive(Debug)]
pub(crate) struct View {
    last: Region,
    regions: Arc<[Region]>,
    version: u64,
    window: Arc<Window>,
}

impl View {
    pub(crate) fn new(window: &Arc<Window>) -> Self {
        let (version, regions) = (window.version(), window.regions());
        Self { last: Region::default(), regions, version, window: Arc::clone(window) }
    }

    /// Returns the PRPs of `bytes` bytes, at least one, at `address`, if they are in the last used region and need no
    /// list that must be built.
    #[inline(always)]
    pub(crate) fn prps_nearby(&self, address: usize, bytes: usize) -> Option<(u64, u64)> {
        if self.version != self.window.version() {
            return None;
        }
        let Region { start, bytes: size, iova, table } = self.last;
        let offset = address.wrapping_sub(start);
        if offset >= size || bytes > size - offset {
            return None;
        }
        if offset % PAGE + bytes <= PAGE {
            return Some((iova + offset as u64, 0));
        }
        let (first, last) = (offset as u64 >> PAGE_LOG2, (offset + bytes - 1) as u64 >> PAGE_LOG2);
        let second = match last - first {
            1 => iova + (last << PAGE_LOG2),
            _ if (first + 1) >> ENTRIES_LOG2 == last >> ENTRIES_LOG2 => table + (first + 1) * PRP,
            _ => return None,
        };
        Some((iova + offset as u64, second))
    }

    /// Returns the PRPs of `bytes` bytes, at least one, at `address`; `None` if they are not mapped.
    pub(crate) fn prps(&mut self, address: usize, bytes: usize) -> Option<Prps> {
        if self.version != self.window.version() {
            (self.version, self.regions) = (self.window.version(), self.window.regions());
            self.last = Region::default();
        }
        if let Some(iova) = self.last.find(address, bytes) {
            return Some(self.last.prps(iova, bytes));
        }
        let region = self.regions.iter().find(|region| region.find(address, bytes).is_some())?;
        self.last = *region;
        let iova = region.find(address, bytes)?;
        Some(region.prps(iova, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::{Prps, View, Window};
    use crate::transport::memory::MemorySpace;
    use crate::transport::{Reach, Space};
    use std::sync::Arc;
    use strake_block::Follower;

    /// The history of the bug: new memory at the addresses of freed memory would have been written at the old mapping.
    #[test]
    fn a_queue_never_uses_the_mapping_of_memory_that_went() {
        let window = Window::new(Arc::new(MemorySpace::default()));
        let mut view = View::new(&window);
        let (arena, other) = (0x10_0000..0x11_0000, 0x20_0000..0x22_0000);
        let first = |prps| match prps {
            Some(Prps::Two(first, _) | Prps::List(first, ..)) => Some(first),
            None => None,
        };
        assert_eq!(first(view.prps(arena.start, 4096)), None);
        window.added(arena.clone());
        let before = first(view.prps(arena.start, 4096)).expect("it is mapped");
        assert_eq!(view.prps_nearby(arena.start, 4096), Some((before, 0)));
        window.removed(arena.clone());
        assert_eq!(view.prps_nearby(arena.start, 4096), None);
        assert_eq!(first(view.prps(arena.start, 4096)), None);
        // Its addresses are reused by larger memory, in which all offsets differ.
        window.added(other);
        window.added(arena.start - 0x1_0000..arena.end);
        let after = first(view.prps(arena.start, 4096)).expect("it is mapped");
        assert_ne!(after, before);
        assert_eq!(view.prps_nearby(arena.start, 4096), Some((after, 0)));
    }

    /// With space for no mapping, and for one: that of the arena without that of its table.
    #[test]
    fn addresses_of_memory_that_cannot_be_mapped_are_used_again() {
        for mappings_max in 0..2 {
            let reach = Reach { addresses: 1 << 32..1 << 39, mappings_max };
            let space = Arc::new(MemorySpace::new(reach));
            let window = Window::new(Arc::<MemorySpace>::clone(&space));
            let mut next = Vec::new();
            for _ in 0..3 {
                window.added(0x10_0000..0x11_0000);
                next.push(window.state().next);
            }
            assert_eq!(next[1..], [next[0]; 2]);
            assert!(space.unmap(1 << 32 | 0x10_0000, 0x1_0000).is_err(), "it stayed mapped");
        }
    }

    #[test]
    fn addresses_of_devices_are_used_again() {
        let window = Window::new(Arc::new(MemorySpace::default()));
        let mut next = Vec::new();
        for _ in 0..3 {
            window.added(0x10_0000..0x11_0000);
            window.removed(0x10_0000..0x11_0000);
            next.push(window.state().next);
        }
        assert_eq!(next[1..], [next[0]; 2]);
        assert_eq!(window.state().tables.len(), 0);
    }
}
