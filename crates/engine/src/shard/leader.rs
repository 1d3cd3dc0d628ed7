//! What only one shard of an array may decide: labels, the bitmap, and which members are in use.
//!
//! Shard 0 leads. There is one writer of metadata and one order of state changes:
//!
//! ```text
//!  a member fails --> recorded on every survivor (generation + 1) --> views sent to all shards
//!       --> all applied --> settled: only now is a write that the member missed acknowledged
//! ```
//!
//! Who may wait for whom, always downwards, so that nothing waits in a circle:
//!
//! ```text
//!  band task, host flush      wait for memory, members' I/O, an intent bit, a member to be out of use
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
use std::sync::mpsc;

use strake_block::IoErrorKind;
use strake_ondisk::{AreaLayout, Bits, PAGES_PER_PLANE, Plane, RecordedState, Superblock};
use strake_raid::{MemberEvent, MemberState};
use strake_units::{MemberIndex, Nanos, RegionIndex, Uuid};

use super::Shard;
use super::wait::WaitQueue;
use crate::error::ArrayError;
use crate::limits::{CHECKPOINT_EVERY, SWEEP_EVERY, SWEEP_EVERY_DEGRADED};
use crate::message::{Peer, View};

/// What the leader starts from: the array as assembled.
pub(crate) struct LeaderState {
    pub(crate) superblock: Superblock,
    pub(crate) states: Vec<MemberState>,
    /// Where labels lie on each member; `None` while it has no device.
    pub(crate) layouts: Vec<Option<AreaLayout>>,
    pub(crate) intent: Bits,
    pub(crate) written: Bits,
    /// Sequence number of the newest copy of each page: all pages of one plane, then of the next.
    pub(crate) sequences: Vec<u64>,
}

/// Something that changes the labels.
pub(super) enum Change {
    Failed {
        member: MemberIndex,
        cause: IoErrorKind,
    },
    Fail {
        member: MemberIndex,
        event: MemberEvent,
        reply: mpsc::Sender<Result<(), ArrayError>>,
    },
    Replace {
        member: MemberIndex,
        uuid: Uuid,
        bytes: u64,
        reply: mpsc::Sender<Result<(), ArrayError>>,
    },
    Checkpoint,
    Rebuilt {
        member: MemberIndex,
    },
    Stop {
        reply: mpsc::Sender<Result<(), ArrayError>>,
    },
}

/// A sweep that is collecting idle regions.
pub(super) struct Sweep {
    pub(super) awaiting: u16,
    pub(super) idle: Vec<RegionIndex>,
}

pub(crate) struct Leader {
    pub(super) state: LeaderState,
    pub(super) changes: VecDeque<Change>,
    pub(super) labels_running: bool,
    pub(super) bitmap_running: bool,
    /// Pages whose content changed since they were last written.
    pub(super) dirty_pages: u32,
    /// Bits set in the intent plane.
    intended: u32,
    /// Regions asked for and not answered.
    pub(super) asked: Vec<(u16, RegionIndex)>,
    pub(super) sweep: Option<Sweep>,
    last_sweep: Nanos,
    next_checkpoint: Nanos,
    pub(super) version: u64,
    applied: u64,
    pub(super) settling: WaitQueue,
    /// Per member, per core: own regions rebuilt.
    reached: Vec<Vec<u32>>,
    resyncing: u16,
}

/// The planes in the order of [`LeaderState::sequences`].
pub(super) const PLANES: [Plane; 2] = [Plane::Intent, Plane::Written];

impl Leader {
    pub(crate) fn new(
        state: LeaderState,
        scheduler: &strake_reactor::Scheduler,
        cores: u16,
    ) -> Self {
        let members = state.states.len();
        Self {
            intended: state.intent.count_ones(),
            state,
            changes: VecDeque::new(),
            labels_running: false,
            bitmap_running: false,
            dirty_pages: 0,
            asked: Vec::new(),
            sweep: None,
            last_sweep: Nanos(0),
            next_checkpoint: Nanos(0),
            version: 0,
            applied: 0,
            settling: WaitQueue::new(scheduler),
            reached: vec![vec![0; usize::from(cores)]; members],
            resyncing: 0,
        }
    }

