//! The connections of an export, and its counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An object that peers connect to.
pub trait Export: Send + Sync + 'static {
    /// Its connection slots.
    fn connection_slots(&self) -> &ConnectionSlots;
}

/// The connection slots of an export: their number, their use, and whether new connections are accepted.
pub struct ConnectionSlots {
    state: Mutex<State>,
    left: Condvar,
}

struct State {
    taken: u32,
    max: u32,
    door: Door,
}

/// Whether an export accepts new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Open,
    /// The export is being removed; for peers it no longer exists.
    Closed,
}

/// The reason why a peer gets no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoConnectionSlot {
    /// The export is being removed.
    Closed,
    /// All connection slots are taken.
    Full,
}

impl ConnectionSlots {
    /// Creates `max` free connection slots.
    #[must_use]
    pub const fn new(max: u32) -> Self {
        let state = State { taken: 0, max, door: Door::Open };
        Self { state: Mutex::new(state), left: Condvar::new() }
    }

    /// No code panics while it holds the lock, so the state of a poisoned lock is consistent. The lock is taken when a
    /// peer connects or disconnects, never for a request.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of slots in use.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.lock().taken
    }

    /// The number of free slots.
    #[must_use]
    pub fn free(&self) -> u32 {
        let state = self.lock();
        state.max - state.taken
    }

    /// True until [`close`](Self::close).
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.lock().door == Door::Open
    }

    /// Accepts no new peers from now on.
    pub fn close(&self) {
        self.lock().door = Door::Closed;
    }

    /// Waits until no slot is in use. Returns false after the time limit.
    #[must_use]
    pub fn wait_empty(&self, patience: Duration) -> bool {
        let result = self.left.wait_timeout_while(self.lock(), patience, |connection_slots| {
            connection_slots.taken > 0
        });
        let (connection_slots, _) = result.unwrap_or_else(PoisonError::into_inner);
        connection_slots.taken == 0
    }
}

/// A slot of a connected peer. The export cannot be removed while it exists. The owner of the connection drops it after
/// the last I/O has completed.
pub struct ConnectionSlot<E: Export> {
    /// The export.
    pub export: Arc<E>,
}

impl<E: Export> ConnectionSlot<E> {
    /// Takes a slot of an export.
    ///
    /// Returns an error if the export is closed or full.
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

/// Counters of one data core for one export. One thread writes, so an update is a plain load and store. They are 128
/// bytes apart, because x86 fetches cache lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    /// Successful reads.
    pub reads: AtomicU64,
    /// Bytes sent for these reads.
    pub read_bytes: AtomicU64,
    /// Successful writes.
    pub writes: AtomicU64,
    /// Bytes of these writes.
    pub written_bytes: AtomicU64,
    /// Successful flushes.
    pub flushes: AtomicU64,
    /// Successful deallocations, zeroings and copies.
    pub effects: AtomicU64,
    /// Failed requests.
    pub errors: AtomicU64,
}

/// Stats of an export since it was added. They are read while it runs, so they are not a consistent snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportStats {
    /// Its name: for NVMe/TCP the NQN of the subsystem.
    pub name: String,
    /// The namespace ID; 0 if a name stands for one device.
    pub namespace: u32,
    /// The number of connections: for NVMe/TCP, the queues of the subsystem, including admin queues.
    pub connections: u32,
    /// Successful reads.
    pub reads: u64,
    /// Bytes sent for these reads.
    pub read_bytes: u64,
    /// Successful writes.
    pub writes: u64,
    /// Bytes of these writes.
    pub written_bytes: u64,
    /// Successful flushes.
    pub flushes: u64,
    /// Successful deallocations, zeroings and copies.
    pub effects: u64,
    /// Failed requests.
    pub errors: u64,
}

impl ExportStats {
    /// The sums of the counters of all cores.
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

/// Adds to a counter that only this thread writes. Relaxed: a counter orders no other access.
pub fn count(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
