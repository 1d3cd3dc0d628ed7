//! The operations of this crate on strips in several parts.
//!
//! Buffers of hosts are scatter lists. The strips of one request may be divided at different offsets. The operations
//! therefore process every stretch in which no strip is divided.

use crate::kernels::{check_count, check_length};
use crate::{Code, CodeError, DATA_MAX, PARITY_MAX, ParityMut, Recovery, encode, update};

/// A strip as a list of parts, in order.
pub type Parts<'a> = &'a [&'a [u8]];

/// A strip that is written, as a list of parts, in order.
pub type PartsMut<'a, 'b> = &'a mut [&'b mut [u8]];

/// Runs [`encode()`] over strips in parts.
///
/// # Errors
/// As [`encode()`], where the length of a strip is the sum of its parts. On an error, nothing is written.
pub fn encode_parts(
    code: &Code,
    data: &[Parts<'_>],
    parity: &mut [PartsMut<'_, '_>],
) -> Result<(), CodeError> {
    check_count(code.data(), data.len())?;
    check_count(code.parity(), parity.len())?;
    each_stretch(data, parity, |data, parity| encode(code, data, parity))
}

/// Runs [`update`] over strips in parts; `parity` contains every parity of the code, in order.
///
/// # Errors
/// As [`update`], and [`CodeError::CountMismatch`] unless there is one list per parity. On an error, nothing is
/// written.
pub fn update_parts(
    code: &Code,
    strip: usize,
    old: Parts<'_>,
    new: Parts<'_>,
    parity: &mut [PartsMut<'_, '_>],
) -> Result<(), CodeError> {
    check_count(code.parity(), parity.len())?;
    if strip >= code.data() {
        return Err(CodeError::BadStripIndex { index: strip, limit: code.data() });
    }
    each_stretch(&[old, new], parity, |change, parity| {
        let mut bytes = parity.iter_mut().zip(0..);
        let mut named: [ParityMut<'_>; PARITY_MAX] = core::array::from_fn(|_| match bytes.next() {
            Some((bytes, index)) => ParityMut { index, bytes },
            None => ParityMut { index: 0, bytes: &mut [] },
        });
        update(code, strip, change[0], change[1], &mut named[..code.parity()])
    })
}

/// Runs [`Recovery::apply`] over strips in parts.
///
/// # Errors
/// As [`Recovery::apply`]. On an error, nothing is written.
pub fn recover_parts(
    recovery: &Recovery,
    known: &[Parts<'_>],
    want: &mut [PartsMut<'_, '_>],
) -> Result<(), CodeError> {
    let needed = recovery.known();
    let Some(known) = known.get(..needed) else {
        return Err(CodeError::NotEnoughKnown { needed, known: known.len() });
    };
    check_count(recovery.wanted(), want.len())?;
    each_stretch(known, want, |known, want| recovery.apply(known, want))
}

/// The current position in a strip.
#[derive(Clone, Copy, Default)]
struct Cursor {
    part: usize,
    offset: usize,
}

impl Cursor {
    /// Skips completed parts and returns the rest of the current part.
    fn settle(&mut self, lengths: impl Fn(usize) -> Option<usize>) -> usize {
        while let Some(len) = lengths(self.part) {
            if self.offset < len {
                return len - self.offset;
            }
            *self = Cursor { part: self.part + 1, offset: 0 };
        }
        0
    }
}

/// Calls `run` with every maximal stretch that is in one part of each strip. All lengths are checked before.
fn each_stretch(
    inputs: &[Parts<'_>],
    outputs: &mut [PartsMut<'_, '_>],
    mut run: impl FnMut(&[&[u8]], &mut [&mut [u8]]) -> Result<(), CodeError>,
) -> Result<(), CodeError> {
    let total = |parts: Parts<'_>| parts.iter().map(|part| part.len()).sum::<usize>();
    let len = inputs.first().map_or(0, |input| total(input));
    for input in inputs {
        check_length(len, total(input))?;
    }
    for output in &*outputs {
        check_length(len, output.iter().map(|part| part.len()).sum())?;
    }
    let mut readers = [Cursor::default(); DATA_MAX];
    let mut writers = [Cursor::default(); PARITY_MAX];
    let mut done = 0;
    while done < len {
        let mut stretch = len - done;
        for (cursor, input) in readers.iter_mut().zip(inputs) {
            stretch = stretch.min(cursor.settle(|part| input.get(part).map(|p| p.len())));
        }
        for (cursor, output) in writers.iter_mut().zip(&*outputs) {
            stretch = stretch.min(cursor.settle(|part| output.get(part).map(|p| p.len())));
        }
        let mut read: [&[u8]; DATA_MAX] = [&[]; DATA_MAX];
        for ((slot, cursor), input) in read.iter_mut().zip(&mut readers).zip(inputs) {
            *slot = &input[cursor.part][cursor.offset..cursor.offset + stretch];
            cursor.offset += stretch;
        }
        let (count, mut cursors) = (outputs.len(), writers.iter_mut());
        let mut pieces = outputs.iter_mut().zip(cursors.by_ref()).map(|(output, cursor)| {
            let start = cursor.offset;
            cursor.offset += stretch;
            &mut output[cursor.part][start..start + stretch]
        });
        let mut written: [&mut [u8]; PARITY_MAX] =
            core::array::from_fn(|_| pieces.next().unwrap_or_default());
        run(&read[..inputs.len()], &mut written[..count])?;
        done += stretch;
    }
    Ok(())
}
