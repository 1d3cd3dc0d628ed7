//! Little-endian numbers at fixed offsets (Base, section 1.8 "Byte, Word, and Dword Relationships").
//!
//! The offsets are constants inside the array, so the compiler removes the checks.
//!
//! # Panics
//! All functions panic if the offset is outside the array, which is an error of the caller.

/// Two bytes at `at`.
#[must_use]
pub fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Four bytes at `at`.
#[must_use]
pub fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// Eight bytes at `at`.
#[must_use]
pub fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// `M` bytes at `at`.
#[must_use]
pub fn array_at<const N: usize, const M: usize>(bytes: &[u8; N], at: usize) -> [u8; M] {
    std::array::from_fn(|index| bytes[at + index])
}

/// Writes `value` at `at`.
pub fn put<const N: usize>(bytes: &mut [u8; N], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Writes text at `at`, padded with `pad` to `length` bytes and truncated there.
pub fn put_text<const N: usize>(
    bytes: &mut [u8; N],
    (at, length): (usize, usize),
    text: &str,
    pad: u8,
) {
    let used = text.len().min(length);
    bytes[at..at + length].fill(pad);
    bytes[at..at + used].copy_from_slice(&text.as_bytes()[..used]);
}
