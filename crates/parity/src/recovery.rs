//! Computation of strips from any sufficient set of other strips.

use core::fmt;

use crate::kernels::Dot;
use crate::matrix::Matrix;
use crate::{Code, CodeError, DATA_MAX, Kernel, PARITY_MAX, Residency, STRIPS_MAX, gf};

/// The coefficients for wanted strips in terms of known strips, computed once for a set of strips.
///
/// Strip indices are stripe-wide: 0..k are the data strips, k..k+m the parity strips of a k+m code. The value has about
/// 9 KiB without heap memory, and is valid for any number of [`Recovery::apply`] calls.
#[derive(Clone)]
pub struct Recovery {
    kernel: Kernel,
    residency: Residency,
    matrix: Matrix,
}

impl Recovery {
    /// Prepares the computation of the strips `want` (data and parity mixed) from the strips `known`.
    ///
    /// Only the first k of `known` are used, in that order, where k is the number of data strips. If the caller has a
    /// choice, data strips and P should come first, because their coefficients are the cheapest.
    ///
    /// # Errors
    /// [`CodeError::BadStripIndex`] for an index not below k + m, [`CodeError::DuplicateStrip`] for a strip that occurs
    /// twice in the lists, [`CodeError::NotEnoughKnown`] for fewer than k.
    pub fn new(code: &Code, known: &[u8], want: &[u8]) -> Result<Recovery, CodeError> {
        check_strips(code, known, want)?;
        let k = code.data();
        let Some(known) = known.get(..k) else {
            return Err(CodeError::NotEnoughKnown { needed: k, known: known.len() });
        };
        let system = System::solve(code, known)?;
        let mut rows = [[0; DATA_MAX]; PARITY_MAX];
        for (row, &strip) in rows.iter_mut().zip(want) {
            let strip = usize::from(strip);
            if strip < k {
                system.add_data_row(row, strip, 1);
            } else {
                // A wanted parity is its row over the data, with known or recovered data strips.
                for d in 0..k {
                    system.add_data_row(row, d, code.coefficient(strip - k, d));
                }
            }
        }
        // The sum of all data and P is zero, so that the sum of the wanted ones is the sum of the known ones.
        let summed = want.iter().enumerate().filter(|&(_, &strip)| usize::from(strip) <= k);
        let sum = summed.fold(0, |mask, (w, _)| mask | 1 << w);
        // The k known and all wanted strips are distinct, so that at most m strips are wanted.
        let matrix = Matrix::new(k, want.len(), sum, |w, i| rows[w][i])?;
        Ok(Recovery { kernel: code.kernel(), residency: code.residency(), matrix })
    }

    /// Returns the number of used known strips.
    #[must_use]
    pub fn known(&self) -> usize {
        self.matrix.inputs()
    }

    /// Returns the number of computed strips.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.matrix.outputs()
    }

    /// Returns the factor of the known strip at position `known` in the wanted strip at position `want`. It is zero,
    /// which means no influence, beyond the end of either list.
    #[must_use]
    pub fn coefficient(&self, want: usize, known: usize) -> u8 {
        self.matrix.coefficient(want, known)
    }

    /// Computes the wanted strips, in the order of `want` in [`Recovery::new`].
    ///
    /// `known` contains the buffers of the known strips, in the same order. Only the first k are read, and the rest may
    /// be omitted.
    ///
    /// # Errors
    /// [`CodeError::NotEnoughKnown`] for fewer than k known buffers, [`CodeError::CountMismatch`] unless there is one
    /// buffer per wanted strip, [`CodeError::LengthMismatch`] unless all used buffers have the same length. On an
    /// error, nothing is written.
    pub fn apply(&self, known: &[&[u8]], want: &mut [&mut [u8]]) -> Result<(), CodeError> {
        let needed = self.matrix.inputs();
        let Some(known) = known.get(..needed) else {
            return Err(CodeError::NotEnoughKnown { needed, known: known.len() });
        };
        self.kernel.dot(&mut Dot::new(&self.matrix, known, want, self.residency)?);
        Ok(())
    }
}

impl fmt::Debug for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wanted, known) = (self.matrix.outputs(), self.matrix.inputs());
        write!(f, "Recovery({wanted} from {known}, {})", self.kernel.name())
    }
}

/// Checks that all strips of both lists exist and are distinct.
fn check_strips(code: &Code, known: &[u8], want: &[u8]) -> Result<(), CodeError> {
    let limit = code.data() + code.parity();
    let mut seen = 0_u64;
    for &strip in known.iter().chain(want) {
        let index = usize::from(strip);
        if index >= limit {
            return Err(CodeError::BadStripIndex { index, limit });
        }
        if seen >> index & 1 != 0 {
            return Err(CodeError::DuplicateStrip { index });
        }
        seen |= 1 << index;
    }
    Ok(())
}

