//! Checked requests to the inner loops.
//!
//! A job can only be built from slices of one length, so the vector kernels may compute addresses from
//! [`Dot::len`] and [`Spread::len`] alone. The fields are private to keep that true.

use crate::matrix::Matrix;
use crate::{CodeError, PARITY_MAX, ParityMut};

/// Where the strips of a request are when it comes, as far as the caller knows.
///
/// It changes no byte, only how they are fetched and where results go. Measured: strips that are in memory are
/// encoded a fifth to two fifths faster when the kernel asks for them ahead of time and writes past the caches;
/// strips that are in a core's own caches a fifth to three quarters slower
/// ([decision 12](../../../../docs/decisions/0012-parity-kernels.md)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residency {
    /// In the caches of this core, and what is computed will be used soon.
    #[default]
    Cache,
    /// In memory, and what is computed is for a drive to fetch.
    Memory,
}

/// Outputs = matrix * inputs.
pub(crate) struct Dot<'a, 'o> {
    matrix: &'a Matrix,
    inputs: &'a [&'a [u8]],
    outputs: &'a mut [&'o mut [u8]],
    len: usize,
    residency: Residency,
}

impl<'a, 'o> Dot<'a, 'o> {
    /// Checks that there are as many slices as the matrix says, and one length.
    #[inline]
    pub(crate) fn new(
        matrix: &'a Matrix,
        inputs: &'a [&'a [u8]],
        outputs: &'a mut [&'o mut [u8]],
        residency: Residency,
    ) -> Result<Self, CodeError> {
        check_count(matrix.inputs(), inputs.len())?;
        check_count(matrix.outputs(), outputs.len())?;
        let len = inputs.first().map_or(0, |input| input.len());
        for input in inputs {
            check_length(len, input.len())?;
        }
        for output in &*outputs {
            check_length(len, output.len())?;
        }
        Ok(Dot { matrix, inputs, outputs, len, residency })
    }

    /// Length of every input and output, in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The coefficients.
    pub(super) fn matrix(&self) -> &'a Matrix {
        self.matrix
    }

    /// The inputs, each [`Dot::len`] bytes long, as many as the matrix has.
    pub(super) fn inputs(&self) -> &'a [&'a [u8]] {
        self.inputs
    }

    /// The outputs, each [`Dot::len`] bytes long, as many as the matrix has.
    pub(super) fn outputs(&mut self) -> &mut [&'o mut [u8]] {
        self.outputs
    }

    /// Where the strips are.
    pub(super) fn residency(&self) -> Residency {
        self.residency
    }

    /// Whether to write past the caches, with vectors of `alignment` bytes.
    pub(super) fn streams(&self, alignment: usize) -> bool {
        let aligned = |slice: &&mut [u8]| slice.as_ptr().addr().is_multiple_of(alignment);
        self.residency == Residency::Memory && self.outputs.iter().all(aligned)
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
    residency: Residency,
}

impl<'a, 'o> Spread<'a, 'o> {
    /// Checks that there are no more than [`PARITY_MAX`] outputs and one length.
    pub(crate) fn new(
        coefficients: [u8; PARITY_MAX],
        source: Source<'a>,
        outputs: &'a mut [ParityMut<'o>],
        residency: Residency,
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
        Ok(Spread { coefficients, source, outputs, len, residency })
    }

    /// Length of the source and of every output, in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where the strips are.
    pub(super) fn residency(&self) -> Residency {
        self.residency
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
