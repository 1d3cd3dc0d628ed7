//! The device: its properties, and how its queues are opened.

use crate::admin::ADMIN_BYTES;
use crate::error::Reason;
use crate::facts::{Facts, check_capabilities};
use crate::keeper::Keeper;
use crate::lifecycle::Phase;
use crate::limits::{DEPTH_MAX, LOG_TIME_MAX, PAGE};
use crate::memory::Registers;
use crate::queue::{NvmeQueue, device_info};
use crate::shared::{Request, Shared, lock};
use crate::transport::Function;
use crate::window::Window;
use crate::wire::{Capabilities, offset};
use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;
use strake_block::{
    BlockDevice, DeallocateReads, DeviceError, DeviceInfo, IoErrorKind, IoQueue, VolatileCache,
};
use strake_nvme_wire::health::LogPages;
use strake_nvme_wire::maintenance::{AdminCommand, Answer};
use strake_units::{BlockSize, CoreIndex};

/// Time limit for a new device to become ready, independent of the value of the controller (CAP.TO).
const OPEN_TIME: Duration = Duration::from_secs(30);

/// A namespace of an NVMe controller that the kernel does not drive. Dropping the device gives the controller back,
/// once all its queues are dropped.
pub struct NvmeDevice {
    name: String,
    shared: Arc<Shared>,
    registers: Arc<Registers>,
}

impl fmt::Debug for NvmeDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NvmeDevice").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Counters of a device since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commands whose data was copied, because its memory is not mapped or does not fit a PRP list.
    pub bounces: u64,
    /// Commands that were sent again after a reset.
    pub replays: u64,
    /// Resets of the controller.
    pub resets: u64,
    /// Aborts.
    pub aborts: u64,
    /// Times that the volatile cache may have been lost.
    pub renewals: u64,
}

/// Bytes of memory of a device, without the buffers of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Of a queue, of which each core has one: rings, lists, and slots of requests.
    pub queue: usize,
    /// Of the drive, whatever the number of cores: the admin queue, the chunks for data that must be copied, zeroes,
    /// and shadow doorbells.
    pub drive: usize,
}

impl NvmeDevice {
    /// Takes over a function. The caller runs the returned keeper, whose turns make the device ready.
    ///
    /// # Errors
    /// The controller cannot be used at all, or memory cannot be mapped for it.
    pub fn attach(
        name: &str,
        function: Box<dyn Function>,
        window: &Arc<Window>,
    ) -> Result<(Self, Keeper), DeviceError> {
        let fail = |reason: Reason| DeviceError::new(IoErrorKind::Device, name, reason.to_string());
        let registers = Arc::clone(function.registers());
        let memory = |error: io::Error| fail(Reason::Memory(error.to_string()));
        let cap = Capabilities(registers.read_long(offset::CAP));
        check_capabilities(cap, registers.bytes()).map_err(fail)?;
        let shared = Arc::new(Shared::new(window, cap).map_err(memory)?);
        let keeper = Keeper::new(&shared, function).map_err(fail)?;
        Ok((Self { name: name.to_owned(), shared, registers }, keeper))
    }

    /// Does the same as [`attach`](Self::attach), with a thread that runs the keeper. Waits until the device is ready.
    ///
    /// # Errors
    /// As [`attach`](Self::attach); also, the device does not become ready.
    pub fn open(
        name: &str,
        function: Box<dyn Function>,
        window: &Arc<Window>,
    ) -> Result<Self, DeviceError> {
        let (device, keeper) = Self::attach(name, function, window)?;
        let named = thread::Builder::new().name(format!("nvme-{name}"));
        named.spawn(move || keeper.run()).map_err(|error| {
            let what = "no thread can be started for the device";
            DeviceError::new(IoErrorKind::Device, name, what).with_source(error)
        })?;
        device.wait_until_ready()?;
        Ok(device)
    }

    fn wait_until_ready(&self) -> Result<(), DeviceError> {
        let is_starting = |_: &mut crate::shared::Known| {
            matches!(self.shared.word().phase(), Phase::Parked | Phase::Fenced)
        };
        let known = lock(&self.shared.known);
        let waited = self.shared.changed.wait_timeout_while(known, OPEN_TIME, is_starting);
        let (known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if self.shared.word().phase() == Phase::Live && known.facts.is_some() {
            return Ok(());
        }
        let reason = known.reason.clone().unwrap_or(Reason::NeverReady);
        Err(DeviceError::new(IoErrorKind::Device, self.name.clone(), reason.to_string()))
    }

    /// The properties of the controller and the namespace; `None` before they were identified.
    #[must_use]
    pub fn facts(&self) -> Option<Facts> {
        lock(&self.shared.known).facts.clone()
    }

    /// The reason of the last reset or failure of the controller.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        lock(&self.shared.known).reason.clone()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let counters = &self.shared.counters;
        // The counters are informative; no memory depends on their order.
        Stats {
            bounces: counters.bounces.load(Ordering::Relaxed),
            replays: counters.replays.load(Ordering::Relaxed),
            resets: counters.resets.load(Ordering::Relaxed),
            aborts: counters.aborts.load(Ordering::Relaxed),
            renewals: self.shared.renewals.load(Ordering::Relaxed),
        }
    }

    /// Returns the bytes of memory that the drive needs, with queues for `depth` requests. Tables of arenas belong to
    /// the window, which all drives share.
    #[must_use]
    pub fn footprint(&self, depth: u32) -> Footprint {
        Footprint {
            queue: NvmeQueue::bytes(depth, self.shared.cap),
            drive: self.shared.bytes() + ADMIN_BYTES,
        }
    }

