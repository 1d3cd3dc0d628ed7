//! What a read of 4 KiB costs in the driver, in instructions, against the model of a controller.
//!
//! Runs so many rounds of 128 reads. Callgrind counts the three functions of the queue, with all that they call, and
//! nothing of the model:
//!
//! ```text
//! valgrind --tool=callgrind --toggle-collect='*NvmeQueue as strake_block::device::IoQueue>::*' instructions 120
//! ```
//! Two runs, with few and with many rounds, give the instructions of a request by their difference.

use std::hint::black_box;
use std::io;
use std::sync::{Arc, Mutex};
use strake_block::{
    BlockDevice, BufMut, BufPool, Completion, CompletionBatch, IoQueue, Op, SgMut, Token,
};
use strake_dev_nvme::transport::memory::{Endpoint, MemoryFunction, MemorySpace, Peer};
use strake_dev_nvme::{NvmeDevice, Window};
use strake_nvme_model::{Bus, Controller, Pace, Spec, Unmapped};
use strake_units::{CoreIndex, Lba, Nanos};

/// Requests of a round, which is one turn of a core.
const DEPTH: usize = 128;
const BLOCKS: u64 = 1024;

struct Host(Peer);

impl Bus for Host {
    fn register(&self, offset: usize) -> u32 {
        self.0.registers().read(offset)
    }

    fn set_register(&self, offset: usize, value: u32) {
        self.0.registers().write(offset, value);
    }

    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Unmapped> {
        if self.0.space().read(address, out) { Ok(()) } else { Err(Unmapped) }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        if self.0.space().write(address, bytes) { Ok(()) } else { Err(Unmapped) }
    }

    fn interrupt(&self, _vector: u16) {}
}

struct Drive {
    controller: Mutex<Controller>,
    host: Host,
}

impl Drive {
    fn step(&self, now: Nanos) {
        self.controller.lock().expect("one thread").step(&self.host, now);
    }
}

impl Endpoint for Drive {
    fn reset(&self) -> io::Result<()> {
        let reset = self.controller.lock().expect("one thread").function_reset(&self.host);
        reset.map_err(|status| io::Error::other(status.to_string()))
    }

    fn is_present(&self) -> bool {
        true
    }
}

#[inline(never)]
fn driver_submit(queue: &mut dyn IoQueue, reads: &mut Vec<(Token, Lba, SgMut)>) {
    for (token, at, data) in reads.drain(..) {
        queue.submit_read(token, at, data).expect("there is room");
    }
}

#[inline(never)]
fn driver_ring(queue: &mut dyn IoQueue, now: Nanos) {
    queue.ring_doorbell(now);
}

#[inline(never)]
fn driver_poll(queue: &mut dyn IoQueue, now: Nanos, batch: &mut CompletionBatch) {
    queue.poll(now, batch);
}

fn buffers_of(completion: Completion) -> Option<BufMut> {
    completion.result.expect("the model works");
    match completion.op {
        Op::Read { data, .. } => data.into_single(),
        Op::Write { .. } | Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => None,
    }
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1000);
    let space = Arc::new(MemorySpace::default());
    let window = Window::new(space.clone());
    let mut made = None;
    let function = MemoryFunction::new(&space, 32 << 10, |peer| {
        let mut controller = Controller::new(Spec::new(BLOCKS), Pace::Prompt);
        let host = Host(peer);
        controller.connect(&host);
        let drive = Arc::new(Drive { controller: Mutex::new(controller), host });
        made = Some(Arc::clone(&drive));
        drive
    });
    let drive = made.expect("the function makes the drive");
    let function = Box::new(function.expect("there is memory"));
    let (device, mut keeper) =
        NvmeDevice::attach("model", function, &window).expect("it can be used");
    let mut pool = BufPool::new(DEPTH, 4096);
    window.map_arena(pool.arena()).expect("there is room");
    let mut now = Nanos::SECOND;
    let mut turn = |keeper: &mut strake_dev_nvme::Keeper| {
        now = now.plus(Nanos::MICRO);
        drive.step(now);
        keeper.turn(now);
        now
    };
    while device.facts().is_none() {
        turn(&mut keeper);
    }
    let mut queue = device.open_queue(CoreIndex(0), DEPTH as u32).expect("there is a queue");
    let (mut batch, mut reads) = (CompletionBatch::new(DEPTH), Vec::with_capacity(DEPTH));
    let mut done = 0;
    for round in 0..rounds {
        for at in 0..DEPTH as u64 {
            let data = SgMut::from(pool.get(4096).expect("all came back"));
            reads.push((Token(at), Lba((round * 7 + at * 3) % BLOCKS), data));
        }
        driver_submit(black_box(&mut *queue), &mut reads);
        let mut left = DEPTH;
        while left > 0 {
            driver_ring(black_box(&mut *queue), now);
            now = now.plus(Nanos::MICRO);
            drive.step(now);
            if round == 0 {
                keeper.turn(now);
            }
            driver_poll(black_box(&mut *queue), now, &mut batch);
            left -= batch.len();
            done += batch.len();
            batch.drain().filter_map(buffers_of).for_each(|buf| pool.put(buf));
        }
    }
    println!("{done} reads, {:?}", device.stats());
}
