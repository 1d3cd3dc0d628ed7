//! Tests of the crate, each on every kernel the machine has.

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

/// Strips of bytes that look random and are the same in every run with this seed.
fn strips(seed: u64, count: usize, len: usize) -> Vec<Vec<u8>> {
    let mut chance = Chance::new(seed);
    (0..count).map(|_| chance.bytes(len)).collect()
}

/// The strips in the form of a request's inputs.
fn inputs(strips: &[Vec<u8>]) -> Vec<&[u8]> {
    strips.iter().map(Vec::as_slice).collect()
}

/// The strips in the form of a request's outputs.
fn outputs(strips: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    strips.iter_mut().map(Vec::as_mut_slice).collect()
}

/// The strips of all parities in `which`, named.
fn named<'a>(strips: &'a mut [Vec<u8>], which: &[usize]) -> Vec<ParityMut<'a>> {
    let all = strips.iter_mut().enumerate();
    let wanted = all.filter(|(index, _)| which.contains(index));
    wanted.map(|(index, bytes)| ParityMut { index: index as u8, bytes }).collect()
}

/// The k+m code on every kernel of this machine.
fn codes(k: usize, m: usize) -> impl Iterator<Item = Code> {
    let code = Code::new(k, m).expect("a code within the limits");
    Kernel::available().map(move |kernel| code.with_kernel(kernel))
}

/// What `encode` writes over old bytes that must not matter.
fn encoded(code: &Code, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut parity = strips(99, code.parity(), data[0].len());
    encode(code, &inputs(data), &mut outputs(&mut parity)).expect("a correct request");
    parity
}

/// Parity built with `accumulate`, last strip first.
fn accumulated(code: &Code, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut parity = vec![vec![0; data[0].len()]; code.parity()];
    let all: Vec<usize> = (0..code.parity()).collect();
    for (strip, bytes) in data.iter().enumerate().rev() {
        accumulate(code, strip, bytes, &mut named(&mut parity, &all)).expect("a correct request");
    }
    parity
}

/// Parity after `update` of one strip, for the parities in `which`; the others are left as they were.
fn updated(
    code: &Code,
    parity: &[Vec<u8>],
    which: &[usize],
    strip: usize,
    [old, new]: [&[u8]; 2],
) -> Vec<Vec<u8>> {
    let mut parity = parity.to_vec();
    let mut list = named(&mut parity, which);
    // The order of the list must not matter.
    list.reverse();
    update(code, strip, old, new, &mut list).expect("a correct request");
    parity
}
