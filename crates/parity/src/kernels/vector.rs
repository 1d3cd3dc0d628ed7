//! What an instruction set must offer to the one body of all vector kernels.

use crate::matrix::Matrix;

/// A vector of bytes, each an element of GF(2^8).
///
/// Every method is `#[inline(always)]`, so that its instructions end up in the function that enables them:
/// the entry points of `x86.rs` and `neon.rs` are the only places with `target_feature`, and everything between
/// them and here is inlined into them.
///
/// # Safety
/// All methods may be called only where the CPU has the features of the implementation. Addresses are subject
/// to the condition of each method and need no alignment.
pub(super) trait Vector: Copy {
    /// Bytes of a vector.
    const BYTES: usize;
    /// Whether [`Vector::xor3`] is one instruction, so that taking inputs two at a time saves work.
    const PAIRS: bool;
    /// A coefficient as multiplication wants it.
    type Factor: Copy;

    /// All zeros.
    unsafe fn zero() -> Self;
    /// Reads `BYTES` bytes, which must be readable.
    unsafe fn load(from: *const u8) -> Self;
    /// Writes `BYTES` bytes, which must be writable.
    unsafe fn store(self, to: *mut u8);
    /// As `store` but past the caches; `to` must be a multiple of `BYTES`. Other cores see the bytes only after
    /// [`Vector::settle`].
    unsafe fn stream(self, to: *mut u8);
    /// Makes streamed bytes visible before anything that is written later.
    unsafe fn settle();
    /// Asks for the cache line at an address, which need not be valid.
    unsafe fn prefetch(at: *const u8);
    /// The same for writing: the line comes without being shared.
    unsafe fn claim(at: *mut u8);
    /// Sum of two.
    unsafe fn xor(self, other: Self) -> Self;
    /// Sum of three.
    unsafe fn xor3(self, b: Self, c: Self) -> Self;
    /// The factor of cell `cell` of a matrix, which must be below its number of cells.
    unsafe fn factor(matrix: &Matrix, cell: usize) -> Self::Factor;
    /// The factor for one coefficient.
    unsafe fn factor_of(coefficient: u8) -> Self::Factor;
    /// Product with a coefficient.
    unsafe fn times(self, factor: Self::Factor) -> Self;
}
