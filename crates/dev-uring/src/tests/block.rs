//! Data through files, and through a loop device if the host supports one.

use super::*;
use crate::{Direct, NoticeKind};
use std::process::Command;
use strake_block::{Arena, DeallocateReads, DeviceKind, VolatileCache};
use strake_units::BlockSize;

#[test]
fn files_agree_with_a_model() {
    for block_size in [BlockSize::B512, BlockSize::B4096] {
        for direct in [Direct::Auto, Direct::No] {
            let file = Scratch::file(1 << 20);
            let options =
                OpenOptions { direct, block_size: Some(block_size), ..Default::default() };
            match UringDevice::open(&file.0, options) {
                Ok((device, _)) => agrees_with_a_model(&device, 300, 7),
                Err(error) => skipped("I/O of files against a model", error),
            }
        }
    }
}

#[test]
fn registered_buffers_agree_with_a_model_too() {
    let file = Scratch::file(1 << 20);
    let chunks = Arena::carve(4, 64 << 10);
    let arena = chunks[0].arena().clone();
    let (device, notices) = open(&file.0).with_arenas(vec![arena]);
    assert!(notices.is_empty(), "{notices:?}");
    let mut queue = queue(&device, 4);
    for (i, mut chunk) in chunks.into_iter().enumerate() {
        let at = i as u64 * 16;
        chunk.as_mut_slice()[..8192].fill(i as u8 + 1);
        let head = chunk.split_to(8192);
        let data = Sg::from(head.freeze());
        assert_eq!(run(&mut *queue, write(at, data, Durability::Fua)).1, Ok(()));
        chunk.truncate(8192);
        let op = Op::Read { at: Lba(at), data: SgMut::from(chunk) };
        let (op, result) = run(&mut *queue, op);
        assert_eq!(result, Ok(()));
        assert!(bytes_of(op).iter().all(|b| *b == i as u8 + 1));
    }
    agrees_with_a_model(&device, 100, 3);
}

#[test]
fn deallocated_space_reads_zero_and_goes_back_to_the_file_system() {
    use std::os::unix::fs::MetadataExt;
    let file = Scratch::file(4 << 20);
    let device = open(&file.0);
    if device.info().deallocate != DeallocateReads::Zeroes {
        skipped("TRIM of files", "the temporary folder's file system cannot punch holes");
        return;
    }
    let mut queue = queue(&device, 1);
    let size = device.info().block_size;
    assert_eq!(run(&mut *queue, write(0, buffer(9, 1 << 20), Durability::Fua)).1, Ok(()));
    let used = || std::fs::metadata(&file.0).expect("the file is there").blocks();
    let before = used();
    let range = LbaRange::new(Lba(0), (1 << 20) >> size.shift());
    assert_eq!(run(&mut *queue, Op::Deallocate { range }).1, Ok(()));
    assert!(used() < before, "{} then {before} sectors", used());
    let (op, result) = run(&mut *queue, read(0, 1 << 20));
    assert_eq!(result, Ok(()));
    assert!(bytes_of(op).iter().all(|b| *b == 0));
}

#[test]
fn a_deep_queue_returns_every_request_once() {
    const DEPTH: u64 = 128;
    let file = Scratch::file(4 << 20);
    let device = open(&file.0);
    let mut queue = queue(&device, DEPTH as u32);
    let per = 4096 / u64::from(device.info().block_size.bytes());
    for round in 0..4u8 {
        for token in 0..DEPTH {
            let op = write(token * per, buffer(token as u8 ^ round, 4096), Durability::Normal);
            queue.submit(Io { token: Token(token), op }).expect("room for the depth asked for");
        }
        let extra = Io { token: Token(999), op: Op::Flush };
        assert!(queue.submit(extra).is_err(), "a full queue pushes back");
        let mut seen: Vec<u64> = finish(&mut *queue, DEPTH as usize)
            .into_iter()
            .map(|done| done.result.map(|()| done.token.0).expect("the write worked"))
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..DEPTH).collect::<Vec<_>>());
        for token in 0..DEPTH {
            let (op, _) = run(&mut *queue, read(token * per, 4096));
            assert!(bytes_of(op).iter().all(|b| *b == token as u8 ^ round));
        }
    }
}

