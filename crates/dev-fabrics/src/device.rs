//! The device: connecting to it, and the properties that it reports.

use crate::address::{Address, HostName};
use crate::error::Reason;
use crate::inbox::{Asker, Inbox};
use crate::limits::{
    DEPTH_MAX, IO_BYTES_MAX, LOSS_TIME, LOSS_TIME_MAX, LOSS_TIME_MIN, PATHS_MAX, SETTLE_TIME_MAX,
    ZEROES_BYTES,
};
use crate::path::Path;
use crate::path_manager::{PathManager, Request};
use crate::path_selection::are_one;
use crate::queue::FabricsQueue;
use crate::reservation::{self, Asked, ReservationMode};
use crate::session::Session;
use crate::shared::{PathEntry, Shared, Standing, enlist, now};
use crate::stats::QueueStats;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use strake_block::{
    BlockDevice, Buf, BufMut, DeviceError, DeviceInfo, DeviceKind, IoErrorKind, IoQueue,
};
use strake_nvme_auth::{Keys, TlsKey};
use strake_nvme_tcp::Digests;
use strake_nvme_tcp::pdu::Use;
use strake_nvme_wire::log::Access;
use strake_units::{CoreIndex, Nanos};

pub use crate::shared::LinkState;

/// How to treat a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long requests are held without an association before they fail; brought into the bounds that it has.
    pub loss_time: Nanos,
    /// What is done about other hosts that could use it.
    pub reservation: ReservationMode,
    /// The digests to ask for. Both by default, since the checksum of TCP is too weak for a drive's data; a target that
    /// has none is used without.
    pub digests: Digests,
    /// Nothing is changed before this time of the monotonic clock: until then the target may execute what another
    /// process was not answered.
    pub settled_at: Nanos,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            loss_time: LOSS_TIME,
            reservation: ReservationMode::Off,
            digests: Digests { header: Use::On, data: Use::On },
            settled_at: Nanos(0),
        }
    }
}

/// A remote namespace. Its associations end when the device and all its queues are dropped.
pub struct FabricsDevice {
    shared: Arc<Shared>,
    asker: Asker<Request>,
    zeroes: Buf,
}

impl fmt::Debug for FabricsDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FabricsDevice")
            .field("address", &self.shared.address.to_string())
            .field("state", &self.shared.state())
            .finish_non_exhaustive()
    }
}

const NO_DESCRIPTOR: &str = "the process has no file descriptor left; raise its limit (ulimit -n)";

fn no_descriptor(address: &Address, error: io::Error) -> DeviceError {
    let fail = DeviceError::new(IoErrorKind::Device, address.to_string(), NO_DESCRIPTOR.to_owned());
    fail.with_source(error)
}

fn no_thread(address: &Address, error: io::Error) -> DeviceError {
    let what = "the machine has no thread or descriptor left to keep the connection with";
    let fail = DeviceError::new(IoErrorKind::Device, address.to_string(), what.to_owned());
    fail.with_source(error)
}

/// Starts the thread of a path.
fn add(
    shared: &Arc<Shared>,
    address: &Address,
    session: Option<Session>,
) -> Result<Request, DeviceError> {
    let id = enlist(shared, address);
    let thread = Path::start(shared, (id, address), session);
    let thread = thread.inspect_err(|_| shared.paths().retain(|entry| entry.id != id));
    Ok(Request::Add(id, thread.map_err(|error| no_thread(address, error))?))
}

/// How a path to a drive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// Where it leads to.
    pub address: Address,
    /// Whether it is connected.
    pub state: PathState,
    /// For how long it has been in that state.
    pub age: Nanos,
    /// Why it was lost, or could not be connected, the last time; `None` when neither ever happened.
    pub last: Option<Reason>,
    /// Times that it was reconnected.
    pub reconnects: u64,
    /// Whether I/O goes over it.
    pub used: bool,
    /// Times that it came to do so.
    pub turns: u64,
}

/// Whether a path is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// It is, and the target says this of how the namespace is reached over it.
    Up(Option<Access>),
    /// It is not, because of this; so many tries have failed. `None` before the first one.
    Down(Option<Reason>, u32),
}

impl PathStatus {
    fn of(entry: &PathEntry) -> Self {
        Self {
            address: entry.address.clone(),
            state: match &entry.standing {
                Standing::Up(live) => PathState::Up(live.facts.access),
                Standing::Down { reason, tries } => PathState::Down(*reason, *tries),
            },
            age: now().since(entry.since),
            last: entry.last,
            reconnects: entry.reconnects,
            used: entry.used,
            turns: entry.turns,
        }
    }
}

