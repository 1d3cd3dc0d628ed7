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

/// The settings of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Time for which requests are held without an association before they fail; it is clamped to its limits.
    pub loss_time: Nanos,
    /// The use of a reservation against other hosts.
    pub reservation: ReservationMode,
    /// The digests to request. The default is both, because the TCP checksum is too weak for data of a drive. A target
    /// without digests is used without them.
    pub digests: Digests,
    /// The monotonic time before which no change is sent: until then the target may execute unanswered commands of
    /// another process.
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

/// A remote namespace. Its associations end when the device and all its queues have been dropped.
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

/// The status of a path to a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStatus {
    /// The address of the path.
    pub address: Address,
    /// The connection state.
    pub state: PathState,
    /// The time in this state.
    pub age: Nanos,
    /// The reason of the last loss or failed connect; `None` if there was neither.
    pub last: Option<Reason>,
    /// The number of reconnects.
    pub reconnects: u64,
    /// Whether the path carries I/O.
    pub used: bool,
    /// The number of times that the path was selected.
    pub turns: u64,
}

/// The connection state of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// The path is connected; the value is the ANA state that the target reports.
    Up(Option<Access>),
    /// The path is not connected, for this reason, after this number of failed attempts. The reason is `None` before
    /// the first attempt.
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

/// The counter for queue numbers of all devices. Relaxed: uniqueness needs only the atomic increment.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl FabricsDevice {
    /// Connects to the namespace. Waits for the target, for seconds if it does not answer.
    ///
    /// Returns an error if the target is unreachable, rejects the host or violates the protocol, or if the namespace is
    /// not usable.
    pub fn connect(
        address: &Address,
        host: &HostName,
        options: Options,
    ) -> Result<Self, DeviceError> {
        Self::connect_any(std::slice::from_ref(address), host, options)
    }

    /// Connects to the namespace over the first of these paths that works. The other paths are then connected in the
    /// background. The first address names the drive.
    ///
    /// Returns the error of [`connect`](Self::connect) for the first address if no path works.
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

    /// Starts the threads of the paths, one of which has a session already.
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
    /// Returns the errors of `connect`, and an error if the path leads to another namespace, or if this cannot be
    /// determined.
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

    /// Removes a path. Commands in flight over it complete, or are sent again over another path. Returns false if the
    /// path does not exist, is the last one, or is the only connected one.
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

    /// The paths, in the order in which they were added.
    #[must_use]
    pub fn paths(&self) -> Vec<PathStatus> {
        let paths = self.shared.paths();
        let kept = paths.iter().filter(|entry| !entry.leaving);
        kept.map(PathStatus::of).collect()
    }

    /// Whether the namespace is reserved for this host, so that no other host can write. `None` if it has no
    /// reservations, or if none was requested.
    #[must_use]
    pub fn is_reserved(&self) -> Option<bool> {
        self.shared.claimed().map(|_| !self.shared.is_taken_over())
    }

    /// True if the reservation was made at the connect, and did not exist before.
    #[must_use]
    pub fn was_reserved_now(&self) -> bool {
        self.shared.claimed().is_some_and(|claimed| claimed.is_new)
    }

    /// Releases the reservation of `host` for the namespace at `address`, so that other hosts may use it. The host must
    /// no longer write. Waits for the target. The call succeeds for a target without reservations.
    ///
    /// Returns an error if the target is unreachable or rejects the command.
    pub fn release(address: &Address, host: &HostName) -> Result<(), DeviceError> {
        let digests = Options::default().digests;
        reservation::release(&Asked { address, host, digests })
            .map_err(|reason| reason.of_device(address, ""))
    }

    /// True if unanswered changes of closed queues may still be executed.
    #[must_use]
    pub fn owes(&self) -> bool {
        !self.shared.left(now()).is_empty()
    }

    /// The connection state.
    #[must_use]
    pub fn state(&self) -> LinkState {
        self.shared.state()
    }

    /// Sets the secrets for later associations. The current one stays.
    pub fn set_keys(&self, keys: Option<Keys>) {
        self.shared.host_lock().keys = keys;
    }

    /// Sets the TLS key for later connections; `None` disables TLS. Existing connections stay.
    pub fn set_tls_key(&self, key: Option<TlsKey>) {
        self.shared.host_lock().tls = key;
    }

    /// The number of the current association, counted from 1; 0 if there is none.
    #[must_use]
    pub fn association(&self) -> u64 {
        self.shared.association.load(Ordering::Acquire)
    }

    /// Stats of the open queues.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueStats> {
        self.shared.stats().iter().map(|queue| queue.read()).collect()
    }

    /// The number of times that the association was established again.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.shared.reconnects.load(Ordering::Relaxed)
    }

    /// A number that increases when the user of the drive must recover: when the association was established again
    /// after a loss, and when unflushed changes may have been lost.
    #[must_use]
    pub fn renewals(&self) -> u64 {
        self.reconnects() + self.shared.cache.lost()
    }

    /// The model and the serial number that the controller reports.
    #[must_use]
    pub fn model_and_serial(&self) -> (String, String) {
        let facts = self.shared.facts();
        (facts.model.clone(), facts.serial.clone())
    }

    /// The address of the drive.
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

    /// The value that the controller reports. With several paths it is the maximum, because the next association may be
    /// with any of them.
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
