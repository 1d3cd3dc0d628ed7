//! Bounded single-producer, single-consumer rings between two cores, on `rtrb`.
//!
//! A message does not wake the receiver. After a batch of messages, the sender calls
//! [`CoreHandle::wake`](crate::CoreHandle::wake) of the receiving core once.

use std::fmt;

/// A ring for up to `capacity` messages. This function allocates all memory of the ring.
///
/// # Panics
/// If `capacity` is 0.
#[must_use]
pub fn mailbox<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a mailbox needs room for a message");
    let (producer, consumer) = rtrb::RingBuffer::new(capacity);
    (Sender(producer), Receiver(consumer))
}

/// The sending end of a mailbox.
pub struct Sender<T>(rtrb::Producer<T>);

impl<T: Send> Sender<T> {
    /// Appends `message`. Succeeds while there is room, even if the receiver was dropped; see
    /// [`abandoned`](Self::abandoned).
    ///
    /// # Errors
    /// If the ring is full (back-pressure). The error contains the message.
    // The error returns the message, because the message may own buffers.
    #[allow(clippy::result_large_err)]
    pub fn send(&mut self, message: T) -> Result<(), T> {
        self.0.push(message).map_err(|rtrb::PushError::Full(message)| message)
    }

    /// Returns the number of messages that fit now. Later, the number can only be larger.
    #[must_use]
    pub fn room(&self) -> usize {
        self.0.slots()
    }

    /// Returns the number of messages that wait for the receiver.
    #[must_use]
    pub fn len(&self) -> usize {
        self.capacity() - self.room()
    }

    /// True if the receiver has taken all messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the capacity of the ring.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.buffer().capacity()
    }

    /// True if the receiver was dropped. Further messages are never received, and are dropped with the ring.
    #[must_use]
    pub fn abandoned(&self) -> bool {
        self.0.is_abandoned()
    }
}

/// The receiving end of a mailbox.
pub struct Receiver<T>(rtrb::Consumer<T>);

impl<T: Send> Receiver<T> {
    /// Removes and returns the oldest message, if any.
    pub fn recv(&mut self) -> Option<T> {
        self.0.pop().ok()
    }

    /// Returns the number of waiting messages. More messages may arrive at any time.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.slots()
    }

    /// True if no message waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the sender was dropped. Its messages may still wait. After a result of true, an empty ring stays empty.
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
