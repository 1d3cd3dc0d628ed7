//! A device that fails on command.
//!
//! [`Faulty`] wraps a device. Any thread can use its [`FaultPlan`] to select faults:
//!
//! | what | how | after |
//! |---|---|---|
//! | an error | [`Effect::Fail`] | not done |
//! | a slow I/O | [`Effect::Delay`] | done, answered late |
//! | slow I/Os that exclude each other | [`Effect::OneByOne`] | done, answered late, one after another |
//! | a hang | [`Effect::Hang`] | done once released, or never |
//! | a torn write | [`Effect::Tear`] | only a beginning is done |
//! | a misdirected I/O | [`Effect::Misdirect`] | done elsewhere, said to be done here |
//! | a lost write | [`Effect::Lose`] | not done, said to be done |
//! | a flipped bit | [`Effect::Corrupt`] | done with one bit wrong |
//! | a pulled drive | [`Effect::Vanish`], [`FaultPlan::vanish`] | everything answers "gone" |
//! | a shrunk drive | [`FaultPlan::shrink_to`] | blocks beyond are out of range |
//! | a cache that loses writes | [`FaultPlan::with_cache`], [`FaultPlan::power_cut`] | unflushed writes kept or not |
//! | a flush that lies | [`FaultPlan::lie_about_flush`] | flush and FUA change nothing |
//!
//! Random decisions depend on the seed of the plan. With one queue, a run can be repeated exactly. With several
//! threads, only the order of their doorbells varies.

mod bytes;
mod plan;
mod queue;
mod random;
mod rule;

pub use plan::{Fate, FaultPlan, Flush};
pub use rule::{Effect, Ops, Rule, RuleId, TearEnd, TearUnit, When};

use bytes::Run;
use queue::FaultyQueue;
use strake_block::blocking::Blocking;
use strake_block::{
    BlockDevice, BufMut, DeviceError, DeviceInfo, IoError, IoErrorKind, IoQueue, Sg, VolatileCache,
};
use strake_units::{CoreIndex, Lba, LbaRange, Nanos};

/// A device whose faults a [`FaultPlan`] selects.
#[derive(Debug)]
pub struct Faulty<D> {
    inner: D,
    plan: FaultPlan,
}

impl<D: BlockDevice> Faulty<D> {
    /// Returns `inner` with the faults of `plan`. One plan belongs to one device.
    pub const fn new(inner: D, plan: FaultPlan) -> Self {
        Self { inner, plan }
    }

    /// Returns the handle that selects the faults.
    #[must_use]
    pub const fn plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// Writes the content of the modelled cache to the inner device, so that the inner device has the visible content
    /// of this device. The device must not be used during the call. `wait` is that of [`Blocking::new`].
    ///
    /// # Errors
    /// The inner device cannot be opened or written. The content of the cache is then lost.
    pub fn settle(&self, wait: &mut dyn FnMut() -> Option<Nanos>) -> Result<(), IoError> {
        let info = self.inner.info();
        let queue = self.inner.open_queue(CoreIndex(0), 1).map_err(|e| IoError::new(e.kind))?;
        let mut inner = Blocking::new(queue, wait);
        let block = u64::from(info.block_size.bytes());
        for (mut byte, mut run) in self.plan.take_cached() {
            // A torn write can leave a run that starts or ends inside a block. The run is divided at its first and last
            // block boundary, so that only its ends need the surrounding bytes.
            while run.len() > 0 {
                let inside = byte % block;
                let take = match (inside, run.len() / block) {
                    (0, 0) => run.len(),
                    (0, whole) => whole * block,
                    _ => run.len().min(block - inside),
                };
                let rest = run.split_off(take);
                settle_run(&mut inner, &info, byte, &run)?;
                byte += take;
                run = rest;
            }
        }
        Ok(())
    }
}

/// Writes a run of whole blocks, or a run inside a single block.
fn settle_run(
    inner: &mut Blocking<'_>,
    info: &DeviceInfo,
    byte: u64,
    run: &Run,
) -> Result<(), IoError> {
    let shift = info.block_size.shift();
    let at = Lba(byte >> shift);
    let inside = byte - at.bytes(info.block_size);
    if inside > 0 || info.block_size.blocks_in(run.len()).is_none() {
        let mut block = inner.read(at, BufMut::alone(1 << shift))?;
        run.copy_into(inside, block.as_mut_slice(), 0);
        return inner.write_stable(at, Sg::from(block.freeze()));
    }
    let data = match run {
        Run::Zeroes(len) => return inner.write_zeroes(LbaRange::new(at, len >> shift)),
        Run::Data(data) => data,
    };
    let mut at = at;
    for piece in data.chunks(info.io_bytes_max as usize) {
        let mut buf = BufMut::alone(piece.len());
        buf.as_mut_slice().copy_from_slice(piece);
        inner.write_stable(at, Sg::from(buf.freeze()))?;
        at = at.plus(piece.len() as u64 >> shift);
    }
    Ok(())
}

impl<D: BlockDevice> BlockDevice for Faulty<D> {
    fn hold(&self) -> Nanos {
        self.inner.hold()
    }

    fn info(&self) -> DeviceInfo {
        let mut info = self.inner.info();
        info.blocks = self.plan.blocks(info.blocks);
        if self.plan.has_cache() {
            info.cache = VolatileCache::Present;
        }
        info
    }

    fn settle_time(&self) -> Nanos {
        self.inner.settle_time()
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        let info = self.inner.info();
        if self.plan.is_gone() {
            let what = "the device is gone (a fault plan took it away)";
            return Err(DeviceError::new(IoErrorKind::Gone, info.identity, what));
        }
        let inner = self.inner.open_queue(core, depth)?;
        Ok(Box::new(FaultyQueue::new(inner, &info, self.plan.clone(), depth)))
    }
}

#[cfg(test)]
mod tests;
