//! The memory that measurements run over.

use crate::isal::Pointers;

/// Strips begin at multiples of this, as they do in the engine's buffers.
const PAGE: usize = 4096;

/// Memory that is touched once, so that no page fault falls into a measurement.
#[derive(Debug)]
pub struct Pool {
    bytes: Vec<u8>,
    start: usize,
}

/// How many stripes of which shape to cut out of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Strips that are read.
    pub inputs: usize,
    /// Strips that are written.
    pub outputs: usize,
    /// Bytes of each.
    pub strip: usize,
}

impl Shape {
    /// Bytes of a stripe.
    #[must_use]
    pub const fn bytes(self) -> usize {
        (self.inputs + self.outputs) * self.strip
    }
}

/// One stripe of a pool.
#[derive(Debug)]
pub struct Stripe<'a> {
    /// What is read.
    pub inputs: Vec<&'a [u8]>,
    /// What is written.
    pub outputs: Vec<&'a mut [u8]>,
    /// The same as C wants it.
    pub pointers: Pointers<'a>,
}

impl Pool {
    /// A pool of `len` bytes that look random.
    #[must_use]
    pub fn new(len: usize) -> Pool {
        let mut bytes = vec![0; len + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        // Xorshift (G. Marsaglia, 2003): no kernel's speed depends on the bytes, but zeros would hide errors.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for word in bytes.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        Pool { bytes, start }
    }

    /// All its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// At most `limit` stripes, one after the other, as many as fit.
    #[must_use]
    pub fn stripes(&mut self, shape: Shape, limit: usize) -> Vec<Stripe<'_>> {
        let all = self.bytes[self.start..].chunks_exact_mut(shape.bytes());
        all.take(limit).map(|bytes| stripe(bytes, shape)).collect()
    }
}

fn stripe(bytes: &mut [u8], shape: Shape) -> Stripe<'_> {
    let (read, written) = bytes.split_at_mut(shape.inputs * shape.strip);
    let inputs: Vec<&[u8]> = read.chunks_exact(shape.strip).collect();
    let outputs = written.chunks_exact_mut(shape.strip).collect();
    let pointers = Pointers::new(&inputs, shape.outputs);
    Stripe { inputs, outputs, pointers }
}
