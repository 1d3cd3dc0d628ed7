//! One queue on a data core, from its Connect command to the last of its I/O.
//!
//! ```text
//! socket -> intake -> waiting for buffers -> R2T, data from the host -> device queue -> delivery -> socket
//!           |  one PDU at a time               any number in flight, in any order
//! ```
//! *Intake* looks at PDUs strictly one after another and never waits for memory: behind a command that needs some may
//! be the data that frees it. A command with its data in the capsule always finds a buffer, since there is one for each
//! place of the queue; others queue for theirs, and take all that they need at once, so that nobody who waits holds
//! what another waits for.
//!
//! ```text
//! Open -> Draining -> Gone      host left, or broke the protocol, or was told to go: what is at the device ends
//!   +---> Broken ---> Gone      socket failed, or the controller ended: nothing is sent any more
//! ```
//! `Gone` is reached only when no I/O is at the device: the buffers are the device's until then. A write is handed to
//! the device when all its data has arrived, so a host that disappears in the middle of one has changed nothing.

mod command;
mod deliver;
mod intake;

use crate::admin::Setting;
use crate::controller::Place;
use crate::handshake::Agreement;
use crate::input::Input;
use crate::limits::{COMPLETIONS_PER_POLL, IO_ENTRIES, LINGER_TIME_MAX};
use crate::pools::Pools;
use crate::registry::{Admission, Registry};
use crate::replies::{Replies, Reply, Sent};
use crate::slots::{SlotIndex, Slots, Stage};
use crate::subsystem::{Facts, Seat, Served};
use crate::target::Ticket;
use intake::Intake;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use strake_block::{CompletionBatch, DeviceError, Io, IoQueue};
use strake_reactor::{Sleep, Turn};
use strake_units::{CoreIndex, Nanos};

/// A connection whose Connect command was accepted, on its way to a data core.
pub(crate) struct Newcomer {
    pub(crate) socket: OwnedFd,
    pub(crate) ticket: Ticket,
    /// What the host sent ahead.
    pub(crate) input: Input,
    pub(crate) admission: Admission,
    pub(crate) agreement: Agreement,
    /// The answer to its Connect command, which is sent once the device is open.
    pub(crate) farewell: Vec<u8>,
}

/// What kind of queue it is.
enum Role {
    Io(Device),
    Admin(Admin),
}

/// The way of an I/O queue to its device.
struct Device {
    queue: Box<dyn IoQueue>,
    facts: Facts,
    /// I/Os that found the device queue full, in order.
    backlog: VecDeque<Io>,
    /// I/Os at the device.
    outstanding: u32,
    /// Submitted since the doorbell was last rung.
    unrung: bool,
    batch: CompletionBatch,
}

/// What an admin queue remembers.
struct Admin {
    setting: Setting,
    /// When the host last showed that it is alive.
    heard: Nanos,
    /// Requests for events that are kept.
    held: u8,
}

