//! The check of a stripe for consistency, and the identification of wrong strips.

use crate::kernels::{Dot, check_count, check_length};
use crate::{Code, CodeError, DATA_MAX, PARITY_MAX, STRIPS_MAX, gf};

/// The result of [`check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every parity byte is consistent with the data.
    Clean,
    /// A change of this one strip (stripe-wide index: data first, then parity), and of no other single strip, makes the
    /// stripe consistent.
    OneWrong(usize),
    /// No single strip explains the stripe. A change of these two strips (the lower first), and of no other pair, makes
    /// it consistent. This result needs at least three parities.
    TwoWrong(usize, usize),
    /// The stripe is wrong and none of the other results explains it, or the code has only one parity, which cannot
    /// identify the wrong strip.
    Inconsistent,
}

/// Bytes of computed parity on the stack at one time, for all parities together.
const SCRATCH: usize = 8192;
/// The unit of columns, so that kernels use their full width.
const COLUMN_UNIT: usize = 256;

// A column has at least one unit even with the maximum number of parities.
const _: () = assert!(SCRATCH / PARITY_MAX >= COLUMN_UNIT);

/// Compares the parity strips of a stripe with its data strips.
///
/// [`Verdict::OneWrong`] is the smallest change that explains the bytes, not a proof. With m parities, the reported
/// strip is incorrect only if at least m strips are wrong at the same offset. If strips are wrong at different offsets,
/// the result is [`Verdict::TwoWrong`] or [`Verdict::Inconsistent`]; a check block by block can then still identify
/// each of them.
///
/// [`Verdict::TwoWrong`] is the smallest change of a pair. With four parities or more, one offset at which both strips
/// are wrong determines the pair. With three, such an offset also allows one in 256 other pairs, and further offsets
/// allow ever fewer. Two strips that are wrong in many bytes are therefore found. Two wrong bytes at one offset may
/// result in [`Verdict::Inconsistent`] if more than one pair explains them. The function uses about 10 KiB of stack and
/// no heap.
///
/// # Errors
/// [`CodeError::CountMismatch`] unless there is one buffer per data strip and one per parity strip;
/// [`CodeError::LengthMismatch`] unless all buffers have the same length.
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
        if matches!(suspect, Suspect::Many) {
            break;
        }
        start = end;
    }
    Ok(match suspect {
        Suspect::None => Verdict::Clean,
        Suspect::One(strip) => Verdict::OneWrong(strip),
        Suspect::Two(pairs) => {
            pairs.only().map_or(Verdict::Inconsistent, |(a, b)| Verdict::TwoWrong(a, b))
        }
        Suspect::Many => Verdict::Inconsistent,
    })
}

/// The same range of bytes of every strip.
#[derive(Clone, Copy)]
struct Column {
    start: usize,
    end: usize,
}

/// The explanation of all checked bytes.
#[derive(Clone, Copy)]
// The set of pairs is large, and this crate does not use the heap. Each check has only one value.
#[allow(clippy::large_enum_variant)]
enum Suspect {
    /// Nothing is wrong.
    None,
    /// Only this strip is wrong.
    One(usize),
    /// No single strip explains the bytes, but each of these pairs does.
    Two(Pairs),
    /// More wrong strips than can be located.
    Many,
}

/// Computes the parity of one column and explains every byte that differs from the stored byte.
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
    code.kernel().dot(&mut Dot::new(
        code.matrix(),
        &inputs[..data.len()],
        computed,
        code.residency(),
    )?);
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

/// Returns the explanation of one more byte position together with the previous ones.
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
                (None, _) => Pairs::all(code).explaining(code, syndrome),
                (Some(_), Some(_)) => Suspect::Many,
            }
        }
        Suspect::One(strip) if explains(code, syndrome, strip) => suspect,
        // With three parities or more, no pair without a strip explains what that strip alone explains, because any
        // three columns of the code are independent.
        Suspect::One(strip) => Pairs::with(code, strip).explaining(code, syndrome),
        Suspect::Two(pairs) => pairs.explaining(code, syndrome),
        Suspect::Many => Suspect::Many,
    }
}

