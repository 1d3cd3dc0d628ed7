//! Whether a stripe is consistent, and if not, which strip is wrong.

use crate::kernels::{Dot, check_count, check_length};
use crate::{Code, CodeError, DATA_MAX, PARITY_MAX, gf};

/// What [`check`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every parity byte is what the data says.
    Clean,
    /// Changing this one strip (stripe-wide index: data first, then parity), and no other single
    /// strip, makes the stripe consistent.
    OneWrong(usize),
    /// The stripe is wrong and no single strip explains it, or there is only one parity, which can tell
    /// that something is wrong but not what.
    Inconsistent,
}

/// Bytes of computed parity held on the stack at once, over all parities.
const SCRATCH: usize = 8192;
/// Columns are multiples of this, so that kernels run at full width.
const COLUMN_UNIT: usize = 256;

// Even with the most parities a column has one unit.
const _: () = assert!(SCRATCH / PARITY_MAX >= COLUMN_UNIT);

/// Compares the parity strips of a stripe with what its data strips say.
///
/// [`Verdict::OneWrong`] is the least change that explains the bytes, not a proof: with m parities a
/// strip is named wrongly only if at least m strips are wrong at one and the same offset. Strips that
/// are wrong at different offsets give [`Verdict::Inconsistent`]; checking block by block can still
/// place each of them. Uses about 10 KiB of stack and no heap.
///
/// # Errors
/// [`CodeError::CountMismatch`] unless there is one buffer per data strip and one per parity strip;
/// [`CodeError::LengthMismatch`] unless all are equally long.
pub fn check(code: &Code, data: &[&[u8]], parity: &[&[u8]]) -> Result<Verdict, CodeError> {
    check_count(code.data(), data.len())?;
    check_count(code.parity(), parity.len())?;
    let len = data.first().map_or(0, |strip| strip.len());
    for strip in data.iter().chain(parity) {
        check_length(len, strip.len())?;
    }
    let mut scratch = [0; SCRATCH];
    let width = SCRATCH / code.parity() / COLUMN_UNIT * COLUMN_UNIT;
    let mut suspect = Suspect::None;
    let mut start = 0;
    while start < len {
        let end = len.min(start + width);
        let column = Column { start, end };
        suspect = check_column(code, data, parity, &mut scratch, column, suspect)?;
        if suspect == Suspect::Many {
            break;
        }
        start = end;
    }
    Ok(match suspect {
        Suspect::None => Verdict::Clean,
        Suspect::One(strip) => Verdict::OneWrong(strip),
        Suspect::Many => Verdict::Inconsistent,
    })
}

/// The same range of bytes of every strip.
#[derive(Clone, Copy)]
struct Column {
    start: usize,
    end: usize,
}

/// Which single strip explains everything seen so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Suspect {
    None,
    One(usize),
    Many,
}

/// Computes the parity of one column and looks at every byte that is not as stored.
fn check_column(
    code: &Code,
    data: &[&[u8]],
    parity: &[&[u8]],
    scratch: &mut [u8; SCRATCH],
    column: Column,
    mut suspect: Suspect,
) -> Result<Suspect, CodeError> {
    let Column { start, end } = column;
    let mut inputs: [&[u8]; DATA_MAX] = [&[]; DATA_MAX];
    for (input, strip) in inputs.iter_mut().zip(data) {
        *input = &strip[start..end];
    }
    let mut pieces = scratch.chunks_exact_mut(end - start);
    let mut computed: [&mut [u8]; PARITY_MAX] =
        core::array::from_fn(|_| pieces.next().unwrap_or_default());
    let computed = &mut computed[..parity.len()];
    code.kernel().dot(&mut Dot::new(code.rows(), &inputs[..data.len()], computed)?);
    if computed.iter().zip(parity).all(|(computed, stored)| **computed == stored[start..end]) {
        return Ok(suspect);
    }
    for offset in 0..end - start {
        let mut syndrome = [0; PARITY_MAX];
        for ((cell, computed), stored) in syndrome.iter_mut().zip(&*computed).zip(parity) {
            *cell = computed[offset] ^ stored[start + offset];
        }
        suspect = explain(code, &syndrome[..parity.len()], suspect);
    }
    Ok(suspect)
}

/// Which single strip explains one more byte position, given what explained the others.
///
/// A wrong parity strip j makes only syndrome j nonzero. A wrong data strip d with error e makes every
/// syndrome j equal to g\[j\]\[d\] * e, and e is syndrome 0 because row 0 is all ones.
fn explain(code: &Code, syndrome: &[u8], suspect: Suspect) -> Suspect {
    if syndrome.iter().all(|&s| s == 0) {
        return suspect;
    }
    match suspect {
        Suspect::None => {
            let strips = 0..code.data() + code.parity();
            let mut explaining = strips.filter(|&strip| explains(code, syndrome, strip));
            match (explaining.next(), explaining.next()) {
                (Some(strip), None) => Suspect::One(strip),
                _ => Suspect::Many,
            }
        }
        Suspect::One(strip) if explains(code, syndrome, strip) => suspect,
        Suspect::One(_) | Suspect::Many => Suspect::Many,
    }
}

/// Whether an error in `strip` alone gives this syndrome.
fn explains(code: &Code, syndrome: &[u8], strip: usize) -> bool {
    if let Some(wrong) = strip.checked_sub(code.data()) {
        return syndrome.iter().enumerate().all(|(j, &s)| (s != 0) == (j == wrong));
    }
    let error = syndrome[0];
    let mut rows = syndrome.iter().enumerate();
    error != 0 && rows.all(|(j, &s)| s == gf::mul_fast(code.coefficient(j, strip), error))
}
