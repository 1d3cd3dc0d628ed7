//! Tests that compare the RAM drive with a plain vector, and tests of refused requests.

use super::*;
use crate::null::NullDevice;
use strake_block::{BufMut, Durability, Sg, SgMut, Token};

const SIZE: BlockSize = BlockSize::B512;

fn filled(byte: u8, len: usize) -> Sg {
    let mut buf = BufMut::alone(len);
    buf.as_mut_slice().fill(byte);
    buf.freeze().into()
}

fn write(at: u64, byte: u8, blocks: usize) -> Op {
    Op::Write { at: Lba(at), data: filled(byte, blocks * 512), durability: Durability::Normal }
}

fn read(at: u64, len: usize) -> Op {
    Op::Read { at: Lba(at), data: SgMut::from(BufMut::alone(len)) }
}

/// Runs one request on a new queue of `device` and returns the operation and its result.
fn run(device: &dyn BlockDevice, op: Op) -> (Op, Result<(), IoErrorKind>) {
    let mut queue = device.open_queue(CoreIndex(0), 4).expect("memory drives always open");
    let mut batch = CompletionBatch::new(4);
    queue.submit(Io { token: Token(7), op }).expect("an empty queue has room");
    queue.poll(Nanos(0), &mut batch);
    assert!(batch.is_empty(), "nothing may complete before the doorbell");
    queue.ring_doorbell(Nanos(0));
    queue.poll(Nanos(0), &mut batch);
    let done = batch.drain().next().expect("memory drives complete at the next poll");
    assert_eq!(done.token, Token(7));
    assert_eq!(queue.readiness(), Readiness::Idle);
    (done.op, done.result.map_err(|e| e.kind))
}

fn read_bytes(device: &dyn BlockDevice, at: u64, len: usize) -> Vec<u8> {
    match run(device, read(at, len)) {
        (Op::Read { data, .. }, Ok(())) => {
            data.parts().iter().flat_map(|p| p.as_slice()).copied().collect()
        }
        other => panic!("a read came back as {other:?}"),
    }
}

#[test]
fn random_requests_agree_with_a_vector() {
    const BLOCKS: u64 = 1000;
    let device = RamDevice::new(BLOCKS, SIZE);
    let mut model = vec![0u8; BLOCKS as usize * 512];
    let mut state = 1u64;
    let mut next = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for step in 0..2000u32 {
        let blocks = 1 + next(300);
        let at = next(BLOCKS - blocks + 1);
        let bytes = at as usize * 512..(at + blocks) as usize * 512;
        let range = LbaRange::new(Lba(at), blocks);
        let byte = step as u8;
        let op = match next(4) {
            0 => {
                assert_eq!(read_bytes(&device, at, bytes.len()), model[bytes]);
                continue;
            }
            1 => Op::Deallocate { range },
            2 => Op::WriteZeroes { range, durability: Durability::Fua },
            _ => write(at, byte, blocks as usize),
        };
        model[bytes].fill(if matches!(op, Op::Write { .. }) { byte } else { 0 });
        assert_eq!(run(&device, op).1, Ok(()));
    }
    let mut all = vec![0; model.len()];
    device.read_at(0, &mut all).expect("all of it");
    assert!(all == model);
}

#[test]
fn an_empty_drive_costs_nothing_and_zeroing_gives_memory_back() {
    let device = RamDevice::new(10 << 20, BlockSize::B4096);
    assert_eq!(device.allocated_bytes(), 0);
    assert!(read_bytes(&device, (10 << 20) - 1, 4096).iter().all(|b| *b == 0));
    let data = filled(1, 4096);
    assert_eq!(
        run(&device, Op::Write { at: Lba(99), data, durability: Durability::Normal }).1,
        Ok(())
    );
    assert_eq!(device.allocated_bytes(), EXTENT_BYTES as u64);
    let range = LbaRange::new(Lba(0), 10 << 20);
    assert_eq!(run(&device, Op::Deallocate { range }).1, Ok(()));
    assert_eq!(device.allocated_bytes(), 0);
}

