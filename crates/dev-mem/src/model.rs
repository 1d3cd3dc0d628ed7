//! A device with the timing of a drive: latencies, rate limits and queue depth.
//!
//! The model has no thread and reads no clock. The doorbell determines the completion time of an I/O, and `poll`
//! completes the I/O if its `now` has reached that time. Each direction has one rate limit: each I/O occupies the drive
//! for its share of the IOPS limit or of the bandwidth limit, whichever is longer, and the next I/O starts after it.
//! I/Os of one kind complete in the order of their start, so that one queue per kind is sufficient (performance.md
//! section 9 requires less than 15 ns per I/O).

mod pipes;
mod queue;

use crate::error::ProfileError;
use pipes::Pipes;
use queue::ModelledQueue;
use std::sync::{Arc, Mutex};
use strake_block::{BlockDevice, DeviceError, DeviceInfo, IoQueue};
use strake_units::{CoreIndex, Nanos};

/// The performance of a drive. A rate of 0 means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The name of the profile in printed results.
    pub name: &'static str,
    /// Time from start to completion of most reads.
    pub read_latency: Nanos,
    /// The latency of one read in [`Profile::TAIL_EVERY`], which makes it the 99th percentile.
    pub read_latency_tail: Nanos,
    /// Time from start to completion of most writes.
    pub write_latency: Nanos,
    /// The latency of one write in [`Profile::TAIL_EVERY`].
    pub write_latency_tail: Nanos,
    /// Time from start to completion of a flush.
    pub flush_latency: Nanos,
    /// Reads per second.
    pub read_iops: u64,
    /// Writes per second.
    pub write_iops: u64,
    /// Bytes read per second.
    pub read_bytes_per_s: u64,
    /// Bytes written per second.
    pub write_bytes_per_s: u64,
    /// The write time that one read consumes, in percent of the time for which the read occupies the drive. With 0,
    /// reads have no effect on writes.
    pub read_cost_to_writes_percent: u32,
    /// The read time that one write consumes, in percent of the time for which the write occupies the drive.
    pub write_cost_to_reads_percent: u32,
    /// The maximum difference of usual latencies from their mean, in percent of the mean. Above 0, the seed determines
    /// the latency of each I/O, and one I/O in [`Profile::STALL_EVERY`] takes four times the tail latency. With 0,
    /// every I/O has the usual latency, and exactly every [`Profile::TAIL_EVERY`]-th I/O the tail latency.
    pub latency_spread_percent: u32,
    /// The seed of random decisions.
    pub seed: u64,
    /// Maximum number of I/Os in the drive per queue; further I/Os wait outside.
    pub queue_depth: u32,
}

impl Profile {
    /// One I/O in this many has the tail latency. This is a little more than 1 in 100, so that the 99th percentile is
    /// in the tail.
    pub const TAIL_EVERY: u32 = 64;

    /// One I/O in this many stalls, if latencies vary at random.
    pub const STALL_EVERY: u32 = 2048;

    /// A drive of the class of the WD SN861 (PCIe 5), with the published values that the compared baselines used
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

    /// A drive of the class of the Micron 9650 (PCIe 6): 5.5M/900k IOPS and 28/14 GB/s, as Micron published in July
    /// 2025. No latency was published, so that the latencies are those of [`Profile::SN861`].
    pub const M9650: Self = Self {
        name: "9650",
        read_iops: 5_500_000,
        write_iops: 900_000,
        read_bytes_per_s: 28_000_000_000,
        write_bytes_per_s: 14_000_000_000,
        ..Self::SN861
    };

    /// Returns the drive under a mixed load: latencies vary by 15 %, one I/O in 2048 stalls, and reads and writes
    /// consume time of each other. The amounts are assumptions (a read consumes a quarter of its time from writes, a
    /// write half of its time from reads), because the published values are for one kind of load at a time.
    #[must_use]
    pub const fn mixed(mut self, seed: u64) -> Self {
        self.read_cost_to_writes_percent = 25;
        self.write_cost_to_reads_percent = 50;
        self.latency_spread_percent = 15;
        self.seed = seed;
        self
    }

    /// No latency and no limits, to measure the cost of the model itself.
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

    /// Returns the same latencies with all rates divided by `by` (0 counts as 1), so that a test host can reach the
    /// limits of the drive.
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

/// A device with the timing of a [`Profile`]. All queues share the rates of the drive.
#[derive(Debug)]
pub struct Modelled<D> {
    inner: D,
    profile: Profile,
    pipes: Arc<Mutex<Pipes>>,
}

impl<D: BlockDevice> Modelled<D> {
    /// Returns `inner` with the timing of `profile`.
    ///
    /// # Errors
    /// The profile is inconsistent.
    pub fn new(inner: D, profile: Profile) -> Result<Self, ProfileError> {
        profile.check()?;
        Ok(Self { inner, profile, pipes: Arc::new(Mutex::new(Pipes::new(&profile))) })
    }

    /// Returns the timing in use.
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
