//! One client on a data core, from the end of its negotiation to the last of its I/O.
//!
//! ```text
//! socket -> intake -> device queue -> delivery -> replies -> socket
//!           |  one request at a time    any number in flight, in any order
//! ```
//! *Intake* begins requests strictly one after another: a request that needs buffers or queue room holds up
//! those behind it, which is the back-pressure the client feels, and which keeps two half-begun requests from
//! waiting for each other's buffers. *Delivery* turns completions into replies in whatever order they come.
//!
//! ```text
//! Open -> Draining -> Gone      client left, or broke the protocol, or was told to go: what was begun ends
//!   +---> Broken ---> Gone      socket failed: nothing is sent any more
//! ```
//! `Gone` is reached only when no I/O is at the device: the buffers are the device's until then.
//!
//! A write is handed to the device piece by piece, each when all its bytes have arrived. A client that
//! disappears in the middle of a write has changed nothing if the write fits one piece (up to 1 MiB, less if
//! the device takes less), and whole leading pieces of it otherwise.

mod deliver;
mod intake;

use crate::export::{Facts, Seat};
use crate::handshake::Agreement;
use crate::input::Input;
use crate::limits::{COMPLETIONS_PER_POLL, LINGER_TIME_MAX, QUEUE_DEPTH, REQUESTS_MAX};
use crate::pools::Pools;
use crate::replies::{Part, Replies, Reply, Sent};
use crate::requests::Requests;
use crate::server::Ticket;
use intake::Intake;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use strake_block::{BufMut, CompletionBatch, DeviceError, Io, IoQueue, SgMut};
use strake_reactor::{Sleep, Turn};
use strake_units::{CoreIndex, Nanos};

/// A client that has negotiated, on its way to a data core.
pub(crate) struct Newcomer {
    pub(crate) socket: OwnedFd,
    pub(crate) seat: Seat,
    pub(crate) ticket: Ticket,
    pub(crate) agreement: Agreement,
    /// The end of the negotiation, which is sent once the device is open.
    pub(crate) farewell: Option<BufMut>,
    /// What the client sent ahead.
    pub(crate) input: Input,
    pub(crate) pools: Pools,
}

/// A run of data of a read whose turn to be sent has not come.
struct Parked {
    slot: crate::requests::SlotIndex,
    offset: u64,
    data: SgMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    Draining { since: Option<Nanos> },
    Broken,
}

/// Whether the connection is still there after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// It is, and did this much.
    Stays(Turn),
    /// It can be dropped.
    Gone,
}

/// A client being served. The order of the fields is the order of dropping: the queue before the buffers, the
/// seat last, because its going tells whoever waits that all is over.
pub(crate) struct Connection {
    queue: Box<dyn IoQueue>,
    socket: OwnedFd,
    facts: Facts,
    /// Which of the export's counters are this core's.
    lane: usize,
    intake: Intake,
    input: Input,
    requests: Requests,
    replies: Replies,
    parked: Vec<Parked>,
    pools: Pools,
    /// I/Os that found the device queue full, in order.
    backlog: VecDeque<Io>,
    /// I/Os at the device.
    at_device: u32,
    /// Submitted since the doorbell was last rung.
    unrung: bool,
    batch: CompletionBatch,
    /// Bytes of payload received this turn.
    received_now: usize,
    life: Life,
    /// The socket may have bytes for us; cleared when it had fewer than asked for.
    readable: bool,
    /// The socket may take bytes; cleared when it took fewer than offered.
    writable: bool,
    /// The client will send nothing behind what is in the socket, so short reads do not mean "no more".
    hung_up: bool,
    _ticket: Ticket,
    seat: Seat,
}

