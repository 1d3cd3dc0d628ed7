//! One queue on a data core, from its Connect command to the completion of its last I/O.
//!
//! ```text
//! socket -> Intake -> Queue -> waiting for buffers -> R2T, data from the host -> Devices -> Queue -> Sending -> socket
//!           |  one PDU at a time                     any number in flight, in any order
//! ```
//! [`Intake`] receives PDUs, [`Queue`] holds the commands in flight, [`Devices`] their I/Os, and [`Sending`] the
//! outgoing PDUs. [`AdminQueue`] is the additional state of an admin queue, and [`Accounting`] the counters. A command
//! with its data in the capsule always finds a buffer, because there is one buffer for each entry of the queue. Other
//! commands wait for their buffers and take all of them at once, so that no waiting command holds a buffer that another
//! command waits for.
//!
//! ```text
//! Open -> Draining -> Gone      the host left, violated the protocol, or was disconnected: I/O in flight completes
//!   +---> Broken ---> Gone      the socket failed, or the controller was disabled: nothing more is sent
//! ```
//! A queue enters `Gone` only when no I/O is in flight, because the device owns the buffers until then. A write is
//! submitted to the device when all its data has arrived, so a host that disconnects in the middle of a write has
//! changed nothing.

mod accounting;
mod admin_queue;
mod copies;
pub(crate) mod devices;
mod effects;
mod intake;
mod news;
mod pairs;
mod queue;
mod ranges;
mod reserving;
mod sending;

use crate::beginning::{Accepted, Beginning};
use crate::connect_handler::ConnectHandler;
use crate::handshake::Agreement;
use crate::limits::{LINGER_TIME_MAX, TLS_TIME_MAX};
use crate::registry::{Admission, Registry, Room};
use crate::stats::{QueueFacts, Stats};
use crate::subsystem::Subsystem;
use accounting::Accounting;
use admin_queue::AdminQueue;
use devices::Devices;
use intake::{End, Intake};
use queue::{Life, Parts, Queue, Voice};
use reserving::Reserving;
use sending::Sending;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use strake_block::DeviceError;
use strake_export_net::{
    AcceptedConnection, After, Connection as _, CoreContext, Peer, Protocol, Sent, Step, Supply,
    Ticket,
};
use strake_reactor::{Sleep, Turn};
use strake_units::Nanos;

/// A queue being served. The order of the fields is the order of dropping: device queues before the buffers, the
/// connection slot last, because its release reports the end of the connection.
pub(crate) struct Connection {
    queue: Queue,
    intake: Intake,
    peer: Peer,
    _ticket: Ticket,
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
        let host = place.controller.host.clone();
        let mut reserving = Reserving::default();
        let (devices, admin) = match &room {
            Room::ConnectionSlot(slot) if place.queue > 0 => {
                // This precedes the opening of the devices, so that no change is missed.
                let export = &slot.export;
                reserving = Reserving::of(export, host.id, registry.reservation_thread.thread());
                (Devices::open(export, at, host, now)?, None)
            }
            Room::ConnectionSlot(_) | Room::DiscoveryConnection(_) => {
                place.controller.set_keep_alive(agreement.keep_alive_ms);
                let admin = AdminQueue::new(&place.controller, registry, now);
                (Devices::none(at, host), Some(admin))
            }
        };
        let stats = Arc::new(Stats::new(facts(&new.peer, &agreement, place.queue, at)));
        place.controller.keep(&stats);
        let (intake, entries) = (Intake::new(agreement.digests), agreement.entries);
        let parts = Parts {
            devices,
            admin,
            reserving,
            sending: Sending::new(agreement, &new.final_reply),
            pools,
            accounting: Accounting { stats, lane: at.lane },
            registry: Arc::clone(registry),
            address: address(&new.peer),
            place,
        };
        let queue = Queue::new(parts, entries);
        Ok(Self { queue, intake, peer: new.peer, _ticket: new.ticket, room })
    }

    fn leave(&mut self, voice: Voice) {
        if self.queue.life == Life::Open {
            self.queue.life = Life::Draining { since: None, voice };
            self.intake.close();
            self.queue.abandon();
        }
    }

    /// Closes the queue after a failure of the socket.
    fn break_off(&mut self) {
        self.intake.close();
        self.queue.break_off();
    }

    /// Closes an I/O queue whose controller was disabled, and a controller whose keep-alive timeout expired (Base,
    /// section 3.9). If the subsystem is being removed, commands in flight still complete.
    fn check_controller(&mut self, now: Nanos) {
        if self.queue.life == Life::Broken {
            return;
        }
        let is_current = self.queue.place.is_current();
        let subsystem = self.queue.place.controller.subsystem.as_ref();
        let stays = |subsystem: &Arc<Subsystem>| subsystem.connection_slots.is_open();
        let is_silent = self.silent_at().is_some_and(|at| now >= at);
        if is_silent || !is_current && subsystem.is_some_and(stays) {
            self.break_off();
        } else if !is_current {
            self.drain();
        }
    }

    /// The time at which the keep-alive timeout expires.
    fn silent_at(&self) -> Option<Nanos> {
        let Queue { admin, place, .. } = &self.queue;
        admin.as_ref()?.deadline(&place.controller, &self.room)
    }

    /// Opens and closes devices after changes of the subsystem; returns the number of steps.
    fn follow(&mut self, now: Nanos) -> usize {
        self.queue.follow(now).unwrap_or_else(|| {
            // As at Connect, a host that cannot have all devices gets none.
            self.break_off();
            1
        })
    }

    /// Receives up to the limit of a turn; returns the number of steps.
    fn take_in(&mut self, now: Nanos) -> usize {
        let (work, end) = self.intake.take_in(&mut self.peer, &mut self.queue, now);
        if end.is_some() {
            self.queue.devices.give_up_limited();
        }
        match end {
            None => {}
            Some(End::Left) => self.drain(),
            Some(End::Terminated) => self.leave(Voice::Silent),
            Some(End::Refused(error)) => {
                let Queue { sending, slots, .. } = &mut self.queue;
                sending.terminate(slots, error, self.peer.input().bytes());
                self.leave(Voice::Silent);
            }
            Some(End::Broken) => self.break_off(),
        }
        work
    }

    fn send(&mut self) -> usize {
        let Queue { life, sending, pools, slots, .. } = &mut self.queue;
        if *life == Life::Broken {
            return 0;
        }
        match sending.send(&mut self.peer, pools, slots) {
            Sent::Nothing => 0,
            Sent::Some | Sent::Blocked => 1,
            Sent::Broken(_) => {
                self.break_off();
                1
            }
        }
    }

    fn check_life(&mut self, now: Nanos) {
        let Life::Draining { since, voice } = self.queue.life else { return };
        match since {
            // The time limit applies only while the host has to read. I/O in flight at devices has no limit here.
            _ if !self.queue.devices.is_quiet() => {}
            None => self.queue.life = Life::Draining { since: Some(now), voice },
            Some(since) if now.since(since) >= LINGER_TIME_MAX => self.break_off(),
            Some(_) => {}
        }
    }

    fn is_over(&self) -> bool {
        let Queue { life, devices, sending, .. } = &self.queue;
        match life {
            Life::Open => false,
            Life::Draining { .. } => devices.is_quiet() && sending.is_empty(),
            Life::Broken => devices.is_quiet(),
        }
    }
}

