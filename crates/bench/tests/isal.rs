//! P and Q are ISA-L's, byte for byte; its other functions give what ours give when they get our coefficients.
//!
//! Needs the library: STRAKE_ISAL names a file, else the system's is taken. Without one the tests say so and pass.

use std::path::PathBuf;

use strake_bench::isal::{Isal, Pointers};
use strake_bench::pool::{Pool, Shape};
use strake_block::BufMut;
use strake_parity::checksum::{crc32c, crc64_nvme};
use strake_parity::{Code, Kernel, encode_with};

/// The library, or a word why there is none.
fn isal() -> Option<Isal> {
    let file = std::env::var_os("STRAKE_ISAL").map(PathBuf::from);
    match Isal::open(file.as_deref()) {
        Ok(isal) => Some(isal),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

#[test]
fn p_and_q_are_those_of_isal() {
    let Some(isal) = isal() else { return };
    let mut pool = Pool::new(64 << 20);
    for inputs in [2, 3, 4, 7, 8, 16, 24, 62] {
        for strip in [64, 4096, 20 << 10] {
            let code = Code::new(inputs, 2).expect("a code");
            let stripes = pool.stripes(Shape { inputs, outputs: 2, strip }, 1);
            for mut stripe in stripes {
                assert!(isal.pq(&mut stripe.pointers, &mut stripe.outputs), "pq_gen refuses");
                for kernel in Kernel::available() {
                    let (mut p, mut q) = (vec![0; strip], vec![0; strip]);
                    encode_with(kernel, &code, &stripe.inputs, &mut [&mut p, &mut q])
                        .expect("a correct request");
                    let name = kernel.name();
                    assert!(p == stripe.outputs[0], "{inputs}+2, {strip}, {name}: P differs");
                    assert!(q == stripe.outputs[1], "{inputs}+2, {strip}, {name}: Q differs");
                }
                let mut pointers = Pointers::new(&stripe.inputs, 1);
                let mut p = BufMut::alone(strip + 1);
                let p = p.as_mut_slice();
                assert!(
                    !isal.xor(&mut pointers, &mut [&mut p[1..]]),
                    "an address that would fault"
                );
                assert!(isal.xor(&mut pointers, &mut [&mut p[..strip]]), "xor_gen refuses");
                assert!(p[..strip] == *stripe.outputs[0], "{inputs}+1, {strip}: P differs");
            }
        }
    }
}

#[test]
fn every_code_is_the_product_that_isal_computes() {
    let Some(isal) = isal() else { return };
    let mut pool = Pool::new(16 << 20);
    for (inputs, outputs) in [(4, 3), (10, 4), (6, 6), (20, 5)] {
        let code = Code::new(inputs, outputs).expect("a code");
        let row = |j| (0..inputs).map(|d| code.coefficient(j, d)).collect();
        let mut tables = isal.tables(&(0..outputs).map(row).collect::<Vec<Vec<u8>>>());
        for mut stripe in pool.stripes(Shape { inputs, outputs, strip: 8 << 10 }, 3) {
            isal.dot(&mut tables, &mut stripe.pointers, &mut stripe.outputs);
            let mut made = vec![vec![0; 8 << 10]; outputs];
            let mut targets: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
            strake_parity::encode(&code, &stripe.inputs, &mut targets).expect("correct");
            assert!(targets == stripe.outputs, "{inputs}+{outputs}");
        }
    }
}

#[test]
fn checksums_are_those_of_isal() {
    let Some(isal) = isal() else { return };
    let pool = Pool::new(1 << 20);
    for len in [0, 1, 9, 4096, 70_001] {
        let bytes = &pool.bytes()[..len];
        assert_eq!(crc32c(bytes), isal.crc32c(bytes), "{len}");
        if let Some(theirs) = isal.crc64_nvme(bytes) {
            assert_eq!(crc64_nvme(bytes), theirs, "{len}");
        }
    }
}

#[test]
fn a_file_that_is_no_library_is_refused_with_a_remedy() {
    let error = Isal::open(Some(&PathBuf::from("/dev/null"))).expect_err("no library");
    assert!(error.to_string().contains("scripts/isal.sh"), "{error}");
}
