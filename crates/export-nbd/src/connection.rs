//! One client on a data core, from the end of its negotiation to the end of its last I/O.
//!
//! ```text
//! socket -> intake -> device queue -> delivery -> replies -> socket
//!           |  one request at a time    any number in flight, in any order
//! ```
//! *Intake* starts requests strictly one after another. A request that needs buffers or space in the queue delays the
//! requests behind it. This is the back-pressure on the client, and it prevents two partly started requests from
//! waiting for each other's buffers. *Delivery* converts completions into replies, in the order of the completions.
//!
//! ```text
//! Open -> Draining -> Gone      client left, broke the protocol, or was disconnected: what was begun ends
//!   +---> Broken ---> Gone      socket failed: nothing more is sent
//! ```
//! `Gone` is reached only when no I/O is at the device, because the device owns the buffers until then.
//!
//! A write is submitted to the device in pieces, each when all its bytes have arrived. A client that disappears in the
//! middle of a write has changed nothing if the write fits one piece (up to 1 MiB, less if the device takes less), and
//! whole leading pieces of it otherwise.

mod deliver;
mod intake;

use crate::export::{ConnectionSlot, Facts, Registry, Served};
use crate::handshake::{self, Agreement, Handshake};
use crate::limits::{
    LARGE_BUFFERS, LINGER_TIME_MAX, POOLS, QUEUE_DEPTH, REPLIES_MAX, REQUESTS_MAX, SMALL_BUFFERS,
};
use crate::replies::{Part, Reply};
use crate::requests::Requests;
use crate::wire;
use intake::Intake;
use std::net::IpAddr;
use std::sync::Arc;
use strake_block::{BufMut, DeviceError, SgMut};
use strake_export_net::{
    AcceptedConnection, After, CoreContext, DeviceQueue, LimitedBy, Next, Peer, Pools, Protocol,
    SendQueue, Sent, Step, Ticket,
};
use strake_reactor::{Sleep, Turn};
use strake_units::Nanos;

/// The result of the negotiation with a client, and the resources that serve it.
pub(crate) struct Admission {
    pub(crate) connection_slot: ConnectionSlot,
    pub(crate) agreement: Agreement,
    pub(crate) pools: Pools,
}

/// Data of a read that must be sent later, in order.
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

/// A client that is being served. The order of the fields is the order of dropping: the queue before the buffers, and
/// the connection slot last, because its release reports the end of the connection.
pub(crate) struct Connection {
    device: DeviceQueue,
    peer: Peer,
    facts: Facts,
    /// The index of the counters of this core in the export.
    lane: usize,
    intake: Intake,
    requests: Requests,
    replies: SendQueue<Reply>,
    parked: Vec<Parked>,
    pools: Pools,
    /// Number of payload bytes received in this turn.
    received_now: usize,
    life: Life,
    _ticket: Ticket,
    connection_slot: ConnectionSlot,
}

impl Connection {
    /// Opens the device for a client.
    pub(crate) fn open(
        new: AcceptedConnection<Admission>,
        at: &CoreContext,
        now: Nanos,
    ) -> Result<Self, DeviceError> {
        let Admission { connection_slot, agreement, pools } = new.admission;
        let export = &connection_slot.export;
        let queue = export.device.open_queue(at.core, QUEUE_DEPTH)?;
        let mut device = DeviceQueue::new(queue, REQUESTS_MAX + 1);
        if let Some(gate) = &export.limits {
            device = device.limited_by(LimitedBy::new(gate, at.core, &export.device.info(), now));
        }
        let mut replies = SendQueue::new(REPLIES_MAX);
        if let Some(final_reply) = carry(&new.final_reply) {
            replies.push(Reply::raw(final_reply.into(), Part::Early));
        }
        Ok(Self {
            device,
            peer: new.peer,
            facts: connection_slot.export.facts_now().with(agreement),
            lane: at.lane,
            intake: Intake::Header,
            requests: Requests::new(),
            replies,
            parked: Vec::with_capacity(LARGE_BUFFERS + SMALL_BUFFERS),
            pools,
            received_now: 0,
            life: Life::Open,
            _ticket: new.ticket,
            connection_slot,
        })
    }

