//! The socket of a connection, with what is known of it.

use crate::input::{Input, Place, Received};
use crate::replies::{Replies, Reply, Sent};
use rustix::event::epoll::EventFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The socket of a connection, with what is known of it. It asks the kernel only for what may be there: a station
/// watches sockets edge-triggered.
pub struct Peer {
    socket: OwnedFd,
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
        self.socket.as_fd()
    }
}

impl Peer {
    /// A socket that was just connected, and room for what is read ahead.
    #[must_use]
    pub const fn new(socket: OwnedFd, input: Input) -> Self {
        Self { socket, input, readable: true, writable: true, hung_up: false }
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

    /// Forgets what was known: nobody watches the socket.
    pub(crate) const fn try_again(&mut self) {
        self.readable = true;
    }

    /// Receives behind what is there, if there may be something.
    pub fn fill(&mut self) -> Received {
        if !self.readable {
            return Received::Blocked;
        }
        let received = self.input.fill(self.socket.as_fd());
        self.note_received(received)
    }

    /// Receives into a place, and what follows into the input, which is empty, if there may be something. Bytes beyond
    /// the place are counted too.
    pub fn fill_through(&mut self, place: Place<'_>) -> Received {
        if !self.readable {
            return Received::Blocked;
        }
        let received = self.input.fill_through(self.socket.as_fd(), place);
        self.note_received(received)
    }

    const fn note_received(&mut self, received: Received) -> Received {
        match received {
            Received::Short(_) => self.readable = self.hung_up,
            Received::Blocked => self.readable = false,
            Received::Full(_) | Received::Ended | Received::Broken => {}
        }
        received
    }

    /// Sends what the socket takes, if it may take something; `done` gets what went out whole.
    pub fn send<R: Reply>(&mut self, replies: &mut Replies<R>, done: impl FnMut(R)) -> Sent {
        if !self.writable {
            return Sent::Nothing;
        }
        let sent = replies.send(self.socket.as_fd(), done);
        if sent == Sent::Blocked {
            self.writable = false;
        }
        sent
    }
}
