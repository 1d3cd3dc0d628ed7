//! The device: its options and the properties that it reports.

use crate::error::{Notice, NoticeKind};
use crate::limits::{DEPTH_MAX, KERNEL_HOLD, OWED_BRIEFLY};
use crate::open::Alignment;
use crate::opening;
use crate::queue::UringQueue;
use crate::reaper::{self, Debt, Key, Owed};
use crate::ring::{Mode, Ring};
use crate::size::{block_bytes, file_bytes};
use crate::slot::Learned;
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use strake_block::{
    Arena, BlockDevice, Buf, DeallocateReads, DeviceError, DeviceInfo, DeviceKind, IoErrorKind,
    IoQueue, VolatileCache,
};
use strake_units::{BlockSize, CoreIndex, Nanos};

/// The access mode of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Read and write; falls back to read-only, with a notice, if the medium itself is write-protected.
    #[default]
    ReadWrite,
    /// Read only.
    ReadOnly,
}

/// Whether I/O bypasses the page cache (`O_DIRECT`, open(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// If the file system supports it; otherwise buffered, with a notice.
    #[default]
    Auto,
    /// Always, or the device does not open.
    Yes,
    /// Never.
    No,
}

/// The method of detecting completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Polling {
    /// By interrupts of the drive, so that an idle core can sleep.
    #[default]
    Interrupts,
    /// By polling (`IORING_SETUP_IOPOLL`, io_uring_setup(2)) if the drive has polling queues; otherwise by interrupts,
    /// with a notice.
    WhenAvailable,
}

/// Options for opening a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// The access mode.
    pub access: Access,
    /// Whether I/O bypasses the page cache.
    pub direct: Direct,
    /// The method of detecting completions.
    pub polling: Polling,
    /// Block size of a file: by default 512 if direct I/O of 512 bytes works, else 4096. A block device has its own
    /// block size, and a request for another one is an error.
    pub block_size: Option<BlockSize>,
}

/// A regular file or a kernel block device. It cannot be opened a second time in this way until it is dropped.
#[derive(Debug)]
pub struct UringDevice {
    shared: Arc<Shared>,
}

/// State that a device and its queues share. Its drop closes the file, so it outlives all of them.
pub(crate) struct Shared {
    pub(crate) file: ManuallyDrop<OwnedFd>,
    pub(crate) key: Key,
    /// Whether another process or host serves the file, so that every call on it may wait.
    pub(crate) served: bool,
    /// Whether the kernel reaches it over a network.
    pub(crate) remote: bool,
    pub(crate) name: String,
    pub(crate) identity: String,
    /// Bytes of a regular file at its opening; 0 for a block device, whose size the kernel manages.
    pub(crate) file_bytes: u64,
    pub(crate) block_size: BlockSize,
    pub(crate) io_bytes_max: u32,
    pub(crate) io_bytes_optimal: u32,
    pub(crate) cache: VolatileCache,
    pub(crate) deallocate: DeallocateReads,
    pub(crate) fast_zeroes: bool,
    pub(crate) read_only: bool,
    pub(crate) direct: Option<Alignment>,
    pub(crate) polled: bool,
    pub(crate) learned: Learned,
    pub(crate) zeroes: Buf,
    pub(crate) arenas: Vec<Arc<Arena>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("name", &self.name)
            .field("identity", &self.identity)
            .field("block_size", &self.block_size)
            .field("direct", &self.direct)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// True if the file behind the drive has become shorter. A write would silently extend it again, with zeroes where
    /// data was.
    pub(crate) fn has_shrunk(&self) -> bool {
        self.file_bytes > 0
            && file_bytes(&self.file, self.served).is_none_or(|now| now < self.file_bytes)
    }

    /// The current size; 0 if the device was removed.
    fn blocks(&self) -> u64 {
        let bytes = match self.key.is_block() {
            true => block_bytes(&self.file),
            false => file_bytes(&self.file, self.served),
        };
        bytes.map_or(0, |bytes| bytes >> self.block_size.shift())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `self` is being dropped, and no later code uses its file.
        let file = unsafe { ManuallyDrop::take(&mut self.file) };
        if self.served {
            // The close may wait for the server of the file.
            reaper::hand_over(self.key, 0, Debt::Close(file));
        }
    }
}

