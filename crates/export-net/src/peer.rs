//! The socket of a connection, with its readiness.

use crate::limits::SENDS_PER_TURN;
use rustix::event::epoll::EventFlags;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use strake_tls::{
    Channel, Input, Message, Owned, Place, Received, SendQueue, Sent, Wire, WireError,
};

/// The socket of a connection, with its readiness. It calls the kernel only if the call may succeed, because a session
/// poller watches sockets edge-triggered.
pub struct Peer {
    wire: Wire,
    input: Input,
    /// Whether the socket may have bytes; cleared when it had fewer than requested.
    readable: bool,
    /// Whether the socket may accept bytes; cleared when it accepted fewer than offered.
    writable: bool,
    /// Whether the peer has closed its sending side: a short read then does not mean "no more".
    hung_up: bool,
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}

impl Peer {
    /// Creates a peer from a connected socket and an input buffer.
    #[must_use]
    pub fn new(socket: OwnedFd, input: Input) -> Self {
        Self { wire: socket.into(), input, readable: true, writable: true, hung_up: false }
    }

    /// Enables TLS for all further bytes; earlier received bytes were processed.
    pub(crate) fn secure(&mut self, channel: Box<Channel>) {
        self.wire.secure(channel);
        // Bytes that the peer sent behind its handshake are already in the channel.
        self.readable = true;
    }

    /// True if the connection uses TLS.
    #[must_use]
    pub const fn is_secure(&self) -> bool {
        self.wire.is_secure()
    }

    /// The received bytes that were not processed yet.
    pub const fn input(&mut self) -> &mut Input {
        &mut self.input
    }

    /// Records the readiness that the kernel reports for the socket.
    pub(crate) fn note(&mut self, flags: EventFlags) {
        if flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            self.readable = true;
            self.hung_up = true;
        }
        if flags.contains(EventFlags::IN) {
            self.readable = true;
        }
        if flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR) {
            self.writable = true;
        }
    }

    /// Begins a turn, in which the peer receives a limited share of this thread.
    pub(crate) fn begin_turn(&mut self) {
        self.wire.begin_turn();
    }

    /// True if the peer has used its share of this turn and may have sent more. The kernel reports no event for that.
    pub(crate) fn is_paused(&self) -> bool {
        self.wire.is_paused()
    }

    /// Resets the readiness, for a socket that is not watched.
    pub(crate) const fn try_again(&mut self) {
        self.readable = true;
    }

    /// Receives more bytes into the input buffer, if there may be some.
    pub fn fill(&mut self) -> Received {
        if !self.readable {
            return Received::Blocked;
        }
        let received = self.input.fill(&mut self.wire);
        self.note_received(received)
    }

    /// Receives into `place`, and further bytes into the input buffer, which is empty, if there may be some. Returned
    /// counts include the bytes beyond `place`.
    pub fn fill_through(&mut self, place: Place<'_>) -> Received {
        if !self.readable {
            return Received::Blocked;
        }
        let received = self.input.fill_through(&mut self.wire, place);
        self.note_received(received)
    }

    /// Receives into `place` only, if there may be bytes.
    pub fn fill_to(&mut self, place: Place<'_>) -> Received {
        if !self.readable {
            return Received::Blocked;
        }
        let received = self.input.fill_to(&mut self.wire, place);
        self.note_received(received)
    }

    fn note_received(&mut self, received: Received) -> Received {
        match received {
            // The end of the connection behind these bytes, or a violation there, is found by another call.
            Received::Short(_) => self.readable = self.hung_up || self.wire.has_more(),
            Received::Blocked => self.readable = self.wire.is_paused(),
            Received::Full(_) | Received::Ended | Received::Broken(_) => {}
        }
        received
    }

    /// Sends as much as the socket accepts of a final reply; the next call passes the rest of the same bytes.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> Result<usize, WireError> {
        self.wire.send(&[IoSlice::new(bytes)])
    }

    /// Sends as much as the socket accepts, if it may accept bytes; `done` receives the messages that were sent
    /// completely.
    pub fn send<M: Message>(&mut self, queue: &mut SendQueue<M>, done: impl FnMut(M)) -> Sent {
        if !self.writable {
            return Sent::Nothing;
        }
        let sent = queue.send(&mut self.wire, SENDS_PER_TURN, &mut Owned(done));
        if sent == Sent::Blocked {
            self.writable = false;
        }
        sent
    }
}
