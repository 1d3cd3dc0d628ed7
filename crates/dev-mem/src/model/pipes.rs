//! When the drive gets to each I/O.

use super::Profile;
use strake_units::Nanos;

/// A drive's capacity in one direction: the time at which it can begin the next I/O. Rates rarely divide a
/// second into whole nanoseconds, so the picoseconds are carried along.
#[derive(Clone, Copy, Debug, Default)]
struct Pipe {
    free: Nanos,
    picos: u64,
}

impl Pipe {
    /// Occupies the drive for `picos` from `now` or from when it is free; returns when that begins.
    fn occupy(&mut self, now: Nanos, picos: u64) -> Nanos {
        if now > self.free {
            *self = Self { free: now, picos: 0 };
        }
        let start = self.free;
        let picos = self.picos.saturating_add(picos);
        self.free = start.plus(Nanos(picos / 1000));
        self.picos = picos % 1000;
        start
    }
}

/// One direction's limits, ready for use.
#[derive(Clone, Copy, Debug)]
struct Direction {
    latency: Nanos,
    tail: Nanos,
    io_picos: u64,
    /// Picoseconds per byte in 1/65536: 13.6 GB/s is 73.5 ps per byte, which whole picoseconds would make 73.
    byte_picos: u64,
}

impl Direction {
    fn new(latency: Nanos, tail: Nanos, iops: u64, bytes_per_s: u64) -> Self {
        const PICOS: u128 = 1_000_000_000_000;
        let picos = |per_s: u64, scale: u128| match per_s {
            0 => 0,
            _ => (PICOS * scale / u128::from(per_s)) as u64,
        };
        Self { latency, tail, io_picos: picos(iops, 1), byte_picos: picos(bytes_per_s, 1 << 16) }
    }

    fn picos(&self, bytes: u64) -> u64 {
        self.io_picos.max(bytes.saturating_mul(self.byte_picos) >> 16)
    }
}

/// I/Os of one lane complete in the order they began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Read,
    ReadTail,
    Write,
    WriteTail,
    Flush,
}

/// How many lanes there are.
pub(super) const LANES: usize = 5;

/// What the drive is asked to do, as far as timing is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    Read(u64),
    Write(u64),
    Flush,
}

/// Chooses which I/Os are the slow ones: every so-many-th of a kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tail {
    reads: u32,
    writes: u32,
}

impl Tail {
    pub(super) fn lane(&mut self, load: Load) -> Lane {
        let (count, usual, slow) = match load {
            Load::Read(_) => (&mut self.reads, Lane::Read, Lane::ReadTail),
            Load::Write(_) => (&mut self.writes, Lane::Write, Lane::WriteTail),
            Load::Flush => return Lane::Flush,
        };
        *count += 1;
        if *count < Profile::TAIL_EVERY {
            return usual;
        }
        *count = 0;
        slow
    }
}

/// The drive: both directions and what they do to each other.
#[derive(Debug)]
pub(crate) struct Pipes {
    read: Direction,
    write: Direction,
    read_pipe: Pipe,
    write_pipe: Pipe,
    flush_latency: Nanos,
    read_cost_to_writes_percent: u64,
}

impl Pipes {
    pub(super) fn new(p: &Profile) -> Self {
        Self {
            read: Direction::new(
                p.read_latency,
                p.read_latency_tail,
                p.read_iops,
                p.read_bytes_per_s,
            ),
            write: Direction::new(
                p.write_latency,
                p.write_latency_tail,
                p.write_iops,
                p.write_bytes_per_s,
            ),
            read_pipe: Pipe::default(),
            write_pipe: Pipe::default(),
            flush_latency: p.flush_latency,
            read_cost_to_writes_percent: u64::from(p.read_cost_to_writes_percent),
        }
    }

    /// Lets an I/O into the drive at `now`; returns when it completes. An I/O takes the latency of its lane or
    /// the time it occupies the drive, whichever is longer.
    pub(super) fn admit(&mut self, now: Nanos, lane: Lane, load: Load) -> Nanos {
        let latency = match lane {
            Lane::Read => self.read.latency,
            Lane::ReadTail => self.read.tail,
            Lane::Write => self.write.latency,
            Lane::WriteTail => self.write.tail,
            Lane::Flush => self.flush_latency,
        };
        match load {
            Load::Read(bytes) => {
                let picos = self.read.picos(bytes);
                let start = self.read_pipe.occupy(now, picos);
                if self.read_cost_to_writes_percent > 0 {
                    let lost = picos.saturating_mul(self.read_cost_to_writes_percent) / 100;
                    self.write_pipe.occupy(now, lost);
                }
                start.plus(latency).max(self.read_pipe.free)
            }
            Load::Write(bytes) => {
                let start = self.write_pipe.occupy(now, self.write.picos(bytes));
                start.plus(latency).max(self.write_pipe.free)
            }
            Load::Flush => now.plus(latency),
        }
    }
}
