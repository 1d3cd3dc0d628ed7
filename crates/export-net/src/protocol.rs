//! The interface of an export protocol: its negotiation, and its connections.
//!
//! ```text
//! accepted -> greet -> step, step, ... -> open -> turn, turn, ... -> end
//!             '---- control thread ----'  '------ data core ------'
//! ```

use crate::budget::Budgets;
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
    /// The descriptor that becomes readable when a peer can be accepted.
    fn socket(&self) -> BorrowedFd<'_>;

    /// Accepts the next peer; its socket is non-blocking.
    ///
    /// Returns an error if there is none, or if the accept is not possible now.
    fn accept(&self) -> Result<OwnedFd, Errno>;
}

/// The result of processing bytes.
pub struct Step<A> {
    /// The number of processed bytes.
    pub taken: usize,
    /// The next action.
    pub next: Next<A>,
}

/// The next action for a peer.
pub enum Next<A> {
    /// Continue when there are more bytes and all output was sent.
    More,
    /// Enable TLS: all bytes were processed, and no output is pending.
    Secure(Box<Channel>),
    /// Serve the peer. Pending output is sent when it can be served.
    Serve(A),
    /// Send the pending output and close the connection.
    Close,
}

/// A protocol between peers and the exports of one service.
pub trait Protocol: Send + Sync + Sized + 'static {
    /// The state of a negotiation.
    type Handshake: Send;
    /// The result of a negotiation, with the peer's right to be served.
    type Admission: Send;
    /// The type of the exports.
    type Export: Export;
    /// The type of a served connection.
    type Connection: Connection<Export = Self::Export> + 'static;

    /// Starts the negotiation with a peer at an address (`None` on a unix socket), and returns the bytes to send first.
    fn greet(self: &Arc<Self>, from: Option<IpAddr>) -> (Self::Handshake, Vec<u8>);

    /// Processes the bytes that a peer has sent; output is appended to `out`. Called only when all earlier output was
    /// sent, so a peer that never reads causes no growth. Runs on the control thread, or on its worker thread.
    fn step(
        &self,
        handshake: &mut Self::Handshake,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Step<Self::Admission>;

    /// True if the next step, with these bytes, may compute for long. A worker thread then executes it, fair between
    /// addresses and within a budget of each, and the control thread continues with other peers.
    fn is_costly(&self, handshake: &Self::Handshake, input: &[u8]) -> bool {
        let _ = (handshake, input);
        false
    }

    /// The time limit of the current part of the negotiation, from its start: expensive parts have shorter limits.
    /// `None` if only the limit of the whole applies.
    fn part_time_max(&self, handshake: &Self::Handshake) -> Option<Nanos>;

    /// Starts to serve a peer. Runs on the data core, because device queues belong to the thread that opens them.
    ///
    /// Returns an error if the device cannot be opened; the peer is then disconnected.
    fn open(
        self: &Arc<Self>,
        accepted_connection: AcceptedConnection<Self::Admission>,
        at: &CoreContext,
        now: Nanos,
    ) -> Result<Self::Connection, DeviceError>;
}

/// A negotiated connection on its way to a data core.
pub struct AcceptedConnection<A> {
    /// The socket, and bytes that the peer has already sent.
    pub peer: Peer,
    /// The ticket of the connection.
    pub ticket: Ticket,
    /// The result of the negotiation.
    pub admission: A,
    /// The last output of the negotiation, to be sent first.
    pub final_reply: Vec<u8>,
}

/// The data core of a connection.
pub struct CoreContext {
    /// The index of the core.
    pub core: CoreIndex,
    /// The index of the core within the service.
    pub lane: usize,
    /// The memory that the core lends, if the service uses this.
    pub stock: Option<Rc<Stock>>,
    /// The budgets of its peers.
    pub budgets: Rc<Budgets>,
}

/// Whether a connection still exists after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The connection continues; the value is its amount of work.
    Stays(Turn),
    /// The connection can be dropped: none of its I/O is in flight.
    Gone,
}

/// A connection that a data core serves.
pub trait Connection {
    /// The type of the exports.
    type Export: Export;

    /// Its socket.
    fn peer(&mut self) -> &mut Peer;

    /// True if it is connected to this export.
    fn serves(&self, export: &Arc<Self::Export>) -> bool;

    /// Accepts no further requests; requests in flight complete.
    fn drain(&mut self);

    /// Executes one limited pass over all work.
    fn turn(&mut self, now: Nanos) -> After;

    /// Registers the wake-up sources of the core for this connection, in addition to its socket.
    fn sleep(&self, sleep: &mut Sleep);
}