#[test]
fn impossible_requests_complete_with_the_reason() {
    let plain = MemSpec::new(100, SIZE);
    let locked = MemSpec { read_only: true, ..plain.clone() };
    let simple = MemSpec { deallocate: DeallocateReads::Unsupported, ..plain.clone() };
    let check = |spec: &MemSpec, make: &dyn Fn() -> Op, want: Result<(), IoErrorKind>| {
        assert_eq!(run(&RamDevice::with_spec(spec.clone()), make()).1, want, "RAM");
        assert_eq!(run(&NullDevice::with_spec(spec.clone()), make()).1, want, "null");
    };
    let all = LbaRange::new(Lba(0), 100);
    let far = LbaRange::new(Lba(u64::MAX), 2);
    check(&plain, &|| read(99, 512), Ok(()));
    check(&plain, &|| read(99, 1024), Err(IoErrorKind::OutOfRange));
    check(&plain, &|| read(0, 100), Err(IoErrorKind::Misaligned));
    check(&plain, &|| read(0, (1 << 20) + 512), Err(IoErrorKind::Misaligned));
    check(&plain, &|| Op::Deallocate { range: far }, Err(IoErrorKind::OutOfRange));
    check(&locked, &|| write(0, 1, 1), Err(IoErrorKind::ReadOnly));
    check(&locked, &|| Op::Deallocate { range: all }, Err(IoErrorKind::ReadOnly));
    check(&locked, &|| Op::Flush, Ok(()));
    check(&simple, &|| Op::Deallocate { range: all }, Err(IoErrorKind::Unsupported));
    let normal = Durability::Normal;
    check(&simple, &|| Op::WriteZeroes { range: all, durability: normal }, Ok(()));
}

#[test]
fn a_drive_that_promises_nothing_about_deallocate_keeps_the_old_bytes() {
    let spec = MemSpec { deallocate: DeallocateReads::Unspecified, ..MemSpec::new(8, SIZE) };
    let device = RamDevice::with_spec(spec);
    assert_eq!(run(&device, write(0, 5, 8)).1, Ok(()));
    assert_eq!(run(&device, Op::Deallocate { range: LbaRange::new(Lba(0), 8) }).1, Ok(()));
    assert_eq!(read_bytes(&device, 0, 512), [5; 512]);
}

#[test]
fn a_full_queue_hands_the_request_back() {
    let device = RamDevice::new(8, SIZE);
    let mut queue = device.open_queue(CoreIndex(0), 2).expect("memory drives always open");
    let mut batch = CompletionBatch::new(1);
    for token in 0..2 {
        queue.submit(Io { token: Token(token), op: Op::Flush }).expect("room for two");
    }
    let back = queue.submit(Io { token: Token(2), op: Op::Flush }).expect_err("no room for three");
    assert_eq!(back.token, Token(2));
    queue.ring_doorbell(Nanos(0));
    queue.poll(Nanos(0), &mut batch);
    assert_eq!((batch.len(), queue.readiness()), (1, Readiness::Poll));
    queue.submit(back).expect("one slot is free again");
}

#[test]
fn two_threads_share_the_bytes() {
    let device = RamDevice::new(1 << 16, SIZE);
    std::thread::scope(|scope| {
        for part in 0..2u64 {
            let device = &device;
            scope.spawn(move || {
                for block in (part..1 << 12).step_by(2) {
                    let (_, result) = run(device, write(block, part as u8 + 1, 1));
                    assert_eq!(result, Ok(()));
                }
            });
        }
    });
    let mut all = vec![0; 512 << 12];
    device.read_at(0, &mut all).expect("all of it");
    for (block, bytes) in all.chunks(512).enumerate() {
        assert!(bytes.iter().all(|b| *b == (block % 2) as u8 + 1), "block {block}");
    }
    assert!(device.read_at(512 << 16, &mut [0]).is_err());
    assert!(device.write_at(u64::MAX, &[0, 0]).is_err());
}
