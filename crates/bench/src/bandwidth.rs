//! How fast one core reads memory: the wall that every cold operation stands before.

use std::hint::black_box;
use std::time::Instant;

use crate::measure::Samples;

/// Bytes a step of a reader takes, eight cache lines.
const STEP: usize = 512;
/// How far ahead the prefetching reader asks, in bytes.
const AHEAD: usize = 4096;
/// Streams the striped reader reads side by side.
const STREAMS: usize = 8;

/// The fastest way of this machine to read `bytes` with one core, in GB/s: the median of each of several
/// readers, of which the best counts.
///
/// # Panics
/// When there are fewer bytes than a reader needs.
#[must_use]
pub fn read_gbps(bytes: &[u8], repeats: usize) -> f64 {
    assert!(bytes.len() >= STREAMS * STEP, "too little memory to measure reading it");
    let readers: [fn(&[u8]) -> u64; 3] = [straight, prefetched, striped];
    let parts = bytes.chunks_exact(bytes.len() / (readers.len() * 2));
    let parts: Vec<&[u8]> = parts.collect();
    let mut times = vec![Vec::new(); readers.len()];
    let mut turn = 0;
    for _ in 0..repeats {
        for (reader, times) in readers.iter().zip(&mut times) {
            // One part after the other, so that each was read longest ago.
            let part = parts[turn % parts.len()];
            turn += 1;
            let started = Instant::now();
            black_box(reader(black_box(part)));
            times.push(part.len() as f64 / started.elapsed().as_secs_f64() * 1e-9);
        }
    }
    times.into_iter().map(|times| Samples::new(times).median()).fold(0.0, f64::max)
}

/// From the first byte to the last.
fn straight(bytes: &[u8]) -> u64 {
    read(bytes, |_| ())
}

/// The same, asking for what comes before it is needed.
fn prefetched(bytes: &[u8]) -> u64 {
    let last = bytes.len() - STEP;
    read(bytes, |offset| {
        for line in (0..STEP).step_by(64) {
            prefetch(&bytes[(offset + AHEAD).min(last) + line]);
        }
    })
}

/// Eight places at once.
fn striped(bytes: &[u8]) -> u64 {
    let part = bytes.len() / STREAMS / STEP * STEP;
    let parts: Vec<&[u8]> = bytes.chunks_exact(part).take(STREAMS).collect();
    let mut sum = [0_u64; STEP / 8];
    for offset in (0..part).step_by(STEP) {
        for part in &parts {
            add(&mut sum, &part[offset..offset + STEP]);
        }
    }
    sum.iter().fold(0, |sum, word| sum ^ word)
}

fn read(bytes: &[u8], before: impl Fn(usize)) -> u64 {
    let mut sum = [0_u64; STEP / 8];
    for (index, step) in bytes.chunks_exact(STEP).enumerate() {
        before(index * STEP);
        add(&mut sum, step);
    }
    sum.iter().fold(0, |sum, word| sum ^ word)
}

/// Uses every byte; how the compiler arranges it does not matter, memory is slower.
#[inline(always)]
fn add(sum: &mut [u64; STEP / 8], bytes: &[u8]) {
    for (sum, word) in sum.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *sum ^= u64::from_le_bytes(*word);
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(byte: &u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction is in every x86-64 CPU, changes nothing and cannot fault.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn prefetch(byte: &u8) {
    black_box(byte);
}

#[cfg(test)]
mod tests {
    use super::{prefetched, straight, striped};

    #[test]
    fn every_reader_reads_every_byte() {
        let mut bytes = vec![0_u8; 8 * 4096];
        for at in [0, 511, 4096, 8 * 4096 - 1] {
            bytes[at] = 1;
            for reader in [straight, prefetched, striped] {
                assert_ne!(reader(&bytes), 0, "byte {at} was not read");
            }
            bytes[at] = 0;
        }
    }
}
