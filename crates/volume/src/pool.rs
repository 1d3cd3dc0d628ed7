//! The interface of a running pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use strake_block::{BlockDevice, DeviceInfo};
use strake_reactor::{CoreHandle, Poller, PollerId};
use strake_units::{Name, Nanos, Uuid};
use strake_volume_map::{Error, VolumeId};

use crate::device::{Below, VolumeDevice};
use crate::driver::Driver;
use crate::error::PoolError;
use crate::limits::{DEVICE_DEPTH, QUIT_MAX};
use crate::request::{Answer, Control, Facts, Request};
use crate::store::Opened;

/// A pool in use.
pub struct Pool {
    name: Name,
    uuid: Uuid,
    /// The properties of all volumes, without their size.
    info: DeviceInfo,
    control: mpsc::Sender<Control>,
    /// The pool core and the driver on it. `None` if the caller drives the pool.
    core: Option<(CoreHandle, PollerId)>,
    /// All data cores, by index.
    cores: Vec<CoreHandle>,
    /// True when users may no longer submit requests.
    is_closing: Arc<AtomicBool>,
    below: Below,
}

impl Pool {
    /// Starts an opened pool on the core with index `at` of `cores`, on which the device below must also run.
    ///
    /// # Errors
    /// If the device cannot be opened on this core.
    pub fn start(opened: Opened, cores: &[CoreHandle], at: usize) -> Result<Self, PoolError> {
        let (name, uuid, info) = facts(&opened);
        let below = Below::of(&opened);
        let (control, receive) = mpsc::channel();
        let core = cores[at].clone();
        let grace = Arc::clone(&below.grace);
        let (index, who) = (core.index(), name.as_str().to_owned());
        let started = core.call(move |core| {
            let queue = opened.device.open_queue(index, DEVICE_DEPTH);
            let queue = queue.map_err(|error| PoolError::device(&who, &error))?;
            Ok(core.add(Box::new(Driver::new(opened, queue, receive, grace))))
        });
        let poller = started.map_err(|_| PoolError::stopped(name.as_str()))??;
        let cores = cores.to_vec();
        let is_closing = Arc::default();
        Ok(Self { name, uuid, info, control, core: Some((core, poller)), cores, is_closing, below })
    }

    /// Starts a pool that the caller drives on its own thread, for a simulator, a benchmark or a test.
    ///
    /// # Errors
    /// If the device cannot be opened.
    pub fn start_here(opened: Opened) -> Result<(Self, Box<dyn Poller>), PoolError> {
        let (name, uuid, info) = facts(&opened);
        let below = Below::of(&opened);
        let (control, receive) = mpsc::channel();
        let queue = opened.device.open_queue(strake_units::CoreIndex(0), DEVICE_DEPTH);
        let queue = queue.map_err(|error| PoolError::device(name.as_str(), &error))?;
        let driver = Driver::new(opened, queue, receive, Arc::clone(&below.grace));
        let (cores, is_closing) = (Vec::new(), Arc::default());
        let pool = Self { name, uuid, info, control, core: None, cores, is_closing, below };
        Ok((pool, Box::new(driver)))
    }

