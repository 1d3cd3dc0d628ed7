//! Checked requests to the inner loops.
//!
//! A job can only be built from slices of one length, so the vector kernels may compute addresses from
//! [`Dot::len`] and [`Spread::len`] alone. The fields are private to keep that true.

use crate::{CodeError, DATA_MAX, PARITY_MAX, ParityMut};

/// Outputs\[o\] = XOR over i of rows\[o\]\[i\] * inputs\[i\].
pub(crate) struct Dot<'a, 'o> {
    rows: &'a [[u8; DATA_MAX]],
    inputs: &'a [&'a [u8]],
    outputs: &'a mut [&'o mut [u8]],
    len: usize,
}

impl<'a, 'o> Dot<'a, 'o> {
    /// Checks that there is a row per output, no more than [`DATA_MAX`] inputs, and one length.
    pub(crate) fn new(
        rows: &'a [[u8; DATA_MAX]],
        inputs: &'a [&'a [u8]],
        outputs: &'a mut [&'o mut [u8]],
    ) -> Result<Self, CodeError> {
        check_count(rows.len(), outputs.len())?;
        if inputs.len() > DATA_MAX {
            return Err(CodeError::CountMismatch { expected: DATA_MAX, found: inputs.len() });
        }
        let len = inputs.first().map_or(0, |input| input.len());
        for input in inputs {
            check_length(len, input.len())?;
        }
        for output in &*outputs {
            check_length(len, output.len())?;
        }
        Ok(Dot { rows, inputs, outputs, len })
    }

    /// Length of every input and output, in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The coefficients, one row per output.
    pub(super) fn rows(&self) -> &'a [[u8; DATA_MAX]] {
        self.rows
    }

    /// The inputs, each [`Dot::len`] bytes long.
    pub(super) fn inputs(&self) -> &'a [&'a [u8]] {
        self.inputs
    }

    /// The outputs, each [`Dot::len`] bytes long, as many as there are rows.
    pub(super) fn outputs(&mut self) -> &mut [&'o mut [u8]] {
        self.outputs
    }

    /// Whether the first output is the plain XOR of the inputs, as P is.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn first_is_xor(&self) -> bool {
        self.rows.first().is_some_and(|row| row[..self.inputs.len()].iter().all(|&c| c == 1))
    }
}

/// What a spread adds to its outputs, before scaling.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// One slice.
    Plain(&'a [u8]),
    /// The XOR of two slices of one length.
    Difference(&'a [u8], &'a [u8]),
}

/// Outputs\[o\] ^= coefficients\[o\] * source.
pub(crate) struct Spread<'a, 'o> {
    coefficients: [u8; PARITY_MAX],
    source: Source<'a>,
    outputs: &'a mut [ParityMut<'o>],
    len: usize,
}

impl<'a, 'o> Spread<'a, 'o> {
    /// Checks that there are no more than [`PARITY_MAX`] outputs and one length.
    pub(crate) fn new(
        coefficients: [u8; PARITY_MAX],
        source: Source<'a>,
        outputs: &'a mut [ParityMut<'o>],
    ) -> Result<Self, CodeError> {
        if outputs.len() > PARITY_MAX {
            return Err(CodeError::CountMismatch { expected: PARITY_MAX, found: outputs.len() });
        }
        let len = match source {
            Source::Plain(data) => data.len(),
            Source::Difference(old, new) => {
                check_length(old.len(), new.len())?;
                old.len()
            }
        };
        for output in &*outputs {
            check_length(len, output.bytes.len())?;
        }
        Ok(Spread { coefficients, source, outputs, len })
    }

    /// Length of the source and of every output, in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// What to add; every slice of it is [`Spread::len`] bytes long.
    pub(super) fn source(&self) -> Source<'a> {
        self.source
    }

    /// The outputs, each [`Spread::len`] bytes long, with their coefficients.
    pub(super) fn outputs(&mut self) -> impl Iterator<Item = (u8, &mut [u8])> {
        let coefficients = self.coefficients.iter().copied();
        coefficients.zip(self.outputs.iter_mut().map(|output| &mut *output.bytes))
    }
}

/// Whether a list has the number of entries the code needs.
pub(crate) fn check_count(expected: usize, found: usize) -> Result<(), CodeError> {
    if expected == found { Ok(()) } else { Err(CodeError::CountMismatch { expected, found }) }
}

/// Whether a buffer is as long as the first of its call.
pub(crate) fn check_length(expected: usize, found: usize) -> Result<(), CodeError> {
    if expected == found { Ok(()) } else { Err(CodeError::LengthMismatch { expected, found }) }
}
