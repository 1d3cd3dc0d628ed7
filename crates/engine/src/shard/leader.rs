//! The leader of an array, which alone decides about labels, bitmaps, and the use of members.
//!
//! Shard 0 is the leader, so there is one writer of metadata and one order of state changes:
//!
//! ```text
//!  a member fails --> recorded on every survivor (generation + 1) --> views sent to all shards
//!       --> all applied --> settled: only now is a write that the member missed acknowledged
//! ```
//!
//! Tasks wait only downwards in this diagram, so no deadlock is possible:
//!
//! ```text
//!  band task, host flush      wait for memory, members' I/O, a write-intent bit, a member to be out of use
//!       |                     (`expel`, `await_member_out`, `regions::enter`)
//!       v
//!  bitmap task                waits for members' I/O, a member to be out of use (`expel`)
//!       |
//!       v
//!  label task                 waits for members' I/O and for every shard's turn to apply views; a member that
//!                             fails under it is taken out by itself (`fail_member`), never waited for
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use strake_block::IoErrorKind;
use strake_ondisk::{AreaLayout, Bitmap, Bits, RecordedState, Superblock};
use strake_raid::{MemberEvent, MemberState, members_where};
use strake_units::{CoreIndex, CoreSet, MemberIndex, MemberSet, Nanos, RegionIndex};

use super::Shard;
use super::reconfiguration::Reconfiguration;
use super::serve::FailedMembers;
use super::wait::WaitQueue;
use crate::assemble::LostPages;
use crate::bad_blocks::BadBlocks;
use crate::bitmaps::Bitmaps;
use crate::events::ArrayEventKind;
use crate::limits::{SWEEP_EVERY, SWEEP_EVERY_DEGRADED};
use crate::message::{Change, Peer, Reply, ToLeader, View};
use crate::shared_status::{HALTED_RESYNC, MemberCause};

/// The initial state of the leader: the assembled array.
pub(crate) struct LeaderState {
    pub(crate) superblock: Superblock,
    pub(crate) states: Vec<MemberState>,
    /// The areas of each member; `None` without a device.
    pub(crate) layouts: Vec<Option<AreaLayout>>,
    pub(crate) bitmaps: Bitmaps,
    pub(crate) bad: BadBlocks,
    /// Number of writes that were replayed from the redo log.
    pub(crate) writes_redone: u64,
    /// Pages of the bitmaps that were unreadable or damaged at the start.
    pub(crate) lost_pages: Vec<LostPages>,
}

/// A sweep that is collecting idle regions.
pub(super) struct Sweep {
    pub(super) awaiting: u16,
    pub(super) idle: Vec<RegionIndex>,
}

pub(crate) struct Leader {
    pub(super) state: LeaderState,
    pub(super) changes: VecDeque<(Change, Option<Reply>)>,
    pub(super) labels_running: bool,
    /// True after the start of a stop. Later changes are refused.
    pub(super) stopped: bool,
    pub(super) bitmap_running: bool,
    /// Number of bits set in the write-intent bitmap.
    intended: u32,
    /// True while a task writes bitmap pages.
    pub(super) writing_pages: bool,
    /// Tasks that wait to write bitmap pages.
    pub(super) pages_waiting: WaitQueue,
    /// Members whose bitmap pages could not be written, until the members are recorded as out.
    pub(super) unpaged: FailedMembers,
    /// True if some live member does not have the present list of bad blocks.
    pub(super) bad_unwritten: bool,
    /// The newest generation that every live member has.
    pub(super) completed: u64,
    /// Requests for regions that are not yet answered.
    pub(super) asked: Vec<(u16, RegionIndex)>,
    pub(super) sweep: Option<Sweep>,
    /// A sweep for which the label task waits.
    pub(super) urgent_sweep: Option<Sweep>,
    last_sweep: Nanos,
    pub(super) next_checkpoint: Nanos,
    pub(super) version: u64,
    applied: CoreSet,
    /// Shards without writes that are older than the last views.
    drained: CoreSet,
    /// The generation in the last published views.
    pub(super) reported: u64,
    /// The generation with which a member most recently came into use.
    pub(super) joined: u64,
    pub(super) settling: WaitQueue,
    /// For each member, regions that were rebuilt but may not be stable.
    pub(super) done: Vec<Bits>,
    resyncing: u16,
    /// The cause why each member is out.
    pub(super) causes: Vec<Option<MemberCause>>,
    pub(super) join: Reconfiguration,
    pub(super) replacement: Reconfiguration,
    pub(super) mode: Reconfiguration,
}

