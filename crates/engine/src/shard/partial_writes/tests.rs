use strake_block::{Buf, BufMut};

use super::witness;

fn buf(bytes: &[u8]) -> Buf {
    let mut buf = BufMut::alone(bytes.len());
    buf.as_mut_slice().copy_from_slice(bytes);
    buf.freeze()
}

/// The new blocks differ from the old blocks only in the bytes at `changed`, in parts that end at `cuts`. The parities
/// differ wherever the data differ.
fn check(changed: &[usize], cuts: &[usize]) {
    const BLOCK: usize = 64;
    const BLOCKS: usize = 4;
    let old: Vec<u8> = (0..BLOCK * BLOCKS).map(|at| (at * 7) as u8).collect();
    let mut new = old.clone();
    changed.iter().for_each(|at| new[*at] ^= 0x40);
    let parity = |factor: u8| new.iter().map(|byte| byte.wrapping_mul(factor)).collect::<Vec<u8>>();
    let parities = [parity(3), parity(5)];
    let ends: Vec<usize> = cuts.iter().copied().chain([new.len()]).collect();
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let parts: Vec<Buf> = starts.zip(&ends).map(|(from, until)| buf(&new[from..*until])).collect();
    for block in 0..BLOCKS {
        let bytes = block * BLOCK..(block + 1) * BLOCK;
        let slices = parities.iter().map(Vec::as_slice);
        let found = witness(&parts, slices, bytes.start, &old[bytes.clone()]);
        let first = changed.iter().filter(|at| bytes.contains(*at)).min();
        assert_eq!(found.word, first.map(|at| ((at - bytes.start) / 4) as u16), "block {block}");
        assert!(found.is_new(0, &new[bytes.clone()]), "block {block} of {changed:?} at {cuts:?}");
        for (part, parity) in (1..).zip(&parities) {
            assert!(found.is_new(part, &parity[bytes.clone()]));
        }
        assert_eq!(found.is_new(0, &old[bytes]), first.is_none(), "the old one is told from it");
    }
}

#[test]
fn the_first_word_that_differs_tells_a_block_wherever_parts_end() {
    for cuts in [&[][..], &[64], &[1], &[66, 130], &[63, 64, 65, 66, 67], &[255], &[128, 192]] {
        for changed in [&[][..], &[0], &[63], &[64, 66], &[65, 127, 190], &[131], &[255], &[3, 252]]
        {
            check(changed, cuts);
        }
    }
}
