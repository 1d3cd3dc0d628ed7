//! What can be wrong with a request, as values.

use core::fmt;

use crate::{DATA_MAX, PARITY_MAX, STRIPS_MAX};

/// Why a code could not be built or a kernel did not run.
///
/// Every error is found before the first byte is written: on `Err` no output buffer has changed.
/// The enum is the kind and carries its context, so it is `Copy` and needs no heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeError {
    /// A code was asked for with no data strips.
    NoData,
    /// A code was asked for with no parity strips.
    NoParity,
    /// A code was asked for with more strips than the limits allow.
    TooManyStrips {
        /// Data strips asked for.
        data: usize,
        /// Parity strips asked for.
        parity: usize,
    },
    /// A list of buffers has the wrong number of entries.
    CountMismatch {
        /// Entries the code needs.
        expected: usize,
        /// Entries given.
        found: usize,
    },
    /// One buffer of a call is not as long as the others.
    LengthMismatch {
        /// Length of the first buffer of the call, in bytes.
        expected: usize,
        /// Length of the buffer that differs, in bytes.
        found: usize,
    },
    /// A strip index (data, parity or stripe-wide, as the call defines it) is out of range.
    BadStripIndex {
        /// The index given.
        index: usize,
        /// The first index that does not exist.
        limit: usize,
    },
    /// Fewer strips are known than the code has data strips, so nothing can be computed.
    NotEnoughKnown {
        /// Strips needed: the number of data strips.
        needed: usize,
        /// Strips given.
        known: usize,
    },
    /// One strip is named twice: within a list, or both as known and as wanted.
    DuplicateStrip {
        /// The strip named twice.
        index: usize,
    },
    /// The matrix of the known strips has no inverse. No code this crate builds can give this; it is
    /// an error and not a panic so that a damaged coefficient never takes the process down.
    Singular,
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CodeError::NoData => {
                write!(f, "cannot build a code with 0 data strips: ask for at least 1")
            }
            CodeError::NoParity => {
                write!(f, "cannot build a code with 0 parity strips: ask for at least 1")
            }
            CodeError::TooManyStrips { data, parity } => write!(
                f,
                "cannot build a code of {data} data + {parity} parity strips: at most {DATA_MAX} \
                 data, {PARITY_MAX} parity and {STRIPS_MAX} strips in all are supported"
            ),
            CodeError::CountMismatch { expected, found } => write!(
                f,
                "parity request has {found} buffers where the code needs {expected}: pass one per strip"
            ),
            CodeError::LengthMismatch { expected, found } => write!(
                f,
                "parity request mixes buffers of {expected} and {found} bytes: all must be equally long"
            ),
            CodeError::BadStripIndex { index, limit } => {
                write!(f, "strip index {index} does not exist: use one below {limit}")
            }
            CodeError::NotEnoughKnown { needed, known } => write!(
                f,
                "cannot recover from {known} known strips: {needed} are needed, so this data is lost \
                 unless more members return"
            ),
            CodeError::DuplicateStrip { index } => {
                write!(f, "strip {index} is named twice in one request: name each strip once")
            }
            CodeError::Singular => write!(
                f,
                "the known strips do not determine the wanted ones: the code's coefficients are damaged"
            ),
        }
    }
}

impl core::error::Error for CodeError {}
