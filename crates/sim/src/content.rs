//! What the world writes: every block says which write it came from and where it belongs.

use crate::rng::mix;

/// Fills one block with the content that write `id` gives block `lba`. `id` is not 0.
pub fn fill(id: u64, lba: u64, block: &mut [u8]) {
    let base = mix(id.rotate_left(32) ^ lba);
    for (at, word) in block.chunks_exact_mut(8).enumerate() {
        let value = match at {
            0 => id,
            1 => lba,
            _ => base.wrapping_add((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// True when `block` is what [`fill`] makes of `id` and `lba`.
#[must_use]
pub fn is(id: u64, lba: u64, block: &[u8]) -> bool {
    let mut expected = [0; 4096];
    let expected = &mut expected[..block.len()];
    fill(id, lba, expected);
    expected == block
}

/// Says what a block looks like, for a person.
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
