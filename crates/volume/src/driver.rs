//! The driver of a pool: a poller of the pool core that executes requests, steps and the log.
//!
//! A turn takes messages and requests, completes I/Os, advances woken operations, writes the log and begins
//! checkpoints, and sends the I/Os that all of this produced:
//!
//! ```text
//! queues --requests--> in place: I/O ------------------------------------------> answer
//!                      otherwise: operation of the map -> steps -> I/Os --> log --> answer
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc;

use strake_block::{
    Completion, CompletionBatch, Durability, Io, IoError, IoErrorKind, IoQueue, Op, Sg, Token,
};
use strake_ondisk::LOG_PAYLOAD_MAX;
use strake_reactor::{CoreHandle, Poller, Receiver, Sender, Sleep, Turn};
use strake_units::Nanos;
use strake_volume_map::{Epoch, Error, OperationId, Ring, VolumeId, VolumeMap};

use crate::direct_queue::is_lost;
use crate::grace::Grace;
use crate::layout::Layout;
use crate::limits::{
    ADVANCES_NEAR_FULL, ADVANCES_PER_TURN, DEVICE_DEPTH, HOST_RECORD_BYTES, LOG_RESERVE_BLOCKS,
    RECOUNT_LEAVES, REQUESTS_PER_TURN, USERS_POLL,
};
use crate::log::Log;
use crate::request::{Answer, Control, Request};
use crate::slab::Slab;
use crate::store::{Opened, transfer_bytes};

mod checkpoint;
mod control;
mod direct;
mod records;
mod requests;
mod roots;
mod steps;

use checkpoint::Checkpoints;
use control::Ending;
use direct::Directs;
use requests::HostRequest;
use roots::RootWrite;
use steps::{Copies, Running, Sweeps};

/// The I/O of the device below for which a completion arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    /// A part of a read, in an epoch.
    Read { request: u32, epoch: Epoch },
    /// A part of a write in place, in an epoch.
    Write { request: u32, epoch: Epoch },
    /// The flush of a host.
    Flush { request: u32 },
    /// A part of the step of an operation.
    Step { operation: OperationId },
    /// A part of a write of the log.
    Log,
}

/// A queue of a volume.
struct Port {
    volume: VolumeId,
    requests: Receiver<Io>,
    replies: Sender<Completion>,
    /// The core of the user; `None` if the user drives the pool.
    wake: Option<CoreHandle>,
    /// Requests without an answer.
    outstanding: u32,
    /// True if an answer was sent in this turn.
    has_answers: bool,
}

/// The driver.
pub(crate) struct Driver {
    map: VolumeMap,
    layout: Layout,
    log: Log,
    device: Box<dyn IoQueue>,
    /// Bytes of one I/O of a copy, a root or the log.
    transfer_bytes: usize,
    batch: CompletionBatch,
    /// I/Os that the queue of the device has not taken yet.
    unsent: VecDeque<Io>,
    transfers: Slab<Transfer>,
    control: mpsc::Receiver<Control>,
    ports: Vec<Option<Port>>,
    requests: Slab<HostRequest>,
    /// Requests of which not all clusters were begun: discards, and requests that wait for an operation.
    unfinished: VecDeque<u32>,
    operations: BTreeMap<OperationId, Running>,
    copies: Copies,
    /// Operations whose pace step ends in the next turn.
    paced: Vec<OperationId>,
    /// Operations that wait for a free cluster, and since when.
    starved: Vec<(OperationId, Nanos)>,
    /// The time of the present turn.
    now: Nanos,
    log_write: Option<records::Writing>,
    checkpoints: Checkpoints,
    root: Option<RootWrite>,
    directs: Directs,
    ending: Ending,
    /// Requests of operators in progress.
    operator_requests: usize,
    /// Requests of operators that wait for one in progress to end.
    deferred: VecDeque<(Request, mpsc::Sender<Result<Answer, Error>>)>,
    sweeps: Sweeps,
}

