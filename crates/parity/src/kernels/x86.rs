//! The instruction sets of x86-64.
//!
//! With GFNI, a product is one `gf2p8affineqb`. `gf2p8mulb` would multiply in the field of AES (0x11b), while the
//! affine instruction multiplies by any bit matrix, and a multiplication by a constant in the field of 0x11d is a bit
//! matrix ([`gf::AFFINE`]). Without GFNI, a product is two byte shuffles in tables of 16 ([`gf::NIBBLES`]).

use core::arch::asm;
// Every name of the module starts with its instruction set, and most are arguments of macros here.
#[allow(clippy::wildcard_imports)]
use core::arch::x86_64::*;

use super::body;
use super::vector::Vector;
use super::{Dot, Spread};
use crate::gf;
use crate::matrix::Matrix;

/// The entry points of one instruction set, which are the only functions of this module that enable features. The last
/// argument is the number of vectors of a column, which fills the registers.
macro_rules! entry_points {
    ($module:ident, $vector:ty, $features:literal, $wide:literal) => {
        pub(super) mod $module {
            use super::{Dot, Spread, body};

            /// Overwrites every output.
            #[target_feature(enable = $features)]
            pub(in super::super) fn dot(job: &mut Dot<'_, '_>) {
                // SAFETY: the features of the vector type are enabled here.
                unsafe { body::dot::<$vector, $wide>(job) }
            }

            /// Adds to every output.
            #[target_feature(enable = $features)]
            pub(in super::super) fn spread(job: &mut Spread<'_, '_>) {
                // SAFETY: the features of the vector type are enabled here.
                unsafe { body::spread::<$vector, $wide>(job) }
            }
        }
    };
}

entry_points!(gfni512, super::Gfni512, "avx512f,avx512bw,gfni", 4);
entry_points!(avx512, super::Avx512, "avx512f,avx512bw", 2);
entry_points!(gfni256, super::Gfni256, "avx2,gfni", 2);
entry_points!(avx2, super::Avx2, "avx2", 2);
entry_points!(ssse3, super::Ssse3, "ssse3", 2);

/// AVX-512 with GFNI: 64 bytes, one instruction per product.
#[derive(Clone, Copy)]
pub(super) struct Gfni512(__m512i);

/// AVX-512BW: 64 bytes, two shuffles per product.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512i);

/// AVX2 with GFNI: 32 bytes, one instruction per product.
#[derive(Clone, Copy)]
pub(super) struct Gfni256(__m256i);

/// AVX2: 32 bytes, two shuffles per product.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256i);

/// SSSE3: 16 bytes, two shuffles per product.
#[derive(Clone, Copy)]
pub(super) struct Ssse3(__m128i);

/// The common methods of all types of one width.
macro_rules! moves {
    ($bytes:literal, $zero:ident, $load:ident, $store:ident, $stream:ident, $xor:ident) => {
        const BYTES: usize = $bytes;

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the trait's condition: the CPU has the feature.
            Self(unsafe { $zero() })
        }

        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the trait's condition; the instruction takes any alignment.
            Self(unsafe { $load(from.cast()) })
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the trait's condition; the instruction takes any alignment.
            unsafe { $store(to.cast(), self.0) }
        }

        #[inline(always)]
        unsafe fn stream(self, to: *mut u8) {
            // SAFETY: the trait's condition, which includes the alignment.
            unsafe { $stream(to.cast(), self.0) }
        }

        #[inline(always)]
        unsafe fn prefetch(at: *const u8) {
            // SAFETY: the instruction is in every x86-64 CPU and never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }

        #[inline(always)]
        unsafe fn claim(at: *mut u8) {
            // Miri interprets no assembly, and asking changes nothing.
            #[cfg(not(miri))]
            // The intrinsic becomes an ordinary prefetch unless the feature is enabled, which older CPUs with
            // AVX2 lack; they, like all 64-bit CPUs of Intel and AMD, run the instruction, as one that does
            // nothing if need be.
            // SAFETY: the instruction never faults and writes nothing.
            unsafe {
                asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
            }
            #[cfg(miri)]
            let _ = at;
        }

        #[inline(always)]
        unsafe fn settle() {
            // SAFETY: the instruction is in every x86-64 CPU.
            unsafe { _mm_sfence() }
        }

        #[inline(always)]
        unsafe fn xor(self, other: Self) -> Self {
            // SAFETY: the trait's condition: the CPU has the feature.
            Self(unsafe { $xor(self.0, other.0) })
        }
    };
}

/// A sum of three with one instruction.
macro_rules! ternary {
    () => {
        const PAIRS: bool = true;

        #[inline(always)]
        unsafe fn xor3(self, b: Self, c: Self) -> Self {
            // 0x96 is the truth table of a ^ b ^ c.
            // SAFETY: the trait's condition: the CPU has the feature.
            Self(unsafe { _mm512_ternarylogic_epi64::<0x96>(self.0, b.0, c.0) })
        }
    };
}