impl Admin {
    /// When the host counts as gone.
    fn deadline(&self) -> Option<Nanos> {
        let patience = u64::from(self.setting.keep_alive_ms) * Nanos::MILLI.0;
        (patience > 0).then(|| self.heard.plus(Nanos(patience)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    Draining { since: Option<Nanos>, voice: Voice },
    Broken,
}

/// Whether completions are still sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    Speaks,
    /// The request to end the connection was the last word.
    Silent,
}

/// Whether the connection is still there after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// It is, and did this much.
    Stays(Turn),
    /// It can be dropped.
    Gone,
}

/// A queue being served. The order of the fields is the order of dropping: the device queue before the buffers, the
/// seat last, because its going tells whoever waits that all is over.
pub(crate) struct Connection {
    role: Role,
    socket: OwnedFd,
    link: Agreement,
    /// Commands taken from the queue, modulo its size.
    head: u16,
    intake: Intake,
    input: Input,
    slots: Slots,
    replies: Replies,
    /// Commands that wait for buffers, in order.
    waiting: VecDeque<SlotIndex>,
    pools: Pools,
    /// Bytes of data received this turn.
    received_now: usize,
    life: Life,
    /// The socket may have bytes for us; cleared when it had fewer than asked for.
    readable: bool,
    /// The socket may take bytes; cleared when it took fewer than offered.
    writable: bool,
    /// The host will send nothing behind what is in the socket, so short reads do not mean "no more".
    hung_up: bool,
    registry: Arc<Registry>,
    /// Which of the export's counters are this core's.
    lane: usize,
    _ticket: Ticket,
    place: Place,
    seat: Option<Seat>,
}

impl Connection {
    /// Opens the device for a queue. On the data core, because device queues belong to the thread that opens them.
    pub(crate) fn open(
        new: Newcomer,
        (core, lane): (CoreIndex, usize),
        registry: &Arc<Registry>,
        now: Nanos,
    ) -> Result<Self, DeviceError> {
        let Admission { seat, place } = new.admission;
        let role = match &seat {
            Some(seat) if place.queue > 0 => Role::Io(Device::open(&seat.export, core)?),
            Some(_) | None => {
                let setting = Setting { keep_alive_ms: new.agreement.keep_alive_ms, events: 0 };
                Role::Admin(Admin { setting, heard: now, held: 0 })
            }
        };
        let pools = match role {
            Role::Io(_) => Pools::of_io_queue(),
            Role::Admin(_) => Pools::of_admin_queue(),
        };
        let mut replies = Replies::new();
        replies.push(Reply::raw(&new.farewell));
        let entries = new.agreement.entries;
        Ok(Self {
            role,
            socket: new.socket,
            link: new.agreement,
            head: 1 % entries,
            intake: Intake::Header,
            input: new.input,
            slots: Slots::new(entries),
            replies,
            waiting: VecDeque::with_capacity(usize::from(entries)),
            pools,
            received_now: 0,
            life: Life::Open,
            readable: true,
            writable: true,
            hung_up: false,
            registry: Arc::clone(registry),
            lane,
            _ticket: new.ticket,
            place,
            seat,
        })
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(crate) fn serves(&self, export: &Arc<Served>) -> bool {
        self.seat.as_ref().is_some_and(|seat| Arc::ptr_eq(&seat.export, export))
    }

    /// Where the host reached us.
    fn address(&self) -> SocketAddr {
        let name = rustix::net::getsockname(&self.socket).ok();
        let address = name.and_then(|name| SocketAddr::try_from(name).ok());
        address.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into())
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

    /// Takes no further commands; those at the device are carried out and answered.
    pub(crate) fn drain(&mut self) {
        self.leave(Voice::Speaks);
    }

    fn leave(&mut self, voice: Voice) {
        if self.life == Life::Open {
            self.life = Life::Draining { since: None, voice };
            self.abandon();
        }
    }

    /// One bounded pass over everything.
    pub(crate) fn turn(&mut self, now: Nanos) -> After {
        self.check_controller(now);
        let mut work = self.serve_waiting();
        work += self.take_in(now);
        work += self.submit_backlog();
        self.ring(now);
        work += self.poll_device(now);
        work += self.send();
        self.check_life(now);
        if self.is_over() { After::Gone } else { After::Stays(Turn::from_count(work)) }
    }

    /// What may wake the core for this queue besides its socket.
    pub(crate) fn sleep(&self, sleep: &mut Sleep) {
        match &self.role {
            Role::Io(device) => sleep.readiness(device.queue.readiness()),
            Role::Admin(admin) => {
                if let Some(deadline) = admin.deadline() {
                    sleep.until(deadline);
                }
            }
        }
        if let Life::Draining { since: Some(since), .. } = self.life {
            sleep.until(since.plus(LINGER_TIME_MAX));
        }
    }

    /// Ends an I/O queue whose controller ended, and a controller whose host is silent (Base, section 3.9).
    fn check_controller(&mut self, now: Nanos) {
        let silent = match &self.role {
            Role::Io(_) => false,
            Role::Admin(admin) => admin.deadline().is_some_and(|deadline| now >= deadline),
        };
        if (silent || !self.place.is_current()) && self.life != Life::Broken {
            self.break_off();
        }
    }

    fn ring(&mut self, now: Nanos) {
        if let Role::Io(device) = &mut self.role
            && device.unrung
        {
            device.unrung = false;
            device.queue.ring_doorbell(now);
        }
    }

    fn submit_backlog(&mut self) -> usize {
        match &mut self.role {
            Role::Io(device) => device.submit_backlog(),
            Role::Admin(_) => 0,
        }
    }

    fn send(&mut self) -> usize {
        if !self.writable || self.replies.is_empty() || self.life == Life::Broken {
            return 0;
        }
        let (pools, slots) = (&mut self.pools, &mut self.slots);
        let sent = self.replies.send(self.socket.as_fd(), |data, ends| {
            pools.put(data);
            if let Some(slot) = ends {
                slots.end(slot);
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
        let (pools, slots) = (&mut self.pools, &mut self.slots);
        self.replies.abandon(|data, ends| {
            pools.put(data);
            if let Some(slot) = ends {
                slots.end(slot);
            }
        });
        self.abandon();
    }

    /// Gives up every command that is not at the device yet, and stops looking at what the host sends.
    fn abandon(&mut self) {
        self.intake = Intake::Closed;
        self.waiting.clear();
        let pools = &mut self.pools;
        self.slots.end_if(|slot| match std::mem::replace(&mut slot.stage, Stage::Held) {
            Stage::Waiting { .. } | Stage::Held => true,
            Stage::Receiving { data, .. } => {
                pools.put(data);
                true
            }
            stage @ (Stage::AtDevice { .. } | Stage::Replying) => {
                slot.stage = stage;
                false
            }
        });
    }

    fn check_life(&mut self, now: Nanos) {
        let Life::Draining { since, voice } = self.life else { return };
        match since {
            // The clock runs only while the host has to read: devices are waited for.
            _ if !self.is_quiet() => {}
            None => self.life = Life::Draining { since: Some(now), voice },
            Some(since) if now.since(since) >= LINGER_TIME_MAX => self.break_off(),
            Some(_) => {}
        }
    }

    fn is_over(&self) -> bool {
        match self.life {
            Life::Open => false,
            Life::Draining { .. } => self.is_quiet() && self.replies.is_empty(),
            Life::Broken => self.is_quiet(),
        }
    }

    fn is_quiet(&self) -> bool {
        match &self.role {
            Role::Io(device) => device.outstanding == 0 && device.backlog.is_empty(),
            Role::Admin(_) => true,
        }
    }
}

impl Device {
    fn open(export: &Served, core: CoreIndex) -> Result<Self, DeviceError> {
        Ok(Self {
            queue: export.device.open_queue(core, IO_ENTRIES.into())?,
            facts: export.facts,
            backlog: VecDeque::with_capacity(IO_ENTRIES.into()),
            outstanding: 0,
            unrung: false,
            batch: CompletionBatch::new(COMPLETIONS_PER_POLL),
        })
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
                    self.outstanding += 1;
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
}
