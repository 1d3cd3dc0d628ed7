//! What the keeper of a controller, the device and its queues have in common.

use crate::error::Reason;
use crate::facts::Facts;
use crate::lifecycle::{Named, Phase};
use crate::limits::{BOUNCE_BYTES, BOUNCES, PAGE};
use crate::queue::Estate;
use crate::window::{Block, Tabled, Window};
use crate::wire::{Capabilities, offset};
use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence, fence};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// A session and its phase in one word. A session begins when the controller becomes ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    /// No session is like this.
    pub(crate) const NONE: Self = Self(u64::MAX);

    pub(crate) const fn new(session: u64, phase: Phase) -> Self {
        Self(session << 3 | phase as u64)
    }

    pub(crate) const fn session(self) -> u64 {
        self.0 >> 3
    }

    pub(crate) const fn phase(self) -> Phase {
        match self.0 & 0b111 {
            0 => Phase::Live,
            1 => Phase::Parked,
            2 => Phase::Fenced,
            3 => Phase::Gone,
            _ => Phase::Unfenced,
        }
    }
}

/// What a queue and the keeper know of each other.
#[derive(Debug)]
pub(crate) struct Port {
    /// The number of the queue pair.
    pub(crate) number: u16,
    pub(crate) entries: u16,
    /// Addresses of the submission and of the completion queue.
    pub(crate) submission: u64,
    pub(crate) completion: u64,
    /// The session in which the controller has the queue pair; [`REFUSED`] when it did not create it.
    pub(crate) attached: AtomicU64,
    /// The core of the queue is at the registers.
    pub(crate) at_registers: AtomicU32,
}

/// See [`Port::attached`].
pub(crate) const REFUSED: u64 = u64::MAX;

/// What the keeper is asked for.
pub(crate) enum Request {
    /// Create the queue pair, in the session that is live.
    Attach(Arc<Port>),
    /// A command has no answer after the time of an Abort.
    AbortDue(Named),
    /// The session cannot continue, because of this.
    Broken(u64, Reason),
    /// The queue is no longer used. What is unanswered of it, and its memory, stay until the controller is done.
    Closed(Arc<Port>, Estate),
    /// A log page: its number and its bytes.
    Log(u8, u32, SyncSender<Result<Vec<u8>, Reason>>),
    /// The device is to be given back.
    Stop,
}

/// Counters, for people and for tests.
#[derive(Debug, Default)]
pub struct Counters {
    /// Commands whose data was copied, because its memory is not mapped.
    pub(crate) bounces: AtomicU64,
    /// Commands that the driver sent again after a reset.
    pub(crate) replays: AtomicU64,
    /// Resets of the controller.
    pub(crate) resets: AtomicU64,
    /// Aborts that were sent.
    pub(crate) aborts: AtomicU64,
}

/// Chunks of memory for data that controllers do not see.
#[derive(Debug)]
pub(crate) struct BouncePool {
    pub(crate) memory: Tabled,
    free: Mutex<Vec<u16>>,
}

impl BouncePool {
    pub(crate) fn new(window: &Arc<Window>) -> std::io::Result<Self> {
        let memory = window.allocate_tabled(usize::from(BOUNCES) * BOUNCE_BYTES)?;
        Ok(Self { memory, free: Mutex::new((0..BOUNCES).collect()) })
    }

    pub(crate) fn take(&self) -> Option<u16> {
        lock(&self.free).pop()
    }

    pub(crate) fn give_back(&self, chunk: u16) {
        lock(&self.free).push(chunk);
    }

    /// Where a chunk begins in the block.
    pub(crate) const fn offset(chunk: u16) -> usize {
        chunk as usize * BOUNCE_BYTES
    }
}

/// What is known to control threads.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) facts: Option<Facts>,
    /// Numbers of queue pairs that no queue has.
    pub(crate) numbers: Vec<u16>,
    /// Why the controller was last reset or given up.
    pub(crate) reason: Option<Reason>,
}

/// See the module.
pub(crate) struct Shared {
    word: AtomicU64,
    /// Without asymmetric barriers, data cores order their accesses themselves.
    has_barrier: bool,
    pub(crate) known: Mutex<Known>,
    /// Rung when the phase changes.
    pub(crate) changed: Condvar,
    inbox: Mutex<VecDeque<Request>>,
    has_requests: AtomicBool,
    keeper: Mutex<Option<Thread>>,
    /// The last session in which something that completed may have been lost with the cache.
    pub(crate) renewals: AtomicU64,
    pub(crate) counters: Counters,
    /// Read once: data cores read no registers.
    pub(crate) cap: Capabilities,
    pub(crate) window: Arc<Window>,
    pub(crate) bounces: Arc<BouncePool>,
    /// Zeroes, for controllers without Write Zeroes.
    pub(crate) zeroes: Tabled,
    /// Shadow doorbells and event indices, a page each.
    pub(crate) shadow: Block,
    /// Whether the controller looks at them.
    pub(crate) uses_shadow: AtomicBool,
}