impl Driver {
    pub(crate) fn new(
        opened: Opened,
        device: Box<dyn IoQueue>,
        control: mpsc::Receiver<Control>,
        grace: Arc<Grace>,
    ) -> Self {
        let Opened { layout, map, log, device: below } = opened;
        let transfer_bytes = transfer_bytes(&below.info());
        let checkpoints = Checkpoints::after(log.position(map.newest_floor(Ring::LEADER)));
        Self {
            map,
            layout,
            log,
            device,
            transfer_bytes,
            batch: CompletionBatch::new(DEVICE_DEPTH as usize),
            unsent: VecDeque::with_capacity(DEVICE_DEPTH as usize),
            transfers: Slab::new(DEVICE_DEPTH as usize),
            control,
            ports: Vec::new(),
            requests: Slab::new(DEVICE_DEPTH as usize),
            unfinished: VecDeque::new(),
            operations: BTreeMap::new(),
            copies: Copies::default(),
            paced: Vec::new(),
            starved: Vec::new(),
            now: Nanos(0),
            log_write: None,
            checkpoints,
            root: None,
            directs: Directs::new(grace),
            ending: Ending::No,
            operator_requests: 0,
            deferred: VecDeque::new(),
            sweeps: Sweeps::after_start(),
        }
    }

    /// Sends an I/O to the device below.
    fn send(&mut self, transfer: Transfer, op: Op) {
        let token = Token(u64::from(self.transfers.insert(transfer)));
        self.unsent.push_back(Io { token, op });
    }

    /// Writes bytes stably in I/Os that the device takes, and returns the number of I/Os.
    fn send_writes(&mut self, transfer: Transfer, byte: u64, data: &Sg) -> u32 {
        let mut count = 0;
        for from in (0..data.len()).step_by(self.transfer_bytes) {
            let part = data.slice(from, self.transfer_bytes.min(data.len() - from));
            let (at, durability) = (self.layout.lba(byte + from as u64), Durability::Fua);
            self.send(transfer, Op::Write { at, data: part, durability });
            count += 1;
        }
        count
    }

    /// Takes requests of all queues.
    fn accept(&mut self) -> usize {
        let mut count = 0;
        for at in 0..self.ports.len() {
            for _ in 0..REQUESTS_PER_TURN {
                let Some(port) = &mut self.ports[at] else { break };
                let Some(io) = port.requests.recv() else { break };
                port.outstanding += 1;
                let volume = port.volume;
                self.begin(at as u32, volume, io);
                count += 1;
            }
            let is_unused = |port: &Port| port.requests.abandoned() && port.outstanding == 0;
            if self.ports[at].as_ref().is_some_and(is_unused) {
                self.ports[at] = None;
            }
        }
        count
    }

    /// Processes completions of the device below.
    fn poll(&mut self, now: Nanos) -> usize {
        let mut batch = std::mem::replace(&mut self.batch, CompletionBatch::new(0));
        self.device.poll(now, &mut batch);
        let count = batch.len();
        for completion in batch.drain() {
            self.complete(completion);
        }
        self.batch = batch;
        count
    }

    fn complete(&mut self, completion: Completion) {
        let Completion { token, op, result } = completion;
        if matches!(op, Op::Write { .. }) && result.err().is_some_and(is_lost) {
            // Whether a device that is gone still executes the write is unknown: no cluster may be used again.
            self.map.log_failed();
        }
        match self.transfers.remove(token.0 as u32) {
            Transfer::Read { request, epoch } => {
                self.map.leave(epoch);
                self.read_completed(request, op, result);
            }
            Transfer::Write { request, epoch } => {
                self.map.leave(epoch);
                self.part_completed(request, result);
            }
            Transfer::Flush { request } => self.part_completed(request, result),
            Transfer::Step { operation } => self.step_io_completed(operation, op, result),
            Transfer::Log => self.log_io_completed(result),
        }
    }

    /// Advances woken operations as far as the log has room for their records.
    fn advance_woken(&mut self) -> usize {
        let most = self.advances_allowed();
        let mut count = 0;
        while count < most
            && let Some(id) = self.map.woken()
        {
            self.advance(id);
            count += 1;
        }
        if most == 0 {
            count += self.advance_checkpoints();
        }
        count
    }