/// A set of pairs of strips: bit b of word a, for a < b.
#[derive(Clone, Copy)]
struct Pairs([u64; STRIPS_MAX]);

impl Pairs {
    /// Returns every pair.
    fn all(code: &Code) -> Pairs {
        let strips = code.data() + code.parity();
        let below = u64::MAX >> (STRIPS_MAX - strips);
        // Two shifts are needed, because a shift by 64 is not defined.
        Pairs(core::array::from_fn(|a| if a < strips { below & (u64::MAX << a << 1) } else { 0 }))
    }

    /// Returns every pair that contains `strip`.
    fn with(code: &Code, strip: usize) -> Pairs {
        let mut pairs = Pairs::all(code);
        for (a, others) in pairs.0.iter_mut().enumerate() {
            if a != strip {
                *others &= 1 << strip;
            }
        }
        pairs
    }

    /// Keeps the pairs that also explain `syndrome`.
    fn explaining(mut self, code: &Code, syndrome: &[u8]) -> Suspect {
        // Any pair explains any syndrome of two parities.
        if code.parity() < 3 {
            return Suspect::Many;
        }
        let mut left = 0;
        for (a, others) in self.0.iter_mut().enumerate() {
            let mut rest = *others;
            while rest != 0 {
                let b = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if !pair_explains(code, syndrome, a, b) {
                    *others &= !(1 << b);
                }
            }
            left |= *others;
        }
        if left == 0 { Suspect::Many } else { Suspect::Two(self) }
    }

    /// Returns the pair if there is only one.
    fn only(&self) -> Option<(usize, usize)> {
        let mut pairs = self.0.iter().enumerate().filter(|(_, others)| **others != 0);
        let (a, others) = pairs.next()?;
        let single = others.is_power_of_two() && pairs.next().is_none();
        single.then(|| (a, others.trailing_zeros() as usize))
    }
}

/// Returns true if errors in only `a` and `b` can cause this syndrome, which is then a combination of their columns.
///
/// Cramer's rule: x * a + y * b = s in two rows with an invertible 2x2 matrix gives x and y times its
/// determinant, and every other row must agree. Two columns of an MDS code have such rows.
fn pair_explains(code: &Code, syndrome: &[u8], a: usize, b: usize) -> bool {
    let cell = |j: usize, strip: usize| match strip.checked_sub(code.data()) {
        Some(parity) => u8::from(parity == j),
        None => code.coefficient(j, strip),
    };
    let minor = |[p, q]: [u8; 2], [r, s]: [u8; 2]| gf::mul_fast(p, s) ^ gf::mul_fast(q, r);
    let rows = || (0..syndrome.len()).map(|j| (cell(j, a), cell(j, b), syndrome[j]));
    let mut firsts = rows().filter(|&(p, q, _)| p != 0 || q != 0);
    let Some((p, q, s)) = firsts.next() else {
        return false;
    };
    let independent = firsts.find(|&(r, t, _)| minor([p, q], [r, t]) != 0);
    let Some((r, t, u)) = independent else {
        return false;
    };
    let determinant = minor([p, q], [r, t]);
    let (x, y) = (minor([s, q], [u, t]), minor([p, s], [r, u]));
    rows().all(|(p, q, s)| gf::mul_fast(p, x) ^ gf::mul_fast(q, y) == gf::mul_fast(determinant, s))
}

/// Returns true if an error in only `strip` causes this syndrome.
fn explains(code: &Code, syndrome: &[u8], strip: usize) -> bool {
    if let Some(wrong) = strip.checked_sub(code.data()) {
        return syndrome.iter().enumerate().all(|(j, &s)| (s != 0) == (j == wrong));
    }
    let error = syndrome[0];
    let mut rows = syndrome.iter().enumerate();
    error != 0 && rows.all(|(j, &s)| s == gf::mul_fast(code.coefficient(j, strip), error))
}
