//! Who is connected to an export, and what it has done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What peers connect to.
pub trait Export: Send + Sync + 'static {
    /// Its connection slots.
    fn connection_slots(&self) -> &ConnectionSlots;
}

/// The connection slots of an export: how many are taken, and whether more can be.
pub struct ConnectionSlots {
    state: Mutex<State>,
    left: Condvar,
}

struct State {
    taken: u32,
    max: u32,
    door: Door,
}

/// Whether an export takes new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    /// It is being removed; to peers it no longer exists.
    Closed,
}

/// Why a peer gets no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoConnectionSlot {
    /// The export is going.
    Closed,
    /// All connection slots are taken.
    Full,
}

impl ConnectionSlots {
    /// As many connection slots, all free.
    #[must_use]
    pub const fn new(max: u32) -> Self {
        let state = State { taken: 0, max, door: Door::Open };
        Self { state: Mutex::new(state), left: Condvar::new() }
    }

    /// Nothing panics while holding the lock, so a poisoned one guards a sound number. It is taken when a peer comes or
    /// goes, never for a request.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connection slots taken now.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.lock().taken
    }

    /// Connection slots that are free now.
    #[must_use]
    pub fn free(&self) -> u32 {
        let state = self.lock();
        state.max - state.taken
    }

    /// True until the export was closed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.lock().door == Door::Open
    }

    /// Takes no new peers from now on.
    pub fn close(&self) {
        self.lock().door = Door::Closed;
    }

    /// Waits until no slot is taken. False after the time limit.
    #[must_use]
    pub fn wait_empty(&self, patience: Duration) -> bool {
        let result = self.left.wait_timeout_while(self.lock(), patience, |connection_slots| {
            connection_slots.taken > 0
        });
        let (connection_slots, _) = result.unwrap_or_else(PoisonError::into_inner);
        connection_slots.taken == 0
    }
}

/// The right to be connected to an export, and the proof that it cannot be removed yet. Dropped by the owner of the
/// connection, after the last of its I/O has completed.
pub struct ConnectionSlot<E: Export> {
    /// The export.
    pub export: Arc<E>,
}

impl<E: Export> ConnectionSlot<E> {
    /// Sits down at an export.
    ///
    /// # Errors
    /// When it is closed, or full.
    pub fn take(export: &Arc<E>) -> Result<Self, NoConnectionSlot> {
        let mut connection_slots = export.connection_slots().lock();
        match connection_slots.door {
            Door::Closed => return Err(NoConnectionSlot::Closed),
            Door::Open if connection_slots.taken >= connection_slots.max => {
                return Err(NoConnectionSlot::Full);
            }
            Door::Open => {}
        }
        connection_slots.taken += 1;
        drop(connection_slots);
        Ok(Self { export: Arc::clone(export) })
    }
}

impl<E: Export> Drop for ConnectionSlot<E> {
    fn drop(&mut self) {
        let connection_slots = self.export.connection_slots();
        connection_slots.lock().taken -= 1;
        connection_slots.left.notify_all();
    }
}

/// Counts of one data core for one export. One thread writes, so an update is a plain load and store; 128 bytes apart,
/// because x86 fetches cache lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    /// Reads answered with data.
    pub reads: AtomicU64,
    /// Bytes sent in answer to them.
    pub read_bytes: AtomicU64,
    /// Writes that succeeded.
    pub writes: AtomicU64,
    /// Bytes of them.
    pub written_bytes: AtomicU64,
    /// Flushes that succeeded.
    pub flushes: AtomicU64,
    /// Deallocations, zeroings and copies that succeeded.
    pub effects: AtomicU64,
    /// Requests answered with an error.
    pub errors: AtomicU64,
}

/// What an export has done since it was added. Read while it runs, so the figures are not of one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportStats {
    /// Its name: for NVMe/TCP the NQN of the subsystem.
    pub name: String,
    /// The namespace in that; 0 where a name stands for one device.
    pub namespace: u32,
    /// Connections now: of NVMe/TCP, queues of the subsystem, admin queues among them.
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
    /// Deallocations, zeroings and copies that succeeded.
    pub effects: u64,
    /// Requests answered with an error.
    pub errors: u64,
}

impl ExportStats {
    /// What the cores have counted for an export together.
    #[must_use]
    pub fn of(name: &str, namespace: u32, connections: u32, cores: &[Counters]) -> Self {
        let sum = |pick: fn(&Counters) -> &AtomicU64| {
            cores.iter().map(|core| pick(core).load(Ordering::Relaxed)).sum()
        };
        Self {
            name: name.to_owned(),
            namespace,
            connections,
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

/// Adds to a counter that only this thread writes. Relaxed: a counter orders nothing.
pub fn count(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
