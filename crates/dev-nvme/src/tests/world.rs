//! A drive, its driver and a queue, which one thread steps.

use crate::keeper::{Keeper, Turn};
use crate::lifecycle::Phase;
use crate::memory::Registers;
use crate::transport::Function;
use crate::transport::memory::{Endpoint, MemoryFunction, MemorySpace, Peer};
use crate::{NvmeDevice, Window};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strake_block::{
    BlockDevice, BufMut, BufPool, Completion, CompletionBatch, DeviceError, Durability, Io,
    IoErrorKind, IoQueue, Op, Sg, SgMut, Token,
};
use strake_nvme_model::{Bus, Controller, Pace, Spec, Unmapped};
use strake_units::{CoreIndex, Lba, LbaRange, Nanos};

/// Bytes of registers.
pub(super) const BAR: usize = 32 << 10;
/// The default duration of a turn of the tests.
pub(super) const MILLI: Nanos = Nanos::MILLI;

/// The model's view of the host.
struct Host(Peer);

impl Bus for Host {
    fn register(&self, offset: usize) -> u32 {
        if offset < BAR { self.0.registers().read(offset) } else { u32::MAX }
    }

    fn set_register(&self, offset: usize, value: u32) {
        if offset < BAR {
            self.0.registers().write(offset, value);
        }
    }

    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Unmapped> {
        if self.0.space().read(address, out) { Ok(()) } else { Err(Unmapped) }
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        if self.0.space().write(address, bytes) { Ok(()) } else { Err(Unmapped) }
    }

    fn interrupt(&self, _vector: u16) {
        self.0.interrupt();
    }
}

/// A model and its side of the bus.
pub(super) struct Drive {
    controller: Mutex<Controller>,
    host: Host,
}

impl Drive {
    pub(super) fn model(&self) -> MutexGuard<'_, Controller> {
        self.controller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn step(&self, now: Nanos) {
        self.model().step(&self.host, now);
    }

    pub(super) fn fail(&self) {
        self.model().fail(&self.host);
    }

    pub(super) fn remove(&self) {
        self.model().remove(&self.host);
    }

    pub(super) fn lose_power(&self) {
        self.model().lose_power(&self.host);
    }

    pub(super) fn reset_subsystem(&self) {
        self.model().reset_subsystem(&self.host);
    }

    /// Turns memory decoding off until the next reset of the function: the registers read as ones.
    pub(super) fn stop_decoding(&self) {
        self.model().stop_decoding(&self.host);
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.host.0
    }
}

impl Endpoint for Drive {
    fn reset(&self) -> io::Result<()> {
        self.model()
            .function_reset(&self.host)
            .map_err(|status| io::Error::other(status.to_string()))
    }

    fn is_present(&self) -> bool {
        !self.model().is_removed()
    }
}

/// A drive with its driver; see the documentation of the module.
pub(super) struct World {
    pub(super) drive: Arc<Drive>,
    pub(super) device: Option<NvmeDevice>,
    pub(super) keeper: Keeper,
    pub(super) window: Arc<Window>,
    pub(super) pool: BufPool,
    pub(super) now: Nanos,
    pub(super) step: Nanos,
}

/// Returns a drive in an address space, and its function.
pub(super) fn drive(
    spec: Spec,
    pace: Pace,
    space: &Arc<MemorySpace>,
) -> (Arc<Drive>, MemoryFunction) {
    let registers = Registers::of_memory(BAR).expect("there is memory");
    drive_with(spec, pace, space, registers)
}

/// Does the same with the given registers.
pub(super) fn drive_with(
    spec: Spec,
    pace: Pace,
    space: &Arc<MemorySpace>,
    registers: Arc<Registers>,
) -> (Arc<Drive>, MemoryFunction) {
    let mut made = None;
    let function = MemoryFunction::with_registers(space, registers, |peer| {
        let mut controller = Controller::new(spec, pace);
        let host = Host(peer);
        controller.connect(&host);
        let drive = Arc::new(Drive { controller: Mutex::new(controller), host });
        made = Some(Arc::clone(&drive));
        drive
    });
    (made.expect("the function makes the drive"), function)
}

impl World {
    /// Returns a world without any turn.
    pub(super) fn new(spec: Spec, pace: Pace) -> Self {
        Self::try_new(spec, pace).expect("the controller can be used")
    }

    pub(super) fn try_new(spec: Spec, pace: Pace) -> Result<Self, DeviceError> {
        Self::with_pool(spec, pace, BufPool::new(64, 128 << 10))
    }

    /// Does the same with buffers from the given pool.
    pub(super) fn with_pool(spec: Spec, pace: Pace, pool: BufPool) -> Result<Self, DeviceError> {
        let space = Arc::new(MemorySpace::default());
        let (drive, function) = drive(spec, pace, &space);
        Self::of(drive, Box::new(function), space, pool)
    }

