//! How requests reach a shard and answers leave it: directly for users on the shard's own thread, by mailboxes for all
//! others.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use strake_block::{Completion, CompletionBatch, Io, IoError, Op, SgMut, Token};
use strake_reactor::{Receiver, Sender};
use strake_units::Lba;

use crate::shard::Shard;
use crate::shared_status::SharedStatus;

/// What a user on the shard's own thread shares with it.
pub(crate) struct Near {
    /// What could not go straight to a member.
    pub(crate) requests: RefCell<VecDeque<Io>>,
    /// Has room for as many answers as the user may have requests outstanding.
    pub(crate) replies: RefCell<CompletionBatch>,
    /// The shard has gone; what it had is answered.
    pub(crate) gone: Cell<bool>,
}

/// A shard's side of a user's queue.
pub(crate) enum Port {
    /// On this thread.
    Near(Rc<Near>),
    /// Anywhere.
    Far {
        /// What it asks for.
        requests: Receiver<Io>,
        /// What it is answered.
        replies: Sender<Completion>,
    },
}

impl Port {
    /// The next request.
    #[inline(always)]
    pub(crate) fn recv(&mut self) -> Option<Io> {
        match self {
            Self::Near(near) => near.requests.borrow_mut().pop_front(),
            Self::Far { requests, .. } => requests.recv(),
        }
    }

    /// True when the user has gone and nothing of it waits.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Near(near) => Rc::strong_count(near) == 1 && near.requests.borrow().is_empty(),
            Self::Far { requests, .. } => requests.abandoned() && requests.is_empty(),
        }
    }

    /// Answers reads that were sent directly, as far as there is a next one. Returns how many. Each operation is made
    /// where it is put, as by [`send_made`](Self::send_made).
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

    /// Answers what was sent directly. The operation is made where it is put: moving it there as a whole right after
    /// would cost more than all the rest (decision 13).
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

    /// Sends an answer. There is room for every request that may be outstanding; a user that has gone wants none.
    pub(crate) fn send(&mut self, completion: Completion) {
        match self {
            Self::Near(near) => near.replies.borrow_mut().push(completion),
            Self::Far { replies, .. } => {
                let _ = replies.send(completion);
            }
        }
    }

    /// The shard goes away.
    pub(crate) fn close(&self) {
        match self {
            Self::Near(near) => near.gone.set(true),
            // Dropping the mailboxes tells.
            Self::Far { .. } => {}
        }
    }
}

thread_local! {
    /// The shards that this thread drives.
    static SHARDS: RefCell<Vec<Weak<Shard>>> = const { RefCell::new(Vec::new()) };
}

/// This thread drives `shard` from now on.
pub(crate) fn drives(shard: &Rc<Shard>) {
    SHARDS.with_borrow_mut(|shards| {
        shards.retain(|shard| shard.strong_count() > 0);
        shards.push(Rc::downgrade(shard));
    });
}

/// The shard of number `core` of the array with this shared status, if this thread drives it.
pub(crate) fn shard_here(shared: &Arc<SharedStatus>, core: usize) -> Option<Rc<Shard>> {
    SHARDS.with_borrow(|shards| {
        let here = shards.iter().filter_map(Weak::upgrade);
        here.into_iter().find(|shard| shard.is_of(shared, core))
    })
}
