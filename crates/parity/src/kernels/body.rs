//! The one body of all vector kernels.
//!
//! A **column** is the same few vectors of every strip. Its outputs stay in registers while the kernel reads its
//! inputs, so that every input byte is read once and every output byte is written once. Columns are processed from low
//! to high addresses, because the prefetchers of CPUs best detect one stream of reads per input.
//!
//! All functions of this module are inlined into the entry points of an instruction set, once per combination of const
//! parameters, and each parameter multiplies the time to compile. Conditions that are evaluated once per column are
//! therefore not const.

use core::mem::MaybeUninit;

use super::vector::Vector;
use super::{Dot, GROUP, Residency, Source, Spread, portable};
use crate::matrix::Matrix;
use crate::{DATA_MAX, PARITY_MAX};

/// If the outputs need several groups, the inputs are read once per group, in tiles of this many bytes, so that they
/// are still in the level 1 cache.
const TILE: usize = 24 << 10;
/// The prefetch distance for strips in memory, in bytes. It is the best of 256, 512, 1024 and 2048 in measurements, for
/// strips of one or two pages and for longer ones.
const AHEAD_SHORT: usize = 512;
const AHEAD_LONG: usize = 1024;
const SHORT_MAX: usize = 8 << 10;
/// Bytes of a cache line, for prefetches.
const LINE: usize = 64;
/// Lines of outputs are claimed for writes one column in advance if outputs are a large part of the strips: with few
/// inputs, in requests that do not fit a level 1 cache. In measurements, this was a tenth faster with 4 data strips,
/// and a tenth slower with 8.
const CLAIM_MIN: usize = 40 << 10;
const CLAIM_INPUTS_MAX: usize = 6;

/// The operation of the first output of a group on an input (a const parameter cannot be an enum): it multiplies the
/// input as the others do, adds it unchanged, or skips it.
const SCALED: u8 = 0;
const PLAIN: u8 = 1;
const SKIPPED: u8 = 2;

/// The addresses of a product, in the order of its matrix.
struct Lanes<'a> {
    matrix: &'a Matrix,
    inputs: [MaybeUninit<*const u8>; DATA_MAX],
    outputs: [MaybeUninit<*mut u8>; PARITY_MAX],
    len: usize,
    /// The prefetch distance of inputs; zero disables the prefetch.
    ahead: usize,
    /// True if lines of outputs are claimed in advance.
    claims: bool,
    /// True if writes of outputs bypass the caches.
    streams: bool,
}

/// Overwrites every output.
///
/// # Safety
/// The CPU must have the features of V.
#[inline(always)]
pub(super) unsafe fn dot<V: Vector, const WIDE: usize>(job: &mut Dot<'_, '_>) {
    let (len, wide) = (job.len(), WIDE * V::BYTES);
    if len < V::BYTES {
        return portable::dot(job);
    }
    let (matrix, streams) = (job.matrix(), job.streams(V::BYTES));
    let bytes = (matrix.inputs() + matrix.outputs()) * len;
    let mut lanes = Lanes {
        matrix,
        inputs: [const { MaybeUninit::uninit() }; DATA_MAX],
        outputs: [const { MaybeUninit::uninit() }; PARITY_MAX],
        len,
        ahead: ahead(job.residency(), len),
        claims: bytes > CLAIM_MIN && matrix.inputs() <= CLAIM_INPUTS_MAX && !streams,
        streams,
    };
    note_addresses(&mut lanes, job);
    // SAFETY: the caller vouches for the features; all strips have `len` bytes. What is left after the last
    // whole column or vector is computed with the bytes before it once more, which changes nothing.
    unsafe {
        if len < wide {
            // The last vector is not aligned, and writes of so few bytes gain nothing if they bypass the caches.
            lanes.streams = false;
            for at in (0..=len - V::BYTES).step_by(V::BYTES) {
                short::<V>(&lanes, at);
            }
            return short::<V>(&lanes, len - V::BYTES);
        }
        let whole = len - len % wide;
        tiles::<V, WIDE>(&lanes, 0, whole);
        if lanes.streams {
            V::settle();
        }
        if whole < len {
            lanes.streams = false;
            tiles::<V, WIDE>(&lanes, len - wide, len);
        }
    }
}

/// Stores the addresses in place, because a copy of the lists would be read before it is written.
#[inline(always)]
fn note_addresses(lanes: &mut Lanes<'_>, job: &mut Dot<'_, '_>) {
    let matrix = lanes.matrix;
    for (i, lane) in lanes.inputs.iter_mut().enumerate().take(matrix.inputs()) {
        lane.write(job.inputs()[matrix.input_place(i)].as_ptr());
    }
    for (o, lane) in lanes.outputs.iter_mut().enumerate().take(matrix.outputs()) {
        lane.write(job.outputs()[matrix.output_place(o)].as_mut_ptr());
    }
}