#[test]
fn a_small_batch_takes_completions_in_portions() {
    let file = Scratch::file(1 << 20);
    let device = open(&file.0);
    let mut queue = queue(&device, 8);
    for token in 0..8 {
        queue.submit(Io { token: Token(token), op: read(0, 4096) }).expect("room for eight");
    }
    let seen: Vec<_> =
        (0..8).flat_map(|_| finish(&mut *queue, 1)).map(|done| done.token.0).collect();
    let mut sorted = seen.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..8).collect::<Vec<_>>());
    assert_eq!(queue.readiness(), Readiness::Idle);
}

#[test]
fn a_file_says_what_it_is() {
    let file = Scratch::file((1 << 20) + 100);
    let (device, notices) =
        UringDevice::open(&file.0, OpenOptions::default()).expect("the file opens");
    let info = device.info();
    assert_eq!(info.bytes(), 1 << 20);
    assert_eq!(info.cache, VolatileCache::Present);
    assert!(info.identity.starts_with("file:"), "{}", info.identity);
    assert_eq!(device.kind(), DeviceKind::File);
    assert!(notices.iter().any(|notice| notice.kind == NoticeKind::TailUnused), "{notices:?}");
}

/// Rings with deferred task running passed every other test, but a sleeping core missed their completions: the wake-up
/// was lost, and each sleep lasted until its timeout.
#[test]
fn a_core_can_sleep_on_the_queue() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::os::fd::BorrowedFd;
    let file = Scratch::file(1 << 20);
    let device = open(&file.0);
    let mut queue = queue(&device, 1);
    let mut batch = CompletionBatch::new(1);
    let range = LbaRange::new(Lba(0), 1);
    for round in 0..60u8 {
        let op = match round % 4 {
            0 => write(0, buffer(round, 8192), Durability::Fua),
            1 => Op::Flush,
            // This request takes a second step in the kernel, without a doorbell.
            2 => Op::WriteZeroes { range, durability: Durability::Fua },
            _ => read(0, 8192),
        };
        queue.submit(Io { token: Token(0), op }).expect("an idle queue has room");
        queue.ring_doorbell(Nanos(0));
        while batch.is_empty() {
            let Readiness::Fd(fd) = queue.readiness() else {
                panic!("a queue at work is {:?}", queue.readiness());
            };
            // SAFETY: the descriptor belongs to the queue, which outlives this borrow.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
            let start = crate::wait::now();
            let woken = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit));
            assert_eq!(woken, Ok(1), "the queue must wake a sleeping core");
            // At the timeout the kernel checks again and may find a completion without a wake-up.
            let slept = crate::wait::now().since(start);
            assert!(slept < Nanos::SECOND.times(10), "round {round} slept until its time-out");
            queue.poll(Nanos(0), &mut batch);
        }
        assert!(batch.drain().all(|done| done.result.is_ok()));
    }
}

/// Memory file systems do not support `FALLOC_FL_ZERO_RANGE`, so another method must zero blocks there.
#[test]
fn zeroing_finds_a_way_on_memory_file_systems() {
    let folder = Path::new("/dev/shm");
    let file = Scratch(folder.join(format!("strake-dev-uring-{}-shm", std::process::id())));
    if let Err(error) = create_sparse(&file.0, 4 << 20) {
        skipped("zeroes on a memory file system", error);
        return;
    }
    agrees_with_a_model(&open(&file.0), 200, 5);
}

