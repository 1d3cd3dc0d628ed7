//! The portable kernel, which is the specification of the other kernels. It has no `unsafe`.
//!
//! It uses only the coefficients, and does not use the sums of a matrix.

use super::{Dot, Source, Spread};
use crate::gf;

/// Bytes of every strip in one tile, so that the tiles of 64 strips fit a level 2 cache.
const TILE: usize = 1024;

/// Overwrites every output.
pub(super) fn dot(job: &mut Dot<'_, '_>) {
    let (matrix, inputs, len) = (job.matrix(), job.inputs(), job.len());
    let (width, height) = (matrix.inputs(), matrix.outputs());
    let mut start = 0;
    while start < len {
        let end = len.min(start + TILE);
        for o in 0..height {
            let output = &mut job.outputs()[matrix.output_place(o)][start..end];
            output.fill(0);
            for i in 0..width {
                let input = &inputs[matrix.input_place(i)][start..end];
                add_scaled(matrix.cells()[i * height + o], input, output);
            }
        }
        start = end;
    }
}

/// Adds to every output, from offset `from` on.
pub(super) fn spread(job: &mut Spread<'_, '_>, from: usize) {
    let (source, len) = (job.source(), job.len());
    if from == len {
        // The vector kernels leave nothing of nearly every job, for which the scratch memory need not be zeroed.
        return;
    }
    let mut scratch = [0; TILE];
    let mut start = from;
    while start < len {
        let end = len.min(start + TILE);
        let delta = &mut scratch[..end - start];
        match source {
            Source::Plain(data) => delta.copy_from_slice(&data[start..end]),
            Source::Difference(old, new) => {
                delta.copy_from_slice(&old[start..end]);
                add(&new[start..end], delta);
            }
        }
        for (coefficient, output) in job.outputs() {
            add_scaled(coefficient, delta, &mut output[start..end]);
        }
        start = end;
    }
}

/// output ^= coefficient * input.
fn add_scaled(coefficient: u8, input: &[u8], output: &mut [u8]) {
    match coefficient {
        0 => {}
        1 => add(input, output),
        other => {
            let table = &gf::NIBBLES[usize::from(other)];
            for (out, &x) in output.iter_mut().zip(input) {
                *out ^= gf::mul_by_table(table, x);
            }
        }
    }
}

/// output ^= input.
fn add(input: &[u8], output: &mut [u8]) {
    for (out, &x) in output.iter_mut().zip(input) {
        *out ^= x;
    }
}
