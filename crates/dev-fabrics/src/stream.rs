//! A connection that is waited for, with TLS or without.

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

/// Bytes read at a time while TLS is agreed on.
const HANDSHAKE_ROOM: usize = 4096;

/// Time that is left for something.
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

/// Whether a peer that does not know a key ends TLS this way. One that closes a socket with unread data resets the
/// connection.
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
    /// Connects, and agrees on TLS with the first of these keys that the target knows; without TLS if there are none.
    pub(crate) fn open(
        places: &[SocketAddr],
        offers: &[Psk],
        until: Until,
    ) -> Result<Self, Reason> {
        let mut stream = Self::dial(places, until)?;
        for (at, psk) in offers.iter().enumerate() {
            match stream.secure(psk, until) {
                Ok(()) => break,
                // One key is offered at a time, and a target that does not know it hangs up, with or without an alert.
                Err(refused) if is_refusal(refused) && at + 1 < offers.len() => {
                    stream = Self::dial(places, until).map_err(|_| refused)?;
                }
                Err(reason) => return Err(reason),
            }
        }
        Ok(stream)
    }

    /// Connects to the first of these places that answers. One that does not leaves as much time to each other.
    fn dial(places: &[SocketAddr], until: Until) -> Result<Self, Reason> {
        let mut last = Reason::NoSuchMachine;
        for (place, places_left) in places.iter().zip((1..=places.len() as u32).rev()) {
            let socket = TcpStream::connect_timeout(place, until.left()? / places_left);
            let ready = socket.and_then(|socket| {
                socket.set_nodelay(true)?;
                // It works without, only slower.
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

    /// Where the other end is.
    pub(crate) fn place(&self) -> Result<SocketAddr, Reason> {
        let place = getpeername(&self.wire).map_err(Reason::Socket)?.ok_or(Reason::Closed)?;
        place.try_into().map_err(Reason::Socket)
    }

    /// Agrees on TLS with this key.
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
                    // Whether the target hears why or not, this was it.
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

    /// Fills `place`, in the time that is left, however small the pieces are in which bytes come.
    pub(crate) fn take(&mut self, mut place: &mut [u8], until: Until) -> Result<(), Reason> {
        while !place.is_empty() {
            let got = self.take_some(place, until)?;
            place = &mut place[got..];
        }
        Ok(())
    }

    /// Takes what there is now, which may be nothing: with TLS a socket also has what is no data.
    pub(crate) fn take_now(&mut self, place: &mut [u8]) -> Result<usize, Reason> {
        match self.wire.receive(&mut [IoSliceMut::new(place)]) {
            Ok(0) => Err(Reason::Closed),
            Ok(got) => Ok(got),
            Err(WireError::Socket(Errno::AGAIN | Errno::INTR)) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether there is something to take although the socket may have nothing.
    pub(crate) fn has_more(&self) -> bool {
        self.wire.has_more()
    }

    /// Takes one byte at least.
    fn take_some(&mut self, place: &mut [u8], until: Until) -> Result<usize, Reason> {
        loop {
            // A target that talks without end must not hold us any longer than a silent one.
            until.left()?;
            match self.wire.receive(&mut [IoSliceMut::new(place)]) {
                Ok(0) => return Err(Reason::Closed),
                Ok(got) => return Ok(got),
                Err(error) => self.wait_for(PollFlags::IN, error, until)?,
            }
        }
    }

    /// Waits when there was nothing for now; any other error is passed on.
    fn wait_for(&self, what: PollFlags, error: WireError, until: Until) -> Result<(), Reason> {
        match error {
            WireError::Socket(Errno::INTR) => return Ok(()),
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

    /// Closes the connection so that nothing more reaches the target.
    pub(crate) fn abort(self) {
        // Where that cannot be set, what was sent arrives, and the target times out as it does when it is cut off.
        let _ = set_socket_linger(&self.wire, Some(Duration::ZERO));
    }

    #[cfg(test)]
    pub(crate) const fn of(wire: Wire) -> Self {
        Self { wire }
    }

    /// The connection for I/O, on which no call waits from now on. Closing it resets it, so that nothing more reaches
    /// the target, also when the daemon is killed (F30).
    pub(crate) fn into_wire(self) -> Result<Wire, Reason> {
        set_socket_linger(&self.wire, Some(Duration::ZERO)).map_err(Reason::Socket)?;
        Ok(self.wire)
    }
}

#[cfg(test)]
mod tests;
