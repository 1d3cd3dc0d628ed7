//! CRC-32C with the CRC instruction of x86-64.
//!
//! The instruction has a latency of three cycles, and one can start in every cycle. Therefore a block is computed as
//! three streams. The states of the streams are then combined: to append `n` zeroes to a message multiplies its state
//! by `x^(8n)`.

use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};

/// Bytes of a block.
const BLOCK: usize = 4096;
/// Bytes of the first and the second stream of a block. The third stream is longer.
const STREAM: usize = 1360;

/// Bytes of each stream in a step of the loop. They divide the first and the second stream.
const UNROLLED: usize = 80;

/// The products of every half byte of a state with the zeroes of the second and of the third stream.
const SECOND: Products = products(STREAM);
const THIRD: Products = products(BLOCK - 2 * STREAM);

/// Products of half bytes of a state, lowest half byte first.
type Products = [[u32; 16]; 8];

/// Returns the state after `bytes`.
#[target_feature(enable = "sse4.2")]
pub(super) fn continued(mut state: u32, bytes: &[u8]) -> u32 {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    for block in blocks {
        state = after_block(state, block);
    }
    let (words, rest) = rest.as_chunks();
    state = after_words(state, words);
    rest.iter().fold(state, |state, byte| _mm_crc32_u8(state, *byte))
}

#[target_feature(enable = "sse4.2")]
fn after_block(state: u32, block: &[u8; BLOCK]) -> u32 {
    let (first, rest) = block.split_at(STREAM);
    let (second, third) = rest.split_at(STREAM);
    let (first, second) = (first.as_chunks::<UNROLLED>().0, second.as_chunks::<UNROLLED>().0);
    let (third, tail) = third.as_chunks::<UNROLLED>();
    let (mut a, mut b, mut c) = (u64::from(state), 0, 0);
    for ((x, y), z) in first.iter().zip(second).zip(third) {
        for ((x, y), z) in x.as_chunks().0.iter().zip(y.as_chunks().0).zip(z.as_chunks().0) {
            a = _mm_crc32_u64(a, u64::from_le_bytes(*x));
            b = _mm_crc32_u64(b, u64::from_le_bytes(*y));
            c = _mm_crc32_u64(c, u64::from_le_bytes(*z));
        }
    }
    let c = after_words(c as u32, tail.as_chunks().0);
    let ab = product(a as u32, &SECOND) ^ b as u32;
    product(ab, &THIRD) ^ c
}

#[target_feature(enable = "sse4.2")]
fn after_words(state: u32, words: &[[u8; 8]]) -> u32 {
    let next = |state, word: &[u8; 8]| _mm_crc32_u64(state, u64::from_le_bytes(*word));
    words.iter().fold(u64::from(state), next) as u32
}

/// Returns the product of a state.
#[inline]
fn product(mut state: u32, products: &Products) -> u32 {
    let mut sum = 0;
    for of_half in products {
        sum ^= of_half[(state & 15) as usize];
        state >>= 4;
    }
    sum
}

const fn products(zeroes: usize) -> Products {
    let factor = power(8 * zeroes);
    let mut products = [[0; 16]; 8];
    let mut at = 0;
    while at < 128 {
        products[at / 16][at % 16] = multiply(((at % 16) << (at / 16 * 4)) as u32, factor);
        at += 1;
    }
    products
}

/// Returns the product of two polynomials modulo the polynomial of CRC-32C (RFC 3720, section 12.1). The highest bit is
/// the coefficient of 1.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let (mut product, mut bit) = (0, 1_u32 << 31);
    while bit > 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = (b >> 1) ^ if b & 1 == 0 { 0 } else { 0x82f6_3b78 };
        bit >>= 1;
    }
    product
}

/// Returns `x` to the power of `exponent`, modulo the same polynomial.
const fn power(mut exponent: usize) -> u32 {
    let (mut product, mut square) = (1_u32 << 31, 1_u32 << 30);
    while exponent > 0 {
        if exponent & 1 != 0 {
            product = multiply(product, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    product
}
