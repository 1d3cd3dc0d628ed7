//! PDUs on their way out, in the order they became ready.

use crate::limits::{IO_ENTRIES, SENDS_PER_TURN, SLICES_PER_SEND};
use crate::slots::SlotIndex;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use strake_block::SgMut;
use strake_block::buf::SEGMENTS_MAX;
use strake_nvme_wire::digest::{self, DIGEST_BYTES, Digest};
use strake_nvme_wire::pdu::{CAPSULE_RESP_BYTES, DATA_BYTES, QUOTED_BYTES_MAX, Use};

/// Longest header: that of a request to end the connection with what it quotes.
const HEAD_BYTES: usize = DATA_BYTES + QUOTED_BYTES_MAX;
/// Longest end: a data digest, and a completion with its digest.
const TAIL_BYTES: usize = DIGEST_BYTES + CAPSULE_RESP_BYTES + DIGEST_BYTES;
/// PDUs that wait to be sent: a request for data, which a host may foresee, and the end of each command; besides them
/// the answer to Connect and the request to end the connection.
const REPLIES_MAX: usize = 2 * IO_ENTRIES as usize + 2;

/// Bytes in a place of their own.
#[derive(Clone, Copy)]
struct Fixed<const N: usize> {
    bytes: [u8; N],
    used: usize,
}

impl<const N: usize> Fixed<N> {
    const fn new() -> Self {
        Self { bytes: [0; N], used: 0 }
    }

    fn push(&mut self, more: &[u8]) {
        self.bytes[self.used..self.used + more.len()].copy_from_slice(more);
        self.used += more.len();
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// One PDU, or two that belong together.
pub(crate) struct Reply {
    head: Fixed<HEAD_BYTES>,
    data: SgMut,
    tail: Fixed<TAIL_BYTES>,
    /// The command that ends when this has been sent.
    ends: Option<SlotIndex>,
}

impl Reply {
    /// Bytes as they are: the answer to Connect, or a request to end the connection.
    pub(crate) fn raw(bytes: &[u8]) -> Self {
        let mut head = Fixed::new();
        head.push(bytes);
        Self { head, data: SgMut::default(), tail: Fixed::new(), ends: None }
    }

    /// A PDU that is only a header.
    pub(crate) fn bare(header: &[u8], header_digest: Use) -> Self {
        let mut reply = Self::raw(header);
        if header_digest == Use::On {
            reply.head.push(&digest::of(header));
        }
        reply
    }

    /// Data for the host behind a header, padded so that it begins at byte `lead`.
    pub(crate) fn data(
        header: &[u8],
        digests: strake_nvme_wire::Digests,
        lead: usize,
        data: SgMut,
    ) -> Self {
        let mut reply = Self::bare(header, digests.header);
        reply.head.used = lead;
        if digests.data == Use::On {
            let digest =
                data.parts().iter().fold(Digest::default(), |d, part| d.and(part.as_slice()));
            reply.tail.push(&digest.bytes());
        }
        reply.data = data;
        reply
    }

    /// The same with a completion behind it.
    pub(crate) fn and(mut self, header: &[u8], header_digest: Use) -> Self {
        self.tail.push(header);
        if header_digest == Use::On {
            self.tail.push(&digest::of(header));
        }
        self
    }

    /// The same as the last of its command.
    pub(crate) fn ending(mut self, slot: SlotIndex) -> Self {
        self.ends = Some(slot);
        self
    }

    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let data = self.data.parts().iter().map(|part| part.as_slice());
        [self.head.as_slice()].into_iter().chain(data).chain([self.tail.as_slice()])
    }

    fn bytes(&self) -> usize {
        self.head.used + self.data.len() + self.tail.used
    }
}

/// What came of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// There was nothing to send.
    Nothing,
    /// Something went out, and the socket takes more.
    Some,
    /// The socket takes no more for now.
    Blocked,
    /// The connection is broken.
    Broken,
}

/// The queue.
pub(crate) struct Replies {
    queue: VecDeque<Reply>,
    /// Bytes of the first reply that went out already.
    sent: usize,
}

impl Replies {
    pub(crate) fn new() -> Self {
        Self { queue: VecDeque::with_capacity(REPLIES_MAX), sent: 0 }
    }

    pub(crate) fn push(&mut self, reply: Reply) {
        assert!(self.queue.len() < REPLIES_MAX, "more replies than commands");
        self.queue.push_back(reply);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends what the socket takes; `done` gets the buffers and commands of what went out whole.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        mut done: impl FnMut(SgMut, Option<SlotIndex>),
    ) -> Sent {
        let mut outcome = Sent::Nothing;
        for _ in 0..SENDS_PER_TURN {
            if self.queue.is_empty() {
                break;
            }
            match self.send_once(socket) {
                Ok(bytes) => {
                    self.retire(bytes, &mut done);
                    outcome = Sent::Some;
                }
                Err(Errno::AGAIN | Errno::NOBUFS) => return Sent::Blocked,
                Err(Errno::INTR) => {}
                Err(_) => return Sent::Broken,
            }
        }
        outcome
    }

    fn send_once(&self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        let mut slices = [IoSlice::new(&[]); SLICES_PER_SEND];
        let mut used = 0;
        let mut skip = self.sent;
        for reply in &self.queue {
            // A reply has two fixed parts and its data; it goes into this call whole or not at all.
            if used + 2 + SEGMENTS_MAX > SLICES_PER_SEND {
                break;
            }
            for part in reply.parts() {
                let over = skip.min(part.len());
                skip -= over;
                if over < part.len() {
                    slices[used] = IoSlice::new(&part[over..]);
                    used += 1;
                }
            }
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(socket, &slices[..used], &mut SendAncillaryBuffer::default(), flags)
    }

    fn retire(&mut self, bytes: usize, done: &mut impl FnMut(SgMut, Option<SlotIndex>)) {
        self.sent += bytes;
        while let Some(first) = self.queue.front()
            && self.sent >= first.bytes()
        {
            self.sent -= first.bytes();
            if let Some(reply) = self.queue.pop_front() {
                done(reply.data, reply.ends);
            }
        }
    }

    /// Gives everything up.
    pub(crate) fn abandon(&mut self, mut done: impl FnMut(SgMut, Option<SlotIndex>)) {
        self.sent = 0;
        for reply in self.queue.drain(..) {
            done(reply.data, reply.ends);
        }
    }
}
