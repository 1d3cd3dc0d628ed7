//! An I/O connection that was made, on its way from the thread that made it to the core that uses it.

use rustix::net::sockopt::set_socket_linger;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Duration;
use strake_nvme_wire::Digests;
use strake_units::Nanos;

use std::sync::Arc;

/// What was agreed on for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) digests: Digests,
    /// Where the target wants data to begin, in dwords less one.
    pub(crate) alignment: u8,
    /// Most data of one PDU to the target.
    pub(crate) data_bytes_max: u32,
    /// Most data in a capsule.
    pub(crate) in_capsule_bytes: u32,
    /// Commands at a time.
    pub(crate) window: u32,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) socket: OwnedFd,
    pub(crate) terms: Terms,
    /// Which association it belongs to.
    pub(crate) association: u64,
    /// Before this time nothing is sent again that changes blocks and was sent over an earlier association.
    pub(crate) settled_at: Nanos,
}

impl Drop for Link {
    /// Nothing that waits in the socket reaches the target any more: it may be sent again meanwhile.
    fn drop(&mut self) {
        // On a socket that is not of TCP there is nothing to give up.
        let _ = set_socket_linger(&self.socket, Some(Duration::ZERO));
    }
}

/// How the thread reaches a queue.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) id: u64,
    pub(crate) links: mpsc::Sender<Link>,
    /// Readable once something was sent to it.
    pub(crate) wake: Arc<OwnedFd>,
}

impl Port {
    /// Makes the queue look, and its core if it sleeps.
    pub(crate) fn wake(&self) {
        // It is full only when nobody has looked for 2^64 times; then there is something to see already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}
