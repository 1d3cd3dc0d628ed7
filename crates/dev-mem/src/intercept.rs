//! A queue that passes its submissions to a function.

use strake_block::{CompletionBatch, Io, IoQueue, Readiness};
use strake_units::Nanos;

/// A queue that passes each request to a function, together with the inner queue. All other operations are those of the
/// inner queue. Tests use it for a drive that refuses, delays or counts requests.
pub struct Intercept<F> {
    inner: Box<dyn IoQueue>,
    submit: F,
}

impl<F: FnMut(&mut dyn IoQueue, Io) -> Result<(), Io>> Intercept<F> {
    /// Returns a queue for which `submit` determines the result of each request to `inner`.
    pub fn new(inner: Box<dyn IoQueue>, submit: F) -> Self {
        Self { inner, submit }
    }
}

impl<F: FnMut(&mut dyn IoQueue, Io) -> Result<(), Io>> IoQueue for Intercept<F> {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        (self.submit)(&mut *self.inner, io)
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        self.inner.ring_doorbell(now);
    }

    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        self.inner.poll(now, batch);
    }

    fn readiness(&self) -> Readiness {
        self.inner.readiness()
    }
}
