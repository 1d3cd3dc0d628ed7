//! Computation of parity from data: whole stripes, single strips, and changes.

use crate::kernels::{Dot, Source, Spread, check_count, check_length};
use crate::{Code, CodeError, DATA_MAX, Kernel, PARITY_MAX, Residency};

/// One parity buffer with its parity index. The list omits a missing parity.
#[derive(Debug)]
pub struct ParityMut<'a> {
    /// Parity index: 0 is P, 1 is Q.
    pub index: u8,
    /// The bytes of the strip, or of the part of the strip in this call.
    pub bytes: &'a mut [u8],
}

/// Writes every parity strip from all data strips.
///
/// # Errors
/// [`CodeError::CountMismatch`] unless there is one buffer per data strip and one per parity strip;
/// [`CodeError::LengthMismatch`] unless all buffers have the same length. On an error, nothing is written.
pub fn encode(code: &Code, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), CodeError> {
    encode_with(code.kernel(), code, data, parity)
}

/// Runs [`encode()`] on the given kernel, for tests and measurements.
///
/// # Errors
/// As [`encode()`].
pub fn encode_with(
    kernel: Kernel,
    code: &Code,
    data: &[&[u8]],
    parity: &mut [&mut [u8]],
) -> Result<(), CodeError> {
    kernel.dot(&mut Dot::new(code.matrix(), data, parity, code.residency())?);
    Ok(())
}

/// Bytes of data that are copied before their parity is computed. They still fit a level 1 cache.
const COPY_STEP: usize = 16 << 10;

/// Runs [`encode()`] and also writes every data strip to its copy, for copies that are necessary anyway. The function
/// processes slices of the strips, so that memory is read once.
///
/// # Errors
/// As [`encode()`], and [`CodeError::CountMismatch`] unless there is one copy per data strip.
pub fn encode_copying(
    code: &Code,
    data: &[&[u8]],
    copies: &mut [&mut [u8]],
    parity: &mut [&mut [u8]],
) -> Result<(), CodeError> {
    let len = data.first().map_or(0, |strip| strip.len());
    check_count(code.data(), copies.len())?;
    for copy in &*copies {
        check_length(len, copy.len())?;
    }
    // This call checks all other conditions before the first byte is written.
    Dot::new(code.matrix(), data, parity, code.residency())?;
    // The step is a multiple of the column size of every kernel.
    let step = (COPY_STEP / code.data()).next_multiple_of(512);
    for start in (0..len).step_by(step) {
        let slice = start..len.min(start + step);
        let mut read: [&[u8]; DATA_MAX] = [&[]; DATA_MAX];
        for ((slot, copy), strip) in read.iter_mut().zip(&mut *copies).zip(data) {
            copy[slice.clone()].copy_from_slice(&strip[slice.clone()]);
            *slot = &strip[slice.clone()];
        }
        let mut strips = parity.iter_mut();
        let mut written: [&mut [u8]; PARITY_MAX] = core::array::from_fn(|_| {
            strips.next().map_or(&mut [][..], |strip| &mut strip[slice.clone()])
        });
        let written = &mut written[..code.parity()];
        let read = &read[..code.data()];
        code.kernel().dot(&mut Dot::new(code.matrix(), read, written, Residency::Cache)?);
    }
    Ok(())
}

/// Adds one data strip to parities: parity_j ^= g\[j\]\[strip\] * data.
///
/// If parity starts as zeros and accumulates every data strip once, in any order, the result is that of [`encode()`].
///
/// # Errors
/// [`CodeError::BadStripIndex`] for a data or parity index that the code does not have, [`CodeError::DuplicateStrip`]
/// for a parity that occurs twice (with its stripe-wide index), [`CodeError::LengthMismatch`] unless all buffers have
/// the same length. On an error, nothing is written.
pub fn accumulate(
    code: &Code,
    strip: usize,
    data: &[u8],
    parity: &mut [ParityMut<'_>],
) -> Result<(), CodeError> {
    spread(code, strip, Source::Plain(data), parity)
}

/// Applies a change of one data strip to parities, in one pass over all buffers: parity_j ^= g\[j\]\[strip\] * (old ^
/// new). This is the computation of a read-modify-write.
///
/// # Errors
/// As [`accumulate`].
pub fn update(
    code: &Code,
    strip: usize,
    old: &[u8],
    new: &[u8],
    parity: &mut [ParityMut<'_>],
) -> Result<(), CodeError> {
    spread(code, strip, Source::Difference(old, new), parity)
}

fn spread(
    code: &Code,
    strip: usize,
    source: Source<'_>,
    parity: &mut [ParityMut<'_>],
) -> Result<(), CodeError> {
    if strip >= code.data() {
        return Err(CodeError::BadStripIndex { index: strip, limit: code.data() });
    }
    let mut seen = 0_u32;
    let mut coefficients = [0; PARITY_MAX];
    // A list that is longer than the number of parities must repeat one, so that `position` is always below PARITY_MAX.
    for (position, output) in parity.iter().enumerate() {
        let index = usize::from(output.index);
        if index >= code.parity() {
            return Err(CodeError::BadStripIndex { index, limit: code.parity() });
        }
        if seen >> index & 1 != 0 {
            return Err(CodeError::DuplicateStrip { index: code.data() + index });
        }
        seen |= 1 << index;
        coefficients[position] = code.coefficient(index, strip);
    }
    code.kernel().spread(&mut Spread::new(coefficients, source, parity, code.residency())?);
    Ok(())
}

// `seen` above has a bit for every parity.
const _: () = assert!(PARITY_MAX <= u32::BITS as usize);