impl Leader {
    pub(crate) fn new(state: LeaderState, scheduler: &strake_reactor::Scheduler) -> Self {
        let nothing = Bits::new(state.bitmaps.write_intent().regions());
        let reported = state.superblock.generation;
        Self {
            intended: state.bitmaps.write_intent().count_ones(),
            writing_pages: false,
            pages_waiting: WaitQueue::new(scheduler),
            unpaged: FailedMembers::new(),
            bad_unwritten: false,
            completed: reported,
            done: vec![nothing; state.states.len()],
            causes: vec![None; state.states.len()],
            state,
            changes: VecDeque::new(),
            labels_running: false,
            stopped: false,
            bitmap_running: false,
            asked: Vec::new(),
            sweep: None,
            urgent_sweep: None,
            last_sweep: Nanos(0),
            next_checkpoint: Nanos(0),
            version: 0,
            applied: CoreSet::EMPTY,
            drained: CoreSet::EMPTY,
            reported,
            joined: reported,
            settling: WaitQueue::new(scheduler),
            resyncing: 0,
            join: Reconfiguration::Idle,
            replacement: Reconfiguration::Idle,
            mode: Reconfiguration::Idle,
        }
    }

    /// Returns the members that are not in sync.
    pub(super) fn impaired(&self) -> MemberSet {
        members_where(&self.state.states, |state| state != MemberState::InSync)
    }

    pub(super) fn live(&self) -> impl Iterator<Item = MemberIndex> {
        let live: Vec<MemberIndex> = (0..self.state.states.len() as u8)
            .map(MemberIndex)
            .filter(|m| view_of(self.state.states[m.at()]) != View::Absent)
            .collect();
        live.into_iter()
    }

    pub(super) fn views(&self) -> Arc<[View]> {
        self.state.states.iter().map(|s| view_of(*s)).collect()
    }

    /// Changes the state of a member, in memory and in the next label. Returns false if the event does not apply to the
    /// state, such as a second report of one failure.
    pub(super) fn transition(&mut self, member: MemberIndex, event: MemberEvent) -> bool {
        let Ok(next) = self.state.states[member.at()].next(event) else { return false };
        if next == self.state.states[member.at()] {
            return false;
        }
        self.state.states[member.at()] = next;
        let generation = self.state.superblock.generation;
        let record = &mut self.state.superblock.members[member.at()];
        record.state = recorded(next);
        if next == MemberState::InSync {
            record.in_sync_generation = generation + 1;
        }
        record.recovered_stripes = match next {
            MemberState::Rebuilding { recovered_stripes } => recovered_stripes,
            MemberState::InSync | MemberState::Faulty | MemberState::Missing => 0,
        };
        true
    }

    /// Sets the bits of the region. Returns true if pages must be written before the answer.
    fn intend(&mut self, region: RegionIndex) -> bool {
        for sweep in [&mut self.sweep, &mut self.urgent_sweep].into_iter().flatten() {
            sweep.idle.retain(|idle| *idle != region);
        }
        let intended = self.state.bitmaps.set(Bitmap::WriteIntent, region);
        self.intended += u32::from(intended);
        let mut changed = intended | self.state.bitmaps.set(Bitmap::Written, region);
        // Members that are not written lack the region from now on. The same stable write records this.
        for member in self.not_written() {
            changed |= self.state.bitmaps.set(Bitmap::Member(member), region);
        }
        changed
    }

    /// Returns the members that are out of use.
    pub(super) fn out(&self) -> MemberSet {
        members_where(&self.state.states, |state| view_of(state) == View::Absent)
    }