/// A sum of three without a special instruction.
macro_rules! binary {
    () => {
        const PAIRS: bool = false;

        #[inline(always)]
        unsafe fn xor3(self, b: Self, c: Self) -> Self {
            // SAFETY: the trait's condition: the CPU has the feature.
            unsafe { self.xor(b).xor(c) }
        }
    };
}

/// Products by bit matrix.
macro_rules! affine {
    ($vector:ty, $broadcast:ident, $affine:ident) => {
        type Factor = $vector;

        #[inline(always)]
        unsafe fn factor(matrix: &Matrix, cell: usize) -> Self::Factor {
            // SAFETY: the trait's conditions: the CPU has the feature, and the matrix the cell.
            unsafe { $broadcast(matrix.affine().get_unchecked(cell).cast_signed()) }
        }

        #[inline(always)]
        unsafe fn factor_of(coefficient: u8) -> Self::Factor {
            // SAFETY: the trait's condition: the CPU has the feature.
            unsafe { $broadcast(gf::AFFINE[usize::from(coefficient)].cast_signed()) }
        }

        #[inline(always)]
        unsafe fn times(self, factor: Self::Factor) -> Self {
            // SAFETY: the trait's condition: the CPU has the feature.
            Self(unsafe { $affine::<0>(self.0, factor) })
        }
    };
}

/// Products by shuffles. The source computes the nibbles of an input per product; the machine code computes them once.
macro_rules! shuffles {
    ($vector:ty, $broadcast:ident, $set1:ident, $and:ident, $shift:ident, $shuffle:ident, $xor:ident) => {
        type Factor = [$vector; 2];

        #[inline(always)]
        unsafe fn factor(matrix: &Matrix, cell: usize) -> Self::Factor {
            // SAFETY: the trait's conditions: the CPU has the feature, and the matrix the cell.
            unsafe { Self::factor_of(*matrix.cells().get_unchecked(cell)) }
        }

        #[inline(always)]
        unsafe fn factor_of(coefficient: u8) -> Self::Factor {
            let table = gf::NIBBLES[usize::from(coefficient)].as_ptr();
            // SAFETY: the CPU has the feature, and the table 32 bytes: 16 products of low nibbles, then 16 of
            // high ones.
            unsafe {
                let low = _mm_loadu_si128(table.cast());
                let high = _mm_loadu_si128(table.add(16).cast());
                [$broadcast(low), $broadcast(high)]
            }
        }

        #[inline(always)]
        unsafe fn times(self, [low, high]: Self::Factor) -> Self {
            // SAFETY: the trait's condition: the CPU has the feature.
            unsafe {
                let mask = $set1(0x0f);
                let x_low = $and(self.0, mask);
                let x_high = $and($shift::<4>(self.0), mask);
                Self($xor($shuffle(low, x_low), $shuffle(high, x_high)))
            }
        }
    };
}

impl Vector for Gfni512 {
    moves!(
        64,
        _mm512_setzero_si512,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_stream_si512,
        _mm512_xor_si512
    );
    ternary!();
    affine!(__m512i, _mm512_set1_epi64, _mm512_gf2p8affine_epi64_epi8);
}

impl Vector for Avx512 {
    moves!(
        64,
        _mm512_setzero_si512,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_stream_si512,
        _mm512_xor_si512
    );
    ternary!();
    shuffles!(
        __m512i,
        _mm512_broadcast_i32x4,
        _mm512_set1_epi8,
        _mm512_and_si512,
        _mm512_srli_epi64,
        _mm512_shuffle_epi8,
        _mm512_xor_si512
    );
}

impl Vector for Gfni256 {
    moves!(
        32,
        _mm256_setzero_si256,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_stream_si256,
        _mm256_xor_si256
    );
    binary!();
    affine!(__m256i, _mm256_set1_epi64x, _mm256_gf2p8affine_epi64_epi8);
}

impl Vector for Avx2 {
    moves!(
        32,
        _mm256_setzero_si256,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_stream_si256,
        _mm256_xor_si256
    );
    binary!();
    shuffles!(
        __m256i,
        _mm256_broadcastsi128_si256,
        _mm256_set1_epi8,
        _mm256_and_si256,
        _mm256_srli_epi64,
        _mm256_shuffle_epi8,
        _mm256_xor_si256
    );
}

impl Vector for Ssse3 {
    moves!(
        16,
        _mm_setzero_si128,
        _mm_loadu_si128,
        _mm_storeu_si128,
        _mm_stream_si128,
        _mm_xor_si128
    );
    binary!();
    shuffles!(
        __m128i,
        same,
        _mm_set1_epi8,
        _mm_and_si128,
        _mm_srli_epi64,
        _mm_shuffle_epi8,
        _mm_xor_si128
    );
}

/// What broadcasting 16 bytes to 16 bytes does.
#[inline(always)]
unsafe fn same(x: __m128i) -> __m128i {
    x
}
