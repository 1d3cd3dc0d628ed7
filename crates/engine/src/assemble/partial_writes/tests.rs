use strake_parity::{Code, encode};
use strake_units::StripSet;

use super::agree;

/// Returns a row of `k` data and `m` parity blocks before and after a write of strip `written`.
fn rows(code: &Code, written: usize, seed: u8) -> [Vec<Vec<u8>>; 2] {
    let (k, m) = (code.data(), code.parity());
    let byte = |strip: usize, at: usize, salt: u8| {
        (strip as u8).wrapping_mul(73) ^ (at as u8).wrapping_mul(29) ^ seed.wrapping_add(salt)
    };
    [0, 1].map(|age: u8| {
        let salt = |strip| if strip == written { age * 91 } else { 0 };
        let mut row: Vec<Vec<u8>> =
            (0..k).map(|s| (0..64).map(|at| byte(s, at, salt(s))).collect()).collect();
        let mut parity = vec![vec![0; 64]; m];
        {
            let data: Vec<&[u8]> = row.iter().map(Vec::as_slice).collect();
            let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
            encode(code, &data, &mut targets).expect("equally long");
        }
        row.append(&mut parity);
        row
    })
}

/// Tests a row after a crash. `arrived` are the strips with new content, `lost` the lost strips.
fn check(code: &Code, written: usize, arrived: StripSet, lost: StripSet) -> bool {
    let (k, m) = (code.data(), code.parity());
    let [old, new] = rows(code, written, 5);
    let here = |strip: usize| !lost.contains(strip as u8);
    let found =
        |strip: usize| if arrived.contains(strip as u8) { &new[strip] } else { &old[strip] };
    let row: Vec<Option<&[u8]>> =
        (0..k + m).map(|strip| here(strip).then(|| found(strip).as_slice())).collect();
    let agreed = agree(code, &row, written as u8, arrived - lost).expect("a sound code");
    let Some(agreed) = agreed else {
        assert!(lost.len() > m, "{arrived:?} {lost:?}: it can be made up");
        return false;
    };
    for strip in (0..k).filter(|strip| here(*strip)) {
        assert_eq!(&agreed.data[strip], found(strip), "what is there stays");
    }
    let either = agreed.data[written] == old[written] || agreed.data[written] == new[written];
    let bystanders = (0..k).filter(|s| *s != written).all(|s| agreed.data[s] == old[s]);
    assert!(
        !agreed.sure || either && bystanders,
        "{k}+{m}, strip {written} written, arrived {arrived:?}, lost {lost:?}: sure and wrong"
    );
    agreed.sure
}

/// Tests every state of every write, with every loss that the code tolerates.
#[test]
fn a_sure_answer_is_right_and_with_one_strip_lost_all_are_sure_exhaustive() {
    for (k, m) in [(3, 2), (4, 2), (5, 3), (6, 4)] {
        let code = Code::new(k, m).expect("small");
        for written in 0..k {
            for state in 0..1_u64 << (m + 1) {
                let arrived = StripSet::from_bits((state & 1) << written | (state >> 1) << k);
                let losses = (0..1 << (k + m)).map(StripSet::from_bits);
                for lost in losses.filter(|lost| lost.len() <= m) {
                    let sure = check(&code, written, arrived, lost);
                    assert!(
                        sure || lost.len() > 1,
                        "{k}+{m}, strip {written} written, arrived {arrived:?}, lost {lost:?}"
                    );
                }
            }
        }
    }
}

/// With two parities and two lost strips, some states do not determine the content. None of these states may count as
/// certain.
#[test]
fn two_lost_of_two_parities_that_differ_are_beyond_it() {
    let code = Code::new(4, 2).expect("small");
    let p_only = StripSet::of(4);
    assert!(!check(&code, 0, p_only, StripSet::of(1).with(2)));
    assert!(check(&code, 0, p_only.with(0), StripSet::of(1)), "one is not");
}