    /// Returns the members that some shard does not write.
    fn not_written(&self) -> MemberSet {
        self.out() | self.joining().into_iter().collect()
    }

    /// Returns the time of the next sweep.
    fn next_sweep(&self) -> Nanos {
        let every = if self.impaired().is_empty() { SWEEP_EVERY } else { SWEEP_EVERY_DEGRADED };
        self.last_sweep.plus(every)
    }

    /// Removes and returns the idle regions of an urgent sweep.
    pub(super) fn take_swept(&mut self) -> Vec<RegionIndex> {
        self.urgent_sweep.take().map(|sweep| sweep.idle).unwrap_or_default()
    }

    /// Clears the region's write-intent bit.
    pub(super) fn forget(&mut self, region: RegionIndex) {
        let cleared = self.state.bitmaps.clear(Bitmap::WriteIntent, region);
        self.intended -= u32::from(cleared);
    }

    pub(super) fn all_applied(&self, version: u64, cores: u16) -> bool {
        self.version != version || self.applied.len() == cores.into()
    }

    pub(super) fn new_version(&mut self) -> u64 {
        self.version += 1;
        self.applied = CoreSet::EMPTY;
        self.drained = CoreSet::EMPTY;
        self.version
    }
}

pub(crate) const fn view_of(state: MemberState) -> View {
    match state {
        MemberState::InSync => View::InSync,
        MemberState::Rebuilding { .. } => View::Rebuilding,
        MemberState::Faulty | MemberState::Missing => View::Absent,
    }
}

pub(crate) const fn recorded(state: MemberState) -> RecordedState {
    match state {
        MemberState::InSync => RecordedState::InSync,
        MemberState::Rebuilding { .. } => RecordedState::Rebuilding,
        MemberState::Faulty => RecordedState::Faulty,
        MemberState::Missing => RecordedState::Missing,
    }
}

/// Messages to the leader, and its timed work.
impl Shard {
    pub(super) fn lead(&self, message: ToLeader) {
        let Some(leader) = &self.leader else {
            unreachable!("only shard 0 is addressed as leader")
        };
        let mut leader = leader.borrow_mut();
        match message {
            ToLeader::Intend { from, region } => self.lead_intend(&mut leader, from, region),
            ToLeader::Hopeless => {
                if !self.shared.is_lost() {
                    self.lose(&mut leader);
                }
            }
            ToLeader::Change(change) => self.change(&mut leader, change),
            ToLeader::Applied { from, version } => {
                if version == leader.version {
                    leader.applied.insert(CoreIndex(from));
                    leader.settling.wake_all();
                }
            }
            ToLeader::Drained { from, version } => {
                if version == leader.version {
                    leader.drained.insert(CoreIndex(from));
                    if leader.drained.len() == self.cores.into() {
                        self.change(&mut leader, Change::Drained { version });
                    }
                }
            }
            ToLeader::Swept { urgent: false, idle } => self.lead_swept(&mut leader, idle),
            ToLeader::Swept { urgent: true, idle } => {
                if let Some(sweep) = &mut leader.urgent_sweep {
                    sweep.idle.extend(idle);
                    sweep.awaiting -= 1;
                }
                leader.settling.wake_all();
            }
            ToLeader::Halted { what } => self.shared.tell(
                None,
                if what == HALTED_RESYNC {
                    ArrayEventKind::ResyncHalted
                } else {
                    ArrayEventKind::RebuildHalted
                },
            ),
            ToLeader::Rebuilt { member, region } => self.lead_rebuilt(&mut leader, member, region),
            ToLeader::Resynced => {
                leader.resyncing = leader.resyncing.saturating_sub(1);
                if leader.resyncing == 0 {
                    self.shared.tell(None, ArrayEventKind::ResyncFinished);
                    self.broadcast(|| Peer::CopiesAgree);
                }
            }
        }
    }

    fn lead_intend(&self, leader: &mut Leader, from: u16, region: RegionIndex) {
        if self.shared.is_lost() {
            self.post(from, Peer::Intended { region, result: Err(IoErrorKind::Lost) });
        } else if leader.intend(region) {
            leader.asked.push((from, region));
            self.start_bitmap(leader);
        } else {
            self.post(from, Peer::Intended { region, result: Ok(()) });
        }
    }

