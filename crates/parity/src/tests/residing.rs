//! Tests that the residency of strips does not change the result, and that cached recoveries are equal to new ones.

use super::{codes, encoded, inputs, outputs, strips, updated};
use crate::{Code, CodeError, Recoveries, Recovery, Residency};

/// Returns lengths near those of vectors, of columns and of the prefetch distance.
fn lengths() -> &'static [usize] {
    if cfg!(miri) {
        &[0, 65]
    } else {
        &[0, 1, 63, 64, 255, 256, 1023, 1024, 1280, 1281, 4096, 9000]
    }
}

#[test]
fn strips_in_memory_give_the_same_bytes() {
    for (k, m) in [(4, 1), (6, 2), (3, 3), (2, 5)] {
        for &len in lengths() {
            let data = strips(1, k, len);
            let changed = strips(2, 1, len).remove(0);
            for code in codes(k, m) {
                let far = code.with_residency(Residency::Memory);
                let parity = encoded(&code, &data);
                assert_eq!(encoded(&far, &data), parity, "{code:?}: {len}");
                let which: Vec<usize> = (0..m).collect();
                let update = |code| updated(code, &parity, &which, 1, [&data[1], &changed]);
                assert_eq!(update(&far), update(&code), "{code:?}: {len}");
            }
        }
    }
}

/// Writes that bypass the caches need aligned addresses; unaligned outputs must be written nevertheless.
#[test]
fn any_alignment_of_strips_in_memory() {
    let len = if cfg!(miri) { 80 } else { 2000 };
    for code in codes(3, 2) {
        let far = code.with_residency(Residency::Memory);
        let data = strips(1, 3, len);
        let expected = encoded(&code, &data);
        for shift in [0, 1, 16, 32, 63, 64] {
            let mut room = strips(2, 2, len + 64);
            let mut parity: Vec<&mut [u8]> =
                room.iter_mut().map(|strip| &mut strip[shift..shift + len]).collect();
            crate::encode(&far, &inputs(&data), &mut parity).expect("a correct request");
            assert!(parity.iter().zip(&expected).all(|(found, bytes)| *found == &bytes[..]));
        }
    }
}

#[test]
fn remembered_recoveries_are_those_that_were_asked_for() {
    let code = Code::new(4, 2).expect("a code");
    let data = strips(1, 4, 100);
    let whole: Vec<Vec<u8>> = data.iter().cloned().chain(encoded(&code, &data)).collect();
    for capacity in [0, 1, 3, 30] {
        let mut recoveries = Recoveries::new(&code, capacity);
        for round in 0..3 {
            for a in 0..6_u8 {
                for b in (0..6).filter(|&b| b != a) {
                    let known: Vec<u8> = (0..6).filter(|s| ![a, b].contains(s)).collect();
                    let recovery = recoveries.get(&known, &[a, b]).expect("recoverable");
                    let known: Vec<Vec<u8>> =
                        known.iter().map(|&s| whole[usize::from(s)].clone()).collect();
                    let mut found = strips(2, 2, 100);
                    let done = recovery.apply(&inputs(&known), &mut outputs(&mut found));
                    assert_eq!(done, Ok(()));
                    let wanted = [&whole[usize::from(a)], &whole[usize::from(b)]];
                    assert_eq!([&found[0], &found[1]], wanted, "{capacity}, {round}: {a} {b}");
                }
            }
        }
        let mut refused = |known: &[u8], want: &[u8]| {
            let error = recoveries.get(known, want).err();
            assert_eq!(error, Recovery::new(&code, known, want).err());
            error
        };
        let error = CodeError::NotEnoughKnown { needed: 4, known: 3 };
        assert_eq!(refused(&[0, 1, 2], &[3]), Some(error));
        assert_eq!(
            refused(&[0, 1, 2, 9], &[3]),
            Some(CodeError::BadStripIndex { index: 9, limit: 6 })
        );
        assert_eq!(
            recoveries.get(&[0, 1, 2, 3], &[4; 33]).err(),
            Some(CodeError::CountMismatch { expected: 32, found: 33 })
        );
    }
}
