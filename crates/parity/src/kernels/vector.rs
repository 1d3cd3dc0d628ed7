//! The operations of an instruction set that the common body of all vector kernels needs.

use crate::matrix::Matrix;

/// A vector of bytes, each an element of GF(2^8).
///
/// Every method is `#[inline(always)]`, so that its instructions are part of the function that enables them. Only the
/// entry points of `x86.rs` and `neon.rs` have `target_feature`, and all functions between them and this trait are
/// inlined into them.
///
/// # Safety
/// All methods may be called only where the CPU has the features of the implementation. Addresses are subject
/// to the condition of each method and need no alignment.
pub(super) trait Vector: Copy {
    /// Bytes of a vector.
    const BYTES: usize;
    /// True if [`Vector::xor3`] is one instruction, so that pairs of inputs save work.
    const PAIRS: bool;
    /// A coefficient in the form of the multiplication.
    type Factor: Copy;

    /// Returns all zeros.
    unsafe fn zero() -> Self;
    /// Reads `BYTES` bytes, which must be readable.
    unsafe fn load(from: *const u8) -> Self;
    /// Writes `BYTES` bytes, which must be writable.
    unsafe fn store(self, to: *mut u8);
    /// Writes `BYTES` bytes as `store` does, but bypasses the caches; `to` must be a multiple of `BYTES`. Other cores
    /// see the bytes only after [`Vector::settle`].
    unsafe fn stream(self, to: *mut u8);
    /// Makes streamed bytes visible before all later writes.
    unsafe fn settle();
    /// Prefetches the cache line at an address, which need not be valid.
    unsafe fn prefetch(at: *const u8);
    /// Prefetches the cache line at an address for a write, as an exclusive line. The address need not be valid.
    unsafe fn claim(at: *mut u8);
    /// Returns the sum of two vectors.
    unsafe fn xor(self, other: Self) -> Self;
    /// Returns the sum of three vectors.
    unsafe fn xor3(self, b: Self, c: Self) -> Self;
    /// Returns the factor of cell `cell` of a matrix. `cell` must be below the number of cells.
    unsafe fn factor(matrix: &Matrix, cell: usize) -> Self::Factor;
    /// Returns the factor for one coefficient.
    unsafe fn factor_of(coefficient: u8) -> Self::Factor;
    /// Returns the product with a coefficient.
    unsafe fn times(self, factor: Self::Factor) -> Self;
}
