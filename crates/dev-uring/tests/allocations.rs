//! After a queue is open, I/O does not allocate: the test counts allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use strake_block::{
    BlockDevice, BufPool, CompletionBatch, Durability, Io, IoQueue, Op, Sg, SgMut, Token,
};
use strake_dev_uring::{OpenOptions, UringDevice, create_sparse};
use strake_units::{CoreIndex, Lba, LbaRange, Nanos};

/// The system allocator with a counter. Relaxed order is enough: the test reads the counter on the thread that
/// allocates.
struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller fulfils the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DEPTH: u64 = 8;

fn submit(queue: &mut dyn IoQueue, token: u64, op: Op) {
    assert!(queue.submit(Io { token: Token(token), op }).is_ok(), "the queue has room");
}

fn turns(queue: &mut dyn IoQueue, pool: &mut BufPool, batch: &mut CompletionBatch, rounds: u64) {
    for round in 0..rounds {
        for token in 0..DEPTH {
            let at = Lba(token * 8);
            let buf = pool.get(4096).expect("the pool holds the depth");
            let op = match (round + token) % 4 {
                0 => Op::Read { at, data: SgMut::from(buf) },
                1 => {
                    let (data, durability) = (Sg::from(buf.freeze()), Durability::Fua);
                    Op::Write { at, data, durability }
                }
                2 => {
                    pool.put(buf);
                    Op::Flush
                }
                _ => {
                    pool.put(buf);
                    let durability = Durability::Normal;
                    Op::WriteZeroes { range: LbaRange::new(at, 8), durability }
                }
            };
            submit(queue, token, op);
        }
        let mut left = DEPTH;
        while left > 0 {
            queue.ring_doorbell(Nanos(0));
            queue.poll(Nanos(0), batch);
            for done in batch.drain() {
                left -= 1;
                done.result.expect("a healthy file does it all");
                match done.op {
                    Op::Read { data, .. } => data.into_parts().for_each(|buf| pool.put(buf)),
                    Op::Write { data, .. } => {
                        data.into_parts().for_each(|buf| pool.put_frozen(buf))
                    }
                    Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {}
                }
            }
        }
    }
}

#[test]
fn io_allocates_nothing() {
    let path = std::env::temp_dir().join(format!("strake-dev-uring-alloc-{}", std::process::id()));
    create_sparse(&path, 1 << 20).expect("the temporary folder takes files");
    let (device, _) = UringDevice::open(&path, OpenOptions::default()).expect("the file opens");
    let mut pool = BufPool::new(DEPTH as usize, 4096);
    let (device, _) = device.with_arenas(vec![pool.arena().clone()]);
    let mut queue = device.open_queue(CoreIndex(0), DEPTH as u32).expect("the kernel has io_uring");
    let mut batch = CompletionBatch::new(DEPTH as usize);
    turns(&mut *queue, &mut pool, &mut batch, 2);
    let before = COUNT.load(Ordering::Relaxed);
    turns(&mut *queue, &mut pool, &mut batch, 200);
    let allocations = COUNT.load(Ordering::Relaxed) - before;
    drop(queue);
    std::fs::remove_file(&path).expect("it is ours");
    assert_eq!(allocations, 0, "allocations in 200 turns of {DEPTH} I/Os");
}
