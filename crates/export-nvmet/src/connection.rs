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
mod copy;
mod deliver;
mod devices;
mod intake;
mod news;
mod pairs;
mod range_locked;
mod reserving;

pub(crate) use devices::DeviceIndex;

use crate::admin::Setting;
use crate::beginning::Beginning;
use crate::connect_handler::ConnectHandler;
use crate::controller::{Controller, Place};
use crate::handshake::Agreement;
use crate::limits::{ADMIN_POOLS, IO_POOLS, LINGER_TIME_MAX, QUEUES_MAX, TLS_TIME_MAX};
use crate::registry::{Admission, Registry, Room};
use crate::replies::{REPLIES_MAX, Reply};
use crate::slots::{SlotIndex, Slots, Stage, Task};
use crate::stats::{QueueFacts, Stats};
use crate::subsystem::Subsystem;
use devices::Devices;
use intake::Intake;
use news::News;
use pairs::Pairs;
use reserving::Reserving;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use strake_block::{Completion, DeviceError, Io, IoError, IoErrorKind};
use strake_export_net::{
    AcceptedConnection, After, Connection as _, CoreContext, Peer, Pools, Protocol, Replies, Sent,
    Step, Supply, Ticket,
};
use strake_nvme_wire::Status;
use strake_reactor::{Sleep, Turn};
use strake_units::Nanos;

/// What a queue is served with.
pub(crate) struct Accepted {
    pub(crate) admission: Admission,
    pub(crate) agreement: Agreement,
    pub(crate) pools: Pools,
}

impl Accepted {
    /// With all that the queue needs; making it takes its time, so not on a data core.
    pub(crate) fn new(admission: Admission, agreement: Agreement) -> Self {
        let sizes = if admission.place.queue == 0 { ADMIN_POOLS } else { IO_POOLS };
        Self { admission, agreement, pools: Pools::untouched(sizes) }
    }
}

/// What kind of queue it is.
enum Role {
    Io(Devices),
    Admin(Admin),
}

/// What an admin queue remembers.
struct Admin {
    setting: Setting,
    /// When the host last showed that it is alive.
    heard: Nanos,
    /// Requests for events that are kept.
    held: u8,
    news: News,
}

