//! AVX-512 with GFNI: 64 bytes per step, one `gf2p8affineqb` per product.
//!
//! `gf2p8mulb` would multiply in the field of AES (0x11b); the affine instruction multiplies by any bit
//! matrix, and multiplication by a constant of 0x11d is one ([`gf::AFFINE`]).

use core::arch::x86_64::{
    __m512i, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
};

use super::{Dot, Source, Spread, scalar};
use crate::gf;

/// Bytes of a vector.
const VECTOR: usize = 64;
/// Vectors of a wide column: 4 x 4 accumulators, 4 inputs and a matrix fit the 32 registers.
const WIDE: usize = 4;
/// Outputs computed together from one load of the inputs.
const GROUP: usize = 4;

/// Overwrites every output.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) fn dot(job: &mut Dot<'_, '_>) {
    let ones = job.first_is_xor();
    let mut at = 0;
    while job.len() - at >= WIDE * VECTOR {
        // SAFETY: the loop condition leaves WIDE vectors from `at` on in every slice.
        unsafe { column::<WIDE>(job, at, ones) };
        at += WIDE * VECTOR;
    }
    while job.len() - at >= VECTOR {
        // SAFETY: the loop condition leaves one vector from `at` on in every slice.
        unsafe { column::<1>(job, at, ones) };
        at += VECTOR;
    }
    scalar::dot(job, at);
}

/// Computes V vectors at offset `at` of every output. The inputs of a column stay in the level 1 cache
/// between groups: 64 strips x 256 bytes are 16 KiB.
///
/// # Safety
/// `at + V * VECTOR` must not exceed the length of the job.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn column<const V: usize>(job: &mut Dot<'_, '_>, at: usize, ones: bool) {
    let count = job.rows().len();
    let mut first = 0;
    while first < count {
        let ones = ones && first == 0;
        // SAFETY: the caller vouches for `at`; the arms take no more outputs than are left.
        unsafe {
            match (count - first, ones) {
                (1, true) => group::<V, 1, true>(job, at, first),
                (1, false) => group::<V, 1, false>(job, at, first),
                (2, true) => group::<V, 2, true>(job, at, first),
                (2, false) => group::<V, 2, false>(job, at, first),
                (3, true) => group::<V, 3, true>(job, at, first),
                (3, false) => group::<V, 3, false>(job, at, first),
                (_, true) => group::<V, GROUP, true>(job, at, first),
                (_, false) => group::<V, GROUP, false>(job, at, first),
            }
        }
        first += GROUP;
    }
}

/// Computes V vectors of OUT outputs, beginning with output `first`. ONES says that output `first` is
/// the XOR of the inputs.
///
/// # Safety
/// `at + V * VECTOR` must not exceed the length of the job.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn group<const V: usize, const OUT: usize, const ONES: bool>(
    job: &mut Dot<'_, '_>,
    at: usize,
    first: usize,
) {
    let rows = &job.rows()[first..first + OUT];
    let mut sums = [[_mm512_setzero_si512(); V]; OUT];
    for (index, input) in job.inputs().iter().enumerate() {
        // SAFETY: inputs have the job's length, and the caller vouches for the range.
        let x = unsafe { load::<V>(input.as_ptr().add(at)) };
        for o in 0..OUT {
            if ONES && o == 0 {
                add(&mut sums[o], &x);
            } else {
                add_scaled(&mut sums[o], &x, rows[o][index]);
            }
        }
    }
    for (sum, output) in sums.iter().zip(&mut job.outputs()[first..first + OUT]) {
        // SAFETY: outputs have the job's length, and the caller vouches for the range.
        unsafe { store::<V>(output.as_mut_ptr().add(at), sum) };
    }
}

/// Adds to every output.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) fn spread(job: &mut Spread<'_, '_>) {
    let mut at = 0;
    while job.len() - at >= WIDE * VECTOR {
        // SAFETY: the loop condition leaves WIDE vectors from `at` on in every slice.
        unsafe { spread_column::<WIDE>(job, at) };
        at += WIDE * VECTOR;
    }
    while job.len() - at >= VECTOR {
        // SAFETY: the loop condition leaves one vector from `at` on in every slice.
        unsafe { spread_column::<1>(job, at) };
        at += VECTOR;
    }
    scalar::spread(job, at);
}

/// Adds V vectors at offset `at` to every output.
///
/// # Safety
/// `at + V * VECTOR` must not exceed the length of the job.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn spread_column<const V: usize>(job: &mut Spread<'_, '_>, at: usize) {
    // SAFETY: all slices of a source have the job's length, and the caller vouches for the range.
    let x = unsafe {
        match job.source() {
            Source::Plain(data) => load::<V>(data.as_ptr().add(at)),
            Source::Difference(old, new) => {
                let mut x = load::<V>(old.as_ptr().add(at));
                add(&mut x, &load::<V>(new.as_ptr().add(at)));
                x
            }
        }
    };
    for (coefficient, output) in job.outputs() {
        // SAFETY: outputs have the job's length, and the caller vouches for the range.
        unsafe {
            let target = output.as_mut_ptr().add(at);
            let mut sum = load::<V>(target);
            if coefficient == 1 {
                add(&mut sum, &x);
            } else {
                add_scaled(&mut sum, &x, coefficient);
            }
            store::<V>(target, &sum);
        }
    }
}

/// sum ^= x.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn add<const V: usize>(sum: &mut [__m512i; V], x: &[__m512i; V]) {
    for v in 0..V {
        sum[v] = _mm512_xor_si512(sum[v], x[v]);
    }
}

/// sum ^= coefficient * x.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn add_scaled<const V: usize>(sum: &mut [__m512i; V], x: &[__m512i; V], coefficient: u8) {
    let matrix = _mm512_set1_epi64(gf::AFFINE[usize::from(coefficient)].cast_signed());
    for v in 0..V {
        let product = _mm512_gf2p8affine_epi64_epi8::<0>(x[v], matrix);
        sum[v] = _mm512_xor_si512(sum[v], product);
    }
}

/// Reads V vectors, at any alignment.
///
/// # Safety
/// `V * VECTOR` bytes from `from` on must be readable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn load<const V: usize>(from: *const u8) -> [__m512i; V] {
    let mut x = [_mm512_setzero_si512(); V];
    for (v, vector) in x.iter_mut().enumerate() {
        // SAFETY: the caller vouches for all V vectors; the instruction takes any alignment.
        *vector = unsafe { _mm512_loadu_si512(from.add(v * VECTOR).cast()) };
    }
    x
}

/// Writes V vectors, at any alignment.
///
/// # Safety
/// `V * VECTOR` bytes from `to` on must be writable.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn store<const V: usize>(to: *mut u8, x: &[__m512i; V]) {
    for (v, vector) in x.iter().enumerate() {
        // SAFETY: the caller vouches for all V vectors; the instruction takes any alignment.
        unsafe { _mm512_storeu_si512(to.add(v * VECTOR).cast(), *vector) };
    }
}