impl Connection {
    /// Opens the device for a client. On the data core, because queues belong to the thread that opens them.
    pub(crate) fn open(new: Newcomer, core: CoreIndex, lane: usize) -> Result<Self, DeviceError> {
        let queue = new.seat.export.device.open_queue(core, QUEUE_DEPTH)?;
        let mut replies = Replies::new();
        if let Some(farewell) = new.farewell {
            replies.push(Reply::raw(farewell.into(), Part::Early));
        }
        Ok(Self {
            queue,
            socket: new.socket,
            facts: new.seat.export.facts.with(new.agreement),
            lane,
            intake: Intake::Header,
            input: new.input,
            requests: Requests::new(),
            replies,
            parked: Vec::with_capacity(crate::limits::LARGE_BUFFERS + crate::limits::SMALL_BUFFERS),
            pools: new.pools,
            backlog: VecDeque::with_capacity(REQUESTS_MAX + 1),
            at_device: 0,
            unrung: false,
            batch: CompletionBatch::new(COMPLETIONS_PER_POLL),
            received_now: 0,
            life: Life::Open,
            readable: true,
            writable: true,
            hung_up: false,
            _ticket: new.ticket,
            seat: new.seat,
        })
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(crate) fn serves(&self, export: &std::sync::Arc<crate::export::Served>) -> bool {
        std::sync::Arc::ptr_eq(&self.seat.export, export)
    }

    /// The kernel says the socket has bytes.
    pub(crate) fn note_readable(&mut self) {
        self.readable = true;
    }

    /// The kernel says the socket takes bytes.
    pub(crate) fn note_writable(&mut self) {
        self.writable = true;
    }

    /// The kernel says the other end is closed, at least for sending.
    pub(crate) fn note_hang_up(&mut self) {
        self.readable = true;
        self.hung_up = true;
    }

    /// Takes no further requests; those begun are carried out and answered.
    pub(crate) fn drain(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Draining { since: None };
            self.abandon_intake();
        }
    }

    /// One bounded pass over everything.
    pub(crate) fn turn(&mut self, now: Nanos) -> After {
        let mut work = self.take_in();
        work += self.submit_backlog();
        if self.unrung {
            self.unrung = false;
            self.queue.ring_doorbell(now);
        }
        work += self.poll_device(now);
        work += self.send();
        self.check_life(now);
        if self.is_over() { After::Gone } else { After::Stays(Turn::from_count(work)) }
    }

    /// What may wake the core for this client besides its socket.
    pub(crate) fn sleep(&self, sleep: &mut Sleep) {
        sleep.readiness(self.queue.readiness());
        if let Life::Draining { since: Some(since) } = self.life {
            sleep.until(since.plus(LINGER_TIME_MAX));
        }
    }

    /// Hands an I/O to the device, behind those that wait already.
    fn submit(&mut self, io: Io) {
        self.backlog.push_back(io);
        self.submit_backlog();
    }

    fn submit_backlog(&mut self) -> usize {
        let mut count = 0;
        while let Some(io) = self.backlog.pop_front() {
            match self.queue.submit(io) {
                Ok(()) => {
                    self.at_device += 1;
                    self.unrung = true;
                    count += 1;
                }
                Err(io) => {
                    self.backlog.push_front(io);
                    break;
                }
            }
        }
        count
    }

    fn send(&mut self) -> usize {
        if !self.writable || self.replies.is_empty() || self.life == Life::Broken {
            return 0;
        }
        let (pools, requests) = (&mut self.pools, &mut self.requests);
        let sent = self.replies.send(self.socket.as_fd(), |data, ends| {
            pools.put(data);
            if let Some(slot) = ends {
                requests.end(slot);
            }
        });
        match sent {
            Sent::Nothing => 0,
            Sent::Some => 1,
            Sent::Blocked => {
                self.writable = false;
                1
            }
            Sent::Broken => {
                self.break_off();
                1
            }
        }
    }

    /// The socket is of no use any more.
    fn break_off(&mut self) {
        self.life = Life::Broken;
        self.abandon_intake();
        let pools = &mut self.pools;
        self.replies.abandon(|data| pools.put(data));
        for parked in self.parked.drain(..) {
            pools.put(parked.data);
        }
    }

    fn check_life(&mut self, now: Nanos) {
        let Life::Draining { since } = self.life else { return };
        match since {
            // The clock runs only while the client has to read: devices are waited for.
            _ if self.at_device > 0 => {}
            None => self.life = Life::Draining { since: Some(now) },
            Some(since) if now.since(since) >= LINGER_TIME_MAX => self.break_off(),
            Some(_) => {}
        }
    }

    fn is_over(&self) -> bool {
        match self.life {
            Life::Open => false,
            Life::Draining { .. } => {
                self.is_quiet() && matches!(self.intake, Intake::Closed) && self.replies.is_empty()
            }
            Life::Broken => self.is_quiet(),
        }
    }

    fn is_quiet(&self) -> bool {
        self.at_device == 0 && self.backlog.is_empty()
    }
}
