//! A queue whose submissions go through a function.

use strake_block::{CompletionBatch, Io, IoQueue, Readiness};
use strake_units::Nanos;

/// A queue that gives each request to a function, with the queue within. Everything else is that of the queue within.
/// Tests use it for a drive that refuses, delays or counts requests.
pub struct Intercept<F> {
    inner: Box<dyn IoQueue>,
    submit: F,
}

impl<F: FnMut(&mut dyn IoQueue, Io) -> Result<(), Io>> Intercept<F> {
    /// Has `submit` decide the outcome of each request to `inner`.
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
