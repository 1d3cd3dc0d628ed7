//! Groups of I/Os for which a task waits.

use strake_reactor::{Scheduler, TaskId};
use strake_units::MemberIndex;

use crate::slab::Slab;

/// A group of I/Os of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group(pub(super) u32);

struct GroupState {
    task: TaskId,
    outstanding: u32,
    /// The member of the last I/O with an outcome, until it is taken.
    last: Option<MemberIndex>,
}

/// The groups of a shard.
pub(crate) struct Groups(Slab<GroupState>);

impl Groups {
    pub(super) fn new(count: usize) -> Self {
        Self(Slab::new(count))
    }

    pub(crate) fn open(&mut self, task: TaskId) -> Group {
        Group(self.0.insert(GroupState { task, outstanding: 0, last: None }))
    }

    pub(crate) fn close(&mut self, group: Group) {
        let state = self.0.remove(group.0);
        assert_eq!(state.outstanding, 0, "a task left I/Os behind");
    }

    /// Returns the member of the last I/O with an outcome since the previous call.
    pub(crate) fn take_last(&mut self, group: Group) -> Option<MemberIndex> {
        self.0.get_mut(group.0).expect("the group is open").last.take()
    }

    /// True if every I/O of `group` has an outcome.
    pub(crate) fn is_settled(&self, group: Group) -> bool {
        self.0.get(group.0).expect("the group is open").outstanding == 0
    }

    /// Records that one more I/O was issued.
    #[inline]
    pub(super) fn add_one(&mut self, group: u32) {
        self.0.get_mut(group).expect("a group outlives its I/Os").outstanding += 1;
    }

    /// Records that one I/O, an I/O of `member`, has an outcome.
    #[inline]
    pub(super) fn settle_one(&mut self, group: u32, member: MemberIndex, scheduler: &Scheduler) {
        let state = self.0.get_mut(group).expect("a group outlives its I/Os");
        state.outstanding -= 1;
        state.last = Some(member);
        if state.outstanding == 0 {
            scheduler.wake(state.task);
        }
    }
}
