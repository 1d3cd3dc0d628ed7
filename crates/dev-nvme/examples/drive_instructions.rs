//! Requests of 4 KiB through the driver, against the model of a controller, for `cargo xtask instructions` to count.
//!
//! `drive_instructions CASE REQUESTS`: CASE is `drive-read` or `drive-write`; the requests are done in rounds of 128.
//! The gate counts the calls of the queue with all that they call, and nothing of the model. Time is a number that goes
//! up by a microsecond per round, so every run executes the same.

use std::hint::black_box;
use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use strake_block::{
    BlockDevice, BufPool, Completion, CompletionBatch, Durability, IoQueue, Op, Sg, SgMut, Token,
};
use strake_dev_nvme::transport::memory::{Endpoint, MemoryFunction, MemorySpace, Peer};
use strake_dev_nvme::{NvmeDevice, Stats, Window};
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

/// The data of a request.
enum Data {
    Into(SgMut),
    From(Sg),
}

/// Submits a round.
fn submit(queue: &mut dyn IoQueue, requests: &mut Vec<(Lba, Data)>) {
    for (at, data) in requests.drain(..) {
        let token = Token(at.0);
        let sent = match data {
            Data::Into(data) => queue.submit_read(token, at, data),
            Data::From(data) => queue.submit_write(token, at, data, Durability::Normal),
        };
        sent.expect("there is room");
    }
}

fn data_of(completion: Completion) -> Data {
    completion.result.expect("the model works");
    match completion.op {
        Op::Read { data, .. } => Data::Into(data),
        Op::Write { data, .. } => Data::From(data),
        op @ (Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. }) => {
            unreachable!("{op:?} was not submitted")
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [case, requests] = arguments.as_slice() else { return refuse() };
    match (case.as_str(), requests.parse::<usize>()) {
        ("drive-read", Ok(requests)) => run(false, requests.div_ceil(DEPTH)),
        ("drive-write", Ok(requests)) => run(true, requests.div_ceil(DEPTH)),
        _ => return refuse(),
    }
    ExitCode::SUCCESS
}

fn refuse() -> ExitCode {
    eprintln!("drive_instructions drive-read|drive-write REQUESTS");
    ExitCode::FAILURE
}

fn run(writes: bool, rounds: usize) {
    let space = Arc::new(MemorySpace::default());
    let window = Window::new(Arc::<MemorySpace>::clone(&space));
    let mut made = None;
    let function = MemoryFunction::new(&space, 32 << 10, |peer| {
        // Without a cache, the model allocates nothing for a write.
        let spec = Spec { write_cache: false, ..Spec::new(BLOCKS) };
        let mut controller = Controller::new(spec, Pace::Prompt);
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
    while device.facts().is_none() {
        now = now.plus(Nanos::MICRO);
        drive.step(now);
        keeper.turn(now);
    }
    let mut queue = device.open_queue(CoreIndex(0), DEPTH as u32).expect("there is a queue");
    let (mut batch, mut requests) = (CompletionBatch::new(DEPTH), Vec::with_capacity(DEPTH));
    let mut idle: Vec<Data> = Vec::with_capacity(DEPTH);
    for _ in 0..DEPTH {
        let buf = pool.get(4096).expect("as many as there are");
        idle.push(if writes { Data::From(buf.freeze().into()) } else { Data::Into(buf.into()) });
    }
    for round in 0..rounds {
        let place = |at: usize| Lba((round * 7 + at * 3) as u64 % BLOCKS);
        requests.extend(idle.drain(..).enumerate().map(|(at, data)| (place(at), data)));
        submit(black_box(&mut *queue), &mut requests);
        while idle.len() < DEPTH {
            black_box(&mut *queue).ring_doorbell(now);
            now = now.plus(Nanos::MICRO);
            drive.step(now);
            if round == 0 {
                // It creates the queue pair.
                keeper.turn(now);
            }
            black_box(&mut *queue).poll(now, &mut batch);
            idle.extend(batch.drain().map(data_of));
        }
    }
    assert_eq!(device.stats(), Stats::default(), "requests went an unusual way");
}
