//! Bounded single-producer, single-consumer rings between two cores, on `rtrb`.
//!
//! A message does not wake the receiver: after a batch of sends the sender calls
//! [`CoreHandle::wake`](crate::CoreHandle::wake) of the receiving core once.

use std::fmt;

/// A ring for up to `capacity` messages. Its memory is allocated here and never again.
///
/// # Panics
/// When `capacity` is 0: nothing could ever be sent.
#[must_use]
pub fn mailbox<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a mailbox needs room for a message");
    let (producer, consumer) = rtrb::RingBuffer::new(capacity);
    (Sender(producer), Receiver(consumer))
}

/// The end that messages are put in.
pub struct Sender<T>(rtrb::Producer<T>);

impl<T: Send> Sender<T> {
    /// Puts `message` behind all earlier ones. Succeeds while there is room, even if the receiver was dropped; see
    /// [`abandoned`](Self::abandoned).
    ///
    /// # Errors
    /// The message itself when the ring is full (back-pressure).
    // Handing the message back is the point: it may own buffers.
    #[allow(clippy::result_large_err)]
    pub fn send(&mut self, message: T) -> Result<(), T> {
        self.0.push(message).map_err(|rtrb::PushError::Full(message)| message)
    }

    /// How many messages fit now; more may fit a moment later, never fewer.
    #[must_use]
    pub fn room(&self) -> usize {
        self.0.slots()
    }

    /// How many messages wait to be received.
    #[must_use]
    pub fn len(&self) -> usize {
        self.capacity() - self.room()
    }

    /// True when the receiver has taken everything sent so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many messages fit in an empty ring.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.buffer().capacity()
    }

    /// True when the receiver was dropped: what is sent now is never received, only dropped with the ring.
    #[must_use]
    pub fn abandoned(&self) -> bool {
        self.0.is_abandoned()
    }
}

/// The end that messages come out of.
pub struct Receiver<T>(rtrb::Consumer<T>);

impl<T: Send> Receiver<T> {
    /// Takes the message sent first, if there is one.
    pub fn recv(&mut self) -> Option<T> {
        self.0.pop().ok()
    }

    /// How many messages wait; more may arrive at any time.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.slots()
    }

    /// True when no message waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True when the sender was dropped. Messages it sent before may still wait: after seeing `true`, an
    /// empty ring stays empty.
    #[must_use]
    pub fn abandoned(&self) -> bool {
        self.0.is_abandoned()
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({} of {} free)", self.0.slots(), self.0.buffer().capacity())
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({} of {} waiting)", self.0.slots(), self.0.buffer().capacity())
    }
}

#[cfg(test)]
mod tests;
