//! State that the keeper of a controller, the device and its queues share.

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
use strake_nvme_wire::maintenance::{AdminCommand, Answer};

/// A session and its phase in one word. A session starts when the controller becomes ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    /// A value that differs from every session.
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

/// State that a queue and the keeper share.
#[derive(Debug)]
pub(crate) struct Port {
    /// The number of the queue pair.
    pub(crate) number: u16,
    pub(crate) entries: u16,
    /// Addresses of the submission and of the completion queue.
    pub(crate) submission: u64,
    pub(crate) completion: u64,
    /// The session in which the controller has the queue pair; [`REFUSED`] if the controller did not create it.
    pub(crate) attached: AtomicU64,
    /// Whether the core of the queue is accessing the registers.
    pub(crate) at_registers: AtomicU32,
}

/// See [`Port::attached`].
pub(crate) const REFUSED: u64 = u64::MAX;

/// A request to the keeper.
pub(crate) enum Request {
    /// Create the queue pair in the active session.
    Attach(Arc<Port>),
    /// A command has no answer after the time at which it is aborted.
    AbortDue(Named),
    /// The session cannot continue, for this reason.
    Broken(u64, Reason),
    /// The queue is no longer used. Its unanswered commands and memory stay until the controller is done with them.
    Closed(Arc<Port>, Estate),
    /// Read a log page: its number and its bytes.
    Log(u8, u32, SyncSender<Result<Vec<u8>, Reason>>),
    /// Execute a maintenance command.
    Maintain(AdminCommand, Reply),
    /// Give the device back.
    Stop,
}

/// Receives the answer to a maintenance command.
pub(crate) type Reply = SyncSender<Result<Answer, Reason>>;

/// Counters, for users and for tests.
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

/// Chunks of memory for data that controllers do not reach.
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

    /// Returns the offset of a chunk in the block.
    pub(crate) const fn offset(chunk: u16) -> usize {
        chunk as usize * BOUNCE_BYTES
    }
}

/// State for control threads.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) facts: Option<Facts>,
    /// Numbers of queue pairs that no queue uses.
    pub(crate) numbers: Vec<u16>,
    /// The reason of the last reset or failure of the controller.
    pub(crate) reason: Option<Reason>,
}

/// The shared state; see the documentation of the module.
pub(crate) struct Shared {
    word: AtomicU64,
    /// Whether asymmetric barriers exist. Without them, data cores order their accesses themselves.
    has_barrier: bool,
    pub(crate) known: Mutex<Known>,
    /// Notified when the phase changes.
    pub(crate) changed: Condvar,
    inbox: Mutex<VecDeque<Request>>,
    has_requests: AtomicBool,
    keeper: Mutex<Option<Thread>>,
    /// The number of times that the volatile cache may have lost completed writes.
    pub(crate) renewals: AtomicU64,
    pub(crate) counters: Counters,
    /// Read once, because data cores read no registers.
    pub(crate) cap: Capabilities,
    pub(crate) window: Arc<Window>,
    pub(crate) bounces: Arc<BouncePool>,
    /// Zeroes, for controllers without Write Zeroes.
    pub(crate) zeroes: Tabled,
    /// Shadow doorbells and event indices, a page each.
    pub(crate) shadow: Block,
    /// Whether the controller uses the shadow doorbells.
    pub(crate) uses_shadow: AtomicBool,
}

/// Locks a mutex, also after a panic of its holder: no holder leaves inconsistent data.
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

    /// Bytes of memory of the device for controllers.
    pub(crate) fn bytes(&self) -> usize {
        self.bounces.memory.bytes() + self.zeroes.bytes() + self.shadow.memory.bytes()
    }

    /// Returns the session and its phase.
    #[inline]
    pub(crate) fn word(&self) -> Word {
        // Partner: `publish`. Earlier actions of the keeper, such as the creation of queues, are visible.
        Word(self.word.load(Ordering::Acquire))
    }

    /// Changes the phase. A live phase starts a new session.
    pub(crate) fn publish(&self, phase: Phase) {
        let session = self.word().session() + u64::from(phase == Phase::Live);
        let known = lock(&self.known);
        // Partner: `word`.
        self.word.store(Word::new(session, phase).0, Ordering::Release);
        drop(known);
        self.changed.notify_all();
    }

    /// Runs `touch` on the registers if the session is still `word`: the data core's side of parking.
    ///
    /// The core stores that it is at the registers and then loads the word; the keeper stores the word and then loads
    /// whether the core is there. One side must see the store of the other, so both need a barrier between their
    /// accesses. The keeper's runs on all cores (membarrier(2)), so that the data core needs none.
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

    /// Whether none of these ports is at the registers, after the publication of a phase that keeps them away.
    pub(crate) fn is_parked<'a>(&self, mut ports: impl Iterator<Item = &'a Arc<Port>>) -> bool {
        // The keeper's side of `at_registers`.
        fence(Ordering::SeqCst);
        let barred = !self.has_barrier || membarrier(MembarrierCommand::PrivateExpedited).is_ok();
        barred && ports.all(|port| port.at_registers.load(Ordering::Acquire) == 0)
    }

    /// Zeroes the shadow doorbells and event indices of a queue pair that the controller does not have: values of an
    /// earlier pair with this number would suppress notifications of the controller.
    pub(crate) fn clear_shadow(&self, number: u16) {
        let words = self.shadow.memory.words();
        for index in [2 * usize::from(number), 2 * usize::from(number) + 1] {
            let at = self.cap.doorbell(index) - offset::DOORBELLS;
            for page in [0, PAGE].into_iter().filter(|_| at < PAGE) {
                words[(page + at) / 8].store(0, Ordering::Relaxed);
            }
        }
    }

    /// Sends a request to the keeper. It takes a lock, so the path of an ordinary request does not use it.
    pub(crate) fn ask(&self, request: Request) {
        lock(&self.inbox).push_back(request);
        // Partner: `requests`.
        self.has_requests.store(true, Ordering::Release);
        if let Some(thread) = &*lock(&self.keeper) {
            thread.unpark();
        }
    }

    /// Takes the requests to the keeper.
    pub(crate) fn requests(&self) -> VecDeque<Request> {
        // Partner: `ask`.
        if !self.has_requests.swap(false, Ordering::Acquire) {
            return VecDeque::new();
        }
        std::mem::take(&mut *lock(&self.inbox))
    }

    /// Sets the thread that is woken by a request.
    pub(crate) fn set_keeper(&self, thread: Thread) {
        *lock(&self.keeper) = Some(thread);
    }
}
