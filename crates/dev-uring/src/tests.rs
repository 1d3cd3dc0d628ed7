//! Tests with real files in the temporary folder: reads return written data, and unsupported requests return a reason.
//!
//! No test sleeps: loops end with the completions they wait for, or at a count that no working kernel reaches.

mod block;
mod faults;
mod hang;
mod opening;

use crate::{OpenOptions, UringDevice, create_sparse};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use strake_block::{
    BlockDevice, BufMut, Completion, CompletionBatch, Durability, Io, IoErrorKind, IoQueue, Op,
    Readiness, Sg, SgMut, Token,
};
use strake_units::{CoreIndex, Lba, LbaRange, Nanos};

/// Turns of a busy loop after which an I/O counts as lost.
const TURNS_MAX: u64 = 2_000_000_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Reports a skipped check with its reason. The text is written directly to the standard error, because the test
/// harness hides the output of a passing test.
fn skipped(what: &str, why: impl std::fmt::Display) {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "skipped: {what}: {why}").expect("there is an output");
}

/// A unique path that is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn path() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("strake-dev-uring-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn file(bytes: u64) -> Self {
        let scratch = Self::path();
        create_sparse(&scratch.0, bytes).expect("the temporary folder takes files");
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn open(path: &Path) -> UringDevice {
    UringDevice::open(path, OpenOptions::default()).expect("the file opens").0
}

fn queue(device: &UringDevice, depth: u32) -> Box<dyn IoQueue> {
    device.open_queue(CoreIndex(0), depth).expect("the kernel has io_uring")
}

/// Rings and polls until `count` requests have completed.
fn finish(queue: &mut dyn IoQueue, count: usize) -> Vec<Completion> {
    let mut batch = CompletionBatch::new(count.max(1));
    for _ in 0..TURNS_MAX {
        queue.ring_doorbell(Nanos(0));
        queue.poll(Nanos(0), &mut batch);
        if batch.len() == count {
            return batch.drain().collect();
        }
    }
    panic!("{} of {count} requests came back", batch.len());
}

fn run(queue: &mut dyn IoQueue, op: Op) -> (Op, Result<(), IoErrorKind>) {
    queue.submit(Io { token: Token(42), op }).expect("an idle queue has room");
    assert_ne!(queue.readiness(), Readiness::Idle);
    let done = finish(queue, 1).pop().expect("one completion");
    assert_eq!((done.token, queue.readiness()), (Token(42), Readiness::Idle));
    (done.op, done.result.map_err(|error| error.kind))
}

fn buffer(byte: u8, bytes: usize) -> Sg {
    let mut buf = BufMut::alone(bytes);
    buf.as_mut_slice().fill(byte);
    buf.freeze().into()
}

fn write(at: u64, data: Sg, durability: Durability) -> Op {
    Op::Write { at: Lba(at), data, durability }
}

fn read(at: u64, bytes: usize) -> Op {
    Op::Read { at: Lba(at), data: SgMut::from(BufMut::alone(bytes)) }
}

fn bytes_of(op: Op) -> Vec<u8> {
    match op {
        Op::Read { data, .. } => {
            data.parts().iter().flat_map(|part| part.as_slice()).copied().collect()
        }
        other => panic!("a read came back as {other:?}"),
    }
}

/// A simple generator (Knuth's MMIX constants): enough to shuffle tests repeatably.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Compares random operations, one at a time, with a vector. The device needs at least 256 blocks.
fn agrees_with_a_model(device: &UringDevice, steps: u32, seed: u64) {
    const BLOCKS: u64 = 256;
    let block = device.info().block_size.bytes() as usize;
    let mut queue = queue(device, 4);
    let whole = LbaRange::new(Lba(0), BLOCKS);
    let zero = Op::WriteZeroes { range: whole, durability: Durability::Normal };
    assert_eq!(run(&mut *queue, zero).1, Ok(()));
    let mut model = vec![0u8; BLOCKS as usize * block];
    let mut random = Random(seed);
    for step in 0..steps {
        let blocks = 1 + random.below(64);
        let at = random.below(BLOCKS - blocks + 1);
        let range = LbaRange::new(Lba(at), blocks);
        let bytes = at as usize * block..(at + blocks) as usize * block;
        let byte = 1 + (step % 255) as u8;
        let durability = if random.below(2) == 0 { Durability::Normal } else { Durability::Fua };
        let (op, value) = match random.below(5) {
            0 => (Op::Flush, None),
            1 => (Op::WriteZeroes { range, durability }, Some(0)),
            2 => (write(at, in_pieces(byte, blocks as usize, block), durability), Some(byte)),
            3 => (write(at, buffer(byte, bytes.len()), durability), Some(byte)),
            _ => {
                let (op, result) = run(&mut *queue, read(at, bytes.len()));
                assert_eq!(result, Ok(()));
                assert!(bytes_of(op) == model[bytes], "step {step} of seed {seed}");
                continue;
            }
        };
        assert_eq!(run(&mut *queue, op).1, Ok(()), "step {step} of seed {seed}");
        if let Some(value) = value {
            model[bytes].fill(value);
        }
    }
    let (op, _) = run(&mut *queue, read(0, model.len()));
    assert!(bytes_of(op) == model, "seed {seed}");
}

/// `blocks` blocks of `byte`, in up to four pieces.
fn in_pieces(byte: u8, blocks: usize, block: usize) -> Sg {
    let mut list = Sg::default();
    let mut left = blocks;
    for piece in 0..4 {
        let take = if piece == 3 { left } else { left / 2 };
        if take > 0 {
            let part = buffer(byte, take * block).into_parts().next().expect("one part");
            list.push(part).expect("four pieces fit");
        }
        left -= take;
    }
    list
}
