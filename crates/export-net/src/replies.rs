//! Replies on their way out, in the order they became ready.

use crate::limits::{SENDS_PER_TURN, SLICES_PER_SEND};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::IoSlice;
use strake_block::buf::SEGMENTS_MAX;
use strake_tls::{Wire, WireError};

/// Most parts of a reply besides its data.
const FIXED_PARTS: usize = 4;

/// What is sent at once: up to four fixed parts, and data.
pub trait Reply {
    /// Its parts in order, at most four and those of one list of buffers; some may be empty.
    fn parts(&self) -> impl Iterator<Item = &[u8]>;

    /// Bytes of all parts.
    fn bytes(&self) -> usize;
}

/// What came of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// There was nothing to send, or nothing that the socket would take.
    Nothing,
    /// Something went out, and the socket takes more.
    Some,
    /// The socket takes no more for now.
    Blocked,
    /// The connection is broken.
    Broken,
}

/// The queue. Its length is bounded by what replies consist of.
pub struct Replies<R> {
    queue: VecDeque<R>,
    most: usize,
    /// Bytes of the first reply that went out already.
    sent: usize,
}

impl<R: Reply> Replies<R> {
    /// Room for `most` replies.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { queue: VecDeque::with_capacity(most), most, sent: 0 }
    }

    /// Puts a reply behind the others.
    ///
    /// # Panics
    /// When there are more than were said to be possible.
    pub fn push(&mut self, reply: R) {
        assert!(self.queue.len() < self.most, "more replies than what they consist of");
        self.queue.push_back(reply);
    }

    /// True when all were sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends what the socket takes; `done` gets what went out whole.
    pub(crate) fn send(&mut self, wire: &mut Wire, mut done: impl FnMut(R)) -> Sent {
        let mut outcome = Sent::Nothing;
        for _ in 0..SENDS_PER_TURN {
            if self.queue.is_empty() {
                break;
            }
            match self.send_once(wire) {
                Ok(bytes) => {
                    self.retire(bytes, &mut done);
                    outcome = Sent::Some;
                }
                Err(WireError::Socket(Errno::AGAIN | Errno::NOBUFS)) => return Sent::Blocked,
                Err(WireError::Socket(Errno::INTR)) => {}
                Err(_) => return Sent::Broken,
            }
        }
        outcome
    }

    fn send_once(&self, wire: &mut Wire) -> Result<usize, WireError> {
        let mut slices = [IoSlice::new(&[]); SLICES_PER_SEND];
        let mut used = 0;
        let mut skip = self.sent;
        for reply in &self.queue {
            // A reply goes into this call whole or not at all.
            if used + FIXED_PARTS + SEGMENTS_MAX > SLICES_PER_SEND {
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
        wire.send(&slices[..used])
    }

    fn retire(&mut self, bytes: usize, done: &mut impl FnMut(R)) {
        self.sent += bytes;
        while let Some(first) = self.queue.front()
            && self.sent >= first.bytes()
        {
            self.sent -= first.bytes();
            if let Some(reply) = self.queue.pop_front() {
                done(reply);
            }
        }
    }

    /// Gives everything up.
    pub fn abandon(&mut self, done: impl FnMut(R)) {
        self.sent = 0;
        self.queue.drain(..).for_each(done);
    }
}