/// A loop device for a file, removed when the test ends.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Result<Self, String> {
        let out = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        match out {
            Ok(out) if out.status.success() => {
                Ok(Self(String::from_utf8_lossy(&out.stdout).trim().to_owned()))
            }
            Ok(out) => Err(String::from_utf8_lossy(&out.stderr).trim().to_owned()),
            Err(error) => Err(format!("losetup: {error}")),
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// TRIM was executed on files and never on a block device, so a drive of an array filled up and stayed full.
#[test]
fn space_of_a_loop_device_goes_back_and_reads_zero() {
    use std::os::unix::fs::MetadataExt;
    let file = Scratch::file(4 << 20);
    let loop_device = match Loop::over(&file.0) {
        Ok(device) => device,
        Err(why) => {
            skipped("TRIM of a loop device", why);
            return;
        }
    };
    let device = open(Path::new(&loop_device.0));
    if device.info().deallocate != DeallocateReads::Zeroes {
        let why = "the file system of the temporary folder cannot punch holes";
        skipped("TRIM of a loop device", why);
        return;
    }
    let used = || std::fs::metadata(&file.0).expect("the file is there").blocks();
    let mut queue = queue(&device, 1);
    let size = device.info().block_size;
    assert_eq!(run(&mut *queue, write(0, buffer(9, 1 << 20), Durability::Fua)).1, Ok(()));
    let before = used();
    let range = LbaRange::new(Lba((64 << 10) >> size.shift()), (512 << 10) >> size.shift());
    assert_eq!(run(&mut *queue, Op::Deallocate { range }).1, Ok(()));
    assert!(used() <= before - (512 << 10) / 512, "{} after {before} sectors", used());
    let (op, result) = run(&mut *queue, read(0, 1 << 20));
    assert_eq!(result, Ok(()));
    let wrong = bytes_of(op).into_iter().enumerate().find(|(at, byte)| {
        let is_hole = (64 << 10..(64 + 512) << 10).contains(at);
        *byte != if is_hole { 0 } else { 9 }
    });
    assert_eq!(wrong, None, "a byte outside changed, or one inside is no zero");
}

/// A drive without a cache still needs flushes if the kernel's page cache is in front of it.
#[test]
fn a_write_through_device_has_a_cache_only_behind_the_page_cache() {
    let file = Scratch::file(1 << 20);
    let device = match Loop::over(&file.0) {
        Ok(device) => device,
        Err(why) => {
            skipped("the caches of a loop device that writes through", why);
            return;
        }
    };
    let name = device.0.rsplit('/').next().expect("a path has a name");
    let attribute = format!("/sys/block/{name}/queue/write_cache");
    if let Err(why) = std::fs::write(&attribute, "write through") {
        skipped("the caches of a loop device that writes through", why);
        return;
    }
    let found = [Direct::Auto, Direct::No].map(|direct| {
        let options = OpenOptions { direct, ..Default::default() };
        let (device, _) = UringDevice::open(Path::new(&device.0), options).expect("it opens");
        (device.shared().direct.is_some(), device.info().cache)
    });
    // The setting outlives the backing file of the device.
    std::fs::write(&attribute, "write back").expect("it was written before");
    for (direct, cache) in found {
        let want = if direct { VolatileCache::Absent } else { VolatileCache::Present };
        assert_eq!(cache, want, "direct: {direct}");
    }
    assert!(!found[1].0, "the page cache was asked for");
}

#[test]
fn a_loop_device_agrees_with_a_model_and_opens_once() {
    let file = Scratch::file(4 << 20);
    let device = match Loop::over(&file.0) {
        Ok(device) => device,
        Err(why) => {
            skipped("I/O of a loop device against a model", why);
            return;
        }
    };
    let path = Path::new(&device.0);
    let first = open(path);
    assert_eq!(first.info().bytes(), 4 << 20);
    assert_eq!(first.kind(), DeviceKind::Block);
    agrees_with_a_model(&first, 200, 11);
    let again = UringDevice::open(path, OpenOptions::default()).expect_err("it is claimed");
    assert!(again.to_string().contains("in use"), "{again}");
    drop(first);
    let wrong = OpenOptions { block_size: Some(BlockSize::B4096), ..Default::default() };
    let refused = UringDevice::open(path, wrong).expect_err("its blocks have 512 bytes");
    assert_eq!(refused.kind, IoErrorKind::Unsupported);
    open(path);
}
