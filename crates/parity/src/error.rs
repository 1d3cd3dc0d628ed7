//! The errors of requests, as values.

use core::fmt;

use crate::{DATA_MAX, PARITY_MAX, STRIPS_MAX};

/// The error of a code that cannot be built, or of a kernel that did not run.
///
/// Every error is found before the first byte is written. On `Err`, no output buffer has changed. The enum is the kind
/// and contains its context, so that it is `Copy` and needs no heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeError {
    /// The requested code has no data strips.
    NoData,
    /// The requested code has no parity strips.
    NoParity,
    /// The requested code has more strips than the limits allow.
    TooManyStrips {
        /// The requested number of data strips.
        data: usize,
        /// The requested number of parity strips.
        parity: usize,
    },
    /// A list of buffers has the wrong number of entries.
    CountMismatch {
        /// The number of entries that the code needs.
        expected: usize,
        /// The number of given entries.
        found: usize,
    },
    /// One buffer of a call has a different length.
    LengthMismatch {
        /// Length of the first buffer of the call, in bytes.
        expected: usize,
        /// Length of the buffer that differs, in bytes.
        found: usize,
    },
    /// A strip index (data, parity or stripe-wide, as the call defines it) is out of range.
    BadStripIndex {
        /// The given index.
        index: usize,
        /// The first index that does not exist.
        limit: usize,
    },
    /// Fewer strips are known than the code has data strips, so nothing can be computed.
    NotEnoughKnown {
        /// The number of needed strips, which is the number of data strips.
        needed: usize,
        /// The number of given strips.
        known: usize,
    },
    /// One strip occurs twice: within a list, or both as known and as wanted.
    DuplicateStrip {
        /// The strip that occurs twice.
        index: usize,
    },
    /// The matrix of the known strips has no inverse. No code of this crate can cause this. It is an error and not a
    /// panic, so that a damaged coefficient never terminates the process.
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