    fn lead_swept(&self, leader: &mut Leader, idle: Vec<RegionIndex>) {
        let Some(sweep) = &mut leader.sweep else { return };
        sweep.idle.extend(idle);
        sweep.awaiting -= 1;
        if sweep.awaiting == 0 {
            if sweep.idle.is_empty() {
                leader.sweep = None;
            } else {
                self.start_bitmap(leader);
            }
        }
    }

    /// Starts the leader: finishes completed rebuilds, and counts the shards that resynchronize.
    pub(super) fn lead_start(&self, resyncing: u16) {
        let Some(leader) = &self.leader else { return };
        let mut leader = leader.borrow_mut();
        if leader.state.writes_redone > 0 {
            self.shared
                .tell(None, ArrayEventKind::WritesRedone { count: leader.state.writes_redone });
        }
        for LostPages { member, pages, everywhere } in leader.state.lost_pages.iter().copied() {
            self.shared.tell(Some(member), ArrayEventKind::BitmapLost { pages, everywhere });
        }
        leader.resyncing = resyncing;
        if resyncing > 0 {
            self.shared.tell(None, ArrayEventKind::ResyncStarted);
        }
        for at in 0..leader.state.states.len() {
            let member = MemberIndex(at as u8);
            let rebuilding = view_of(leader.state.states[at]) == View::Rebuilding;
            if !rebuilding {
                continue;
            }
            self.tell_rebuild(&leader, member);
            if leader.is_rebuilt(member) {
                self.change(&mut leader, Change::Rebuilt { member });
            }
        }
    }

    pub(super) fn change(&self, leader: &mut Leader, change: Change) {
        self.enqueue(leader, change, None);
    }

    /// Queues a change for the label task.
    pub(super) fn enqueue(&self, leader: &mut Leader, change: Change, reply: Option<Reply>) {
        leader.changes.push_back((change, reply));
        // The label task may be waiting for a flush.
        leader.settling.wake_all();
        if !std::mem::replace(&mut leader.labels_running, true) {
            self.urgent.borrow_mut().push_back(super::Job::Labels);
        }
    }

    pub(super) fn start_bitmap(&self, leader: &mut Leader) {
        if !std::mem::replace(&mut leader.bitmap_running, true) {
            self.urgent.borrow_mut().push_back(super::Job::Bitmap);
        }
    }

    pub(super) fn broadcast(&self, message: impl Fn() -> Peer) {
        for shard in 0..self.cores {
            self.post(shard, message());
        }
    }

    /// Starts a sweep if it is due.
    pub(super) fn lead_clock(&self) {
        let Some(leader) = &self.leader else { return };
        let mut leader = leader.borrow_mut();
        let due = self.now.get() >= leader.next_sweep() && leader.sweep.is_none();
        if due && leader.intended > 0 && !self.stopping() && !self.shared.is_lost() {
            leader.last_sweep = self.now.get();
            leader.sweep = Some(Sweep { awaiting: self.cores, idle: Vec::new() });
            self.broadcast(|| Peer::Sweep { urgent: false });
        }
    }

    /// Returns the next time at which the leader has work.
    pub(super) fn lead_deadline(&self) -> Option<Nanos> {
        let leader = self.leader.as_ref()?.borrow();
        let wants = leader.intended > 0 && leader.sweep.is_none() && !self.stopping();
        (wants && !self.shared.is_lost()).then(|| leader.next_sweep())
    }

    /// Stops the array after more members failed than the level tolerates. Nothing is recorded, so the last valid
    /// labels remain.
    pub(super) fn lose(&self, leader: &mut Leader) {
        self.shared.set_lost();
        self.shared.tell(None, ArrayEventKind::Lost);
        for (from, region) in leader.asked.drain(..) {
            self.post(from, Peer::Intended { region, result: Err(IoErrorKind::Lost) });
        }
        self.broadcast(|| Peer::Lost);
    }
}
