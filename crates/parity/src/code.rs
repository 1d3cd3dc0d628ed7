//! Which coefficients make which parity.

use core::fmt;

use crate::matrix::Matrix;
use crate::{CodeError, Kernel, Residency, gf};

/// Most data strips any code can have; for sizing arrays.
pub const DATA_MAX: usize = 64;
/// Most parity strips any code can have; for sizing arrays.
pub const PARITY_MAX: usize = 32;
/// Most strips (data and parity together) a stripe can have.
pub const STRIPS_MAX: usize = 64;

/// Parities up to this many have powers of [`POWER_BASE`] as factors.
const POWERS_MAX: usize = 3;
/// The field element whose powers are factors.
const POWER_BASE: u8 = 2;
/// The field element of parity row 0 of the Cauchy construction; row j uses `CAUCHY_ROW_FIRST + j`.
const CAUCHY_ROW_FIRST: u8 = 0x80;

/// The three constants that decide what parities hold, a byte each from the lowest: the base of powers, how many
/// parities have powers at most, the first row of the Cauchy matrix. Drives hold parities that were computed with them.
pub const PARITY_FACTORS: u32 =
    POWER_BASE as u32 | (POWERS_MAX as u32) << 8 | (CAUCHY_ROW_FIRST as u32) << 16;

// The points of rows (0x80..0xa0) and of columns (0..0x40) must be distinct for a Cauchy matrix.
const _: () = assert!(DATA_MAX <= CAUCHY_ROW_FIRST as usize);
const _: () = assert!(PARITY_MAX + CAUCHY_ROW_FIRST as usize <= 256);

/// The coefficients of a code: parity j = XOR over d of g\[j\]\[d\] * data\[d\], in GF(2^8) modulo 0x11d.
///
/// The coefficients are part of the on-disk format: they decide what parity strips hold. They depend
/// only on j, d and on whether there are at least four parities.
///
/// - **Up to three parities**: g\[0\]\[d\] = 1 (P, plain XOR), g\[1\]\[d\] = {02}^d (Q), g\[2\]\[d\] = {04}^d (R).
///   P and Q are byte for byte those of Linux md (`lib/raid6`) and ISA-L (`pq_gen`).
/// - **Four or more**: a Cauchy matrix with row points x_j = 0x80 + j and column points y_d = d, each
///   column scaled so that the first row is all ones: g\[j\]\[d\] = (x_0 + y_d) / (x_j + y_d).
///
/// Both are maximum distance separable: any `data()` strips of a stripe determine the rest. That holds
/// exactly if every square submatrix of g is invertible.
///
/// - *Up to three.* With u = {02}^d the rows are 1, u, u^2, and all u are distinct and nonzero for
///   d < 255. 1x1: no coefficient is zero. 2x2, columns u and v: rows P,Q give u + v, rows P,R give
///   u^2 + v^2 = (u + v)^2, rows Q,R give uv(u + v); all nonzero. 3x3 is the Vandermonde determinant.
/// - *Four or more.* Every square submatrix of a Cauchy matrix is a Cauchy matrix, whose determinant
///   is a product of differences of distinct points over a product of nonzero sums (J. S. Plank and
///   L. Xu, "Optimizing Cauchy Reed-Solomon Codes", 2006, section 3); scaling a column by a nonzero
///   number keeps a determinant nonzero.
#[derive(Clone)]
pub struct Code {
    data: u8,
    parity: u8,
    kernel: Kernel,
    residency: Residency,
    matrix: Matrix,
}

impl Code {
    /// The code of `data` data strips and `parity` parity strips, running on the best kernel this
    /// machine has.
    ///
    /// # Errors
    /// [`CodeError::NoData`] or [`CodeError::NoParity`] for a zero, [`CodeError::TooManyStrips`] past
    /// [`DATA_MAX`], [`PARITY_MAX`] or [`STRIPS_MAX`].
    pub fn new(data: usize, parity: usize) -> Result<Code, CodeError> {
        if data == 0 {
            return Err(CodeError::NoData);
        }
        if parity == 0 {
            return Err(CodeError::NoParity);
        }
        if data > DATA_MAX || parity > PARITY_MAX || data + parity > STRIPS_MAX {
            return Err(CodeError::TooManyStrips { data, parity });
        }
        let cell = |j, d| if parity <= POWERS_MAX { power_row(j, d) } else { cauchy(j, d) };
        // P is the sum of all data.
        let matrix = Matrix::new(data, parity, 1, cell)?;
        Ok(Code {
            data: data as u8,
            parity: parity as u8,
            kernel: Kernel::best(),
            residency: Residency::Cache,
            matrix,
        })
    }

    /// The same code on another kernel, for tests and measurements.
    #[must_use]
    pub fn with_kernel(&self, kernel: Kernel) -> Code {
        Code { kernel, ..self.clone() }
    }

    /// The same code for strips that are elsewhere; [`Code::new`] expects them in the caches.
    #[must_use]
    pub fn with_residency(&self, residency: Residency) -> Code {
        Code { residency, ..self.clone() }
    }

    /// Where strips are expected to be.
    pub fn residency(&self) -> Residency {
        self.residency
    }

    /// Number of data strips.
    pub fn data(&self) -> usize {
        usize::from(self.data)
    }

    /// Number of parity strips.
    pub fn parity(&self) -> usize {
        usize::from(self.parity)
    }

    /// The kernel this code runs on.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// The factor of data strip `data` in parity strip `parity`; zero, meaning no influence, if there
    /// is no such strip.
    pub fn coefficient(&self, parity: usize, data: usize) -> u8 {
        self.matrix.coefficient(parity, data)
    }

    /// All coefficients.
    pub(crate) fn matrix(&self) -> &Matrix {
        &self.matrix
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({}+{}, {})", self.data, self.parity, self.kernel.name())
    }
}

/// Cell of the rows 1, {02}^d, {04}^d.
fn power_row(j: usize, d: usize) -> u8 {
    gf::pow(POWER_BASE, j * d)
}

/// Cell of the Cauchy matrix with a first row of ones.
fn cauchy(j: usize, d: usize) -> u8 {
    let first = CAUCHY_ROW_FIRST ^ d as u8;
    let own = (CAUCHY_ROW_FIRST + j as u8) ^ d as u8;
    gf::mul(first, gf::inverse(own))
}
