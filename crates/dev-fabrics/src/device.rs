//! The device: connecting to it, and what it says about itself.

use crate::address::{Address, HostName};
use crate::inbox::{Asker, Inbox};
use crate::keeper::{Keeper, Shared, now};
use crate::limits::{
    DEPTH_MAX, IO_BYTES_MAX, LOSS_TIME, LOSS_TIME_MAX, LOSS_TIME_MIN, ZEROES_BYTES,
};
use crate::queue::FabricsQueue;
use crate::session::Session;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use strake_block::{BlockDevice, Buf, BufMut, DeviceError, DeviceInfo, IoErrorKind, IoQueue};
use strake_nvme_auth::Keys;
use strake_nvme_wire::Digests;
use strake_nvme_wire::pdu::Use;
use strake_units::{CoreIndex, Nanos};

pub use crate::keeper::LinkState;

/// How to treat a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long requests are held without an association before they fail; brought into the bounds that it has.
    pub loss_time: Nanos,
    /// The digests to ask for. A drive's data deserves more than the checksum of TCP, so both unless somebody knows
    /// better; a target that has none is used without.
    pub digests: Digests,
}

impl Default for Options {
    fn default() -> Self {
        Self { loss_time: LOSS_TIME, digests: Digests { header: Use::On, data: Use::On } }
    }
}

/// A namespace of another machine. The association ends when the device and all its queues are dropped.
pub struct FabricsDevice {
    shared: Arc<Shared>,
    asker: Asker,
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
        let fail = |kind, what: String| DeviceError::new(kind, address.to_string(), what);
        let session = Session::begin(address, host, options.digests).map_err(|reason| {
            fail(reason.kind(), format!("{reason}; we connect as {}", host.nqn))
        })?;
        let loss_time = Nanos(options.loss_time.0.clamp(LOSS_TIME_MIN.0, LOSS_TIME_MAX.0));
        let options = Options { loss_time, ..options };
        let shared =
            Arc::new(Shared::new(address, host, (session.facts.clone(), session.queues), options));
        let (asker, inbox) = Inbox::open().map_err(|error| {
            fail(IoErrorKind::Device, NO_DESCRIPTOR.to_owned()).with_source(error)
        })?;
        let keeper = Keeper::new(Arc::clone(&shared), session, inbox);
        thread::Builder::new().name("nvme-tcp".to_owned()).spawn(move || keeper.run()).map_err(
            |error| {
                let what = "the machine has no thread left to keep the connection with";
                fail(IoErrorKind::Device, what.to_owned()).with_source(error)
            },
        )?;
        Ok(Self { shared, asker, zeroes: BufMut::alone(ZEROES_BYTES).freeze() })
    }

    /// How its association is now.
    #[must_use]
    pub fn state(&self) -> LinkState {
        self.shared.state()
    }

    /// Has the next association be made with other secrets. The one that is up stays.
    pub fn set_keys(&self, keys: Option<Keys>) {
        self.shared.host_lock().keys = keys;
    }

    /// Times that its association was made anew.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.shared.reconnects.load(Ordering::Relaxed)
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
    fn info(&self) -> DeviceInfo {
        let facts = self.shared.facts().clone();
        DeviceInfo {
            identity: facts.identity,
            blocks: facts.blocks,
            block_size: facts.block,
            io_bytes_max: IO_BYTES_MAX,
            io_bytes_optimal: facts.optimal_bytes,
            cache: facts.cache,
            deallocate: facts.deallocate,
            fast_zeroes: facts.zeroes_bytes.is_some(),
            read_only: facts.read_only,
        }
    }

    fn open_queue(&self, _core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
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
        let (queue, zeroes) = ((id, depth), self.zeroes.clone());
        let queue = FabricsQueue::open(&self.shared, &self.asker, queue, zeroes, now()).map_err(
            |error| fail(IoErrorKind::Device, NO_DESCRIPTOR.to_owned()).with_source(error),
        )?;
        Ok(Box::new(queue))
    }
}