    /// Members that are not fully in sync, as a mask.
    pub(super) fn impaired(&self) -> u64 {
        let out = |(_, s): &(usize, &MemberState)| **s != MemberState::InSync;
        self.state.states.iter().enumerate().filter(out).fold(0, |mask, (i, _)| mask | 1 << i)
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

    /// Moves a member to its next state, in memory and in the label to be written. False when the event does
    /// not apply to its state, such as a second report of one failure.
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

    pub(super) fn page_index(plane: usize, page: u32) -> usize {
        plane * PAGES_PER_PLANE as usize + page as usize
    }

    pub(super) fn touch(&mut self, plane: usize, region: RegionIndex) {
        let page = region.0 / strake_ondisk::PAGE_BITS;
        self.dirty_pages |= 1 << Self::page_index(plane, page);
    }

    /// Sets the region's bits; true when something has to be written before the answer.
    fn intend(&mut self, region: RegionIndex) -> bool {
        if let Some(sweep) = &mut self.sweep {
            sweep.idle.retain(|idle| *idle != region);
        }
        let pending = self.dirty_pages != 0 || self.bitmap_running;
        let mut changed = false;
        for plane in 0..PLANES.len() {
            let bits = if plane == 0 { &mut self.state.intent } else { &mut self.state.written };
            if !bits.get(region.0) {
                bits.set(region.0);
                self.intended += u32::from(plane == 0);
                self.touch(plane, region);
                changed = true;
            }
        }
        changed || pending
    }

    /// When idle regions are next looked for.
    fn next_sweep(&self) -> Nanos {
        let every = if self.impaired() == 0 { SWEEP_EVERY } else { SWEEP_EVERY_DEGRADED };
        self.last_sweep.plus(every)
    }

    /// Clears the region's intent bit.
    pub(super) fn forget(&mut self, region: RegionIndex) {
        if self.state.intent.get(region.0) {
            self.state.intent.clear(region.0);
            self.intended -= 1;
            self.touch(0, region);
        }
    }

    pub(super) fn all_applied(&self, version: u64, cores: u16) -> bool {
        self.version != version || self.applied.count_ones() == u32::from(cores)
    }

    pub(super) fn new_version(&mut self) -> u64 {
        self.version += 1;
        self.applied = 0;
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

/// Messages to the leader, and its clock.
impl Shard {
    pub(super) fn lead(&self, message: Peer) {
        let Some(leader) = &self.leader else {
            unreachable!("only shard 0 is addressed as leader")
        };
        let mut leader = leader.borrow_mut();
        match message {
            Peer::Intend { from, region } => self.lead_intend(&mut leader, from, region),
            Peer::Failed { member, cause } => {
                self.change(&mut leader, Change::Failed { member, cause })
            }
            Peer::Applied { from, version } => {
                if version == leader.version {
                    leader.applied |= 1 << from;
                    leader.settling.wake_all();
                }
            }
            Peer::Swept { idle } => self.lead_swept(&mut leader, idle),
            Peer::Rebuilt { from, member, ordinal } => {
                self.lead_rebuilt(&mut leader, from, member, ordinal)
            }
            Peer::Resynced => {
                leader.resyncing = leader.resyncing.saturating_sub(1);
                if leader.resyncing == 0 {
                    self.broadcast(|| Peer::CopiesAgree);
                }
            }
            Peer::Span(_)
            | Peer::Done(_)
            | Peer::Intended { .. }
            | Peer::Views { .. }
            | Peer::Settled
            | Peer::Sweep
            | Peer::CopiesAgree
            | Peer::Lost => unreachable!("not addressed to the leader"),
        }
    }

    fn lead_intend(&self, leader: &mut Leader, from: u16, region: RegionIndex) {
        if self.board.is_lost() {
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

    fn lead_rebuilt(&self, leader: &mut Leader, from: u16, member: MemberIndex, ordinal: u32) {
        leader.reached[member.at()][usize::from(from)] = ordinal;
        if self.is_rebuilt(leader, member) {
            self.change(leader, Change::Rebuilt { member });
        } else if self.now.get() >= leader.next_checkpoint {
            leader.next_checkpoint = self.now.get().plus(CHECKPOINT_EVERY);
            self.change(leader, Change::Checkpoint);
        }
    }

    /// Regions of the array, from the first on, that are complete on a member when core `c` has done
    /// `reached[c]` of its own.
    fn rebuilt_regions(&self, reached: &[u32]) -> u32 {
        let cores = u32::from(self.cores);
        let first_missing =
            reached.iter().enumerate().map(|(core, done)| done * cores + core as u32).min();
        first_missing.unwrap_or(0).min(self.regions.count())
    }

    /// True when every region is complete on `member`.
    pub(super) fn is_rebuilt(&self, leader: &Leader, member: MemberIndex) -> bool {
        self.rebuilt_regions(&leader.reached[member.at()]) >= self.regions.count()
    }

    /// Stripes below which `member` is complete.
    pub(super) fn recovered_stripes(&self, leader: &Leader, member: MemberIndex) -> u64 {
        let regions = self.rebuilt_regions(&leader.reached[member.at()]);
        if regions == 0 {
            0
        } else {
            self.regions.stripes(RegionIndex(regions - 1)).end.min(self.geometry.stripes())
        }
    }

    /// Starts the count of `member` at `regions` complete regions.
    pub(super) fn restart_count(&self, leader: &mut Leader, member: MemberIndex, regions: u32) {
        let cores = u32::from(self.cores);
        for (core, reached) in leader.reached[member.at()].iter_mut().enumerate() {
            *reached = (regions + cores - 1 - core as u32) / cores;
        }
    }

    /// First things when the array starts: where rebuilds stand, and who resynchronizes.
    pub(super) fn lead_start(&self, resyncing: u16) {
        let Some(leader) = &self.leader else { return };
        let mut leader = leader.borrow_mut();
        leader.resyncing = resyncing;
        for at in 0..leader.state.states.len() {
            let member = MemberIndex(at as u8);
            if let MemberState::Rebuilding { recovered_stripes } = leader.state.states[at] {
                let regions = self.regions_below(recovered_stripes);
                self.restart_count(&mut leader, member, regions);
                if regions >= self.regions.count() {
                    self.change(&mut leader, Change::Rebuilt { member });
                }
            }
        }
    }

    /// Whole regions below `stripes`.
    pub(super) fn regions_below(&self, stripes: u64) -> u32 {
        if stripes >= self.geometry.stripes() {
            return self.regions.count();
        }
        self.regions.region_of(strake_units::StripeIndex(stripes)).0
    }

    pub(super) fn change(&self, leader: &mut Leader, change: Change) {
        leader.changes.push_back(change);
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

    /// Starts a sweep when it is time.
    pub(super) fn lead_clock(&self) {
        let Some(leader) = &self.leader else { return };
        let mut leader = leader.borrow_mut();
        let due = self.now.get() >= leader.next_sweep() && leader.sweep.is_none();
        if due && leader.intended > 0 && !self.stopping() && !self.board.is_lost() {
            leader.last_sweep = self.now.get();
            leader.sweep = Some(Sweep { awaiting: self.cores, idle: Vec::new() });
            self.broadcast(|| Peer::Sweep);
        }
    }

    /// When the leader next wants to be woken.
    pub(super) fn lead_deadline(&self) -> Option<Nanos> {
        let leader = self.leader.as_ref()?.borrow();
        let wants = leader.intended > 0 && leader.sweep.is_none() && !self.stopping();
        (wants && !self.board.is_lost()).then(|| leader.next_sweep())
    }

    /// More members failed than redundancy covers: stop everything, record nothing, keep the last good labels.
    pub(super) fn lose(&self, leader: &mut Leader) {
        self.board.set_lost();
        for (from, region) in leader.asked.drain(..) {
            self.post(from, Peer::Intended { region, result: Err(IoErrorKind::Lost) });
        }
        self.broadcast(|| Peer::Lost);
    }
}
