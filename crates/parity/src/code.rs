//! The coefficients of the parities.

use core::fmt;

use crate::matrix::Matrix;
use crate::{CodeError, Kernel, Residency, gf};

/// Maximum number of data strips of any code; for the size of arrays.
pub const DATA_MAX: usize = 64;
/// Maximum number of parity strips of any code; for the size of arrays.
pub const PARITY_MAX: usize = 32;
/// Maximum number of strips (data and parity together) of a stripe.
pub const STRIPS_MAX: usize = 64;

/// Codes with at most this many parities have powers of [`POWER_BASE`] as factors.
const POWERS_MAX: usize = 3;
/// The field element whose powers are factors.
const POWER_BASE: u8 = 2;
/// The field element of parity row 0 of the Cauchy construction; row j uses `CAUCHY_ROW_FIRST + j`.
const CAUCHY_ROW_FIRST: u8 = 0x80;

/// The three constants that determine the content of parities, one byte each from the lowest byte: the base of powers,
/// the maximum number of parities with powers, and the first row of the Cauchy matrix. The parities on drives were
/// computed with these constants.
pub const PARITY_FACTORS: u32 =
    POWER_BASE as u32 | (POWERS_MAX as u32) << 8 | (CAUCHY_ROW_FIRST as u32) << 16;

// The points of rows (0x80..0xa0) and of columns (0..0x40) must be distinct for a Cauchy matrix.
const _: () = assert!(DATA_MAX <= CAUCHY_ROW_FIRST as usize);
const _: () = assert!(PARITY_MAX + CAUCHY_ROW_FIRST as usize <= 256);

/// The coefficients of a code: parity j = XOR over d of g\[j\]\[d\] * data\[d\], in GF(2^8) modulo 0x11d.
///
/// The coefficients are part of the on-disk format: they determine the content of parity strips. They depend only on j,
/// d and on whether there are at least four parities.
///
/// - **Up to three parities**: g\[0\]\[d\] = 1 (P, plain XOR), g\[1\]\[d\] = {02}^d (Q), g\[2\]\[d\] = {04}^d (R).
///   P and Q are byte for byte those of Linux md (`lib/raid6`) and ISA-L (`pq_gen`).
/// - **Four or more**: a Cauchy matrix with row points x_j = 0x80 + j and column points y_d = d, each
///   column scaled so that the first row is all ones: g\[j\]\[d\] = (x_0 + y_d) / (x_j + y_d).
///
/// Both matrices are maximum distance separable: any `data()` strips of a stripe determine the rest. This is true if
/// and only if every square submatrix of g is invertible.
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
    /// Returns the code of `data` data strips and `parity` parity strips, with the kernel of this process.
    ///
    /// # Errors
    /// [`CodeError::NoData`] or [`CodeError::NoParity`] for a zero, [`CodeError::TooManyStrips`] above [`DATA_MAX`],
    /// [`PARITY_MAX`] or [`STRIPS_MAX`].
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

    /// Returns the same code on another kernel, for tests and measurements.
    #[must_use]
    pub fn with_kernel(&self, kernel: Kernel) -> Code {
        Code { kernel, ..self.clone() }
    }

    /// Returns the same code for strips with another residency; [`Code::new`] expects them in the caches.
    #[must_use]
    pub fn with_residency(&self, residency: Residency) -> Code {
        Code { residency, ..self.clone() }
    }

    /// Returns the expected residency of strips.
    pub fn residency(&self) -> Residency {
        self.residency
    }

    /// Returns the number of data strips.
    pub fn data(&self) -> usize {
        usize::from(self.data)
    }

    /// Returns the number of parity strips.
    pub fn parity(&self) -> usize {
        usize::from(self.parity)
    }

    /// Returns the kernel of this code.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Returns the factor of data strip `data` in parity strip `parity`. It is zero, which means no influence, if this
    /// strip does not exist.
    pub fn coefficient(&self, parity: usize, data: usize) -> u8 {
        self.matrix.coefficient(parity, data)
    }

    /// Returns all coefficients.
    pub(crate) fn matrix(&self) -> &Matrix {
        &self.matrix
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({}+{}, {})", self.data, self.parity, self.kernel.name())
    }
}

/// Returns a cell of the rows 1, {02}^d, {04}^d.
fn power_row(j: usize, d: usize) -> u8 {
    gf::pow(POWER_BASE, j * d)
}

/// Returns a cell of the Cauchy matrix whose first row is all ones.
fn cauchy(j: usize, d: usize) -> u8 {
    let first = CAUCHY_ROW_FIRST ^ d as u8;
    let own = (CAUCHY_ROW_FIRST + j as u8) ^ d as u8;
    gf::mul(first, gf::inverse(own))
}
