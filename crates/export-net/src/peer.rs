//! The socket of a connection, with what is known of it.

use crate::limits::SENDS_PER_TURN;
use rustix::event::epoll::EventFlags;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use strake_tls::{
    Channel, Input, Message, Owned, Place, Received, SendQueue, Sent, Wire, WireError,
};

/// The socket of a connection, with what is known of it. It asks the kernel only for what may be there: a session
/// poller watches sockets edge-triggered.
pub struct Peer {
    wire: Wire,
    input: Input,
    /// The socket may have bytes for us; cleared when it had fewer than asked for.
    readable: bool,
    /// The socket may take bytes; cleared when it took fewer than offered.
    writable: bool,
    /// The peer will send nothing behind what is in the socket, so short reads do not mean "no more".
    hung_up: bool,
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}

impl Peer {
    /// A socket that was just connected, and room for what is read ahead.
    #[must_use]
    pub fn new(socket: OwnedFd, input: Input) -> Self {
        Self { wire: socket.into(), input, readable: true, writable: true, hung_up: false }
    }

    /// What is received and sent from here on goes through TLS; what was received before is used up.
    pub(crate) fn secure(&mut self, channel: Box<Channel>) {
        self.wire.secure(channel);
        // What the peer said behind its handshake is in the channel already.
        self.readable = true;
    }

    /// True when everything goes through TLS.
    #[must_use]
    pub const fn is_secure(&self) -> bool {
        self.wire.is_secure()
    }

    /// What was received and not looked at yet.
    pub const fn input(&mut self) -> &mut Input {
        &mut self.input
    }

    /// Takes note of what the kernel says about the socket.
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

    /// Forgets what was known: nothing watches the socket.
    pub(crate) const fn try_again(&mut self) {
        self.readable = true;
    }

    /// Receives behind what is there, if there may be something.
    pub fn fill(&mut self) -> Received {
        if !self.readable {
            return Received::Blocked;
        }
        let received = self.input.fill(&mut self.wire);
        self.note_received(received)
    }

    /// Receives into a place, and what follows into the input, which is empty, if there may be something. Bytes beyond
    /// the place are counted too.
    pub fn fill_through(&mut self, place: Place<'_>) -> Received {
        if !self.readable {
            return Received::Blocked;
        }
        let received = self.input.fill_through(&mut self.wire, place);
        self.note_received(received)
    }

    /// Receives into a place and nothing that follows it, if there may be something.
    pub fn fill_to(&mut self, place: Place<'_>) -> Received {
        if !self.readable {
            return Received::Blocked;
        }
        let received = self.input.fill_to(&mut self.wire, place);
        self.note_received(received)
    }

    fn note_received(&mut self, received: Received) -> Received {
        match received {
            // What ended behind these bytes, by its own words or by a breach, is seen by asking again.
            Received::Short(_) => self.readable = self.hung_up || self.wire.has_more(),
            Received::Blocked => self.readable = false,
            Received::Full(_) | Received::Ended | Received::Broken(_) => {}
        }
        received
    }

    /// Sends what the socket takes of the end of a negotiation; the next call brings what is left of the same bytes.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> Result<usize, WireError> {
        self.wire.send(&[IoSlice::new(bytes)])
    }

    /// Sends what the socket takes, if it may take something; `done` gets what went out whole.
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