/// The properties of a queue that its stats report.
fn facts(peer: &Peer, agreement: &Agreement, number: u16, at: &CoreContext) -> QueueFacts {
    let name = rustix::net::getpeername(peer).ok().flatten();
    let from = name.and_then(|name| SocketAddr::try_from(name).ok());
    let from = from.map(|at| SocketAddr::new(at.ip().to_canonical(), at.port()));
    let (is_secure, digests) = (peer.is_secure(), agreement.digests);
    QueueFacts { number, from, core: at.core, is_secure, digests }
}

/// The local address of the connection.
fn address(peer: &Peer) -> SocketAddr {
    let name = rustix::net::getsockname(peer).ok();
    let address = name.and_then(|name| SocketAddr::try_from(name).ok());
    address.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into())
}

impl strake_export_net::Connection for Connection {
    type Export = Subsystem;

    fn peer(&mut self) -> &mut Peer {
        &mut self.peer
    }

    fn serves(&self, export: &Arc<Subsystem>) -> bool {
        let subsystem = self.queue.place.controller.subsystem.as_ref();
        subsystem.is_some_and(|subsystem| Arc::ptr_eq(subsystem, export))
    }

    fn drain(&mut self) {
        self.leave(Voice::Speaks);
    }

    fn turn(&mut self, now: Nanos) -> After {
        self.queue.devices.begin_turn(now);
        self.check_controller(now);
        self.queue.announce();
        let mut work = self.follow(now) + self.queue.end_given_up();
        work += self.queue.apply_reservations();
        work += self.queue.hear();
        work += self.queue.serve_waiting();
        work += self.take_in(now);
        work += self.queue.look_at_range_locks();
        work += self.queue.start_waiting_effects();
        work += self.queue.devices.submit_backlog();
        self.queue.devices.ring(now);
        work += self.queue.poll_devices(now);
        let Queue { sending, slots, .. } = &mut self.queue;
        sending.complete_owed(slots);
        self.queue.part();
        work += self.send();
        self.queue.pools.rest(now);
        self.check_life(now);
        if self.is_over() { After::Gone } else { After::Stays(Turn::from_count(work)) }
    }

    fn sleep(&self, sleep: &mut Sleep) {
        let Queue { life, devices, pools, .. } = &self.queue;
        devices.sleep(sleep);
        if let Some(at) = self.silent_at() {
            sleep.until(at);
        }
        if let Some(at) = pools.rests_at() {
            sleep.until(at);
        }
        if let Life::Draining { since: Some(since), .. } = life {
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
        let began = self.begin();
        let registry = Arc::clone(self);
        let connect_handler = ConnectHandler { registry, from, proven: None, began };
        (Beginning::new(connect_handler), Vec::new())
    }

    fn step(&self, beginning: &mut Beginning, input: &[u8], out: &mut Vec<u8>) -> Step<Accepted> {
        beginning.step(input, out)
    }

    fn is_costly(&self, beginning: &Beginning, input: &[u8]) -> bool {
        beginning.is_costly(input)
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
