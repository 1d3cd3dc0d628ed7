//! A blocking connection, with or without TLS.

use crate::error::Reason;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::getpeername;
use rustix::net::sockopt::set_socket_linger;
use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use strake_nvme_auth::Psk;
use strake_tls::{Client, TlsError, Wire, WireError};

/// Bytes that are read at a time during the TLS handshake.
const HANDSHAKE_ROOM: usize = 4096;

/// A deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Until(Instant);

impl Until {
    pub(crate) fn within(patience: Duration) -> Self {
        Self(Instant::now() + patience)
    }

    pub(crate) fn left(self) -> Result<Duration, Reason> {
        let left = self.0.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(Reason::Silent) } else { Ok(left) }
    }
}

/// True if a peer that does not know a key may end TLS in this way. A peer that closes a socket with unread data resets
/// the connection.
const fn is_refusal(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Tls(TlsError::PeerAlert(_))
            | Reason::Closed
            | Reason::Socket(Errno::CONNRESET | Errno::PIPE)
    )
}

/// A connected socket.
pub(crate) struct Stream {
    wire: Wire,
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}

impl Stream {
    /// Connects, and completes a TLS handshake with the first of these keys that the target knows; without keys, TLS is
    /// not used.
    pub(crate) fn open(
        places: &[SocketAddr],
        offers: &[Psk],
        until: Until,
    ) -> Result<Self, Reason> {
        let mut stream = Self::dial(places, until)?;
        for (at, psk) in offers.iter().enumerate() {
            match stream.secure(psk, until) {
                Ok(()) => break,
                // One key is offered at a time, and a target that does not know it closes the connection, with or
                // without an alert.
                Err(refused) if is_refusal(refused) && at + 1 < offers.len() => {
                    stream = Self::dial(places, until).map_err(|_| refused)?;
                }
                Err(reason) => return Err(reason),
            }
        }
        Ok(stream)
    }

    /// Connects to the first of these addresses that answers. A silent address leaves an equal share of the time to
    /// each other one.
    fn dial(places: &[SocketAddr], until: Until) -> Result<Self, Reason> {
        let mut last = Reason::NoSuchMachine;
        for (place, places_left) in places.iter().zip((1..=places.len() as u32).rev()) {
            let socket = TcpStream::connect_timeout(place, until.left()? / places_left);
            let ready = socket.and_then(|socket| {
                socket.set_nodelay(true)?;
                // Without this setting the connection is only slower.
                let _ = strake_tls::skip_pacing_if_local(&socket);
                socket.set_nonblocking(true)?;
                Ok(socket)
            });
            match ready {
                Ok(socket) => return Ok(Self { wire: OwnedFd::from(socket).into() }),
                Err(error) => last = Reason::of_io(&error),
            }
        }
        Err(last)
    }

    /// The address of the peer.
    pub(crate) fn place(&self) -> Result<SocketAddr, Reason> {
        let place = getpeername(&self.wire).map_err(Reason::Socket)?.ok_or(Reason::Closed)?;
        place.try_into().map_err(Reason::Socket)
    }

    /// Completes a TLS handshake with this key.
    fn secure(&mut self, psk: &Psk, until: Until) -> Result<(), Reason> {
        let mut out = Vec::new();
        let mut client = Client::begin(psk, &mut out)?;
        let mut room = [0; HANDSHAKE_ROOM];
        loop {
            self.put(&out, until)?;
            out.clear();
            let count = self.take_some(&mut room, until)?;
            match client.step(&room[..count], &mut out) {
                Ok(None) => {}
                Ok(Some(secured)) => {
                    self.put(&out, until)?;
                    self.wire.secure(secured.channel);
                    return Ok(());
                }
                Err(error) => {
                    // The handshake has failed, whether the target receives the alert or not.
                    let _ = self.put(&out, until);
                    return Err(error.into());
                }
            }
        }
    }

    pub(crate) fn put(&mut self, mut bytes: &[u8], until: Until) -> Result<(), Reason> {
        while !bytes.is_empty() {
            match self.wire.send(&[IoSlice::new(bytes)]) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) => self.wait_for(PollFlags::OUT, error, until)?,
            }
        }
        Ok(())
    }

    /// Fills `place` before the deadline, even if bytes arrive in small pieces.
    pub(crate) fn take(&mut self, mut place: &mut [u8], until: Until) -> Result<(), Reason> {
        while !place.is_empty() {
            let got = self.take_some(place, until)?;
            place = &mut place[got..];
        }
        Ok(())
    }

    /// Reads the available bytes, perhaps none: with TLS, a readable socket may have no data.
    pub(crate) fn take_now(&mut self, place: &mut [u8]) -> Result<usize, Reason> {
        self.wire.begin_turn();
        match self.wire.receive(&mut [IoSliceMut::new(place)]) {
            Ok(0) => Err(Reason::Closed),
            Ok(got) => Ok(got),
            Err(WireError::Socket(Errno::AGAIN | Errno::INTR)) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// True if there may be data although the socket is not readable.
    pub(crate) fn has_more(&self) -> bool {
        self.wire.has_more()
    }

    /// Reads at least one byte.
    fn take_some(&mut self, place: &mut [u8], until: Until) -> Result<usize, Reason> {
        loop {
            // A target that sends forever must not block longer than a silent one.
            until.left()?;
            self.wire.begin_turn();
            match self.wire.receive(&mut [IoSliceMut::new(place)]) {
                Ok(0) => return Err(Reason::Closed),
                Ok(got) => return Ok(got),
                Err(error) => self.wait_for(PollFlags::IN, error, until)?,
            }
        }
    }

    /// Waits after an error that means "not ready"; returns any other error.
    fn wait_for(&self, what: PollFlags, error: WireError, until: Until) -> Result<(), Reason> {
        match error {
            WireError::Socket(Errno::INTR) => return Ok(()),
            // The next turn receives what was read already; for that, the socket reports nothing.
            WireError::Socket(Errno::AGAIN) if what == PollFlags::IN && self.wire.is_paused() => {
                return Ok(());
            }
            WireError::Socket(Errno::AGAIN) => {}
            WireError::Socket(_) | WireError::Tls(_) => return Err(error.into()),
        }
        let left = until.left()?;
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.wire, what)], Some(&left)) {
            Ok(0) => Err(Reason::Silent),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Reason::Socket(errno)),
        }
    }

    /// Closes the connection so that no further bytes reach the target.
    pub(crate) fn abort(self) {
        // If the option cannot be set, sent bytes arrive, and the target detects the disconnect by its timeout.
        let _ = set_socket_linger(&self.wire, Some(Duration::ZERO));
    }

    #[cfg(test)]
    pub(crate) const fn of(wire: Wire) -> Self {
        Self { wire }
    }

    /// Converts the connection for I/O; no call waits from now on. A close resets the connection, so that no further
    /// bytes reach the target, even if the daemon is killed (F30).
    pub(crate) fn into_wire(self) -> Result<Wire, Reason> {
        set_socket_linger(&self.wire, Some(Duration::ZERO)).map_err(Reason::Socket)?;
        Ok(self.wire)
    }
}

#[cfg(test)]
mod tests;
