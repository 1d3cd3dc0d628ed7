//! Pending answers. A caller can wait for an answer, or poll it if the caller drives the shards itself.

use std::sync::{Arc, mpsc};

use strake_units::{MemberIndex, Name};

use super::ShardHandle;
use crate::error::ArrayError;
use crate::message::Control;
use crate::shared_status::SharedStatus;

/// A pending answer.
pub struct Pending {
    pub(super) name: Name,
    pub(super) answer: mpsc::Receiver<Result<(), ArrayError>>,
}

impl Pending {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The error of the operation, or an error if the array was stopped.
    pub fn wait(self) -> Result<(), ArrayError> {
        self.answered()
    }

    fn answered(&self) -> Result<(), ArrayError> {
        self.answer.recv().unwrap_or_else(|_| Err(ArrayError::gone(&self.name)))
    }

    /// Returns the answer if it has arrived.
    pub fn poll(&mut self) -> Option<Result<(), ArrayError>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => Some(Err(ArrayError::gone(&self.name))),
        }
    }
}

/// A replacement in progress. Every core opens the device, and then the device gets the slot of the member.
pub struct Replacing {
    pub(super) opening: Vec<Pending>,
    pub(super) shards: Vec<ShardHandle>,
    /// The index at which the cores open the device.
    pub(super) place: MemberIndex,
    pub(super) then: Option<Control>,
    pub(super) recorded: Pending,
    /// Prevents a second replacement of the same member.
    pub(super) _claim: Claim,
}

/// A member that is being replaced.
pub(super) struct Claim {
    pub(super) shared: Arc<SharedStatus>,
    pub(super) member: MemberIndex,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.shared.end_replacing(self.member);
    }
}

impl Replacing {
    /// Continues as far as answers have arrived. Returns `Some` at the end.
    pub fn poll(&mut self) -> Option<Result<(), ArrayError>> {
        let answer = self.advance()?;
        if answer.is_err() {
            self.release();
        }
        Some(answer)
    }

    fn advance(&mut self) -> Option<Result<(), ArrayError>> {
        while let Some(next) = self.opening.last_mut() {
            match next.poll()? {
                Ok(()) => drop(self.opening.pop()),
                Err(error) => return Some(Err(error)),
            }
        }
        self.record();
        self.recorded.poll()
    }

    /// Requests the change from the leader, once.
    fn record(&mut self) {
        if let Some(change) = self.then.take() {
            // If the message cannot be sent, no answer arrives.
            self.shards[0].tell(change);
        }
    }

    /// Closes the device on every core, because it did not get the slot.
    fn release(&self) {
        for shard in &self.shards {
            shard.tell(Control::Release { member: self.place });
        }
    }

    /// Waits until the replacement has finished.
    ///
    /// # Errors
    /// If the device cannot be opened, or the member cannot be replaced.
    pub fn wait(mut self) -> Result<(), ArrayError> {
        let opened = self.opening.drain(..).try_for_each(Pending::wait);
        let answer = opened.and_then(|()| {
            self.record();
            self.recorded.answered()
        });
        if answer.is_err() {
            self.release();
        }
        answer
    }
}
