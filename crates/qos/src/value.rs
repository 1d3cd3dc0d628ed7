//! The values of limits, as an operator sets them.

use std::fmt;
use std::str::FromStr;

use crate::cost::Direction;
use crate::limits::{BURST_MS_DEFAULT, BURST_MS_MAX, BURST_MS_MIN, RATE_MAX};

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measure {
    /// I/Os: each started 256 KiB of a host's request.
    Ios,
    /// Bytes.
    Bytes,
}

/// The requests that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counts {
    /// Reads.
    Reads,
    /// Writes, and changes without data.
    Writes,
    /// Reads and writes together.
    Total,
}

impl Counts {
    /// True if the limit counts requests of this direction.
    #[must_use]
    pub const fn includes(self, direction: Direction) -> bool {
        matches!(
            (self, direction),
            (Self::Total, _) | (Self::Reads, Direction::Read) | (Self::Writes, Direction::Write)
        )
    }
}

/// One of the six rates that can be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Aspect {
    /// What is counted.
    pub measure: Measure,
    /// Of which requests.
    pub counts: Counts,
}

impl Aspect {
    /// All aspects, in the order in which they are shown.
    pub const ALL: [Self; 6] = [
        Self::new(Measure::Ios, Counts::Total),
        Self::new(Measure::Ios, Counts::Reads),
        Self::new(Measure::Ios, Counts::Writes),
        Self::new(Measure::Bytes, Counts::Total),
        Self::new(Measure::Bytes, Counts::Reads),
        Self::new(Measure::Bytes, Counts::Writes),
    ];

    /// An aspect from its parts.
    #[must_use]
    pub const fn new(measure: Measure, counts: Counts) -> Self {
        Self { measure, counts }
    }

    /// The name of the aspect in records and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match (self.measure, self.counts) {
            (Measure::Ios, Counts::Total) => "iops",
            (Measure::Ios, Counts::Reads) => "read-iops",
            (Measure::Ios, Counts::Writes) => "write-iops",
            (Measure::Bytes, Counts::Total) => "bandwidth",
            (Measure::Bytes, Counts::Reads) => "read-bandwidth",
            (Measure::Bytes, Counts::Writes) => "write-bandwidth",
        }
    }
}

/// Why a limit is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitError {
    /// The rate is 0.
    Zero,
    /// The rate is above [`RATE_MAX`].
    TooHigh,
    /// The burst is outside [`BURST_MS_MIN`] to [`BURST_MS_MAX`].
    Burst,
    /// The text is not a number with a known unit.
    NotARate,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => f.write_str("a rate of 0 would stop all I/O: use at least 1"),
            Self::TooHigh => write!(f, "a rate is at most {RATE_MAX} per second"),
            Self::Burst => write!(f, "a burst is {BURST_MS_MIN} to {BURST_MS_MAX} ms"),
            Self::NotARate => {
                f.write_str("a number of I/Os per second is a whole number, such as 500, 10k or 2M")
            }
        }
    }
}

impl std::error::Error for LimitError {}

/// A limit: a rate, and the time whose unused budget can be used later at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    rate: u64,
    burst_ms: u32,
}

impl Limit {
    /// Creates a limit of `rate` per second. `burst_ms` 0 stands for the default.
    ///
    /// # Errors
    /// If a value is outside its bounds.
    pub const fn new(rate: u64, burst_ms: u32) -> Result<Self, LimitError> {
        let burst_ms = if burst_ms == 0 { BURST_MS_DEFAULT } else { burst_ms };
        match rate {
            0 => Err(LimitError::Zero),
            1..=RATE_MAX if burst_ms < BURST_MS_MIN || burst_ms > BURST_MS_MAX => {
                Err(LimitError::Burst)
            }
            1..=RATE_MAX => Ok(Self { rate, burst_ms }),
            _ => Err(LimitError::TooHigh),
        }
    }

    /// The rate per second.
    #[must_use]
    pub const fn rate(self) -> u64 {
        self.rate
    }

    /// The time whose unused budget can be used later.
    #[must_use]
    pub const fn burst_ms(self) -> u32 {
        self.burst_ms
    }

    /// The budget that can be used at once after a pause; at least 1.
    #[must_use]
    pub const fn depth(self) -> u64 {
        // The bounds of both factors keep the product below 2^66.
        let depth = self.rate as u128 * self.burst_ms as u128 / 1000;
        if depth == 0 { 1 } else { depth as u64 }
    }
}

/// The limits of one object, at most one for each aspect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitSet([Option<Limit>; 6]);

impl LimitSet {
    /// The limit of an aspect.
    #[must_use]
    pub fn get(&self, aspect: Aspect) -> Option<Limit> {
        self.0[place_of(aspect)]
    }

    /// Sets or removes the limit of an aspect.
    pub fn set(&mut self, aspect: Aspect, limit: Option<Limit>) {
        self.0[place_of(aspect)] = limit;
    }

    /// True if there is no limit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// The limits in the order of [`Aspect::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Aspect, Limit)> {
        Aspect::ALL.into_iter().zip(self.0).filter_map(|(aspect, limit)| Some((aspect, limit?)))
    }
}

const fn place_of(aspect: Aspect) -> usize {
    let counts = match aspect.counts {
        Counts::Total => 0,
        Counts::Reads => 1,
        Counts::Writes => 2,
    };
    match aspect.measure {
        Measure::Ios => counts,
        Measure::Bytes => 3 + counts,
    }
}

/// A number of I/Os per second as an operator types it: `500`, `10k`, `2M`. The units are decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate(pub u64);

impl FromStr for RequestRate {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let factor: u64 = match &text[digits.len()..] {
            "" => 1,
            "k" | "K" => 1_000,
            "M" => 1_000_000,
            "G" => 1_000_000_000,
            _ => return Err(LimitError::NotARate),
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(LimitError::NotARate);
        }
        let number: u64 = digits.parse().map_err(|_| LimitError::TooHigh)?;
        match number.checked_mul(factor) {
            Some(0) => Err(LimitError::Zero),
            Some(rate) if rate <= RATE_MAX => Ok(Self(rate)),
            Some(_) | None => Err(LimitError::TooHigh),
        }
    }
}