/// Numbers queues of all devices. Relaxed: uniqueness needs the atomic increment and nothing else.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl FabricsDevice {
    /// Connects to the namespace. Waits for the target, for seconds if it does not answer.
    ///
    /// # Errors
    /// When it cannot be reached, refuses, breaks the protocol, or the namespace is none that can be used.
    pub fn connect(
        address: &Address,
        host: &HostName,
        options: Options,
    ) -> Result<Self, DeviceError> {
        Self::connect_any(std::slice::from_ref(address), host, options)
    }

    /// Connects to the namespace over the first of these paths that works. The others are tried from then on. The drive
    /// is named by the first one.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), when none works: why the first does not.
    pub fn connect_any(
        addresses: &[Address],
        host: &HostName,
        options: Options,
    ) -> Result<Self, DeviceError> {
        let mut first = None;
        for address in addresses {
            match Session::begin(address, host, options.digests) {
                Ok(session) => return Self::start(addresses, host, options, (address, session)),
                Err(reason) => {
                    first.get_or_insert((address, reason));
                }
            }
        }
        let Some((address, reason)) = first else {
            let what = "no address is given to connect to".to_owned();
            return Err(DeviceError::new(IoErrorKind::Device, String::new(), what));
        };
        Err(reason.of_device(address, &format!("; we connect as {}", host.nqn)))
    }

    /// Begins to keep the paths, over one of which there is a session already.
    fn start(
        addresses: &[Address],
        host: &HostName,
        options: Options,
        (connected, session): (&Address, Session),
    ) -> Result<Self, DeviceError> {
        let name = &addresses[0];
        let loss_time = Nanos(options.loss_time.0.clamp(LOSS_TIME_MIN.0, LOSS_TIME_MAX.0));
        let options = Options { loss_time, ..options };
        let shared = Shared::new(name, host, session.facts.clone(), options)
            .map_err(|error| no_descriptor(name, error))?;
        let shared = Arc::new(shared);
        shared.claim(connected, &session.facts, options.reservation).map_err(|reason| {
            reason.of_device(connected, &format!("; we connect as {}", host.nqn))
        })?;
        let (asker, inbox) = Inbox::open().map_err(|error| no_descriptor(name, error))?;
        let mut path_manager = PathManager::new(Arc::clone(&shared), inbox);
        let mut session = Some(session);
        for address in addresses {
            let session = session.take_if(|_| address == connected);
            path_manager.take(add(&shared, address, session)?);
        }
        path_manager.look();
        thread::Builder::new()
            .name("nvme-tcp".to_owned())
            .spawn(move || path_manager.run())
            .map_err(|error| no_thread(name, error))?;
        Ok(Self { shared, asker, zeroes: BufMut::alone(ZEROES_BYTES).freeze() })
    }

    /// Adds a path to the namespace. Waits for the target, as [`connect`](Self::connect) does.
    ///
    /// # Errors
    /// As `connect`, and when it does not lead to the same namespace, or it cannot be determined whether it does.
    pub fn add_path(&self, address: &Address) -> Result<(), DeviceError> {
        let shared = &self.shared;
        if shared.paths().iter().filter(|entry| !entry.leaving).count() >= PATHS_MAX {
            let what = format!("there are {PATHS_MAX} paths to the drive, which is the most");
            return Err(DeviceError::new(IoErrorKind::Unsupported, address.to_string(), what));
        }
        let session = Session::begin(address, &shared.host(), shared.options.digests);
        let session = session.and_then(|session| {
            shared.promise().check(&session.facts)?;
            let facts = shared.facts();
            let named = facts.is_named() && address.nqn == shared.address.nqn;
            if !named {
                return Err(Reason::Nameless);
            }
            if shared.state() == LinkState::Up && !are_one(&facts, &session.facts) {
                return Err(Reason::OtherInstance);
            }
            drop(facts);
            shared.claim(address, &session.facts, ReservationMode::Claim)?;
            Ok(session)
        });
        let session = session.map_err(|reason| reason.of_device(address, ""))?;
        self.asker.ask(add(shared, address, Some(session))?);
        Ok(())
    }

    /// Does without a path from now on. What is under way over it is answered or sent again over another. False when
    /// that is not possible: there is no such path, it is the last, or the only one over which the drive is connected.
    #[must_use]
    pub fn remove_path(&self, address: &Address) -> bool {
        let mut paths = self.shared.paths();
        let is_up = |entry: &PathEntry| matches!(entry.standing, Standing::Up(_));
        let mut others = paths.iter().filter(|entry| entry.address != *address && !entry.leaving);
        let (any, up) = (others.clone().next().is_some(), others.any(is_up));
        let path = paths.iter_mut().find(|entry| entry.address == *address && !entry.leaving);
        let Some(path) = path.filter(|path| up || (any && !is_up(path))) else { return false };
        (path.leaving, path.since) = (true, now());
        drop(paths);
        self.shared.tell();
        true
    }

    /// Its paths, in the order in which they were added.
    #[must_use]
    pub fn paths(&self) -> Vec<PathStatus> {
        let paths = self.shared.paths();
        let kept = paths.iter().filter(|entry| !entry.leaving);
        kept.map(PathStatus::of).collect()
    }

    /// Whether it is reserved for this host, so that no other writes to it. `None` when that is not possible, or was
    /// not asked for.
    #[must_use]
    pub fn is_reserved(&self) -> Option<bool> {
        self.shared.claimed().map(|_| !self.shared.is_taken_over())
    }

    /// Whether its reservation was made when it was connected, and not found.
    #[must_use]
    pub fn was_reserved_now(&self) -> bool {
        self.shared.claimed().is_some_and(|claimed| claimed.is_new)
    }

    /// Gives up what `host` has of the reservation of the namespace at `address`, so that other hosts may use it; for a
    /// host that no longer writes. Waits for the target. A target without reservations has nothing to be given up.
    ///
    /// # Errors
    /// When it cannot be reached, or refuses.
    pub fn release(address: &Address, host: &HostName) -> Result<(), DeviceError> {
        let digests = Options::default().digests;
        reservation::release(&Asked { address, host, digests })
            .map_err(|reason| reason.of_device(address, ""))
    }

    /// Whether changes that closed queues sent, and that were not answered, may still be executed.
    #[must_use]
    pub fn owes(&self) -> bool {
        !self.shared.left(now()).is_empty()
    }

    /// How it is connected now.
    #[must_use]
    pub fn state(&self) -> LinkState {
        self.shared.state()
    }

    /// Has the next association be made with other secrets. The one that is up stays.
    pub fn set_keys(&self, keys: Option<Keys>) {
        self.shared.host_lock().keys = keys;
    }

    /// Has the next connections be made over TLS with another key, or without TLS. Those that are up stay.
    pub fn set_tls_key(&self, key: Option<TlsKey>) {
        self.shared.host_lock().tls = key;
    }

    /// Number of the association that is used, counted from 1; 0 while there is none.
    #[must_use]
    pub fn association(&self) -> u64 {
        self.shared.association.load(Ordering::Acquire)
    }

    /// What its queues have done that are open.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueStats> {
        self.shared.stats().iter().map(|queue| queue.read()).collect()
    }

    /// Times that its association was established again.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.shared.reconnects.load(Ordering::Relaxed)
    }

    /// A number that grows each time the user of the drive has reason to begin again: when its association was
    /// established again after a loss, and when what was not flushed may have been lost.
    #[must_use]
    pub fn renewals(&self) -> u64 {
        self.reconnects() + self.shared.cache.lost()
    }

    /// The model and the serial number that its controller tells.
    #[must_use]
    pub fn model_and_serial(&self) -> (String, String) {
        let facts = self.shared.facts();
        (facts.model.clone(), facts.serial.clone())
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.shared.address
    }
}

