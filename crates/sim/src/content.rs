//! The content of writes: every block states which write it came from and where it belongs.

use crate::rng::mix;

/// Fills one block with the content of write `id` for block `lba`. `id` is not 0.
pub fn fill(id: u64, lba: u64, block: &mut [u8]) {
    let base = base(id, lba);
    for (at, bytes) in block.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&word(base, at).to_le_bytes());
    }
    block[..8].copy_from_slice(&id.to_le_bytes());
    block[8..16].copy_from_slice(&lba.to_le_bytes());
}

/// True if `block` has the content that [`fill`] produces for `id` and `lba`.
#[must_use]
pub fn is(id: u64, lba: u64, block: &[u8]) -> bool {
    if block[..8] != id.to_le_bytes() || block[8..16] != lba.to_le_bytes() {
        return false;
    }
    let base = base(id, lba);
    let (words, rest) = block.as_chunks::<8>();
    let differs = |(at, bytes): (usize, &[u8; 8])| u64::from_le_bytes(*bytes) ^ word(base, at);
    // All words are compared without an early exit, so that several are compared at a time.
    let words = words.iter().enumerate().skip(2);
    rest.is_empty() && words.map(differs).fold(0, |all, one| all | one) == 0
}

fn base(id: u64, lba: u64) -> u64 {
    mix(id.rotate_left(32) ^ lba)
}

/// A word of the content behind the first two.
const fn word(base: u64, at: usize) -> u64 {
    base.wrapping_add((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Describes the content of a block for an operator.
#[must_use]
pub fn describe(block: &[u8]) -> String {
    if block.iter().all(|b| *b == 0) {
        return "zeroes".to_owned();
    }
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap_or_default());
    let (id, lba) = (word(0), word(8));
    if is(id, lba, block) {
        format!("write {id} of block {lba}")
    } else if block.iter().all(|b| *b == block[0]) {
        format!("bytes {:#04x}", block[0])
    } else {
        format!("a mixture that begins with write {id} of block {lba}")
    }
}
