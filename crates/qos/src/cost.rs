//! The cost of requests of hosts.

use crate::limits::IO_BYTES;
use crate::value::Measure;

/// Whether a request reads or changes data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The request reads.
    Read,
    /// The request changes data.
    Write,
}

/// A part of a request of a host, as it is submitted to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whether it reads or changes data.
    pub direction: Direction,
    /// The bytes of the host's request before this part.
    pub before: u64,
    /// The bytes of this part that are moved; 0 for a change that moves no data.
    pub bytes: u64,
}

impl Request {
    /// Returns the cost. One I/O is each started 256 KiB of the *host's* request: the parts into which an export
    /// divides a request cost together what the undivided request costs. A request without data costs one I/O.
    #[must_use]
    pub const fn cost(self) -> Usage {
        let (before, bytes) = (self.before, self.bytes);
        let ios = if before == 0 && bytes == 0 {
            1
        } else {
            before.saturating_add(bytes).div_ceil(IO_BYTES) - before.div_ceil(IO_BYTES)
        };
        Usage { direction: self.direction, ios, bytes }
    }
}

/// What a request uses of its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Whether it reads or changes data.
    pub direction: Direction,
    /// I/Os.
    pub ios: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Usage {
    /// The amount in one measure.
    #[must_use]
    pub const fn of(self, measure: Measure) -> u64 {
        match measure {
            Measure::Ios => self.ios,
            Measure::Bytes => self.bytes,
        }
    }
}