/// Locks, also what a thread that panicked has held: nothing here is left half-changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(window: &Arc<Window>, cap: Capabilities) -> std::io::Result<Self> {
        let has_barrier = membarrier_query().contains(MembarrierQuery::PRIVATE_EXPEDITED)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        Ok(Self {
            word: AtomicU64::new(Word::new(0, Phase::Parked).0),
            has_barrier,
            known: Mutex::default(),
            changed: Condvar::new(),
            inbox: Mutex::default(),
            has_requests: AtomicBool::new(false),
            keeper: Mutex::new(None),
            renewals: AtomicU64::new(0),
            counters: Counters::default(),
            cap,
            window: Arc::clone(window),
            bounces: Arc::new(BouncePool::new(window)?),
            zeroes: window.allocate_tabled(BOUNCE_BYTES)?,
            shadow: window.allocate(2 * PAGE)?,
            uses_shadow: AtomicBool::new(false),
        })
    }

    /// The session and its phase.
    #[inline]
    pub(crate) fn word(&self) -> Word {
        // Partner: `publish`. What the keeper did before, such as creating queues, is visible.
        Word(self.word.load(Ordering::Acquire))
    }

    /// Changes it. A live phase begins a new session.
    pub(crate) fn publish(&self, phase: Phase) {
        let session = self.word().session() + u64::from(phase == Phase::Live);
        let known = lock(&self.known);
        // Partner: `word`.
        self.word.store(Word::new(session, phase).0, Ordering::Release);
        drop(known);
        self.changed.notify_all();
    }

    /// Runs `touch` at the registers if the session is still `word`: the data core's side of parking.
    ///
    /// The core stores that it is there and then loads the word; the keeper stores the word and then loads whether the
    /// core is there. One of them has to see the other, which takes a barrier between the two accesses on either side.
    /// The keeper's runs on all cores (membarrier(2)), so that the data core needs none.
    #[inline]
    pub(crate) fn at_registers(&self, port: &Port, word: Word, touch: impl FnOnce()) {
        port.at_registers.store(1, Ordering::Relaxed);
        if self.has_barrier {
            compiler_fence(Ordering::SeqCst)
        } else {
            fence(Ordering::SeqCst)
        }
        if self.word.load(Ordering::Relaxed) == word.0 {
            touch();
        }
        // Partner: `is_parked`.
        port.at_registers.store(0, Ordering::Release);
    }

    /// Whether none of these is at the registers, after a phase was published in which they do not go there.
    pub(crate) fn is_parked<'a>(&self, mut ports: impl Iterator<Item = &'a Arc<Port>>) -> bool {
        // The keeper's side of `at_registers`.
        fence(Ordering::SeqCst);
        let barred = !self.has_barrier || membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        barred && ports.all(|port| port.at_registers.load(Ordering::Acquire) == 0)
    }

    /// Zeroes the shadow doorbells of a queue pair that the controller does not know, and its event indices: what an
    /// earlier pair of this number has left there would keep the controller from being notified.
    pub(crate) fn clear_shadow(&self, number: u16) {
        let words = self.shadow.memory.words();
        for index in [2 * usize::from(number), 2 * usize::from(number) + 1] {
            let at = self.cap.doorbell(index) - offset::DOORBELLS;
            for page in [0, PAGE].into_iter().filter(|_| at < PAGE) {
                words[(page + at) / 8].store(0, Ordering::Relaxed);
            }
        }
    }

    /// Asks the keeper for something. Not for the path of an ordinary request: it takes a lock.
    pub(crate) fn ask(&self, request: Request) {
        lock(&self.inbox).push_back(request);
        // Partner: `requests`.
        self.has_requests.store(true, Ordering::Release);
        if let Some(thread) = &*lock(&self.keeper) {
            thread.unpark();
        }
    }

    /// What the keeper was asked for.
    pub(crate) fn requests(&self) -> VecDeque<Request> {
        // Partner: `ask`.
        if !self.has_requests.swap(false, Ordering::Acquire) {
            return VecDeque::new();
        }
        std::mem::take(&mut *lock(&self.inbox))
    }

    /// The thread that is woken when the keeper is asked.
    pub(crate) fn set_keeper(&self, thread: Thread) {
        *lock(&self.keeper) = Some(thread);
    }
}