impl Admin {
    /// When the host counts as gone.
    fn deadline(&self, controller: &Controller, room: &Room) -> Option<Nanos> {
        let patience = match (controller.keep_alive_ms(), room) {
            (0, Room::ConnectionSlot(_)) => return None,
            (0, Room::DiscoveryConnection(visit)) => visit.silence_max(),
            (asked, _) => Nanos(u64::from(asked) * Nanos::MILLI.0),
        };
        Some(self.heard.plus(patience))
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

/// A queue being served. The order of the fields is the order of dropping: device queues before the buffers, the
/// connection slot last, because its release reports the end of the connection.
pub(crate) struct Connection {
    role: Role,
    peer: Peer,
    link: Agreement,
    /// Commands answered, modulo the size of the queue: a place is free when nothing is left of who had it.
    head: u16,
    intake: Intake,
    slots: Slots,
    replies: Replies<Reply>,
    /// Commands whose data is in `replies` and whose completion is not yet.
    owed: VecDeque<SlotIndex>,
    /// Bytes of that data.
    owed_behind: usize,
    /// Commands that wait for buffers, in order.
    waiting: VecDeque<SlotIndex>,
    pools: Supply,
    reserving: Reserving,
    pairs: Pairs,
    /// Commands that wait for range locks, in order.
    held_off: VecDeque<SlotIndex>,
    /// The Disconnect of the host.
    parting: Option<SlotIndex>,
    /// Bytes of data received this turn.
    received_now: usize,
    /// A piece of a large command's data was received this turn, and more of it is to come.
    took_piece: bool,
    /// The host has sent more than was asked for the last time: it waits for us, and not we for it.
    is_ahead: bool,
    life: Life,
    registry: Arc<Registry>,
    /// Which of the export's counters are this core's.
    lane: usize,
    stats: Arc<Stats>,
    _ticket: Ticket,
    place: Place,
    room: Room,
}

impl Connection {
    /// Opens the device for a queue.
    pub(crate) fn open(
        new: AcceptedConnection<Accepted>,
        at: &CoreContext,
        registry: &Arc<Registry>,
        now: Nanos,
    ) -> Result<Self, DeviceError> {
        let Accepted { admission: Admission { place, room }, agreement, pools } = new.admission;
        let pools = match &at.stock {
            Some(stock) if place.queue > 0 => {
                Supply::borrowing(pools, stock, &place.controller.host.nqn)
            }
            Some(_) | None => Supply::alone(pools),
        };
        let mut reserving = Reserving::default();
        let role = match &room {
            Room::ConnectionSlot(connection_slot) if place.queue > 0 => {
                let host = place.controller.host.id;
                // Before the devices: no change may be missed by both.
                reserving = Reserving::of(
                    &connection_slot.export,
                    host,
                    registry.reservation_thread.thread(),
                );
                Role::Io(Devices::open(&connection_slot.export, at.core, host, now)?)
            }
            Room::ConnectionSlot(_) | Room::DiscoveryConnection(_) => {
                place.controller.set_keep_alive(agreement.keep_alive_ms);
                let setting = Setting { events: 0, queues: QUEUES_MAX };
                let news = News::of(&place.controller, registry);
                Role::Admin(Admin { setting, heard: now, held: 0, news })
            }
        };
        let mut replies = Replies::new(REPLIES_MAX);
        if !new.final_reply.is_empty() {
            replies.push(Reply::raw(&new.final_reply));
        }
        let stats = Arc::new(Stats::new(facts(&new.peer, &agreement, place.queue, at)));
        place.controller.keep(&stats);
        let entries = agreement.entries;
        Ok(Self {
            role,
            peer: new.peer,
            link: agreement,
            head: agreement.taken % entries,
            intake: Intake::Header,
            slots: Slots::new(entries),
            replies,
            owed: VecDeque::with_capacity(usize::from(entries)),
            owed_behind: 0,
            waiting: VecDeque::with_capacity(usize::from(entries)),
            pools,
            reserving,
            pairs: Pairs::new(entries),
            held_off: VecDeque::with_capacity(usize::from(entries)),
            parting: None,
            received_now: 0,
            took_piece: false,
            is_ahead: false,
            life: Life::Open,
            registry: Arc::clone(registry),
            lane: at.lane,
            stats,
            _ticket: new.ticket,
            place,
            room,
        })
    }

    /// The subsystem it is connected to; `None` for discovery.
    fn subsystem(&self) -> Option<&Arc<Subsystem>> {
        match &self.room {
            Room::ConnectionSlot(connection_slot) => Some(&connection_slot.export),
            Room::DiscoveryConnection(_) => None,
        }
    }

    /// Where the host reached us.
    fn address(&self) -> SocketAddr {
        let name = rustix::net::getsockname(&self.peer).ok();
        let address = name.and_then(|name| SocketAddr::try_from(name).ok());
        address.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into())
    }

    fn leave(&mut self, voice: Voice) {
        if self.life == Life::Open {
            self.life = Life::Draining { since: None, voice };
            self.abandon();
        }
    }

    /// Ends an I/O queue whose controller ended, and a controller whose host is silent (Base, section 3.9). What was
    /// begun is answered yet where the subsystem goes and takes its controllers along.
    fn check_controller(&mut self, now: Nanos) {
        if self.life == Life::Broken {
            return;
        }
        let silent = match &self.role {
            Role::Io(_) => false,
            Role::Admin(admin) => {
                admin.deadline(&self.place.controller, &self.room).is_some_and(|at| now >= at)
            }
        };
        let stays = |subsystem: &Arc<Subsystem>| subsystem.connection_slots.is_open();
        if silent || !self.place.is_current() && self.subsystem().is_some_and(stays) {
            self.break_off();
        } else if !self.place.is_current() {
            self.drain();
        }
    }

    /// Tells a host that asked for it that there is something new.
    fn announce(&mut self) {
        let Role::Admin(admin) = &mut self.role else { return };
        if admin.held == 0 || self.life != Life::Open {
            return;
        }
        let wanted = admin.setting.events;
        let Some(news) = admin.news.next(wanted, &self.place.controller, &self.registry) else {
            return;
        };
        let Some(index) = self.slots.held() else { return };
        admin.held -= 1;
        self.slots.get(index).result = news;
        self.conclude(index);
    }

    /// Follows the devices of the subsystem as they come and go. What has not reached one that goes is not begun.
    /// Says how much that was: what leaves is closed in a later turn, so there has to be one.
    fn follow(&mut self, now: Nanos) -> usize {
        let (Role::Io(devices), Room::ConnectionSlot(connection_slot)) =
            (&mut self.role, &self.room)
        else {
            return 0;
        };
        devices.close_quiet();
        if devices.end_pauses(&connection_slot.export, now) {
            self.registry.wake();
        }
        if self.life != Life::Open {
            devices.give_up_held();
        }
        let Some(leaving) = devices.follow(&connection_slot.export, now) else {
            // The same as when it connects: whoever cannot have all of it gets nothing.
            self.break_off();
            return 1;
        };
        if leaving.is_empty() {
            return 0;
        }
        for slot in self.slots.iter_mut() {
            if let Task::Device(_, at) = slot.task
                && slot.is_before_device()
                && leaving.contains(&at)
            {
                slot.fail(Status::INACCESSIBLE);
            }
        }
        leaving.len()
    }

    /// Ends what was held for a device that does not come; says how much that was.
    fn end_given_up(&mut self) -> usize {
        let mut ended = 0;
        while let Role::Io(devices) = &mut self.role
            && let Some(Io { token, op }) = devices.next_given_up()
        {
            let result = Err(IoError::new(IoErrorKind::Lost));
            self.complete(Completion { token, op, result });
            ended += 1;
        }
        ended
    }

    fn ring(&mut self, now: Nanos) {
        if let Role::Io(devices) = &mut self.role {
            devices.ring(now);
        }
    }

    fn submit_backlog(&mut self) -> usize {
        match &mut self.role {
            Role::Io(devices) => devices.submit_backlog(),
            Role::Admin(_) => 0,
        }
    }

    fn send(&mut self) -> usize {
        if self.life == Life::Broken {
            return 0;
        }
        let (pools, slots) = (&mut self.pools, &mut self.slots);
        let sent = self.peer.send(&mut self.replies, |reply| retire(reply, pools, slots));
        match sent {
            Sent::Nothing => 0,
            Sent::Some | Sent::Blocked => 1,
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
        self.replies.abandon(|reply| retire(reply, pools, slots));
        self.owed.drain(..).for_each(|slot| slots.end(slot));
        self.abandon();
    }

    /// Gives up every command that is not at the device yet, and stops looking at what the host sends.
    fn abandon(&mut self) {
        self.intake = Intake::Closed;
        self.waiting.clear();
        if let Role::Io(devices) = &mut self.role {
            devices.forget_copies();
        }
        self.reserving.forget();
        self.held_off.clear();
        self.pairs.abandon(&mut self.slots);
        let pools = &mut self.pools;
        self.slots.end_if(|slot| match slot.take_stage() {
            Stage::Waiting { .. } | Stage::Held | Stage::Asked => true,
            Stage::Receiving { data, spare, .. } => {
                pools.put(data);
                pools.put(spare);
                true
            }
            Stage::Ready { data, spare, .. } => {
                pools.put(data);
                pools.put(spare);
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

    /// Whether something further can be begun at a device.
    fn is_open_at(&self, place: DeviceIndex) -> bool {
        let serves = match &self.role {
            Role::Io(devices) => devices.serves(place),
            Role::Admin(_) => false,
        };
        self.life == Life::Open && serves
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
            Role::Io(devices) => devices.is_quiet(),
            Role::Admin(_) => true,
        }
    }
}

/// What a queue is, for whoever asks.
fn facts(peer: &Peer, agreement: &Agreement, number: u16, at: &CoreContext) -> QueueFacts {
    let name = rustix::net::getpeername(peer).ok().flatten();
    let from = name.and_then(|name| SocketAddr::try_from(name).ok());
    let from = from.map(|at| SocketAddr::new(at.ip().to_canonical(), at.port()));
    let (is_secure, digests) = (peer.is_secure(), agreement.digests);
    QueueFacts { number, from, core: at.core, is_secure, digests }
}

/// Gives back what a reply consisted of.
fn retire(reply: Reply, pools: &mut Supply, slots: &mut Slots) {
    pools.put(reply.data);
    if let Some(slot) = reply.ends {
        slots.end(slot);
    }
}

impl strake_export_net::Connection for Connection {
    type Export = Subsystem;

    fn peer(&mut self) -> &mut Peer {
        &mut self.peer
    }

    fn serves(&self, export: &Arc<Subsystem>) -> bool {
        self.subsystem().is_some_and(|subsystem| Arc::ptr_eq(subsystem, export))
    }

    fn drain(&mut self) {
        self.leave(Voice::Speaks);
    }

    fn turn(&mut self, now: Nanos) -> After {
        self.check_controller(now);
        self.announce();
        let mut work = self.follow(now) + self.end_given_up();
        work += self.apply_reservations();
        work += self.hear();
        work += self.serve_waiting();
        work += self.take_in(now);
        work += self.look_at_range_locks();
        work += self.submit_backlog();
        self.ring(now);
        work += self.poll_devices(now);
        self.complete_owed();
        self.part();
        work += self.send();
        self.pools.rest(now);
        self.check_life(now);
        if self.is_over() { After::Gone } else { After::Stays(Turn::from_count(work)) }
    }

    fn sleep(&self, sleep: &mut Sleep) {
        match &self.role {
            Role::Io(devices) => devices.sleep(sleep),
            Role::Admin(admin) => {
                if let Some(deadline) = admin.deadline(&self.place.controller, &self.room) {
                    sleep.until(deadline);
                }
            }
        }
        if let Some(at) = self.pools.rests_at() {
            sleep.until(at);
        }
        if let Life::Draining { since: Some(since), .. } = self.life {
            sleep.until(since.plus(LINGER_TIME_MAX));
        }
    }
}

impl Protocol for Registry {
    type Handshake = Beginning;
    type Admission = Accepted;
    type Export = Subsystem;
    type Connection = Connection;

    fn greet(self: &Arc<Self>, from: Option<IpAddr>) -> (Beginning, Vec<u8>) {
        let connect_handler = ConnectHandler { registry: Arc::clone(self), from, proven: None };
        (Beginning::new(connect_handler), Vec::new())
    }

    fn step(&self, beginning: &mut Beginning, input: &[u8], out: &mut Vec<u8>) -> Step<Accepted> {
        beginning.step(input, out)
    }

    fn part_time_max(&self, beginning: &Beginning) -> Option<Nanos> {
        beginning.is_securing().then_some(TLS_TIME_MAX)
    }

    fn open(
        self: &Arc<Self>,
        accepted_connection: AcceptedConnection<Accepted>,
        at: &CoreContext,
        now: Nanos,
    ) -> Result<Connection, DeviceError> {
        Connection::open(accepted_connection, at, self, now)
    }
}
