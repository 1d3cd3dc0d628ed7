//! Tests with strips in parts, and with strips that are copied during the encoding.

use super::{codes, encoded, inputs, outputs, strips};
use crate::{
    Code, CodeError, Parts, PartsMut, Recovery, encode_copying, encode_parts, recover_parts,
    update_parts,
};

const LEN: usize = if cfg!(miri) { 70 } else { 3000 };

/// Returns `bytes` in parts, divided at offsets that depend on `seed`; some parts are empty.
fn parts(bytes: &[u8], seed: usize) -> Vec<&[u8]> {
    let mut rest = bytes;
    let mut parts = Vec::new();
    for nth in 0.. {
        let cut = (seed * 37 + nth * 61) % 300;
        if cut >= rest.len() {
            break;
        }
        let (part, after) = rest.split_at(cut);
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

fn parts_mut(bytes: &mut [u8], seed: usize) -> Vec<&mut [u8]> {
    let lengths: Vec<usize> = parts(bytes, seed).iter().map(|part| part.len()).collect();
    let mut rest = bytes;
    let mut parts = Vec::new();
    for len in lengths {
        let (part, after) = rest.split_at_mut(len);
        parts.push(part);
        rest = after;
    }
    parts
}

/// Calls `run` with the strips in parts.
fn with_parts<T>(
    read: &[Vec<u8>],
    written: &mut [Vec<u8>],
    run: impl FnOnce(&[Parts<'_>], &mut [PartsMut<'_, '_>]) -> T,
) -> T {
    let read: Vec<Vec<&[u8]>> = read.iter().enumerate().map(|(i, s)| parts(s, i)).collect();
    let read: Vec<Parts<'_>> = read.iter().map(Vec::as_slice).collect();
    let mut written: Vec<Vec<&mut [u8]>> =
        written.iter_mut().enumerate().map(|(i, s)| parts_mut(s, i + 100)).collect();
    let mut written: Vec<PartsMut<'_, '_>> = written.iter_mut().map(Vec::as_mut_slice).collect();
    run(&read, &mut written)
}

#[test]
fn parts_give_the_bytes_of_whole_strips() {
    for code in codes(5, 3) {
        let data = strips(1, 5, LEN);
        let expected = encoded(&code, &data);
        let mut parity = strips(2, 3, LEN);
        let done = with_parts(&data, &mut parity, |data, parity| encode_parts(&code, data, parity));
        assert_eq!((done, &parity), (Ok(()), &expected), "{code:?}");

        let mut changed = data.clone();
        changed[3] = strips(3, 1, LEN).remove(0);
        let change = [data[3].clone(), changed[3].clone()];
        let done = with_parts(&change, &mut parity, |change, parity| {
            update_parts(&code, 3, change[0], change[1], parity)
        });
        assert_eq!((done, &parity), (Ok(()), &encoded(&code, &changed)), "{code:?}");

        let recovery = Recovery::new(&code, &[1, 2, 4, 5, 6], &[0, 3]).expect("recoverable");
        let known = [1, 2, 4].map(|s: usize| data[s].clone()).to_vec();
        let known = [known, expected[..2].to_vec()].concat();
        let mut lost = strips(4, 2, LEN);
        let done =
            with_parts(&known, &mut lost, |known, lost| recover_parts(&recovery, known, lost));
        assert_eq!((done, &lost[..]), (Ok(()), &[data[0].clone(), data[3].clone()][..]));
    }
}

#[test]
fn parts_of_unequal_strips_are_refused_and_nothing_is_written() {
    let code = Code::new(2, 1).expect("a code");
    let mut parity = strips(2, 1, LEN);
    let before = parity.clone();
    let data = [vec![1; LEN], vec![1; LEN - 1]];
    let refused = with_parts(&data, &mut parity, |data, parity| encode_parts(&code, data, parity));
    let error = CodeError::LengthMismatch { expected: LEN, found: LEN - 1 };
    assert_eq!((refused, &parity), (Err(error), &before));
    let refused =
        with_parts(&data[..1], &mut parity, |data, parity| encode_parts(&code, data, parity));
    assert_eq!(refused, Err(CodeError::CountMismatch { expected: 2, found: 1 }));
    let same = [vec![1; LEN], vec![1; LEN]];
    let refused = with_parts(&same, &mut parity, |change, parity| {
        update_parts(&code, 2, change[0], change[1], parity)
    });
    assert_eq!(refused, Err(CodeError::BadStripIndex { index: 2, limit: 2 }));
    assert_eq!(parity, before);
}

#[test]
fn copies_are_made_on_the_way() {
    for (k, m) in [(3, 1), (4, 2), (2, 7)] {
        for len in [0, 5, 64, LEN + 3] {
            let data = strips(5, k, len);
            for code in codes(k, m) {
                let (mut copies, mut parity) = (strips(6, k, len), strips(7, m, len));
                let done = encode_copying(
                    &code,
                    &inputs(&data),
                    &mut outputs(&mut copies),
                    &mut outputs(&mut parity),
                );
                assert_eq!(done, Ok(()));
                assert_eq!((&copies, &parity), (&data, &encoded(&code, &data)), "{code:?}: {len}");
            }
        }
    }
}

#[test]
fn copies_that_do_not_fit_are_refused() {
    let code = Code::new(2, 1).expect("a code");
    let data = strips(5, 2, 64);
    let try_with = |copies: usize, len: usize| {
        let (mut copies, mut parity) = (strips(6, copies, len), strips(7, 1, 64));
        encode_copying(&code, &inputs(&data), &mut outputs(&mut copies), &mut outputs(&mut parity))
    };
    assert_eq!(try_with(0, 64), Err(CodeError::CountMismatch { expected: 2, found: 0 }));
    assert_eq!(try_with(3, 64), Err(CodeError::CountMismatch { expected: 2, found: 3 }));
    assert_eq!(try_with(2, 63), Err(CodeError::LengthMismatch { expected: 64, found: 63 }));
}
