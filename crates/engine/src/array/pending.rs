//! Answers that have not come yet. They can be waited for, or polled by a caller that drives the shards itself.

use std::sync::{Arc, mpsc};

use strake_units::{MemberIndex, Name};

use super::ShardHandle;
use crate::error::ArrayError;
use crate::message::Control;
use crate::shared_status::SharedStatus;

/// An answer that has not come yet.
pub struct Pending {
    pub(super) name: Name,
    pub(super) answer: mpsc::Receiver<Result<(), ArrayError>>,
}

impl Pending {
    /// Waits for the answer.
    ///
    /// # Errors
    /// What the array answered, or that it is gone.
    pub fn wait(self) -> Result<(), ArrayError> {
        self.answered()
    }

    fn answered(&self) -> Result<(), ArrayError> {
        self.answer.recv().unwrap_or_else(|_| Err(ArrayError::gone(&self.name)))
    }

    /// The answer if it is there.
    pub fn poll(&mut self) -> Option<Result<(), ArrayError>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(mpsc::TryRecvError::Empty) => None,
            Err(mpsc::TryRecvError::Disconnected) => Some(Err(ArrayError::gone(&self.name))),
        }
    }
}

/// A replacement under way: the device is opened on every core, then takes its member's place.
pub struct Replacing {
    pub(super) opening: Vec<Pending>,
    pub(super) shards: Vec<ShardHandle>,
    /// Where the device is opened.
    pub(super) place: MemberIndex,
    pub(super) then: Option<Control>,
    pub(super) recorded: Pending,
    /// Keeps others from replacing the same member at the same time.
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
    /// Moves on as far as answers have come; `Some` at the end.
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

    /// Asks the leader for the change, once.
    fn record(&mut self) {
        if let Some(change) = self.then.take() {
            // A failure to send shows as a missing answer.
            self.shards[0].tell(change);
        }
    }

    /// Closes the device on every core: it has not taken the place.
    fn release(&self) {
        for shard in &self.shards {
            shard.tell(Control::Release { member: self.place });
        }
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// When the device cannot be opened, or the member is not replaceable.
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