    /// Returns a reader of log pages. The reader does not keep the device: dropping the device gives the controller
    /// back, even if the reader waits for a page.
    #[must_use]
    pub fn log_reader(&self) -> LogReader {
        LogReader { name: self.name.clone(), shared: Arc::clone(&self.shared) }
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

/// Reads log pages of a device that may be closed at the same time, and executes maintenance commands.
#[derive(Clone)]
pub struct LogReader {
    name: String,
    shared: Arc<Shared>,
}

impl LogReader {
    /// The controller's supported log pages; `None` before it was identified.
    #[must_use]
    pub fn pages(&self) -> Option<LogPages> {
        lock(&self.shared.known).facts.as_ref().map(|facts| facts.controller.logs)
    }

    /// Reads the first `bytes` bytes, at most 4096, of a log page. The call waits, so data cores must not use it.
    ///
    /// # Errors
    /// The controller rejects the command, does not answer, is being reset, or is given back.
    pub fn log_page(&self, number: u8, bytes: u32) -> Result<Vec<u8>, DeviceError> {
        let fail = |reason: Reason| {
            DeviceError::new(IoErrorKind::Device, self.name.clone(), reason.to_string())
        };
        if self.shared.word().phase() == Phase::Gone {
            let reason = lock(&self.shared.known).reason.clone();
            return Err(fail(reason.unwrap_or(Reason::NotReady)));
        }
        let (reply, answer) = sync_channel(1);
        self.shared.ask(Request::Log(number, bytes.min(PAGE as u32), reply));
        let answer = answer
            .recv_timeout(Duration::from_nanos(LOG_TIME_MAX.0))
            .unwrap_or(Err(Reason::NoAnswer));
        answer.map_err(fail)
    }

    /// The namespace ID of the device; `None` before the controller was identified.
    #[must_use]
    pub fn namespace(&self) -> Option<u32> {
        lock(&self.shared.known).facts.as_ref().map(|facts| facts.namespace.nsid)
    }

    /// Executes a maintenance command, and waits for the answer as long as the command may take.
    ///
    /// # Errors
    /// The controller does not answer in time (`Timeout`), or is reset or removed before it answers (`Aborted`): it may
    /// have executed the command. With every other kind of error, the controller did not get the command: it executes
    /// another maintenance command, is being reset, or was given back.
    pub fn maintain(&self, command: AdminCommand) -> Result<Answer, DeviceError> {
        let fail = |reason: Reason| {
            DeviceError::new(IoErrorKind::Device, self.name.clone(), reason.to_string())
        };
        if self.shared.word().phase() == Phase::Gone {
            let reason = lock(&self.shared.known).reason.clone();
            return Err(fail(reason.unwrap_or(Reason::NotReady)));
        }
        let limit = Duration::from_secs(command.time_s().into());
        let (reply, answer) = sync_channel(1);
        self.shared.ask(Request::Maintain(command, reply));
        let answered = answer.recv_timeout(limit).unwrap_or(Err(Reason::NoAnswer));
        answered.map_err(|reason| {
            let kind = match reason {
                Reason::NoAnswer => IoErrorKind::Timeout,
                Reason::Interrupted(_) => IoErrorKind::Aborted,
                _ => return fail(reason),
            };
            DeviceError { kind, ..fail(reason) }
        })
    }
}

impl fmt::Debug for LogReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogReader").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for NvmeDevice {
    fn drop(&mut self) {
        self.shared.ask(Request::Stop);
    }
}

impl BlockDevice for NvmeDevice {
    fn info(&self) -> DeviceInfo {
        let known = lock(&self.shared.known);
        let is_gone = matches!(self.shared.word().phase(), Phase::Gone | Phase::Unfenced);
        match &known.facts {
            Some(facts) if is_gone => DeviceInfo { blocks: 0, ..device_info(facts) },
            Some(facts) => device_info(facts),
            None => DeviceInfo {
                identity: format!("nvme:{}", self.name),
                blocks: 0,
                block_size: BlockSize::B4096,
                io_bytes_max: BlockSize::B4096.bytes(),
                io_bytes_optimal: 0,
                cache: VolatileCache::Present,
                deallocate: DeallocateReads::Unsupported,
                fast_zeroes: false,
                read_only: true,
            },
        }
    }

    fn open_queue(&self, _core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        let fail = |kind, what: String| DeviceError::new(kind, self.name.clone(), what);
        if depth > DEPTH_MAX {
            let what =
                format!("a queue holds at most {DEPTH_MAX} requests, {depth} were asked for");
            return Err(fail(IoErrorKind::Unsupported, what));
        }
        let (facts, number) = {
            let mut known = lock(&self.shared.known);
            let Some(facts) = known.facts.clone() else {
                let reason = known.reason.clone().unwrap_or(Reason::NeverReady);
                return Err(fail(IoErrorKind::Gone, reason.to_string()));
            };
            let Some(number) = known.numbers.pop() else {
                let what = "the controller has no more queues; use fewer cores".to_owned();
                return Err(fail(IoErrorKind::Device, what));
            };
            (facts, number)
        };
        let opened = NvmeQueue::open(&self.shared, &self.registers, (number, depth), &facts);
        match opened {
            Ok(queue) => Ok(Box::new(queue)),
            Err(error) => {
                lock(&self.shared.known).numbers.push(number);
                let what = "memory for a queue cannot be mapped; raise the limit on locked memory (ulimit -l, \
                            LimitMEMLOCK=)";
                Err(fail(IoErrorKind::Device, what.to_owned()).with_source(error))
            }
        }
    }
}
