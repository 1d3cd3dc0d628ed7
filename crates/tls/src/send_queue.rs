//! Messages on their way out, in the order they became ready.

use crate::limits::SLICES_PER_SEND;
use crate::wire::{Wire, WireError};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::IoSlice;
use strake_block::buf::SEGMENTS_MAX;

/// Most parts of a message besides its data.
const FIXED_PARTS: usize = 4;

/// What is sent at once: up to four fixed parts, and data.
pub trait Message {
    /// Its parts in order, at most four and those of one list of buffers; some may be empty.
    fn parts(&self) -> impl Iterator<Item = &[u8]>;

    /// Bytes of all parts.
    fn bytes(&self) -> usize;
}

/// Where the messages of a queue are, and what becomes of them.
pub trait Messages<E> {
    /// What an entry stands for.
    type Message: Message;

    /// The message of an entry.
    fn of<'a>(&'a self, entry: &'a E) -> &'a Self::Message;

    /// The message of an entry has gone out whole. Returns the entry if it stands for another one, which is sent behind
    /// all others.
    fn sent(&mut self, entry: E) -> Option<E>;
}

/// Entries that are messages themselves, and what takes each of them that has gone out.
pub struct Owned<F>(pub F);

impl<M: Message, F: FnMut(M)> Messages<M> for Owned<F> {
    type Message = M;

    fn of<'a>(&'a self, entry: &'a M) -> &'a M {
        entry
    }

    fn sent(&mut self, entry: M) -> Option<M> {
        (self.0)(entry);
        None
    }
}

/// What came of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// There was nothing to send, or nothing that the socket would take.
    Nothing,
    /// Something went out, and the socket takes more.
    Some,
    /// The socket takes no more until it is writable again.
    Blocked,
    /// The connection is broken.
    Broken(WireError),
}

/// The queue. Its length is bounded by what its entries stand for.
pub struct SendQueue<E> {
    queue: VecDeque<E>,
    most: usize,
    /// Bytes of the first message that went out already.
    sent: usize,
}

impl<E> SendQueue<E> {
    /// Room for `most` entries.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { queue: VecDeque::with_capacity(most), most, sent: 0 }
    }

    /// Puts an entry behind the others.
    ///
    /// # Panics
    /// When there are more than were said to be possible.
    pub fn push(&mut self, entry: E) {
        assert!(self.queue.len() < self.most, "more entries than what they stand for");
        self.queue.push_back(entry);
    }

    /// True when all were sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends what the socket takes in at most `calls` system calls.
    pub fn send(&mut self, wire: &mut Wire, calls: usize, messages: &mut impl Messages<E>) -> Sent {
        let mut outcome = Sent::Nothing;
        for _ in 0..calls {
            if self.queue.is_empty() {
                break;
            }
            match self.send_once(wire, messages) {
                Ok(bytes) => {
                    self.retire(bytes, messages);
                    outcome = Sent::Some;
                }
                Err(WireError::Socket(Errno::AGAIN | Errno::NOBUFS)) => return Sent::Blocked,
                Err(WireError::Socket(Errno::INTR)) => {}
                Err(error) => return Sent::Broken(error),
            }
        }
        outcome
    }

    fn send_once(&self, wire: &mut Wire, messages: &impl Messages<E>) -> Result<usize, WireError> {
        let mut slices = [IoSlice::new(&[]); SLICES_PER_SEND];
        let mut used = 0;
        let mut skip = self.sent;
        for entry in &self.queue {
            // A message goes into this call whole or not at all.
            if used + FIXED_PARTS + SEGMENTS_MAX > SLICES_PER_SEND {
                break;
            }
            for part in messages.of(entry).parts() {
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

    fn retire(&mut self, bytes: usize, messages: &mut impl Messages<E>) {
        self.sent += bytes;
        while let Some(first) = self.queue.front() {
            let bytes = messages.of(first).bytes();
            if self.sent < bytes {
                break;
            }
            self.sent -= bytes;
            let next = self.queue.pop_front().and_then(|entry| messages.sent(entry));
            self.queue.extend(next);
        }
    }

    /// Gives everything up.
    pub fn abandon(&mut self, done: impl FnMut(E)) {
        self.sent = 0;
        self.queue.drain(..).for_each(done);
    }
}
