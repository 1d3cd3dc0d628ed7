//! Every set of lost strips of every small code comes back.
use super::textbook;
use crate::{Code, Kernel, Recovery, encode};

fn strips(count: usize, len: usize) -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 11) as u8
    };
    (0..count).map(|_| (0..len).map(|_| next()).collect()).collect()
}

#[test]
fn every_small_erasure_set() {
    for kernel in Kernel::available() {
        for total in 2..=8_usize {
            for m in 1..total {
                let k = total - m;
                let code = Code::new(k, m).expect("a code").with_kernel(kernel);
                let data = strips(k, 333);
                let whole = textbook::stripe(k, m, &data);
                let mut parity = strips(m, 333);
                let ins: Vec<&[u8]> = data.iter().map(|x| &x[..]).collect();
                let mut outs: Vec<&mut [u8]> = parity.iter_mut().map(|x| &mut x[..]).collect();
                encode(&code, &ins, &mut outs).expect("encodes");
                assert_eq!(parity, whole[k..]);
                for set in 0..1_u32 << total {
                    if set.count_ones() as usize > m {
                        continue;
                    }
                    let (want, known): (Vec<u8>, Vec<u8>) =
                        (0..total as u8).partition(|s| set >> s & 1 != 0);
                    let r = Recovery::new(&code, &known, &want).expect("recovers");
                    let ins: Vec<&[u8]> = known.iter().map(|&s| &whole[s as usize][..]).collect();
                    let mut out = strips(want.len(), 333);
                    let mut outs: Vec<&mut [u8]> = out.iter_mut().map(|x| &mut x[..]).collect();
                    r.apply(&ins, &mut outs).expect("applies");
                    for (&w, o) in want.iter().zip(&out) {
                        assert_eq!(o, &whole[w as usize]);
                    }
                }
            }
        }
    }
}
