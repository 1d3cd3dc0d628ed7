//! Invalid requests, files that become shorter, and queues that are dropped with requests in flight.

use super::*;
use crate::{control_wait, control_wait_for};
use strake_block::blocking::Blocking;
use strake_block::{DeviceError, IoError};

#[test]
fn impossible_requests_complete_with_the_reason() {
    let file = Scratch::file(1 << 20);
    let device = open(&file.0);
    let mut queue = queue(&device, 2);
    let block = device.info().block_size.bytes() as usize;
    let last = device.info().blocks - 1;
    let mut check = |op: Op, want: Result<(), IoErrorKind>| {
        let text = format!("{op:?}");
        assert_eq!(run(&mut *queue, op).1, want, "{text}");
    };
    let zeroes = |start, blocks| Op::WriteZeroes {
        range: LbaRange::new(Lba(start), blocks),
        durability: Durability::Normal,
    };
    check(read(last, block), Ok(()));
    check(read(last, 2 * block), Err(IoErrorKind::OutOfRange));
    check(read(u64::MAX >> 12, block), Err(IoErrorKind::OutOfRange));
    check(read(0, block / 2), Err(IoErrorKind::Misaligned));
    check(read(0, (1 << 20) + block), Err(IoErrorKind::Misaligned));
    check(write(last + 1, buffer(1, block), Durability::Fua), Err(IoErrorKind::OutOfRange));
    check(zeroes(last, 2), Err(IoErrorKind::OutOfRange));
    check(zeroes(u64::MAX, u64::MAX), Err(IoErrorKind::OutOfRange));
    check(zeroes(0, 0), Ok(()));
    check(Op::Read { at: Lba(0), data: SgMut::default() }, Ok(()));
}

/// No descriptor becomes readable for a request that never reached the kernel: a core that slept on one would not wake.
#[test]
fn what_is_over_before_the_kernel_saw_it_is_polled_for() {
    let file = Scratch::file(1 << 20);
    let device = open(&file.0);
    let mut queue = queue(&device, 2);
    queue.submit(Io { token: Token(1), op: Op::Flush }).expect("there is room");
    queue.ring_doorbell(Nanos(0));
    let beyond = read(device.info().blocks, 4096);
    queue.submit(Io { token: Token(2), op: beyond }).expect("there is room");
    assert_eq!(queue.readiness(), Readiness::Poll);
    assert_eq!(finish(&mut *queue, 2).len(), 2);
}

#[test]
fn direct_io_refuses_misaligned_memory_instead_of_copying() {
    let file = Scratch::file(1 << 20);
    let device = open(&file.0);
    let Some(align) = device.shared().direct else {
        skipped("direct I/O of misaligned memory", "the temporary folder has no direct I/O");
        return;
    };
    let mut queue = queue(&device, 1);
    let mut buf = BufMut::alone(8192 + 1);
    let _ = buf.split_to(1);
    let shifted = Op::Read { at: Lba(0), data: SgMut::from(buf) };
    let want = if align.memory > 1 { Err(IoErrorKind::Misaligned) } else { Ok(()) };
    assert_eq!(run(&mut *queue, shifted).1, want);
    let mut tail = BufMut::alone(8192);
    let mut list = SgMut::from(tail.split_to(100));
    list.push(tail).expect("two pieces fit");
    let cut = Op::Read { at: Lba(0), data: list };
    assert_eq!(run(&mut *queue, cut).1, Err(IoErrorKind::Misaligned));
}

#[test]
fn reads_beyond_the_end_of_a_file_that_shrank_say_gone() {
    let file = Scratch::file(1 << 20);
    let device = open(&file.0);
    let mut queue = queue(&device, 2);
    let block = u64::from(device.info().block_size.bytes());
    let half = (512 << 10) / block;
    let truncated = std::fs::OpenOptions::new().write(true).open(&file.0).expect("still there");
    truncated.set_len(512 << 10).expect("files shrink");
    assert_eq!(device.info().bytes(), 512 << 10);
    assert_eq!(run(&mut *queue, read(half, 4096)).1, Err(IoErrorKind::Gone));
    let straddling = read(half - 4096 / block, 8192);
    assert_eq!(run(&mut *queue, straddling).1, Err(IoErrorKind::Gone));
    assert_eq!(run(&mut *queue, read(0, 4096)).1, Ok(()));
    truncated.set_len(0).expect("files shrink to nothing");
    let error = device.open_queue(CoreIndex(0), 1).map(drop).expect_err("nothing is left");
    assert_eq!(error.kind, IoErrorKind::Gone);
}

