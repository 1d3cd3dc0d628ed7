//! Tests that the hot paths do not allocate after warm-up: a normal read, a read-modify-write, a full-stripe write, and
//! reads and small writes of a degraded stripe.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use strake_block::{BufMut, CompletionBatch, Durability, Io, IoQueue, Op, Sg, SgMut, Token};
use strake_dev_mem::{MemSpec, RamDevice};
use strake_engine::{Array, CreateSpec, Drive, Ids, Options, create, plan_create};
use strake_raid::Level;
use strake_reactor::Poller;
use strake_units::{BlockSize, CoreIndex, Lba, MemberIndex, Nanos, Uuid};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged; counting does not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promises are the system allocator's conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Bench {
    array: Array,
    pollers: Vec<Box<dyn Poller>>,
    queue: Box<dyn IoQueue>,
    batch: CompletionBatch,
    ops: Vec<Option<Op>>,
    now: Nanos,
}

fn bench(cores: u16) -> Bench {
    let drive = |number: usize| {
        let ram = RamDevice::with_spec(MemSpec::new((32 << 20) >> 9, BlockSize::B512));
        ram.preallocate();
        Drive { device: Arc::new(ram), path: format!("ram{number}") }
    };
    let drives: Vec<Drive> = (0..8).map(drive).collect();
    let name = "tank".parse().expect("a name");
    let spec = CreateSpec {
        name,
        level: Level::Raid6,
        group_size: None,
        strip_bytes: 16 << 10,
        block_size: None,
        consistency: strake_engine::Consistency::Safe,
    };
    let plan = plan_create(&spec, &drives).expect("sound");
    let members = (0..8).map(|i| Uuid([100 + i; 16])).collect();
    let ids = Ids { array: Uuid([1; 16]), epoch: Uuid([2; 16]), members };
    let assembled =
        create(&plan, drives, &ids, false, &mut || Some(Nanos(0))).expect("drives work");
    let (array, pollers) = Array::start_here(assembled, cores, Options::default()).expect("opens");
    let queue = array.device().open_queue(CoreIndex(0), 64).expect("opens");
    Bench { array, pollers, queue, batch: CompletionBatch::new(64), ops: Vec::new(), now: Nanos(0) }
}

impl Bench {
    /// Submits every operation and waits until all have completed, in place.
    fn once(&mut self) {
        for (at, place) in self.ops.iter_mut().enumerate() {
            let op = place.take().expect("it came back");
            assert!(self.queue.submit(Io { token: Token(at as u64), op }).is_ok(), "there is room");
        }
        self.queue.ring_doorbell(self.now);
        let mut left = self.ops.len();
        while left > 0 {
            self.now = self.now.plus(Nanos(100));
            for poller in &mut self.pollers {
                poller.turn(self.now);
            }
            self.queue.poll(self.now, &mut self.batch);
            for done in self.batch.drain() {
                assert_eq!(done.result, Ok(()));
                self.ops[done.token.0 as usize] = Some(done.op);
                left -= 1;
            }
        }
    }
}

impl Bench {
    /// Puts a member out of use.
    fn fail(&mut self, member: u8) {
        let mut pending = self.array.begin_fail(MemberIndex(member)).expect("a member");
        while pending.poll().is_none() {
            self.now = self.now.plus(Nanos(100));
            for poller in &mut self.pollers {
                poller.turn(self.now);
            }
        }
    }

    /// Returns `count` blocks in different stripes whose strips are present.
    fn present(&self, count: usize) -> impl Iterator<Item = u64> + use<> {
        let status = self.array.status();
        let geometry = status.geometry;
        let is_present = move |at: &u64| {
            let place = geometry.place(Lba(*at));
            let position = geometry.position_of_strip(place.stripe, place.strip);
            let member = geometry.member(place.stripe, position);
            status.members[member.at()].state == strake_raid::MemberState::InSync
        };
        (0..).map(|nth| nth * 224).filter(is_present).take(count)
    }

    /// Executes `ops` until all reusable memory is allocated, and then counts.
    fn count(&mut self, what: &str, ops: Vec<Op>) {
        self.ops = ops.into_iter().map(Some).collect();
        (0..100).for_each(|_| self.once());
        let before = ALLOCATIONS.load(Relaxed);
        (0..200).for_each(|_| self.once());
        let count = ALLOCATIONS.load(Relaxed) - before;
        assert_eq!(count, 0, "{what} allocated {count} times in 200 rounds");
    }
}

fn read(at: u64, blocks: u64) -> Op {
    Op::Read { at: Lba(at), data: SgMut::from(BufMut::alone((blocks << 9) as usize)) }
}

fn write(at: u64, blocks: u64) -> Op {
    let data = Sg::from(BufMut::alone((blocks << 9) as usize).freeze());
    Op::Write { at: Lba(at), data, durability: Durability::Normal }
}

/// There is only one test, because the counter is global for the process.
#[test]
fn hot_paths_allocate_nothing() {
    for cores in [1, 2] {
        let mut bench = bench(cores);
        bench.count("clean reads", (0..48).map(|i| read(i * 40, 8)).collect());
        bench.count("small writes", (0..48).map(|i| write(i * 400, 8)).collect());
        bench.count("full stripes", (0..16).map(|i| write(i * 192, 192)).collect());
        bench.count("large reads", (0..8).map(|i| read(i * 500, 2000)).collect());
        bench.fail(3);
        bench.count("small degraded reads", (0..48).map(|i| read(i * 40, 8)).collect());
        bench.count("large degraded reads", (0..8).map(|i| read(i * 500, 2000)).collect());
        bench.count("small degraded writes", bench.present(48).map(|at| write(at, 8)).collect());
    }
}
