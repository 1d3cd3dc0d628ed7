//! The time at which the drive starts each I/O.

use super::Profile;
use strake_units::Nanos;

/// The capacity of a drive in one direction: the time at which it can start the next I/O. Rates rarely divide a second
/// into whole nanoseconds, so that picoseconds are added separately.
#[derive(Clone, Copy, Debug, Default)]
struct Pipe {
    free: Nanos,
    picos: u64,
}

impl Pipe {
    /// Occupies the drive for `picos` from `now`, or from the time at which it is free. Returns the start.
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

/// The limits of one direction in the form of the computation.
#[derive(Clone, Copy, Debug)]
struct Direction {
    /// The latencies by [`Lane::speed`].
    latency: [Nanos; SPEEDS],
    io_picos: u64,
    /// Picoseconds per byte in 1/65536: 13.6 GB/s is 73.5 ps per byte, which would be 73 in whole picoseconds.
    byte_picos: u64,
}

impl Direction {
    fn new(latency: [Nanos; SPEEDS], iops: u64, bytes_per_s: u64) -> Self {
        const PICOS: u128 = 1_000_000_000_000;
        let picos = |per_s: u64, scale: u128| match per_s {
            0 => 0,
            _ => (PICOS * scale / u128::from(per_s)) as u64,
        };
        Self { latency, io_picos: picos(iops, 1), byte_picos: picos(bytes_per_s, 1 << 16) }
    }

    fn picos(&self, bytes: u64) -> u64 {
        self.io_picos.max(bytes.saturating_mul(self.byte_picos) >> 16)
    }
}

/// Speeds with different latencies: four usual ones with equal distances, then the tail and the rare stall.
const USUAL: u8 = 4;
const TAIL: u8 = USUAL;
const STALL: u8 = USUAL + 1;
const SPEEDS: usize = USUAL as usize + 2;

/// A stall takes this multiple of the tail latency.
const STALL_TIMES: u64 = 4;

fn latencies(usual: Nanos, tail: Nanos, spread_percent: u32) -> [Nanos; SPEEDS] {
    let spread = i64::from(spread_percent.min(100));
    let step = |thirds: i64| Nanos(usual.0.saturating_mul((300 + thirds * spread) as u64) / 300);
    [step(-3), step(-1), step(1), step(3), tail, tail.times(STALL_TIMES)]
}

/// The direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Read,
    Write,
    Flush,
}

/// I/Os of one lane complete in the order of their start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lane {
    way: Way,
    /// The index of the latency of the direction.
    speed: u8,
}

impl Lane {
    /// Returns the number of the lane, below [`LANES`].
    pub(super) const fn at(self) -> usize {
        self.way as usize * SPEEDS + self.speed as usize
    }
}

/// The number of lanes. All flushes share the last one.
pub(super) const LANES: usize = 2 * SPEEDS + 1;

/// The load of an operation for the timing.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    Read(u64),
    Write(u64),
    Flush,
}

/// Selects the speed of each I/O: one I/O in a fixed number of each kind is slow, or the selection is random.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tail {
    reads: u32,
    writes: u32,
    /// State of the generator, if latencies vary at random.
    chance: Option<u64>,
}

impl Tail {
    /// Returns a random selection if the profile spreads latencies. The `number` of a queue makes the selections of the
    /// queues of one drive different.
    pub(super) fn new(profile: &Profile, number: u64) -> Self {
        let seed = profile.seed.wrapping_add(number.wrapping_mul(0xd134_2543_de82_ef95));
        let chance = (profile.latency_spread_percent > 0).then_some(seed);
        Self { chance, ..Self::default() }
    }

    pub(super) fn lane(&mut self, load: Load) -> Lane {
        let (count, way) = match load {
            Load::Read(_) => (&mut self.reads, Way::Read),
            Load::Write(_) => (&mut self.writes, Way::Write),
            Load::Flush => return Lane { way: Way::Flush, speed: 0 },
        };
        let Some(state) = &mut self.chance else {
            *count += 1;
            let slow = *count == Profile::TAIL_EVERY;
            *count %= Profile::TAIL_EVERY;
            return Lane { way, speed: if slow { TAIL } else { 0 } };
        };
        Lane { way, speed: speed_of(draw(state)) }
    }
}

/// Returns a stall or the tail with their probabilities, and otherwise one of the usual speeds.
fn speed_of(bits: u64) -> u8 {
    if bits.is_multiple_of(u64::from(Profile::STALL_EVERY)) {
        return STALL;
    }
    let bits = bits >> 16;
    if bits.is_multiple_of(u64::from(Profile::TAIL_EVERY)) {
        return TAIL;
    }
    (bits >> 16) as u8 % USUAL
}

/// SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014).
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The drive: both directions and their effect on each other.
#[derive(Debug)]
pub(crate) struct Pipes {
    read: Direction,
    write: Direction,
    read_pipe: Pipe,
    write_pipe: Pipe,
    flush_latency: Nanos,
    read_cost_to_writes_percent: u64,
    write_cost_to_reads_percent: u64,
    /// The number of opened queues.
    queues: u64,
}

impl Pipes {
    pub(super) fn new(p: &Profile) -> Self {
        let spread = p.latency_spread_percent;
        let read = latencies(p.read_latency, p.read_latency_tail, spread);
        let write = latencies(p.write_latency, p.write_latency_tail, spread);
        Self {
            read: Direction::new(read, p.read_iops, p.read_bytes_per_s),
            write: Direction::new(write, p.write_iops, p.write_bytes_per_s),
            read_pipe: Pipe::default(),
            write_pipe: Pipe::default(),
            flush_latency: p.flush_latency,
            read_cost_to_writes_percent: u64::from(p.read_cost_to_writes_percent),
            write_cost_to_reads_percent: u64::from(p.write_cost_to_reads_percent),
            queues: 0,
        }
    }

    /// Returns the number of a new queue.
    pub(super) fn next_queue(&mut self) -> u64 {
        self.queues += 1;
        self.queues
    }

    /// Adds an I/O to the drive at `now` and returns its completion time. The I/O takes the latency of its lane or the
    /// time for which it occupies the drive, whichever is longer. Its cost for the other direction is added there
    /// immediately, before the next I/O of that direction.
    pub(super) fn admit(&mut self, now: Nanos, lane: Lane, load: Load) -> Nanos {
        let speed = usize::from(lane.speed);
        match load {
            Load::Read(bytes) => {
                let picos = self.read.picos(bytes);
                let start = self.read_pipe.occupy(now, picos);
                cost(&mut self.write_pipe, now, picos, self.read_cost_to_writes_percent);
                start.plus(self.read.latency[speed]).max(self.read_pipe.free)
            }
            Load::Write(bytes) => {
                let picos = self.write.picos(bytes);
                let start = self.write_pipe.occupy(now, picos);
                cost(&mut self.read_pipe, now, picos, self.write_cost_to_reads_percent);
                start.plus(self.write.latency[speed]).max(self.write_pipe.free)
            }
            Load::Flush => now.plus(self.flush_latency),
        }
    }
}

fn cost(pipe: &mut Pipe, now: Nanos, picos: u64, percent: u64) {
    if percent > 0 {
        pipe.occupy(now, picos.saturating_mul(percent) / 100);
    }
}