    fn send(&mut self) -> usize {
        if self.life == Life::Broken {
            return 0;
        }
        let (pools, requests) = (&mut self.pools, &mut self.requests);
        let sent = self.peer.send(&mut self.replies, |reply| {
            pools.put(reply.data);
            if let Some(slot) = reply.ends {
                requests.end(slot);
            }
        });
        match sent {
            Sent::Nothing => 0,
            Sent::Some | Sent::Blocked => 1,
            Sent::Broken(_) => {
                self.break_off();
                1
            }
        }
    }

    /// Ends the connection because the socket is no longer usable.
    fn break_off(&mut self) {
        self.life = Life::Broken;
        // The client may have repeated its requests elsewhere: what has not reached the device does not reach it later.
        self.fail_held();
        self.abandon_intake();
        let pools = &mut self.pools;
        self.replies.abandon(|reply| pools.put(reply.data));
        for parked in self.parked.drain(..) {
            pools.put(parked.data);
        }
    }

    fn check_life(&mut self, now: Nanos) {
        let Life::Draining { since } = self.life else { return };
        match since {
            // The time runs only while the client must read replies. The wait for devices is not limited.
            _ if self.device.is_busy() => {}
            None => self.life = Life::Draining { since: Some(now) },
            Some(since) if now.since(since) >= LINGER_TIME_MAX => self.break_off(),
            Some(_) => {}
        }
    }

    fn is_over(&self) -> bool {
        match self.life {
            Life::Open => false,
            Life::Draining { .. } => {
                self.device.is_quiet()
                    && matches!(self.intake, Intake::Closed)
                    && self.replies.is_empty()
            }
            Life::Broken => self.device.is_quiet(),
        }
    }
}

impl strake_export_net::Connection for Connection {
    type Export = Served;

    fn peer(&mut self) -> &mut Peer {
        &mut self.peer
    }

    fn serves(&self, export: &Arc<Served>) -> bool {
        Arc::ptr_eq(&self.connection_slot.export, export)
    }

    fn drain(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Draining { since: None };
            // What has begun ends now: a removal must not wait for limits.
            self.device.lift();
            self.abandon_intake();
        }
    }

    fn turn(&mut self, now: Nanos) -> After {
        self.device.begin_turn(now);
        let mut work = self.take_in();
        self.obey_while_held();
        work += self.device.submit_backlog();
        self.device.ring(now);
        work += self.poll_device(now);
        work += self.send();
        self.check_life(now);
        if self.is_over() { After::Gone } else { After::Stays(Turn::from_count(work)) }
    }

    fn sleep(&self, sleep: &mut Sleep) {
        self.device.sleep(sleep);
        if let Life::Draining { since: Some(since) } = self.life {
            sleep.until(since.plus(LINGER_TIME_MAX));
        }
    }
}

/// Copies bytes to a buffer for a reply.
fn carry(bytes: &[u8]) -> Option<BufMut> {
    if bytes.is_empty() {
        return None;
    }
    let mut buf = BufMut::alone(bytes.len());
    buf.as_mut_slice().copy_from_slice(bytes);
    Some(buf)
}

impl Protocol for Registry {
    type Handshake = Handshake;
    type Admission = Admission;
    type Export = Served;
    type Connection = Connection;

    fn greet(self: &Arc<Self>, _: Option<IpAddr>) -> (Handshake, Vec<u8>) {
        (Handshake::new(), wire::greeting().to_vec())
    }

    fn step(&self, handshake: &mut Handshake, input: &[u8], out: &mut Vec<u8>) -> Step<Admission> {
        let step = handshake.step(input, self, out);
        let next = match step.next {
            handshake::Next::More => Next::More,
            handshake::Next::Close(_) => Next::Close,
            handshake::Next::Serve(connection_slot, agreement) => {
                Next::Serve(Admission { connection_slot, agreement, pools: Pools::new(POOLS) })
            }
        };
        Step { taken: step.taken, next }
    }

    fn part_time_max(&self, _: &Handshake) -> Option<Nanos> {
        None
    }

    fn open(
        self: &Arc<Self>,
        accepted_connection: AcceptedConnection<Admission>,
        at: &CoreContext,
        now: Nanos,
    ) -> Result<Connection, DeviceError> {
        Connection::open(accepted_connection, at, now)
    }
}
