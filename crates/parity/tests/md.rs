//! Tests that Linux md computes the same parity. The fixture contains the first bytes of stripes that md wrote in a
//! guest (`tests/nightly/md-parity.sh`, which compares whole arrays every night): level, layout, number of the stripe,
//! then its strips in the order data, P, Q.

use strake_parity::{Code, Kernel, encode_with};

const STRIPES: &str = include_str!("fixtures/md.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let pairs =
        hex.as_bytes().chunks_exact(2).map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal digits")).collect()
}

#[test]
fn parity_is_that_of_md() {
    let mut compared = [0, 0];
    for line in STRIPES.lines() {
        let mut words = line.split(' ');
        let parities = match words.next() {
            Some("5") => 1,
            Some("6") => 2,
            level => panic!("unknown level {level:?}"),
        };
        let strips: Vec<Vec<u8>> = words.skip(2).map(bytes).collect();
        let (data, parity) = strips.split_at(strips.len() - parities);
        let code = Code::new(data.len(), parities).expect("a code");
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        for kernel in Kernel::available() {
            let mut made = vec![vec![0; data[0].len()]; parities];
            let mut outputs: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
            encode_with(kernel, &code, &data, &mut outputs).expect("a correct request");
            assert_eq!(made, parity, "{}: {line}", kernel.name());
        }
        compared[parities - 1] += 1;
    }
    assert!(compared.iter().all(|&count| count >= 20), "the fixture holds {compared:?} stripes");
}
