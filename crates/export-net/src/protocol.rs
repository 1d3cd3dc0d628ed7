//! What an export brings: how it negotiates, and how it serves a connection that agreed.
//!
//! ```text
//! accepted -> greet -> step, step, ... -> open -> turn, turn, ... -> gone
//!             '---- control thread ----'  '------ data core ------'
//! ```

use crate::connection_slots::Export;
use crate::peer::Peer;
use crate::service::Ticket;
use crate::stock::Stock;
use rustix::io::Errno;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use strake_block::DeviceError;
use strake_reactor::{Sleep, Turn};
use strake_tls::Channel;
use strake_units::{CoreIndex, Nanos};

/// A socket that peers connect to. It is dropped when no more peers are accepted.
pub trait Listener: Send {
    /// What becomes readable when there is a peer to accept.
    fn socket(&self) -> BorrowedFd<'_>;

    /// Takes the next peer; its socket does not block.
    ///
    /// # Errors
    /// When there is none, or none can be had now.
    fn accept(&self) -> Result<OwnedFd, Errno>;
}

/// What came of looking at bytes.
pub struct Step<A> {
    /// How many of them were used up.
    pub taken: usize,
    /// What to do next.
    pub next: Next<A>,
}

/// What to do next with a peer.
pub enum Next<A> {
    /// Go on once there are more bytes and what is to be sent was sent.
    More,
    /// Everything from here on goes through TLS: all bytes were used up, and none are to be sent in the clear.
    Secure(Box<Channel>),
    /// Serve it. What is to be sent yet is sent when it can be served.
    Serve(A),
    /// Send what is to be sent and close the connection.
    Close,
}

/// A protocol between peers and the exports of one service.
pub trait Protocol: Send + Sync + Sized + 'static {
    /// How far the negotiation with a peer is.
    type Handshake: Send;
    /// What was agreed on with a peer, and its right to be served.
    type Admission: Send;
    /// What peers connect to.
    type Export: Export;
    /// A peer being served.
    type Connection: Connection<Export = Self::Export> + 'static;

    /// How a negotiation begins with a peer at an address, which it has none of on a unix socket, and the bytes to send
    /// first.
    fn greet(self: &Arc<Self>, from: Option<IpAddr>) -> (Self::Handshake, Vec<u8>);

    /// Processes the bytes that a peer has sent; answers go to `out`. Called only when all earlier answers were sent,
    /// so a peer that never reads makes nothing grow. On the control thread.
    fn step(
        &self,
        handshake: &mut Self::Handshake,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Step<Self::Admission>;

    /// How long the part of the negotiation may take that it is in, from when it began: parts that cost us more than
    /// others are to be over sooner. `None` when only the whole is bounded.
    fn part_time_max(&self, handshake: &Self::Handshake) -> Option<Nanos>;

    /// Begins to serve a peer. On the data core, because device queues belong to the thread that opens them.
    ///
    /// # Errors
    /// Those of opening the device; the peer is then disconnected.
    fn open(
        self: &Arc<Self>,
        accepted_connection: AcceptedConnection<Self::Admission>,
        at: &CoreContext,
        now: Nanos,
    ) -> Result<Self::Connection, DeviceError>;
}

/// A connection that agreed with its peer, on its way to a data core.
pub struct AcceptedConnection<A> {
    /// Its socket, and what the peer sent ahead.
    pub peer: Peer,
    /// Its place among the connections of the service.
    pub ticket: Ticket,
    /// What was agreed on.
    pub admission: A,
    /// The end of the negotiation, to be sent first.
    pub final_reply: Vec<u8>,
}

/// The data core that serves a connection.
pub struct CoreContext {
    /// Which core it is.
    pub core: CoreIndex,
    /// Its number among the cores of the service.
    pub lane: usize,
    /// What memory it lends, if the service has it lend some.
    pub stock: Option<Rc<Stock>>,
}

/// Whether a connection is still there after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It is, and did this much.
    Stays(Turn),
    /// It can be dropped: nothing of it is at a device.
    Gone,
}

/// A peer being served by a data core.
pub trait Connection {
    /// What it may be connected to.
    type Export: Export;

    /// Its socket.
    fn peer(&mut self) -> &mut Peer;

    /// Whether it is connected to this export.
    fn serves(&self, export: &Arc<Self::Export>) -> bool;

    /// Takes nothing further; what was begun is executed and answered.
    fn drain(&mut self);

    /// One bounded pass over everything.
    fn turn(&mut self, now: Nanos) -> After;

    /// What may wake the core for this connection besides its socket.
    fn sleep(&self, sleep: &mut Sleep);
}
