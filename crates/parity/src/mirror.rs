//! Comparison of copies.

/// Bytes of one comparison, which is one call of `memcmp` of the platform.
const PIECE: usize = 1024;

/// Returns the offset of the first byte at which two copies differ, or `None` if they are equal.
///
/// If one slice is a prefix of the other, they differ at the end of the shorter one.
pub fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    let common = a.len().min(b.len());
    let (a_common, b_common) = (&a[..common], &b[..common]);
    for (index, (x, y)) in a_common.chunks(PIECE).zip(b_common.chunks(PIECE)).enumerate() {
        if x != y {
            let within = x.iter().zip(y).position(|(x, y)| x != y);
            return within.map(|offset| index * PIECE + offset);
        }
    }
    if a.len() == b.len() { None } else { Some(common) }
}
