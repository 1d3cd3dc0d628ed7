//! A drive's timing on top of any device: latencies, rate limits and queue depth.
//!
//! The model keeps no thread and reads no clock. An I/O is given the time at which it completes when the
//! doorbell rings; `poll` lets it go once the `now` it is passed has reached that time. Rates are a line per
//! direction: each I/O occupies the drive for its share of the IOPS or bandwidth limit, whichever is longer,
//! and the next one begins after it. I/Os of one kind finish in the order they began, so a queue per kind is
//! all the bookkeeping there is (performance.md section 9 asks for less than 15 ns per I/O).

mod pipes;
mod queue;

use crate::error::ProfileError;
use pipes::Pipes;
use queue::ModelledQueue;
use std::sync::{Arc, Mutex};
use strake_block::{BlockDevice, DeviceError, DeviceInfo, IoQueue};
use strake_units::{CoreIndex, Nanos};

/// What a drive can do. A rate of 0 means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What the profile is called where results are printed.
    pub name: &'static str,
    /// Time from start to completion of most reads.
    pub read_latency: Nanos,
    /// The same for one read in [`Profile::TAIL_EVERY`], which makes it the 99th percentile.
    pub read_latency_tail: Nanos,
    /// Time from start to completion of most writes.
    pub write_latency: Nanos,
    /// The same for one write in [`Profile::TAIL_EVERY`].
    pub write_latency_tail: Nanos,
    /// Time a flush takes.
    pub flush_latency: Nanos,
    /// Reads per second.
    pub read_iops: u64,
    /// Writes per second.
    pub write_iops: u64,
    /// Bytes read per second.
    pub read_bytes_per_s: u64,
    /// Bytes written per second.
    pub write_bytes_per_s: u64,
    /// How much of the drive's writing time one read takes away, in percent of the time the read itself
    /// occupies the drive. 0: reads and writes do not disturb each other.
    pub read_cost_to_writes_percent: u32,
    /// The reverse: how much of the drive's reading time one write takes, in percent of the time of the write.
    pub write_cost_to_reads_percent: u32,
    /// How far usual latencies lie from their mean, in percent of it. Above 0 the seed decides which latency an
    /// I/O has, which ones are slow, and one I/O in [`Profile::STALL_EVERY`] takes four times the tail latency;
    /// at 0 every I/O takes the usual latency and exactly every [`Profile::TAIL_EVERY`]-th the tail latency.
    pub latency_spread_percent: u32,
    /// What decides at random.
    pub seed: u64,
    /// I/Os in the drive at one time per queue; more wait in front of it.
    pub queue_depth: u32,
}

impl Profile {
    /// Every so-many-th I/O takes the tail latency: a little more than 1 in 100, so that the 99th percentile
    /// falls into the tail.
    pub const TAIL_EVERY: u32 = 64;

    /// One I/O in so many stalls, where latencies vary at random.
    pub const STALL_EVERY: u32 = 2048;

    /// A WD SN861-class PCIe 5 drive with the published numbers that the baselines we compare with used
    /// (performance.md section 9): reads 63/75 us, writes 9.7/12 us, 3.0M/362k IOPS, 13.6/7.2 GB/s.
    pub const SN861: Self = Self {
        name: "SN861",
        read_latency: Nanos(63_000),
        read_latency_tail: Nanos(75_000),
        write_latency: Nanos(9_700),
        write_latency_tail: Nanos(12_000),
        flush_latency: Nanos(10_000),
        read_iops: 3_000_000,
        write_iops: 362_000,
        read_bytes_per_s: 13_600_000_000,
        write_bytes_per_s: 7_200_000_000,
        read_cost_to_writes_percent: 0,
        write_cost_to_reads_percent: 0,
        latency_spread_percent: 0,
        seed: 0,
        queue_depth: 1024,
    };

    /// A Micron 9650-class PCIe 6 drive: 5.5M/900k IOPS and 28/14 GB/s, as Micron published in July 2025. No latency
    /// was published, so latencies are those of [`Profile::SN861`].
    pub const M9650: Self = Self {
        name: "9650",
        read_iops: 5_500_000,
        write_iops: 900_000,
        read_bytes_per_s: 28_000_000_000,
        write_bytes_per_s: 14_000_000_000,
        ..Self::SN861
    };

    /// The same drive as it is in use: latencies vary by 15 %, one I/O in 2048 stalls, and reads and writes take
    /// time from each other. How much they take is an assumption (a quarter of a read's time from writes, half
    /// of a write's time from reads): the published numbers are for one kind of work at a time.
    #[must_use]
    pub const fn mixed(mut self, seed: u64) -> Self {
        self.read_cost_to_writes_percent = 25;
        self.write_cost_to_reads_percent = 50;
        self.latency_spread_percent = 15;
        self.seed = seed;
        self
    }

    /// No latency and no limits: what the model itself costs.
    pub const INSTANT: Self = Self {
        name: "instant",
        read_latency: Nanos(0),
        read_latency_tail: Nanos(0),
        write_latency: Nanos(0),
        write_latency_tail: Nanos(0),
        flush_latency: Nanos(0),
        read_iops: 0,
        write_iops: 0,
        read_bytes_per_s: 0,
        write_bytes_per_s: 0,
        read_cost_to_writes_percent: 0,
        write_cost_to_reads_percent: 0,
        latency_spread_percent: 0,
        seed: 0,
        queue_depth: 1024,
    };

    /// The same latencies with all rates divided by `by` (0 counts as 1): drives slow enough that a test
    /// machine can reach their limit.
    #[must_use]
    pub const fn slower(mut self, by: u64) -> Self {
        let by = if by == 0 { 1 } else { by };
        self.read_iops /= by;
        self.write_iops /= by;
        self.read_bytes_per_s /= by;
        self.write_bytes_per_s /= by;
        self
    }

    fn check(&self) -> Result<(), ProfileError> {
        if self.queue_depth == 0 {
            return Err(ProfileError::NoDepth);
        }
        if self.read_latency_tail < self.read_latency
            || self.write_latency_tail < self.write_latency
        {
            return Err(ProfileError::TailBelowLatency);
        }
        Ok(())
    }
}

/// A device with the timing of a [`Profile`]. All its queues share the drive's rates.
#[derive(Debug)]
pub struct Modelled<D> {
    inner: D,
    profile: Profile,
    pipes: Arc<Mutex<Pipes>>,
}

impl<D: BlockDevice> Modelled<D> {
    /// Gives `inner` the timing of `profile`.
    ///
    /// # Errors
    /// When the profile contradicts itself.
    pub fn new(inner: D, profile: Profile) -> Result<Self, ProfileError> {
        profile.check()?;
        Ok(Self { inner, profile, pipes: Arc::new(Mutex::new(Pipes::new(&profile))) })
    }

    /// The timing in use.
    #[must_use]
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }
}

impl<D: BlockDevice> BlockDevice for Modelled<D> {
    fn hold(&self) -> Nanos {
        self.inner.hold()
    }

    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn settle_time(&self) -> Nanos {
        self.inner.settle_time()
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        let inner = self.inner.open_queue(core, depth)?;
        Ok(Box::new(ModelledQueue::new(inner, Arc::clone(&self.pipes), &self.profile, depth)))
    }
}

#[cfg(test)]
mod tests;
