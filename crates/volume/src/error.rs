//! Errors of pools on the control path.

use std::fmt;

use strake_block::{DeviceError, IoError};

/// The kind of an error of a pool, for decisions of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolErrorKind {
    /// The device has no pool.
    NoPool,
    /// The device cannot have a pool.
    Unsuitable,
    /// The device is too small for a pool.
    TooSmall,
    /// The records of the pool are damaged or contradict each other.
    Damaged,
    /// A later version of Strake wrote the pool.
    Newer,
    /// An I/O of the device failed.
    Io,
    /// The pool was stopped.
    Stopped,
}

/// The error of creating, opening or using a pool.
#[derive(Debug)]
pub struct PoolError {
    /// The kind of the error.
    pub kind: PoolErrorKind,
    /// The pool, or the device of a pool whose name is unknown.
    pub pool: String,
    /// The reason and the remedy, without a final period.
    pub what: String,
}

impl PoolError {
    pub(crate) fn new(
        kind: PoolErrorKind,
        pool: impl Into<String>,
        what: impl Into<String>,
    ) -> Self {
        Self { kind, pool: pool.into(), what: what.into() }
    }

    pub(crate) fn io(pool: &str, doing: &str, error: IoError) -> Self {
        Self::new(PoolErrorKind::Io, pool, format!("cannot {doing}: {error}"))
    }

    pub(crate) fn device(pool: &str, error: &DeviceError) -> Self {
        Self::new(PoolErrorKind::Io, pool, error.to_string())
    }

    pub(crate) fn stopped(pool: &str) -> Self {
        Self::new(PoolErrorKind::Stopped, pool, "the pool was stopped")
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool {}: {}", self.pool, self.what)
    }
}

impl std::error::Error for PoolError {}
