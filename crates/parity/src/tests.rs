//! Tests of the crate, each on every kernel of the host.

mod checksums;
mod encoding;
mod field;
mod mds;
mod mirroring;
mod properties;
mod recovering;
mod refusing;
mod residing;
mod scattering;
mod textbook;
mod verifying;

use crate::{Code, Kernel, ParityMut, accumulate, encode, update};
use strake_testkit::Chance;

/// Returns strips of pseudorandom bytes, which are the same in every run with this seed.
fn strips(seed: u64, count: usize, len: usize) -> Vec<Vec<u8>> {
    let mut chance = Chance::new(seed);
    (0..count).map(|_| chance.bytes(len)).collect()
}

/// Returns the strips as inputs of a request.
fn inputs(strips: &[Vec<u8>]) -> Vec<&[u8]> {
    strips.iter().map(Vec::as_slice).collect()
}

/// Returns the strips as outputs of a request.
fn outputs(strips: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    strips.iter_mut().map(Vec::as_mut_slice).collect()
}

/// Returns the strips of all parities in `which`, with their indices.
fn named<'a>(strips: &'a mut [Vec<u8>], which: &[usize]) -> Vec<ParityMut<'a>> {
    let all = strips.iter_mut().enumerate();
    let wanted = all.filter(|(index, _)| which.contains(index));
    wanted.map(|(index, bytes)| ParityMut { index: index as u8, bytes }).collect()
}

/// Returns the k+m code on every kernel of this host.
fn codes(k: usize, m: usize) -> impl Iterator<Item = Code> {
    let code = Code::new(k, m).expect("a code within the limits");
    Kernel::available().map(move |kernel| code.with_kernel(kernel))
}

/// Returns the result of `encode` over old bytes, which must have no effect.
fn encoded(code: &Code, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut parity = strips(99, code.parity(), data[0].len());
    encode(code, &inputs(data), &mut outputs(&mut parity)).expect("a correct request");
    parity
}

/// Returns the parity of `accumulate`, in descending order of strips.
fn accumulated(code: &Code, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut parity = vec![vec![0; data[0].len()]; code.parity()];
    let all: Vec<usize> = (0..code.parity()).collect();
    for (strip, bytes) in data.iter().enumerate().rev() {
        accumulate(code, strip, bytes, &mut named(&mut parity, &all)).expect("a correct request");
    }
    parity
}

/// Returns the parity after `update` of one strip, for the parities in `which`; the others are unchanged.
fn updated(
    code: &Code,
    parity: &[Vec<u8>],
    which: &[usize],
    strip: usize,
    [old, new]: [&[u8]; 2],
) -> Vec<Vec<u8>> {
    let mut parity = parity.to_vec();
    let mut list = named(&mut parity, which);
    // The order of the list must have no effect.
    list.reverse();
    update(code, strip, old, new, &mut list).expect("a correct request");
    parity
}