    /// Returns a world of the given drive.
    pub(super) fn of(
        drive: Arc<Drive>,
        function: Box<dyn Function>,
        space: Arc<MemorySpace>,
        pool: BufPool,
    ) -> Result<Self, DeviceError> {
        let window = Window::new(space);
        let (device, keeper) = NvmeDevice::attach("model", function, &window)?;
        window.map_arena(pool.arena()).expect("the space has room");
        let (now, step) = (Nanos::SECOND, MILLI);
        Ok(Self { drive, device: Some(device), keeper, window, pool, now, step })
    }

    /// Returns a world with a ready device.
    pub(super) fn ready(spec: Spec) -> Self {
        let mut world = Self::new(spec, Pace::Prompt);
        world.run_until("ready", |world| world.phase() == Phase::Live);
        world
    }

    pub(super) fn device(&self) -> &NvmeDevice {
        self.device.as_ref().expect("it was not dropped")
    }

    pub(super) fn phase(&self) -> Phase {
        self.device().shared().word().phase()
    }

    /// Runs one turn of the drive and of the keeper.
    pub(super) fn turn(&mut self) -> Turn {
        self.now = self.now.plus(self.step);
        self.drive.step(self.now);
        self.keeper.turn(self.now)
    }

    /// Runs turns until `holds` returns true.
    pub(super) fn run_until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        for _ in 0..200_000 {
            if holds(self) {
                return;
            }
            self.turn();
        }
        panic!("never {what}: {:?}, {:?}", self.keeper.reason(), self.drive.model());
    }

    pub(super) fn open(&self, depth: u32) -> Client {
        self.open_with(depth, 1024)
    }

    /// Opens a queue that returns at most `room` completions at a time.
    pub(super) fn open_with(&self, depth: u32, room: usize) -> Client {
        let queue = self.device().open_queue(CoreIndex(0), depth).expect("there are queues");
        Client { queue, batch: CompletionBatch::new(room), done: Vec::new() }
    }

    /// Runs a turn with a queue.
    pub(super) fn turn_with(&mut self, client: &mut Client) {
        self.turn();
        client.turn(self.now);
    }

    /// Runs turns until `done` requests are complete.
    pub(super) fn run_with(&mut self, client: &mut Client, done: usize) {
        for _ in 0..200_000 {
            if client.done.len() >= done {
                return;
            }
            self.turn_with(client);
        }
        panic!(
            "{} of {done} done: {:?}, {:?}",
            client.done.len(),
            self.keeper.reason(),
            self.drive.model()
        );
    }

    /// Runs one request to its end.
    pub(super) fn run(&mut self, client: &mut Client, op: Op) -> Completion {
        client.submit(Token(u64::MAX), op);
        let is_it = |completion: &Completion| completion.token == Token(u64::MAX);
        for _ in 0..200_000 {
            if let Some(at) = client.done.iter().position(is_it) {
                return client.done.remove(at);
            }
            self.turn_with(client);
        }
        panic!("a request is never done: {:?}, {:?}", self.keeper.reason(), self.drive.model());
    }

    /// Returns a buffer filled with `byte`.
    pub(super) fn filled(&mut self, byte: u8, bytes: usize) -> BufMut {
        let mut buf = self.pool.get(bytes).expect("there is a buffer");
        buf.as_mut_slice().fill(byte);
        buf
    }

    pub(super) fn write(&mut self, at: u64, byte: u8, bytes: usize) -> Op {
        let data = Sg::from(self.filled(byte, bytes).freeze());
        Op::Write { at: Lba(at), data, durability: Durability::Normal }
    }

    pub(super) fn read(&mut self, at: u64, bytes: usize) -> Op {
        let data = SgMut::from(self.filled(0xee, bytes));
        Op::Read { at: Lba(at), data }
    }

    /// Checks that the model found no violation by the driver.
    pub(super) fn assert_clean(&self) {
        assert_eq!(self.drive.model().breaches(), [], "the driver broke the specification");
    }
}

/// A user of a queue.
pub(super) struct Client {
    pub(super) queue: Box<dyn IoQueue>,
    batch: CompletionBatch,
    pub(super) done: Vec<Completion>,
}

impl Client {
    pub(super) fn submit(&mut self, token: Token, op: Op) {
        self.queue.submit(Io { token, op }).expect("there is room");
    }

    pub(super) fn turn(&mut self, now: Nanos) {
        self.queue.ring_doorbell(now);
        self.queue.poll(now, &mut self.batch);
        self.done.extend(self.batch.drain());
    }

    /// Returns the results of the complete requests, in the order of their tokens.
    pub(super) fn results(&self) -> Vec<(u64, Result<(), IoErrorKind>)> {
        let result = |done: &Completion| (done.token.0, done.result.map_err(|error| error.kind));
        let mut results: Vec<_> = self.done.iter().map(result).collect();
        results.sort_by_key(|(token, _)| *token);
        results
    }
}

/// Returns the data of a read.
pub(super) fn bytes_of(op: Op) -> Vec<u8> {
    match op {
        Op::Read { data, .. } => {
            data.parts().iter().flat_map(|part| part.as_slice().to_vec()).collect()
        }
        other => panic!("{other:?} is no read"),
    }
}

pub(super) fn range(start: u64, blocks: u64) -> LbaRange {
    LbaRange::new(Lba(start), blocks)
}