/// Returns the prefetch distance for strips of `len` bytes.
fn ahead(residency: Residency, len: usize) -> usize {
    match residency {
        Residency::Cache => 0,
        Residency::Memory if len <= SHORT_MAX => AHEAD_SHORT,
        Residency::Memory => AHEAD_LONG,
    }
}

/// Computes one vector of every output, one output after the other, for strips shorter than a column.
///
/// # Safety
/// As [`dot`]; every strip must have a vector at `at`.
#[inline(always)]
unsafe fn short<V: Vector>(lanes: &Lanes<'_>, at: usize) {
    for o in 0..lanes.matrix.outputs() {
        // SAFETY: the caller vouches for the vector, and the output exists. Its coefficients are as good as the
        // sum that the first output also is.
        unsafe { column::<V, 1, 1, false>(lanes, o, at) };
    }
}

/// Computes the bytes `from..to`, which are whole columns.
///
/// # Safety
/// As [`dot`]; every strip must have `to` bytes.
#[inline(always)]
unsafe fn tiles<V: Vector, const WIDE: usize>(lanes: &Lanes<'_>, from: usize, to: usize) {
    let (inputs, outputs) = (lanes.matrix.inputs(), lanes.matrix.outputs());
    let wide = WIDE * V::BYTES;
    let tile = if outputs <= GROUP { to - from } else { (TILE / inputs / wide).max(1) * wide };
    let mut start = from;
    while start < to {
        let end = to.min(start + tile);
        let mut first = 0;
        while first < outputs {
            // SAFETY: the caller vouches for the range; the group takes no more outputs than are left.
            unsafe { group::<V, WIDE>(lanes, first, start, end) };
            first += GROUP;
        }
        start = end;
    }
}

/// Computes the bytes `from..to` of at most a group of outputs, from output `first`.
///
/// # Safety
/// As [`tiles`].
#[inline(always)]
unsafe fn group<V: Vector, const WIDE: usize>(
    lanes: &Lanes<'_>,
    first: usize,
    from: usize,
    to: usize,
) {
    let sum = first == 0 && lanes.matrix.summed() > 0;
    // SAFETY: the caller vouches for the range; each arm takes the outputs that there are.
    unsafe {
        match (lanes.matrix.outputs() - first, sum) {
            (1, true) => columns::<V, WIDE, 1, true>(lanes, first, from, to),
            (1, false) => columns::<V, WIDE, 1, false>(lanes, first, from, to),
            (2, true) => columns::<V, WIDE, 2, true>(lanes, first, from, to),
            (2, false) => columns::<V, WIDE, 2, false>(lanes, first, from, to),
            (3, true) => columns::<V, WIDE, 3, true>(lanes, first, from, to),
            (3, false) => columns::<V, WIDE, 3, false>(lanes, first, from, to),
            (_, true) => columns::<V, WIDE, GROUP, true>(lanes, first, from, to),
            (_, false) => columns::<V, WIDE, GROUP, false>(lanes, first, from, to),
        }
    }
}

/// Computes one column after the other.
///
/// # Safety
/// As [`tiles`]; there must be OUT outputs from `first` on, and SUM says that `first` is the matrix's sum.
#[inline(always)]
unsafe fn columns<V: Vector, const WIDE: usize, const OUT: usize, const SUM: bool>(
    lanes: &Lanes<'_>,
    first: usize,
    from: usize,
    to: usize,
) {
    let wide = WIDE * V::BYTES;
    let mut at = from;
    while at < to {
        // SAFETY: the range is whole columns, so one is left; the lists have the inputs and outputs named.
        unsafe {
            if lanes.ahead != 0 && first == 0 && at + lanes.ahead < lanes.len {
                for lane in lanes.inputs.get_unchecked(..lanes.matrix.inputs()) {
                    ask::<V, WIDE>(lane.assume_init().wrapping_add(at + lanes.ahead));
                }
            }
            if lanes.claims && at + wide < to {
                for lane in lanes.outputs.get_unchecked(first..first + OUT) {
                    claim::<V, WIDE>(lane.assume_init().wrapping_add(at + wide));
                }
            }
            column::<V, WIDE, OUT, SUM>(lanes, first, at);
        }
        at += wide;
    }
}

