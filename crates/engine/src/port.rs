//! The transport of requests and answers: direct for users on the thread of the shard, by mailboxes for other users.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use strake_block::{Completion, CompletionBatch, Io, IoError, Op, SgMut, Token};
use strake_reactor::{Receiver, Sender};
use strake_units::Lba;

use crate::shard::Shard;
use crate::shared_status::SharedStatus;

/// The state that a shard shares with a user on its thread.
pub(crate) struct Near {
    /// Requests that could not be sent directly to a member.
    pub(crate) requests: RefCell<VecDeque<Io>>,
    /// Answers. The capacity is the maximum number of outstanding requests of the user.
    pub(crate) replies: RefCell<CompletionBatch>,
    /// True after the shard has ended and answered its requests.
    pub(crate) gone: Cell<bool>,
}

/// The shard's side of the queue of a user.
pub(crate) enum Port {
    /// A user on this thread.
    Near(Rc<Near>),
    /// A user on any thread.
    Far {
        /// Requests of the user.
        requests: Receiver<Io>,
        /// Answers to the user.
        replies: Sender<Completion>,
    },
}

impl Port {
    /// Returns the next request.
    #[inline(always)]
    pub(crate) fn recv(&mut self) -> Option<Io> {
        match self {
            Self::Near(near) => near.requests.borrow_mut().pop_front(),
            Self::Far { requests, .. } => requests.recv(),
        }
    }

    /// True if a request waits.
    pub(crate) fn has_waiting(&self) -> bool {
        match self {
            Self::Near(near) => !near.requests.borrow().is_empty(),
            Self::Far { requests, .. } => !requests.is_empty(),
        }
    }

    /// True if the user has closed the queue and no request waits.
    pub(crate) fn is_over(&self) -> bool {
        let is_closed = match self {
            Self::Near(near) => Rc::strong_count(near) == 1,
            Self::Far { requests, .. } => requests.abandoned(),
        };
        is_closed && !self.has_waiting()
    }

    /// Answers direct reads as long as `next` returns one. Returns their number. Each operation is constructed in
    /// place, as by [`send_made`](Self::send_made).
    #[inline(always)]
    pub(crate) fn send_reads(
        &mut self,
        mut next: impl FnMut() -> Option<(Token, Lba, SgMut)>,
    ) -> u32 {
        let Self::Near(near) = self else { unreachable!("others have requests") };
        let mut replies = near.replies.borrow_mut();
        let mut count = 0;
        while let Some((token, at, data)) = next() {
            replies.push_parts(token, Op::Read { at, data }, Ok(()));
            count += 1;
        }
        count
    }

    /// Answers a direct request. The operation is constructed in place, because a move of the whole operation would
    /// cost more than all other work (decision 13).
    #[inline(always)]
    pub(crate) fn send_made(
        &mut self,
        token: Token,
        result: Result<(), IoError>,
        op: impl FnOnce() -> Op,
    ) {
        match self {
            Self::Near(near) => near.replies.borrow_mut().push_parts(token, op(), result),
            Self::Far { .. } => self.send(Completion { token, op: op(), result }),
        }
    }

    /// Sends an answer. The queue has room for the answers of all outstanding requests. Answers to a closed queue are
    /// dropped.
    pub(crate) fn send(&mut self, completion: Completion) {
        match self {
            Self::Near(near) => near.replies.borrow_mut().push(completion),
            Self::Far { replies, .. } => {
                let _ = replies.send(completion);
            }
        }
    }

    /// Closes the port when the shard ends.
    pub(crate) fn close(&self) {
        match self {
            Self::Near(near) => near.gone.set(true),
            // The drop of the mailboxes informs the user.
            Self::Far { .. } => {}
        }
    }
}

thread_local! {
    /// Shards that this thread drives.
    static SHARDS: RefCell<Vec<Weak<Shard>>> = const { RefCell::new(Vec::new()) };
}

/// Records that this thread drives `shard`.
pub(crate) fn drives(shard: &Rc<Shard>) {
    SHARDS.with_borrow_mut(|shards| {
        shards.retain(|shard| shard.strong_count() > 0);
        shards.push(Rc::downgrade(shard));
    });
}

/// Returns shard `core` of the array with this shared status, if this thread drives it.
pub(crate) fn shard_here(shared: &Arc<SharedStatus>, core: usize) -> Option<Rc<Shard>> {
    SHARDS.with_borrow(|shards| {
        let here = shards.iter().filter_map(Weak::upgrade);
        here.into_iter().find(|shard| shard.is_of(shared, core))
    })
}
