//! NEON, which every 64-bit Arm CPU has: 16 bytes, and two table look-ups in [`gf::NIBBLES`] per product.

// Every name of the module starts with a v.
#[allow(clippy::wildcard_imports)]
use core::arch::aarch64::*;

use super::body;
use super::vector::Vector;
use super::{Dot, Spread};
use crate::gf;
use crate::matrix::Matrix;

/// Overwrites every output.
#[target_feature(enable = "neon")]
pub(super) fn dot(job: &mut Dot<'_, '_>) {
    // SAFETY: the feature of the vector type is enabled here.
    unsafe { body::dot::<Neon, 2>(job) }
}

/// Adds to every output.
#[target_feature(enable = "neon")]
pub(super) fn spread(job: &mut Spread<'_, '_>) {
    // SAFETY: the feature of the vector type is enabled here.
    unsafe { body::spread::<Neon, 2>(job) }
}

#[derive(Clone, Copy)]
struct Neon(uint8x16_t);

impl Vector for Neon {
    const BYTES: usize = 16;
    const PAIRS: bool = false;
    type Factor = [uint8x16_t; 2];

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the trait's condition: the CPU has the feature.
        Neon(unsafe { vdupq_n_u8(0) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the trait's condition; the instruction takes any alignment.
        Neon(unsafe { vld1q_u8(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the trait's condition; the instruction takes any alignment.
        unsafe { vst1q_u8(to, self.0) }
    }

    // No single store that bypasses the caches is useful here: such a store needs pairs of registers.
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the trait's condition.
        unsafe { self.store(to) }
    }

    // The intrinsic is not stable yet.
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}

    #[inline(always)]
    unsafe fn claim(_: *mut u8) {}

    #[inline(always)]
    unsafe fn settle() {}

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the trait's condition: the CPU has the feature.
        Neon(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn xor3(self, b: Self, c: Self) -> Self {
        // SAFETY: the trait's condition: the CPU has the feature.
        unsafe { self.xor(b).xor(c) }
    }

    #[inline(always)]
    unsafe fn factor(matrix: &Matrix, cell: usize) -> Self::Factor {
        // SAFETY: the trait's conditions: the CPU has the feature, and the matrix the cell.
        unsafe { Self::factor_of(*matrix.cells().get_unchecked(cell)) }
    }

    #[inline(always)]
    unsafe fn factor_of(coefficient: u8) -> Self::Factor {
        let table = gf::NIBBLES[usize::from(coefficient)].as_ptr();
        // SAFETY: the CPU has the feature, and the table 32 bytes: 16 products of low nibbles, then 16 of high
        // ones.
        unsafe { [vld1q_u8(table), vld1q_u8(table.add(16))] }
    }

    #[inline(always)]
    unsafe fn times(self, [low, high]: Self::Factor) -> Self {
        // SAFETY: the trait's condition: the CPU has the feature.
        unsafe {
            let x_low = vandq_u8(self.0, vdupq_n_u8(0x0f));
            let x_high = vshrq_n_u8::<4>(self.0);
            Neon(veorq_u8(vqtbl1q_u8(low, x_low), vqtbl1q_u8(high, x_high)))
        }
    }
}