impl BlockDevice for FabricsDevice {
    fn hold(&self) -> Nanos {
        LOSS_TIME_MAX
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Remote
    }

    fn info(&self) -> DeviceInfo {
        let facts = self.shared.facts().clone();
        let promise = self.shared.promise().clone();
        DeviceInfo {
            identity: facts.identity,
            blocks: facts.blocks,
            block_size: facts.block,
            io_bytes_max: IO_BYTES_MAX,
            io_bytes_optimal: facts.optimal_bytes,
            cache: promise.cache,
            deallocate: promise.deallocate,
            fast_zeroes: facts.zeroes_bytes.is_some(),
            read_only: facts.read_only,
        }
    }

    /// As its controller tells. With several paths the longest there is: the next association may be with any of them.
    fn settle_time(&self) -> Nanos {
        match self.shared.paths().len() {
            0 | 1 => self.shared.facts().settle_time,
            _ => SETTLE_TIME_MAX,
        }
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        let fail =
            |kind, what: String| DeviceError::new(kind, self.shared.address.to_string(), what);
        if depth > DEPTH_MAX {
            let what =
                format!("a queue holds at most {DEPTH_MAX} requests, {depth} were asked for");
            return Err(fail(IoErrorKind::Unsupported, what));
        }
        let granted = self.shared.queues_granted.load(Ordering::Relaxed);
        if self.shared.queues_open.load(Ordering::Relaxed) >= granted {
            let what = format!("the target gives {granted} queues and no more; use fewer cores");
            return Err(fail(IoErrorKind::Device, what));
        }
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (queue, zeroes) = ((id, depth, core), self.zeroes.clone());
        let queue = FabricsQueue::open(&self.shared, &self.asker, queue, zeroes, now()).map_err(
            |error| fail(IoErrorKind::Device, NO_DESCRIPTOR.to_owned()).with_source(error),
        )?;
        Ok(Box::new(queue))
    }
}