/// A file that became shorter while its array was active was extended again by the next write beyond its new end, with
/// zeroes where data had been; the array returned the zeroes as data.
#[test]
fn a_file_that_shrank_takes_no_writes() {
    let file = Scratch::file(1 << 20);
    let device = open(&file.0);
    let mut queue = queue(&device, 2);
    let block = u64::from(device.info().block_size.bytes());
    let truncated = std::fs::OpenOptions::new().write(true).open(&file.0).expect("still there");
    truncated.set_len(64 << 10).expect("files shrink");
    let beyond = (512 << 10) / block;
    let op =
        || Op::Write { at: Lba(beyond), data: buffer(1, 4096), durability: Durability::Normal };
    assert_eq!(run(&mut *queue, op()).1, Err(IoErrorKind::Gone));
    let zeroes = LbaRange::new(Lba(beyond), 8);
    let op = Op::WriteZeroes { range: zeroes, durability: Durability::Normal };
    assert_eq!(run(&mut *queue, op).1, Err(IoErrorKind::Gone));
    assert_eq!(device.info().bytes(), 64 << 10, "the file did not grow again");
}

#[test]
fn a_queue_dropped_in_mid_air_lets_go_of_everything() {
    let file = Scratch::file(8 << 20);
    let device = open(&file.0);
    for round in 0..20u64 {
        let mut queue = queue(&device, 64);
        let buf = BufMut::alone(64 << 10);
        let arena = std::sync::Arc::downgrade(buf.arena());
        let data = Sg::from(buf.freeze());
        for token in 0..64 {
            let op = match token % 3 {
                0 => write(token, data.clone(), Durability::Fua),
                1 => read(token, 64 << 10),
                _ => Op::Flush,
            };
            queue.submit(Io { token: Token(token), op }).expect("room for 64");
            if token == round * 3 {
                queue.ring_doorbell(Nanos(0));
            }
        }
        drop(data);
        drop(queue);
        // The reaper waits for outstanding requests.
        let key = device.shared().key;
        assert_eq!(crate::reaper::wait_for(key, std::time::Duration::from_secs(60)), Ok(()));
        assert!(arena.upgrade().is_none(), "the buffers outlived what the kernel owed");
    }
    agrees_with_a_model(&device, 20, 1);
}

#[test]
fn the_control_plane_reads_what_it_wrote() {
    let file = Scratch::file(1 << 20);
    let device = open(&file.0);
    let mut wait = control_wait();
    let queue = queue(&device, 1);
    let mut blocking = Blocking::new(queue, &mut wait);
    let mut through = || -> Result<Vec<u8>, IoError> {
        blocking.write_stable(Lba(1), buffer(3, 4096))?;
        blocking.flush()?;
        blocking.write_zeroes(LbaRange::new(Lba(2), 1))?;
        Ok(blocking.read(Lba(0), BufMut::alone(8192))?.as_slice().to_vec())
    };
    let bytes = through().expect("control I/O works");
    let block = device.info().block_size.bytes() as usize;
    assert!(bytes[..block].iter().all(|b| *b == 0));
    assert!(bytes[block..2 * block].iter().all(|b| *b == 3));
    assert!(bytes[2 * block..3 * block].iter().all(|b| *b == 0));
}

#[test]
fn waiting_ends_at_its_limit_and_time_moves_forward() {
    let mut over = control_wait_for(Nanos(0));
    // The clock may not have advanced at the first calls; it has after many of them.
    assert!((0..1_000_000).any(|_| over().is_none()));
    let mut wait = control_wait();
    let first = wait().expect("it has no end");
    assert!(wait().expect("none at all") >= first);
}

#[test]
fn absurd_depths_are_refused_with_the_limit() {
    let file = Scratch::file(1 << 20);
    let device = open(&file.0);
    let check = |depth: u32| -> Result<(), DeviceError> {
        device.open_queue(CoreIndex(0), depth).map(drop)
    };
    assert!(check(0).is_ok());
    let error = check(u32::MAX).expect_err("too deep").to_string();
    assert!(error.contains("16384"), "{error}");
}
