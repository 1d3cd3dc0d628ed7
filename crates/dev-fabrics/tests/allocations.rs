//! After the connect of a queue, I/O does not allocate, neither here nor in Strake's own target: the test counts
//! allocations on the threads of both data paths.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use strake_block::{
    BlockDevice, BufMut, CompletionBatch, Durability, Io, IoQueue, Op, Sg, SgMut, Token,
};
use strake_dev_fabrics::{Digests, FabricsDevice, HostName, Options, Use};
use strake_dev_mem::RamDevice;
use strake_export_nvmet::{Export, Target, TargetConfig};
use strake_reactor::{CoreConfig, CoreThread, monotonic};
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange};

/// The system allocator with a counter for threads that enable it. Relaxed order is enough: the test reads the counter
/// when all its requests have completed.
struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: every call is passed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(u64::from(COUNTS.get()), Ordering::Relaxed);
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

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host";
const SUBSYSTEM: &str = "nqn.2014-08.org.nvmexpress:uuid:ram";
const BLOCK: usize = 4096;
/// Blocks of the requests of a round: data in a capsule, in one buffer of the target, and in several.
const SIZES: [usize; 5] = [1, 2, 4, 32, 256];

/// Every kind of request, with separate memory.
fn ops() -> Vec<Option<Op>> {
    let buf = |blocks: usize| BufMut::alone(blocks * BLOCK);
    let read = |blocks| Op::Read { at: Lba(0), data: SgMut::from(buf(blocks)) };
    let write = |blocks| {
        let (data, durability) = (Sg::from(buf(blocks).freeze()), Durability::Fua);
        Op::Write { at: Lba(300), data, durability }
    };
    let range = LbaRange::new(Lba(600), 64);
    let effects = [
        Op::Flush,
        Op::WriteZeroes { range, durability: Durability::Normal },
        Op::Deallocate { range },
    ];
    SIZES.into_iter().map(read).chain(SIZES.map(write)).chain(effects).map(Some).collect()
}

/// Submits all operations, and waits until all have completed.
fn round(queue: &mut dyn IoQueue, ops: &mut [Option<Op>], batch: &mut CompletionBatch) {
    for (token, place) in ops.iter_mut().enumerate() {
        let op = place.take().expect("it came back");
        assert!(queue.submit(Io { token: Token(token as u64), op }).is_ok(), "there is room");
    }
    let mut left = ops.len();
    while left > 0 {
        let now = monotonic();
        queue.ring_doorbell(now);
        queue.poll(now, batch);
        for done in batch.drain() {
            done.result.expect("a healthy drive does it all");
            ops[done.token.0 as usize] = Some(done.op);
            left -= 1;
        }
    }
}

#[test]
fn io_allocates_nothing_on_either_side() {
    let core = CoreThread::start(CoreConfig::new(CoreIndex(0))).expect("a core starts");
    let listen = "127.0.0.1:0".parse().expect("an address");
    let target = Target::start(listen, vec![core.handle()], TargetConfig::default());
    let target = target.expect("the target starts");
    let ram = RamDevice::new(1024, BlockSize::B4096);
    ram.preallocate();
    let export = Export {
        nqn: SUBSYSTEM.to_owned(),
        namespace: 1,
        uuid: [7; 16],
        device: Some(Arc::new(ram)),
        read_only: false,
        ledger: None,
        hosts: vec![HOST.to_owned()],
        secure: false,
        limits: None,
    };
    target.add_export(&export).expect("a fresh name can be exported");
    let address = format!("nvme-tcp://{}/{SUBSYSTEM}", target.address());
    let address = address.parse().expect("an address");
    let host = HostName { nqn: HOST.to_owned(), id: [3; 16], keys: None, tls: None };
    for digest in [Use::Off, Use::On] {
        let digests = Digests { header: digest, data: digest };
        let device =
            FabricsDevice::connect(&address, &host, Options { digests, ..Options::default() });
        let device = device.expect("the target takes us");
        let mut queue = device.open_queue(CoreIndex(0), 32).expect("a queue");
        let (mut ops, mut batch) = (ops(), CompletionBatch::new(32));
        round(&mut *queue, &mut ops, &mut batch);
        let count = |counts| {
            core.handle().call(move |_| COUNTS.set(counts)).expect("the core runs");
            COUNTS.set(counts);
        };
        count(true);
        let before = COUNT.load(Ordering::Relaxed);
        drop(std::hint::black_box(Box::new(0_u8)));
        (0..100).for_each(|_| round(&mut *queue, &mut ops, &mut batch));
        let allocations = COUNT.load(Ordering::Relaxed) - before;
        count(false);
        assert_eq!(allocations, 1, "that of the test in 100 rounds, with digests {digest:?}");
    }
}