/// Computes U vectors at `at` of OUT outputs.
///
/// # Safety
/// As [`columns`]; every strip must have U vectors from `at` on.
#[inline(always)]
unsafe fn column<V: Vector, const U: usize, const OUT: usize, const SUM: bool>(
    lanes: &Lanes<'_>,
    first: usize,
    at: usize,
) {
    let matrix = lanes.matrix;
    let inputs = matrix.inputs();
    // SAFETY: the caller vouches for the features and the range; input numbers stay below the number of inputs.
    unsafe {
        let mut sums = [[V::zero(); U]; OUT];
        if SUM {
            let summed = matrix.summed();
            inputs_of::<V, U, OUT, PLAIN>(lanes, &mut sums, first, 0, summed, at);
            // An output that is only a sum does not depend on the other inputs.
            if OUT > 1 && summed < inputs {
                inputs_of::<V, U, OUT, SKIPPED>(lanes, &mut sums, first, summed, inputs, at);
            }
            fold(&mut sums, matrix.folded());
        } else {
            inputs_of::<V, U, OUT, SCALED>(lanes, &mut sums, first, 0, inputs, at);
        }
        let mut o = 0;
        while o < OUT {
            let to = lanes.outputs.get_unchecked(first + o).assume_init().add(at);
            store_to(to, &sums[o], lanes.streams);
            o += 1;
        }
    }
}

/// Adds the inputs `from..to` to the sums of a column; FIRST is the operation of the first output.
///
/// # Safety
/// As `column`; there must be `to` inputs.
#[inline(always)]
unsafe fn inputs_of<V: Vector, const U: usize, const OUT: usize, const FIRST: u8>(
    lanes: &Lanes<'_>,
    sums: &mut [[V; U]; OUT],
    first: usize,
    from: usize,
    to: usize,
    at: usize,
) {
    let mut i = from;
    // SAFETY: the caller vouches for everything but the input numbers, which stay below `to`.
    unsafe {
        while V::PAIRS && i + 2 <= to {
            add_pair::<V, U, OUT, FIRST>(lanes, sums, first, i, at);
            i += 2;
        }
        while i < to {
            add_one::<V, U, OUT, FIRST>(lanes, sums, first, i, at);
            i += 1;
        }
    }
}

/// Adds inputs `i` and `i + 1` to the sums of a column.
///
/// # Safety
/// As `column`; both inputs must exist.
#[inline(always)]
unsafe fn add_pair<V: Vector, const U: usize, const OUT: usize, const FIRST: u8>(
    lanes: &Lanes<'_>,
    sums: &mut [[V; U]; OUT],
    first: usize,
    i: usize,
    at: usize,
) {
    let outputs = lanes.matrix.outputs();
    // SAFETY: the caller vouches for the addresses; cells i * outputs + first + o exist for o < OUT.
    unsafe {
        let x = load_from::<V, U>(lanes.inputs.get_unchecked(i).assume_init().add(at));
        let y = load_from::<V, U>(lanes.inputs.get_unchecked(i + 1).assume_init().add(at));
        let mut o = if FIRST == SKIPPED { 1 } else { 0 };
        while o < OUT {
            let mut u = 0;
            if FIRST == PLAIN && o == 0 {
                while u < U {
                    sums[o][u] = sums[o][u].xor3(x[u], y[u]);
                    u += 1;
                }
            } else {
                let f = V::factor(lanes.matrix, i * outputs + first + o);
                let g = V::factor(lanes.matrix, (i + 1) * outputs + first + o);
                while u < U {
                    sums[o][u] = sums[o][u].xor3(x[u].times(f), y[u].times(g));
                    u += 1;
                }
            }
            o += 1;
        }
    }
}

/// Adds input `i` to the sums of a column.
///
/// # Safety
/// As `column`; the input must exist.
#[inline(always)]
unsafe fn add_one<V: Vector, const U: usize, const OUT: usize, const FIRST: u8>(
    lanes: &Lanes<'_>,
    sums: &mut [[V; U]; OUT],
    first: usize,
    i: usize,
    at: usize,
) {
    let outputs = lanes.matrix.outputs();
    // SAFETY: the caller vouches for the addresses; cells i * outputs + first + o exist for o < OUT.
    unsafe {
        let x = load_from::<V, U>(lanes.inputs.get_unchecked(i).assume_init().add(at));
        let mut o = if FIRST == SKIPPED { 1 } else { 0 };
        while o < OUT {
            let mut u = 0;
            if FIRST == PLAIN && o == 0 {
                while u < U {
                    sums[o][u] = sums[o][u].xor(x[u]);
                    u += 1;
                }
            } else {
                let f = V::factor(lanes.matrix, i * outputs + first + o);
                while u < U {
                    sums[o][u] = sums[o][u].xor(x[u].times(f));
                    u += 1;
                }
            }
            o += 1;
        }
    }
}