/// Refuses to open a drive with outstanding requests of an earlier use.
pub(crate) fn busy(name: &str, owed: Owed) -> DeviceError {
    let (requests, seconds) = (owed.requests, owed.time.0 / Nanos::SECOND.0);
    let what = format!(
        "has not answered {requests} requests of an earlier use for {seconds} s, and they may still change it; wait \
         until it answers, or power-cycle it"
    );
    DeviceError::new(IoErrorKind::Timeout, name.to_owned(), what)
}

impl UringDevice {
    /// Opens the file or block device at `path` and excludes every other user.
    ///
    /// # Errors Returns an error if `path` does not exist, is neither a file nor a block device, holds less than one
    /// block, may not be opened, or is in use elsewhere; and if it does not support a required option. The error is
    /// [`Timeout`](IoErrorKind::Timeout) if the kernel has not opened it within 10 seconds, also for an earlier
    /// attempt, or if it still has outstanding requests of an earlier use 2 seconds later.
    pub fn open(path: &Path, options: OpenOptions) -> Result<(Self, Vec<Notice>), DeviceError> {
        let (shared, notices) = opening::open(path, options)?;
        Ok((Self { shared: Arc::new(shared) }, notices))
    }

    /// Returns a descriptor of the open file. While it is open, it excludes every other user of a block device, also in
    /// another process.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn claim(&self) -> std::io::Result<OwnedFd> {
        self.shared.file.try_clone()
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Registers `arenas` with every queue that is opened later: requests whose single buffer lies in one of them then
    /// need no page look-ups. Returns a notice if the kernel rejects the registration; requests then work without it.
    #[must_use]
    pub fn with_arenas(mut self, arenas: Vec<Arc<Arena>>) -> (Self, Vec<Notice>) {
        let trial = Ring::open(1, Mode::Interrupts, self.shared.file.as_fd())
            .and_then(|mut ring| ring.register(&arenas));
        if let Err(error) = trial {
            let what = format!(
                "buffers cannot be registered with the kernel ({error}); raise the locked-memory limit \
                 (ulimit -l, LimitMEMLOCK=) for less work per request"
            );
            let device = self.shared.name.clone();
            return (self, vec![Notice { kind: NoticeKind::NotRegistered, device, what }]);
        }
        // Without queues this device is the only owner; existing queues keep the registrations of their opening.
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.arenas = arenas;
            return (self, Vec::new());
        }
        let what =
            "buffers were offered after queues were opened and are not registered".to_owned();
        let device = self.shared.name.clone();
        (self, vec![Notice { kind: NoticeKind::NotRegistered, device, what }])
    }
}

impl BlockDevice for UringDevice {
    fn info(&self) -> DeviceInfo {
        let shared = &self.shared;
        DeviceInfo {
            identity: shared.identity.clone(),
            blocks: shared.blocks(),
            block_size: shared.block_size,
            io_bytes_max: shared.io_bytes_max,
            io_bytes_optimal: shared.io_bytes_optimal,
            cache: shared.cache,
            deallocate: shared.deallocate,
            fast_zeroes: shared.fast_zeroes,
            read_only: shared.read_only,
        }
    }

    fn identity(&self) -> String {
        self.shared.identity.clone()
    }

    fn kind(&self) -> DeviceKind {
        match (self.shared.key.is_block(), self.shared.remote) {
            (true, true) => DeviceKind::Remote,
            (true, false) => DeviceKind::Block,
            (false, _) => DeviceKind::File,
        }
    }

    fn hold(&self) -> Nanos {
        if self.shared.remote { KERNEL_HOLD } else { Nanos(0) }
    }

    fn open_queue(&self, _core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        let fail = |kind, what: String| DeviceError::new(kind, self.shared.name.clone(), what);
        if depth > DEPTH_MAX {
            let what =
                format!("a queue holds at most {DEPTH_MAX} requests, {depth} were asked for");
            return Err(fail(IoErrorKind::Unsupported, what));
        }
        reaper::wait_for(self.shared.key, OWED_BRIEFLY)
            .map_err(|owed| busy(&self.shared.name, owed))?;
        let blocks = self.shared.blocks();
        if blocks == 0 {
            return Err(fail(IoErrorKind::Gone, "the device is gone or empty now".to_owned()));
        }
        let queue = UringQueue::open(Arc::clone(&self.shared), blocks, depth).map_err(|error| {
            let what = "the kernel does not give us an io_uring; check kernel.io_uring_disabled, the \
                        limits on open files and locked memory, and that the kernel is 5.15 or newer";
            fail(IoErrorKind::Device, what.to_owned()).with_source(error)
        })?;
        Ok(Box::new(queue))
    }
}