// `seen` above has a bit for every strip.
const _: () = assert!(STRIPS_MAX <= u64::BITS as usize);

/// Every data strip of the stripe as a combination of the k known strips.
///
/// With e data strips unknown, exactly e of the k known strips are parities. Each parity gives one equation in the
/// unknowns x: XOR over unknown u of g\[p\]\[u\] x_u = parity_p ^ XOR over known d of g\[p\]\[d\] data_d. The inversion
/// of this e x e matrix costs less than that of a k x k matrix.
struct System<'a> {
    code: &'a Code,
    known: &'a [u8],
    /// For each data strip, its position in `known` or its number among the unknowns.
    places: [Place; DATA_MAX],
    inverse: Square,
}

#[derive(Clone, Copy)]
enum Place {
    Known(usize),
    Unknown(usize),
}

/// A matrix as large as the largest system of unknowns.
type Square = [[u8; PARITY_MAX]; PARITY_MAX];

impl<'a> System<'a> {
    fn solve(code: &'a Code, known: &'a [u8]) -> Result<System<'a>, CodeError> {
        let k = code.data();
        let mut places = [Place::Unknown(0); DATA_MAX];
        for (position, &strip) in known.iter().enumerate() {
            if usize::from(strip) < k {
                places[usize::from(strip)] = Place::Known(position);
            }
        }
        let mut unknowns = 0;
        let mut matrix = [[0; PARITY_MAX]; PARITY_MAX];
        for (d, place) in places.iter_mut().enumerate().take(k) {
            if let Place::Unknown(number) = place {
                *number = unknowns;
                let parities = known.iter().filter(|&&strip| usize::from(strip) >= k);
                for (row, &strip) in matrix.iter_mut().zip(parities) {
                    row[unknowns] = code.coefficient(usize::from(strip) - k, d);
                }
                unknowns += 1;
            }
        }
        let inverse = invert(&mut matrix, unknowns)?;
        Ok(System { code, known, places, inverse })
    }

    /// row ^= factor * (data strip `d` in terms of the known strips).
    fn add_data_row(&self, row: &mut [u8; DATA_MAX], d: usize, factor: u8) {
        let unknown = match self.places[d] {
            Place::Known(position) => {
                row[position] ^= factor;
                return;
            }
            Place::Unknown(number) => number,
        };
        let k = self.code.data();
        let parities = self.known.iter().enumerate().filter(|&(_, &strip)| usize::from(strip) >= k);
        for (equation, (position, &strip)) in parities.enumerate() {
            let weight = gf::mul_fast(factor, self.inverse[unknown][equation]);
            row[position] ^= weight;
            for (other, place) in self.places.iter().enumerate().take(k) {
                if let Place::Known(position) = *place {
                    let own = self.code.coefficient(usize::from(strip) - k, other);
                    row[position] ^= gf::mul_fast(weight, own);
                }
            }
        }
    }
}

/// Returns the inverse of the leading `size` x `size` part of `matrix` by Gauss-Jordan elimination, which converts that
/// part into the identity.
fn invert(matrix: &mut Square, size: usize) -> Result<Square, CodeError> {
    let mut inverse = [[0; PARITY_MAX]; PARITY_MAX];
    for (i, row) in inverse.iter_mut().enumerate().take(size) {
        row[i] = 1;
    }
    for column in 0..size {
        let pivot = (column..size).find(|&row| matrix[row][column] != 0);
        let pivot = pivot.ok_or(CodeError::Singular)?;
        matrix.swap(column, pivot);
        inverse.swap(column, pivot);
        let factor = gf::inverse(matrix[column][column]);
        scale(&mut matrix[column], factor);
        scale(&mut inverse[column], factor);
        for row in (0..size).filter(|&row| row != column) {
            let factor = matrix[row][column];
            if factor != 0 {
                add_scaled_row(matrix, row, column, factor);
                add_scaled_row(&mut inverse, row, column, factor);
            }
        }
    }
    Ok(inverse)
}

/// row *= factor.
fn scale(row: &mut [u8; PARITY_MAX], factor: u8) {
    for cell in row {
        *cell = gf::mul_fast(*cell, factor);
    }
}

/// row `to` ^= factor * row `from`.
fn add_scaled_row(matrix: &mut Square, to: usize, from: usize, factor: u8) {
    let source = matrix[from];
    for (cell, &x) in matrix[to].iter_mut().zip(&source) {
        *cell ^= gf::mul_fast(factor, x);
    }
}