/// Adds the outputs that the matrix specifies to the first output.
///
/// # Safety
/// The CPU must have the features of V.
#[inline(always)]
unsafe fn fold<V: Vector, const U: usize, const OUT: usize>(sums: &mut [[V; U]; OUT], folded: u32) {
    let mut o = 1;
    while o < OUT {
        let mut u = 0;
        while u < U && folded >> o & 1 != 0 {
            // SAFETY: the caller vouches for the features.
            sums[0][u] = unsafe { sums[0][u].xor(sums[o][u]) };
            u += 1;
        }
        o += 1;
    }
}

/// Reads U vectors.
///
/// # Safety
/// They must be readable, and the CPU must have the features of V.
#[inline(always)]
unsafe fn load_from<V: Vector, const U: usize>(from: *const u8) -> [V; U] {
    // SAFETY: the caller vouches for all U vectors.
    unsafe {
        let mut x = [V::zero(); U];
        let mut u = 0;
        while u < U {
            x[u] = V::load(from.add(u * V::BYTES));
            u += 1;
        }
        x
    }
}

/// Writes U vectors.
///
/// # Safety
/// They must be writable, and aligned to a vector if they go past the caches; the CPU must have the features.
#[inline(always)]
unsafe fn store_to<V: Vector, const U: usize>(to: *mut u8, x: &[V; U], streams: bool) {
    let mut u = 0;
    while u < U {
        // SAFETY: the caller vouches for all U vectors.
        unsafe {
            if streams {
                x[u].stream(to.add(u * V::BYTES));
            } else {
                x[u].store(to.add(u * V::BYTES));
            }
        }
        u += 1;
    }
}

/// Prefetches U vectors, which need not exist.
///
/// # Safety
/// The CPU must have the features of V.
#[inline(always)]
unsafe fn ask<V: Vector, const U: usize>(at: *const u8) {
    let mut line = 0;
    while line < U * V::BYTES {
        // SAFETY: the caller vouches for the features.
        unsafe { V::prefetch(at.wrapping_add(line)) };
        line += LINE;
    }
}

/// Claims the lines of U vectors for writes; they need not exist.
///
/// # Safety
/// The CPU must have the features of V.
#[inline(always)]
unsafe fn claim<V: Vector, const U: usize>(at: *mut u8) {
    let mut line = 0;
    while line < U * V::BYTES {
        // SAFETY: the caller vouches for the features.
        unsafe { V::claim(at.wrapping_add(line)) };
        line += LINE;
    }
}

/// Adds to every output.
///
/// # Safety
/// The CPU must have the features of V.
#[inline(always)]
pub(super) unsafe fn spread<V: Vector, const WIDE: usize>(job: &mut Spread<'_, '_>) {
    let whole = job.len() - job.len() % V::BYTES;
    let ahead = ahead(job.residency(), job.len());
    let (old, new) = match job.source() {
        Source::Plain(data) => (data.as_ptr(), core::ptr::null()),
        Source::Difference(old, new) => (old.as_ptr(), new.as_ptr()),
    };
    let change = Change { old, new, ahead, to: whole };
    let mut targets = [(0, core::ptr::null_mut::<u8>()); PARITY_MAX];
    let mut count = 0;
    for (target, (coefficient, output)) in targets.iter_mut().zip(job.outputs()) {
        *target = (coefficient, output.as_mut_ptr());
        count += 1;
    }
    for targets in targets[..count].chunks(GROUP) {
        let plain = targets[0].0 == 1;
        // SAFETY: the caller vouches for the features; every slice has `whole` bytes, and the arms take as many
        // outputs as the chunk has, of a change that has both sources or one.
        unsafe {
            match (plain, new.is_null()) {
                (true, true) => spread_chunk::<V, WIDE, true, false>(targets, &change),
                (true, false) => spread_chunk::<V, WIDE, true, true>(targets, &change),
                (false, true) => spread_chunk::<V, WIDE, false, false>(targets, &change),
                (false, false) => spread_chunk::<V, WIDE, false, true>(targets, &change),
            }
        }
    }
    portable::spread(job, whole);
}

/// The input of a spread.
struct Change {
    old: *const u8,
    /// Null if there is only one source.
    new: *const u8,
    /// The prefetch distance of strips; zero disables the prefetch.
    ahead: usize,
    /// The bytes to add, which are whole vectors.
    to: usize,
}