    /// The name of the pool.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The identity of the pool.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Bytes of a block of each volume.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.info.block_size.bytes()
    }

    /// Sends a request to the pool core.
    #[must_use]
    pub fn ask(&self, request: Request) -> Pending<Result<Answer, Error>> {
        self.send(|reply| Control::Request { request, reply })
    }

    /// Returns a volume as a block device. A snapshot is read-only.
    ///
    /// # Errors
    /// If the pool has no such volume, or was stopped.
    pub fn device(&self, volume: VolumeId) -> Result<Arc<dyn BlockDevice>, PoolError> {
        Ok(self.device_of(volume, self.open(volume).wait()?))
    }

    /// Asks for the facts that [`device_of`](Self::device_of) needs.
    #[must_use]
    pub fn open(&self, volume: VolumeId) -> Pending<Facts> {
        self.send(|reply| Control::Open { volume, reply })
    }

    /// Returns a volume as a block device, from the answer to [`open`](Self::open).
    #[must_use]
    pub fn device_of(&self, volume: VolumeId, facts: Facts) -> Arc<dyn BlockDevice> {
        let identity = format!("volume:{}:{volume}", self.uuid);
        Arc::new(VolumeDevice {
            volume,
            kind: facts.kind,
            view: facts.view,
            below: self.below.clone(),
            info: DeviceInfo { identity, ..self.info.clone() },
            control: self.control.clone(),
            pool_core: self.core.as_ref().map(|(core, _)| core.clone()),
            cores: self.cores.clone(),
            is_closing: Arc::clone(&self.is_closing),
        })
    }

    /// Ends everything in progress, writes a root, and then answers. Later requests fail.
    #[must_use]
    pub fn begin_stop(&self) -> Pending<()> {
        self.send(|reply| Control::Stop { reply })
    }

    /// Stops the pool: [`begin_stop`](Self::begin_stop), then removes it from its core.
    pub fn stop(self) {
        // A pool core that has stopped sends no answer, and has nothing in progress.
        let _ = self.begin_stop().wait();
    }

    /// Removes the pool from its core without a root, as after a crash. The log has every acknowledged change. I/Os in
    /// progress end before, so that none of them damages what the next start writes. Returns false if the device has
    /// not answered them for [`QUIT_MAX`]. The pool that was already removed is not removed again.
    pub fn quit(&self) -> bool {
        let Some((core, poller)) = &self.core else { return true };
        if self.is_closing.swap(true, Ordering::AcqRel) {
            return true;
        }
        // A driver that has ended has nothing in progress.
        let is_ended = !matches!(self.begin_quit().wait_for(QUIT_MAX), Ok(None));
        // After this, no user that found the pool open is still submitting a request.
        for core in &self.cores {
            let _ = core.call(|_| ());
        }
        let poller = *poller;
        // A stopped core has dropped its pollers.
        let _ = core.call(move |core| drop(core.remove(poller)));
        is_ended
    }

    /// Ends the pool without a root. The answer arrives when none of its I/Os is in progress.
    pub(crate) fn begin_quit(&self) -> Pending<()> {
        self.send(|reply| Control::Quit { reply })
    }

    fn send<T>(&self, message: impl FnOnce(mpsc::Sender<T>) -> Control) -> Pending<T> {
        let (reply, answer) = mpsc::channel();
        // After the end of the driver, the reply is dropped and the waiter gets an error.
        let _ = self.control.send(message(reply));
        if let Some((core, _)) = &self.core {
            core.wake();
        }
        Pending { pool: self.name.clone(), answer }
    }
}

impl Drop for Pool {
    /// As [`quit`](Self::quit).
    fn drop(&mut self) {
        self.quit();
    }
}

/// A pending answer of the pool core.
pub struct Pending<T> {
    pool: Name,
    answer: mpsc::Receiver<T>,
}

impl<T> Pending<T> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// If the pool was stopped, or does not have the volume.
    pub fn wait(self) -> Result<T, PoolError> {
        self.answer.recv().map_err(|_| PoolError::stopped(self.pool.as_str()))
    }

    /// Waits for the answer, but not longer than this. `None` after this time.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_for(&self, limit: Nanos) -> Result<Option<T>, PoolError> {
        match self.answer.recv_timeout(std::time::Duration::from_nanos(limit.0)) {
            Ok(answer) => Ok(Some(answer)),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Err(PoolError::stopped(self.pool.as_str()))
            }
        }
    }

    /// Returns the answer if it has arrived.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn poll(&self) -> Result<Option<T>, PoolError> {
        match self.answer.try_recv() {
            Ok(answer) => Ok(Some(answer)),
            Err(mpsc::TryRecvError::Empty) => Ok(None),
            Err(mpsc::TryRecvError::Disconnected) => Err(PoolError::stopped(self.pool.as_str())),
        }
    }
}

fn facts(opened: &Opened) -> (Name, Uuid, DeviceInfo) {
    let header = &opened.layout.header;
    let below = opened.device.info();
    let info = DeviceInfo { io_bytes_optimal: header.cluster_bytes, ..below };
    (header.name.clone(), header.pool, info)
}
