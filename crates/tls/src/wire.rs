//! A socket, with a channel or without.

use crate::channel::{Channel, Failure};
use crate::error::TlsError;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Why nothing was received or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// An error of the socket. [`Errno::AGAIN`]: no bytes are available, or the turn has reached its limit.
    Socket(Errno),
    /// An error of TLS.
    Tls(TlsError),
}

impl From<Errno> for WireError {
    fn from(errno: Errno) -> Self {
        Self::Socket(errno)
    }
}

impl From<Failure<Errno>> for WireError {
    fn from(failure: Failure<Errno>) -> Self {
        match failure {
            Failure::Socket(errno) => Self::Socket(errno),
            Failure::Tls(error) => Self::Tls(error),
            Failure::Paused => Self::Socket(Errno::AGAIN),
        }
    }
}

/// A connected socket. What goes through it is what was sent, whether it is encrypted on its way or not. It is never
/// waited for.
pub struct Wire {
    socket: OwnedFd,
    channel: Option<Box<Channel>>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire")
            .field("socket", &self.socket)
            .field("secure", &self.channel.is_some())
            .finish()
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<OwnedFd> for Wire {
    fn from(socket: OwnedFd) -> Self {
        Self { socket, channel: None }
    }
}

const SEND: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

fn receive(socket: &OwnedFd, room: &mut [u8]) -> Result<usize, Errno> {
    rustix::net::recv(socket, room, RecvFlags::DONTWAIT).map(|(_, bytes)| bytes)
}

fn send(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(socket, bytes, SEND)
}

impl Wire {
    /// What goes through it from here on goes through a channel.
    pub fn secure(&mut self, channel: Box<Channel>) {
        self.channel = Some(channel);
    }

    /// True when there is a channel.
    #[must_use]
    pub const fn is_secure(&self) -> bool {
        self.channel.is_some()
    }

    /// Begins a turn, in which the wire does a limited amount of work for its peer. See [`Channel::begin_turn`].
    pub fn begin_turn(&mut self) {
        if let Some(channel) = &mut self.channel {
            channel.begin_turn();
        }
    }

    /// True if this turn receives nothing further, although there may be more and the socket may not say so.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.is_paused())
    }

    /// True when there is something to receive although the socket may have nothing: data of records that came
    /// together, or the end behind it, whether the other side announced it or caused it.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.channel.as_ref().is_some_and(|channel| channel.has_more())
    }

    /// Receives into slices as much as there is and fits; zero says that nothing more will come.
    ///
    /// # Errors
    /// Those of the socket and of TLS; [`Errno::AGAIN`] also if the wire [is paused](Self::is_paused).
    pub fn receive(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<usize, WireError> {
        match &mut self.channel {
            // The socket does not block.
            None => Ok(rustix::io::readv(&self.socket, into)?),
            Some(channel) => Ok(channel.receive(into, |room| receive(&self.socket, room))?),
        }
    }

    /// Receives into one place.
    ///
    /// # Errors
    /// Those of [`receive`](Self::receive).
    pub fn receive_one(&mut self, into: &mut [u8]) -> Result<usize, WireError> {
        match &self.channel {
            None => Ok(receive(&self.socket, into)?),
            Some(_) => self.receive(&mut [IoSliceMut::new(into)]),
        }
    }

    /// Sends what the socket takes; a caller that gets fewer bytes than it passed calls again with the rest of the same
    /// bytes.
    ///
    /// # Errors
    /// Those of the socket and of TLS.
    pub fn send(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, WireError> {
        match &mut self.channel {
            None => {
                let mut nothing = SendAncillaryBuffer::default();
                Ok(rustix::net::sendmsg(&self.socket, parts, &mut nothing, SEND)?)
            }
            Some(channel) => Ok(channel.send(parts, |bytes| send(&self.socket, bytes))?),
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Some(channel) = &mut self.channel {
            channel.say_farewell(|bytes| send(&self.socket, bytes));
        }
    }
}