/// Adds a change to as many outputs as there are targets, at most a group. PLAIN and BOTH are const, because as
/// conditions in each column they cost a quarter of the instructions of kernels without GFNI.
///
/// # Safety
/// As [`spread`]; PLAIN says that the first coefficient is one, BOTH that the change has two sources; all slices must
/// have the bytes of the change.
#[inline(always)]
unsafe fn spread_chunk<V: Vector, const WIDE: usize, const PLAIN: bool, const BOTH: bool>(
    targets: &[(u8, *mut u8)],
    change: &Change,
) {
    // SAFETY: the caller vouches for the rest; the arms take as many outputs as there are targets.
    unsafe {
        match targets.len() {
            1 => spread_group::<V, WIDE, 1, PLAIN, BOTH>(targets, change),
            2 => spread_group::<V, WIDE, 2, PLAIN, BOTH>(targets, change),
            3 => spread_group::<V, WIDE, 3, PLAIN, BOTH>(targets, change),
            _ => spread_group::<V, WIDE, GROUP, PLAIN, BOTH>(targets, change),
        }
    }
}

/// Adds a change to OUT outputs.
///
/// # Safety
/// As [`spread_chunk`]; there must be OUT targets.
#[inline(always)]
unsafe fn spread_group<
    V: Vector,
    const WIDE: usize,
    const OUT: usize,
    const PLAIN: bool,
    const BOTH: bool,
>(
    targets: &[(u8, *mut u8)],
    change: &Change,
) {
    let wide = WIDE * V::BYTES;
    let columns = change.to - change.to % wide;
    // Columns before this offset prefetch a later column. They have a loop of their own, because the condition would
    // cost a tenth of the instructions of kernels without GFNI.
    let asking = if change.ahead == 0 { 0 } else { columns.saturating_sub(change.ahead) };
    // SAFETY: the caller vouches for the number of targets, and the loop conditions for the ranges.
    unsafe {
        let mut outputs = [core::ptr::null_mut::<u8>(); OUT];
        let mut factors = [V::factor_of(0); OUT];
        for o in 0..OUT {
            let (coefficient, output) = *targets.get_unchecked(o);
            outputs[o] = output;
            factors[o] = V::factor_of(coefficient);
        }
        let mut at = 0;
        while at < asking {
            let there = at + change.ahead;
            ask::<V, WIDE>(change.old.wrapping_add(there));
            if BOTH {
                ask::<V, WIDE>(change.new.wrapping_add(there));
            }
            for output in outputs {
                claim::<V, WIDE>(output.wrapping_add(there));
            }
            spread_column::<V, WIDE, OUT, PLAIN, BOTH>(&outputs, &factors, change, at);
            at += wide;
        }
        while at < columns {
            spread_column::<V, WIDE, OUT, PLAIN, BOTH>(&outputs, &factors, change, at);
            at += wide;
        }
        while at < change.to {
            spread_column::<V, 1, OUT, PLAIN, BOTH>(&outputs, &factors, change, at);
            at += V::BYTES;
        }
    }
}

/// Adds U vectors at `at` to OUT outputs. All outputs are read before any is written. Otherwise a read after a write to
/// the same offset of another page would wait for this write, because CPUs first compare the low 12 bits of addresses
/// (Intel, "Optimization Reference Manual", 4-KByte aliasing), and strips start at pages.
///
/// # Safety
/// As [`spread_group`]; all slices must have U vectors from `at` on.
#[inline(always)]
unsafe fn spread_column<
    V: Vector,
    const U: usize,
    const OUT: usize,
    const PLAIN: bool,
    const BOTH: bool,
>(
    outputs: &[*mut u8; OUT],
    factors: &[V::Factor; OUT],
    change: &Change,
    at: usize,
) {
    // SAFETY: the caller vouches for all addresses.
    unsafe {
        let mut x = load_from::<V, U>(change.old.add(at));
        if BOTH {
            let y = load_from::<V, U>(change.new.add(at));
            for u in 0..U {
                x[u] = x[u].xor(y[u]);
            }
        }
        let mut sums = [[V::zero(); U]; OUT];
        for o in 0..OUT {
            sums[o] = load_from::<V, U>(outputs[o].add(at));
        }
        for o in 0..OUT {
            for u in 0..U {
                let product = if o == 0 && PLAIN { x[u] } else { x[u].times(factors[o]) };
                sums[o][u] = sums[o][u].xor(product);
            }
        }
        for o in 0..OUT {
            store_to(outputs[o].add(at), &sums[o], false);
        }
    }
}
