//! Checked requests to the inner loops.
//!
//! A job can be built only from slices of one length, so that the vector kernels may compute addresses from
//! [`Dot::len`] and [`Spread::len`] alone. The private fields preserve this condition.

use crate::matrix::Matrix;
use crate::{CodeError, PARITY_MAX, ParityMut};

/// The location of the strips at the start of a request, as far as the caller knows it.
///
/// The residency does not change the result, only the reads of strips and the writes of results. In measurements,
/// strips in memory are encoded a fifth to two fifths faster if the kernel prefetches them and bypasses the caches for
/// writes; strips in the caches of the core are encoded a fifth to three quarters slower ([decision
/// 12](../../../../docs/decisions/0012-parity-kernels.md)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residency {
    /// The strips are in the caches of this core, and the result will be used soon.
    #[default]
    Cache,
    /// The strips are in memory, and a drive will read the result.
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
    /// Checks the number of slices against the matrix, and that all slices have one length.
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

    /// Returns the length of every input and output, in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the coefficients.
    pub(super) fn matrix(&self) -> &'a Matrix {
        self.matrix
    }

    /// Returns the inputs of the matrix, each with [`Dot::len`] bytes.
    pub(super) fn inputs(&self) -> &'a [&'a [u8]] {
        self.inputs
    }

    /// Returns the outputs of the matrix, each with [`Dot::len`] bytes.
    pub(super) fn outputs(&mut self) -> &mut [&'o mut [u8]] {
        self.outputs
    }

    /// Where the strips are.
    pub(super) fn residency(&self) -> Residency {
        self.residency
    }

    /// Returns true if writes bypass the caches, with vectors of `alignment` bytes.
    pub(super) fn streams(&self, alignment: usize) -> bool {
        let aligned = |slice: &&mut [u8]| slice.as_ptr().addr().is_multiple_of(alignment);
        self.residency == Residency::Memory && self.outputs.iter().all(aligned)
    }
}

/// The input of a spread before the multiplication.
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

    /// Returns the length of the source and of every output, in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where the strips are.
    pub(super) fn residency(&self) -> Residency {
        self.residency
    }

    /// Returns the source; each of its slices has [`Spread::len`] bytes.
    pub(super) fn source(&self) -> Source<'a> {
        self.source
    }

    /// Returns the outputs, each with [`Spread::len`] bytes, and their coefficients.
    pub(super) fn outputs(&mut self) -> impl Iterator<Item = (u8, &mut [u8])> {
        let coefficients = self.coefficients.iter().copied();
        coefficients.zip(self.outputs.iter_mut().map(|output| &mut *output.bytes))
    }
}

/// Checks that a list has the number of entries that the code needs.
pub(crate) fn check_count(expected: usize, found: usize) -> Result<(), CodeError> {
    if expected == found { Ok(()) } else { Err(CodeError::CountMismatch { expected, found }) }
}

/// Checks that a buffer has the length of the first buffer of its call.
pub(crate) fn check_length(expected: usize, found: usize) -> Result<(), CodeError> {
    if expected == found { Ok(()) } else { Err(CodeError::LengthMismatch { expected, found }) }
}
