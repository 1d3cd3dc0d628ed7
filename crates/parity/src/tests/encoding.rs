//! Tests that parity is that of its definition, at every length and alignment.

use super::{accumulated, codes, encoded, inputs, strips, textbook, updated};
use crate::{Code, Kernel, encode, encode_with};

/// Compares all methods to compute parity with the textbook, on every kernel.
fn check(k: usize, m: usize, len: usize) {
    let data = strips((k * 100 + m) as u64, k, len);
    let expected = textbook::parity(k, m, &data);
    for code in codes(k, m) {
        assert_eq!(encoded(&code, &data), expected, "encode, {code:?}, {len} bytes");
        assert_eq!(accumulated(&code, &data), expected, "accumulate, {code:?}, {len} bytes");
    }
}

#[test]
fn every_shape_with_few_data_strips() {
    for m in (1..=32).filter(|m| !cfg!(miri) || [1, 4].contains(m)) {
        for k in [1, 2, 3, 6] {
            check(k, m, if cfg!(miri) { 3 } else { 67 });
        }
    }
}

#[test]
fn the_widest_shapes() {
    let shapes = [(62, 2), (63, 1), (61, 3), (60, 4), (57, 7), (32, 32)];
    for &(k, m) in &shapes[..if cfg!(miri) { 1 } else { shapes.len() }] {
        check(k, m, if cfg!(miri) { 1 } else { 389 });
    }
}

#[test]
fn every_length_around_the_vector_sizes() {
    for len in (0..700).filter(|len| !cfg!(miri) || [0, 1, 100].contains(len)) {
        check(3, 2, len);
        check(2, 5, len);
    }
}

#[test]
fn several_tiles() {
    check(1, 1, 1030);
    check(2, 3, if cfg!(miri) { 1 } else { 5000 });
}

#[test]
fn every_alignment_and_nothing_outside() {
    let (len, room) = if cfg!(miri) { (37, 2) } else { (357, 64) };
    let whole = strips(7, 3, len + room);
    for code in codes(3, 2) {
        for shift in 0..room {
            let data: Vec<Vec<u8>> = whole.iter().map(|x| x[shift..shift + len].to_vec()).collect();
            let expected = textbook::parity(3, 2, &data);
            let mut parity = vec![vec![0xa5; len + room]; 2];
            let ins: Vec<&[u8]> = whole.iter().map(|x| &x[shift..shift + len]).collect();
            // The inputs and outputs have different alignments.
            let out = room - shift;
            let mut outs: Vec<&mut [u8]> =
                parity.iter_mut().map(|x| &mut x[out..out + len]).collect();
            encode(&code, &ins, &mut outs).expect("a correct request");
            for (parity, expected) in parity.iter().zip(&expected) {
                assert_eq!(&parity[out..out + len], expected, "{code:?}, shift {shift}");
                assert!(parity[..out].iter().chain(&parity[out + len..]).all(|&x| x == 0xa5));
            }
        }
    }
}

#[test]
fn p_and_q_are_those_of_raid_6() {
    for k in [1, 2, 6, 22, 62].into_iter().filter(|&k| !cfg!(miri) || k == 6) {
        let data = strips(k as u64, k, if cfg!(miri) { 9 } else { 130 });
        let (p, q) = textbook::anvin_p_q(&data);
        for m in [1, 2, 3] {
            if k + m > 64 {
                continue;
            }
            for code in codes(k, m) {
                let parity = encoded(&code, &data);
                assert_eq!(parity[0], p, "P, {code:?}");
                assert!(parity.get(1).is_none_or(|found| *found == q), "Q, {code:?}");
            }
        }
    }
}

/// The values were computed manually: {02}^8 = 0x100 reduced by 0x11d = 0x1d, and {02}^9 = 0x3a.
#[test]
fn a_stripe_worked_by_hand() {
    let mut data = vec![vec![0; 2]; 10];
    (data[0][0], data[8][0], data[9][1]) = (0x01, 0x01, 0x80);
    for code in codes(10, 2) {
        // {80} * {3a} = {02}^7 * {02}^9 = {02}^16 = 0x4c.
        assert_eq!(encoded(&code, &data), [[0x00, 0x80], [0x01 ^ 0x1d, 0x4c]]);
    }
}

#[test]
fn every_coefficient_in_every_kernel() {
    // A change of one data strip from zeros to every byte value uses every coefficient of Q.
    let (old, new) = (vec![0; 256], (0..=255).collect::<Vec<u8>>());
    for k in if cfg!(miri) { 8..=9 } else { 2..=62 } {
        let strip = k - 1;
        let before = vec![vec![0; 256]; 2];
        for code in codes(k, 2) {
            let after = updated(&code, &before, &[0, 1], strip, [&old, &new]);
            let factor = textbook::power(2, strip);
            let expected: Vec<u8> = new.iter().map(|&x| textbook::times(factor, x)).collect();
            assert_eq!(after, [new.clone(), expected], "{code:?}");
        }
    }
}

#[test]
fn a_kernel_can_be_chosen() {
    let portable = Kernel::portable();
    assert_eq!(Kernel::available().last(), Some(portable));
    assert_eq!(Kernel::available().next(), Some(Kernel::best()));
    let code = Code::new(4, 2).expect("a code");
    assert_eq!(code.kernel(), Kernel::best());
    assert_eq!(code.with_kernel(portable).kernel(), portable);
    let data = strips(5, 4, 100);
    let (mut p, mut q) = (vec![0; 100], vec![0; 100]);
    for kernel in Kernel::available() {
        encode_with(kernel, &code, &inputs(&data), &mut [&mut p, &mut q]).expect("a request");
        assert_eq!((p.clone(), q.clone()), textbook::anvin_p_q(&data), "{}", kernel.name());
    }
}