    /// Returns the number of operations that may be advanced in this turn. The records that are not written yet always
    /// have room in the log: otherwise a checkpoint would wait for them forever.
    fn advances_allowed(&self) -> usize {
        let blocks = self.log.blocks();
        if 2 * self.log.used() <= blocks || self.map.is_read_only() {
            return ADVANCES_PER_TURN;
        }
        let reserve = LOG_RESERVE_BLOCKS.min(blocks / 4);
        let Some(free) = self.log.free().checked_sub(reserve) else { return 0 };
        // Records are encoded to know their bytes only if their greatest number of bytes does not fit.
        let records = self.map.records(Ring::LEADER);
        let is_small = self.operator_requests == 0
            && records.len() as u64 * HOST_RECORD_BYTES <= free * LOG_PAYLOAD_MAX as u64 / 2;
        if is_small || self.log.blocks_for(records) <= free { ADVANCES_NEAR_FULL } else { 0 }
    }

    /// Wakes the cores of users with answers.
    fn wake_users(&mut self) {
        for port in self.ports.iter_mut().flatten() {
            if std::mem::take(&mut port.has_answers)
                && let Some(core) = &port.wake
            {
                core.wake();
            }
        }
    }
}

impl Drop for Driver {
    /// Answers all requests, so that no user waits for ever.
    fn drop(&mut self) {
        self.directs.close();
        self.abort_requests();
        self.wake_users();
    }
}

impl Poller for Driver {
    fn turn(&mut self, now: Nanos) -> Turn {
        self.now = now;
        self.directs.note_lost_write(&mut self.map);
        let mut work = self.take_control();
        work += self.poll(now);
        if matches!(self.ending, Ending::Quitting(_)) {
            // A completion may have continued a copy.
            self.drop_unsent();
            self.end_if_stopped();
            return Turn::from_count(work);
        }
        // Older requests first: otherwise new ones take the room that they wait for.
        work += self.continue_unfinished();
        work += self.accept();
        work += self.sweep();
        work += self.end_pace_steps();
        work += self.advance_woken();
        work += self.settle_starved();
        work += self.write_log();
        work += self.write_root();
        work += usize::from(self.map.is_recounting());
        self.map.recount(RECOUNT_LEAVES);
        work += self.begin_checkpoint();
        work += self.directs.settle(&mut self.map);
        self.device.submit_batch(&mut self.unsent);
        self.device.ring_doorbell(now);
        self.wake_users();
        self.end_if_stopped();
        Turn::from_count(work)
    }

    fn sleep(&self, sleep: &mut Sleep) {
        let has_work = !self.unsent.is_empty()
            || !self.paced.is_empty()
            || self.root.as_ref().is_some_and(|root| root.is_due(&self.operations))
            || self.map.is_recounting()
            || (self.map.woken().is_some() && self.advances_allowed() > 0)
            || self.ports.iter().flatten().any(|port| !port.requests.is_empty());
        if has_work {
            sleep.never();
        }
        // Users complete their I/Os on their own cores, and wake no other.
        let is_ending = !matches!(self.ending, Ending::No | Ending::Ended);
        if is_ending || self.directs.are_awaited(&self.map) {
            sleep.until(Nanos(self.now.0 + USERS_POLL.0));
        }
        if let Some(since) = self.starved.iter().map(|(_, since)| since.0).min() {
            sleep.until(Nanos(since + self.sweeps.starved_limit().0));
        }
        if let Some(retry_at) = self.checkpoint_retry() {
            sleep.until(retry_at);
        }
        sleep.readiness(self.device.readiness());
    }
}

/// The error of an I/O for a refusal of the map.
fn io_error(kind: strake_volume_map::ErrorKind) -> IoError {
    use strake_volume_map::ErrorKind;
    IoError::new(match kind {
        ErrorKind::NoVolume | ErrorKind::NotReported => IoErrorKind::Gone,
        ErrorKind::ReadOnly | ErrorKind::LogFailed | ErrorKind::RootFirst => IoErrorKind::ReadOnly,
        ErrorKind::OutOfRange => IoErrorKind::OutOfRange,
        ErrorKind::NoSpace
        | ErrorKind::Reserved { .. }
        | ErrorKind::Quota { .. }
        | ErrorKind::Limit { .. } => IoErrorKind::NoSpace,
        _ => IoErrorKind::Device,
    })
}
