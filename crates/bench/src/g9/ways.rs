//! How ours and theirs do each operation.

use std::cell::RefCell;

use strake_block::BufMut;
use strake_parity::{Code, Kernel, ParityMut, Recovery, Residency, encode, update};

use super::cases::{Case, Memory, Operation};
use crate::isal::Isal;
use crate::measure::Way;

/// A way with the name of what it calls.
pub type Named<'a> = (&'static str, Way<'a>);

/// The data strip that updates change.
const CHANGED: usize = 1;

/// What a caller of our code says about such strips. ISA-L takes no such hint.
const fn residency(memory: Memory) -> Residency {
    match memory {
        Memory::Hot => Residency::Cache,
        Memory::Cold => Residency::Memory,
    }
}

/// Ours, then every way of ISA-L that gives the same bytes.
pub fn of<'a>(case: &Case, kernel: Kernel, isal: Option<&'a Isal>) -> Vec<Named<'a>> {
    let code = Code::new(case.data, case.parity).expect("cases are within the limits");
    let code = code.with_kernel(kernel).with_residency(residency(case.memory));
    match case.operation {
        Operation::Encode => {
            let rows = (0..case.parity).map(|j| row(case.data, |d| code.coefficient(j, d)));
            let rows: Vec<Vec<u8>> = rows.collect();
            let mut ways: Vec<Named<'a>> = vec![("ours", ours_encode(code))];
            ways.extend(isal.into_iter().flat_map(|isal| theirs(isal, case, &rows)));
            ways
        }
        Operation::Recover => {
            let recovery = lost_first(&code, case);
            let rows = (0..case.parity).map(|w| row(case.data, |s| recovery.coefficient(w, s)));
            let rows: Vec<Vec<u8>> = rows.collect();
            let mut ways: Vec<Named<'a>> = vec![("ours", ours_recover(recovery))];
            ways.extend(isal.into_iter().flat_map(|isal| theirs(isal, case, &rows)));
            ways
        }
        Operation::Update => {
            let rows = (0..case.parity).map(|j| row(case.data, |d| code.coefficient(j, d)));
            let rows: Vec<Vec<u8>> = rows.collect();
            let mut ways: Vec<Named<'a>> = vec![("ours", ours_update(code))];
            ways.extend(isal.into_iter().flat_map(|isal| theirs_update(isal, case, &rows)));
            ways
        }
    }
}

fn row(inputs: usize, cell: impl Fn(usize) -> u8) -> Vec<u8> {
    (0..inputs).map(cell).collect()
}

/// The first data strips are lost; as many parities take their place.
fn lost_first(code: &Code, case: &Case) -> Recovery {
    let want: Vec<u8> = (0..case.parity as u8).collect();
    let known: Vec<u8> = (case.parity as u8..(case.data + case.parity) as u8).collect();
    Recovery::new(code, &known, &want).expect("no more is lost than there are parities")
}

fn ours_encode<'a>(code: Code) -> Way<'a> {
    Box::new(move |stripe| {
        encode(&code, &stripe.inputs, &mut stripe.outputs).expect("a correct request");
    })
}

fn ours_recover<'a>(recovery: Recovery) -> Way<'a> {
    Box::new(move |stripe| {
        recovery.apply(&stripe.inputs, &mut stripe.outputs).expect("a correct request");
    })
}

fn ours_update<'a>(code: Code) -> Way<'a> {
    Box::new(move |stripe| {
        let [old, new] = [stripe.inputs[0], stripe.inputs[1]];
        let count = stripe.outputs.len();
        let mut outputs = stripe.outputs.iter_mut().zip(0..);
        let mut parity: [ParityMut<'_>; 4] = std::array::from_fn(|_| {
            let output = outputs.next();
            output.map_or(ParityMut { index: 0, bytes: &mut [] }, |(bytes, index)| ParityMut {
                index,
                bytes,
            })
        });
        update(&code, CHANGED, old, new, &mut parity[..count]).expect("a correct request");
    })
}

/// The general product, and what ISA-L has for P alone and for P and Q.
fn theirs<'a>(isal: &'a Isal, case: &Case, rows: &[Vec<u8>]) -> Vec<Named<'a>> {
    let mut tables = isal.tables(rows);
    let mut ways: Vec<Named<'a>> = vec![(
        "ec_encode_data",
        Box::new(move |stripe| isal.dot(&mut tables, &mut stripe.pointers, &mut stripe.outputs)),
    )];
    let is_xor = rows.len() == 1 && rows[0].iter().all(|&c| c == 1);
    if is_xor {
        ways.push((
            "xor_gen",
            Box::new(|stripe| {
                assert!(isal.xor(&mut stripe.pointers, &mut stripe.outputs), "xor_gen refuses");
            }),
        ));
    }
    if case.operation == Operation::Encode && case.parity == 2 {
        ways.push((
            "pq_gen",
            Box::new(|stripe| {
                assert!(isal.pq(&mut stripe.pointers, &mut stripe.outputs), "pq_gen refuses");
            }),
        ));
    }
    ways
}

/// The difference into a buffer, then that into every parity; for P alone also one XOR of three.
fn theirs_update<'a>(isal: &'a Isal, case: &Case, rows: &[Vec<u8>]) -> Vec<Named<'a>> {
    let mut tables = isal.tables(rows);
    // Aligned to a page, as `xor_gen` needs it.
    let difference = RefCell::new(BufMut::alone(case.strip));
    let mut ways: Vec<Named<'a>> = vec![(
        "xor_gen + ec_encode_data_update",
        Box::new(move |stripe| {
            let mut difference = difference.borrow_mut();
            let difference = difference.as_mut_slice();
            let done = isal.xor(&mut stripe.pointers, &mut [&mut *difference]);
            assert!(done, "xor_gen refuses");
            isal.spread(&mut tables, CHANGED, difference, &mut stripe.outputs);
        }),
    )];
    if case.parity == 1 {
        ways.push((
            "xor_gen of old, new and P",
            Box::new(|stripe| {
                let done = isal.xor_into(&mut stripe.pointers, &mut *stripe.outputs[0]);
                assert!(done, "xor_gen refuses");
            }),
        ));
    }
    ways
}
