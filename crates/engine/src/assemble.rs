//! Assembly of an array from drives: reads the labels, lets `strake-ondisk` decide, and recovers from a crash.

use strake_ondisk::{
    Activation, AreaLayout, AssembledMember, Bitmap, Bits, COMPAT_AFTER_CRASH, COMPAT_CLEAN_START,
    COMPAT_HISTORY, COMPAT_MEMBER_BITMAPS, COMPAT_REMOTE, Consistency, INCOMPAT_IN_DOUBT, Policy,
    RecordedState, SEQUENCE_MAX, Superblock, Verdict,
};
use strake_raid::{Geometry, MemberState, Regions, members_where};
use strake_units::{MemberIndex, MemberSet, Name, RegionIndex, Uuid};

use crate::bad_blocks::BadBlocks;
use crate::bitmaps::Bitmaps;
use crate::drive::Drive;
use crate::error::{ArrayError, ArrayRemedy};
use crate::fleet::{Failed, Fleet};
use crate::member_io::Wait;
use crate::recorded::understood;
use crate::settling;
use crate::shard::LeaderState;

mod bad;
mod bitmaps;
mod labels;
mod losses;
mod partial_writes;
pub(crate) mod policy;
mod record;
mod recovery;
mod refusals;
mod replay;

pub(crate) use bitmaps::{LostPages, complete_below, write_intent_pages};
use losses::Losses;
pub use policy::AssemblePolicy;
pub use recovery::{PartialWrites, Recovery};
pub use refusals::{too_few, waiting};
use replay::Carried;
pub(crate) use replay::note_start;

/// An array whose members were found and verified. Only such an array can be started, so an unverified label never
/// serves I/O.
pub struct Assembled {
    pub(crate) superblock: Superblock,
    pub(crate) geometry: Geometry,
    pub(crate) regions: Regions,
    pub(crate) states: Vec<MemberState>,
    pub(crate) drives: Vec<Option<Drive>>,
    pub(crate) bitmaps: Bitmaps,
    pub(crate) bad: BadBlocks,
    /// Members whose stripes had every write before a crash in the redo log. These writes were replayed.
    pub(crate) replayed: MemberSet,
    /// Number of replayed writes.
    pub(crate) writes_replayed: u64,
    /// Lost pages of the bitmaps.
    pub(crate) lost_pages: Vec<LostPages>,
    pub(crate) recovery: Recovery,
}

/// The outcome of the assembly of one array.
pub enum Outcome {
    /// The array can be started.
    Ready(Box<Assembled>),
    /// The array could be started, but members are missing that were present before.
    Waiting {
        /// The array.
        array: Uuid,
        /// Name of the array.
        name: Name,
        /// The reason, for the operator.
        what: String,
        /// The remedy.
        remedy: Option<Box<ArrayRemedy>>,
    },
    /// The array cannot be started, or not without the operator's acceptance.
    Refused {
        /// The array.
        array: Uuid,
        /// Name of the array.
        name: Name,
        /// The reason and the remedy, for the operator.
        what: String,
        /// The remedy as a command, if any.
        remedy: Option<Box<ArrayRemedy>>,
    },
}

/// Finds arrays among `drives`, and assembles the arrays that are `wanted`; other arrays are not touched. `epoch`
/// creates the identifier of a new activation. Drives without a label are ignored.
///
/// All drives are read and written concurrently, with a separate wait for each drive. Only a drive that is unresponsive
/// for longer than its own limits ([`strake_block::patience`]) is abandoned, independently of other drives.
///
/// # Errors
/// There are no errors as a whole. A drive that is unresponsive, or cannot be read or written, counts as missing, and
/// is reported in the second list.
pub fn assemble(
    drives: &[Drive],
    policy: AssemblePolicy,
    wanted: &dyn Fn(&Name, Uuid) -> bool,
    epoch: &mut dyn FnMut() -> Uuid,
    wait: Wait<'_>,
) -> (Vec<Outcome>, Vec<ArrayError>) {
    assemble_on(drives, policy, wanted, epoch, &mut Carried::default(), wait)
}

/// Assembles arrays if parts of the log were already replayed.
fn assemble_on(
    drives: &[Drive],
    policy: AssemblePolicy,
    wanted: &dyn Fn(&Name, Uuid) -> bool,
    epoch: &mut dyn FnMut() -> Uuid,
    carried: &mut Carried,
    wait: Wait<'_>,
) -> (Vec<Outcome>, Vec<ArrayError>) {
    let (found, silent) = labels::labelled(drives, wanted, &mut *wait);
    let (silent, mut unreadable): (Vec<usize>, Vec<ArrayError>) = silent.into_iter().unzip();
    let verdicts = strake_ondisk::assemble(found, Policy { allow_degraded: policy.allow_degraded });
    let mut outcomes = Vec::new();
    for verdict in verdicts {
        match verdict {
            Verdict::Assembled(assembled) => {
                let (array, name) = (assembled.superblock.array, assembled.superblock.name.clone());
                let opened = open(assembled, drives, policy, epoch(), carried, &mut *wait);
                outcomes.push(match opened {
                    Ok(ready) => Outcome::Ready(Box::new(ready)),
                    Err(NotOpened::Refused(ArrayError { what, remedy, .. })) => {
                        Outcome::Refused { array, name, what, remedy }
                    }
                    Err(NotOpened::Without(blamed)) => {
                        // These drives failed, so the assembly of this array repeats without them. Drives whose labels
                        // could not be read are not awaited a second time.
                        let (bad, errors): (Vec<usize>, Vec<ArrayError>) =
                            blamed.into_iter().unzip();
                        let rest = (0..).zip(drives);
                        let rest = rest.filter(|(at, _)| !bad.contains(at) && !silent.contains(at));
                        let rest: Vec<Drive> = rest.map(|(_, drive)| drive.clone()).collect();
                        unreadable.extend(errors);
                        let only = |_: &Name, uuid: Uuid| uuid == array;
                        let (mut others, mut errors) =
                            assemble_on(&rest, policy, &only, epoch, carried, &mut *wait);
                        errors.retain(|e| unreadable.iter().all(|known| known.what != e.what));
                        unreadable.append(&mut errors);
                        outcomes.append(&mut others);
                        continue;
                    }
                });
            }
            Verdict::Waiting { superblock, missing, rebuilding, present } => {
                let ArrayError { what, remedy, .. } =
                    waiting(&superblock, &missing, &rebuilding, &present);
                let (array, name) = (superblock.array, superblock.name);
                outcomes.push(Outcome::Waiting { array, name, what, remedy });
            }
            Verdict::Refused { array, name, reason } => {
                outcomes.push(Outcome::Refused {
                    array,
                    what: refusals::refused(&name, &reason, drives),
                    name,
                    remedy: None,
                });
            }
            Verdict::Ignored { .. } => {}
        }
    }
    (outcomes, unreadable)
}

/// The reason why an array was not opened.
enum NotOpened {
    /// The array may open without these drives, which failed or were unresponsive.
    Without(Vec<(usize, ArrayError)>),
    /// The array cannot be opened with any drives.
    Refused(ArrayError),
}

impl NotOpened {
    /// Converts a failure. `indices` are the indices of the members' drives.
    fn of(failed: Failed, indices: &[Option<usize>]) -> Self {
        match failed {
            Failed::Otherwise(error) => Self::Refused(error),
            Failed::Members(members) => {
                let drive = |(member, error): (MemberIndex, ArrayError)| {
                    (indices[member.at()].expect("it was just in use"), error)
                };
                Self::Without(members.into_iter().map(drive).collect())
            }
        }
    }
}

impl From<ArrayError> for NotOpened {
    fn from(error: ArrayError) -> Self {
        Self::Refused(error)
    }
}

/// Checks the labels against geometry and bitmaps, and opens a new epoch.
///
/// Everything is read first, and may be refused before the first write. Then each step is stable before the next step
/// starts. An update that a crash interrupted is finished (label, pages and list of bad blocks), so that no member is
/// two generations behind. If the log is replayed without absent members, a label records them as missing. Then the log
/// is replayed, the pages are written, and finally the label of the new epoch. After an interruption, the next start
/// finds one of these states and starts again.
fn open(
    mut found: strake_ondisk::Assembled,
    drives: &[Drive],
    policy: AssemblePolicy,
    epoch: Uuid,
    carried: &mut Carried,
    wait: Wait<'_>,
) -> Result<Assembled, NotOpened> {
    let mut superblock = found.superblock.clone();
    let geometry = understood(&superblock)?;
    let (mut states, indices) = standing(&found.members);
    for (row, state) in superblock.members.iter_mut().zip(&states) {
        row.state = crate::shard::recorded(*state);
    }
    let drive = |at: &Option<usize>| at.map(|at| drives[at].clone());
    let members: Vec<Option<Drive>> = indices.iter().map(drive).collect();
    let absent = members_where(&states, |state| state != MemberState::InSync);
    if !geometry.tolerates(absent) {
        return Err(NotOpened::from(too_few(&found.superblock, &geometry, absent)));
    }
    let regions = Regions::new(&geometry);
    let mut fleet = Fleet::new(&members, wait);
    let blame = |failed: Failed| NotOpened::of(failed, &indices);
    let logged = found.unserved && !replay::covered(&found.superblock, &geometry).is_empty();
    if logged && replay::has_records(&found.superblock, &members, &mut fleet).map_err(blame)? {
        // The array served nevertheless, and a drive has lost the label in its tail ring.
        found.unserved = false;
    }
    superblock.clean |= found.unserved;
    let (bad, mut behind) =
        bad::read(&superblock, &states, &members, policy, &mut fleet).map_err(blame)?;
    let bitmaps::Read { mut bitmaps, older, behind: pages, lost: lost_pages } =
        bitmaps::read(&found.superblock, &states, &members, regions.count(), &mut fleet)
            .map_err(blame)?;
    if let Some(member) = older {
        let error = refusals::older_picture(&superblock, member, members[member.at()].as_ref());
        return Err(blame(Failed::Members(vec![(member, error)])));
    }
    bitmaps::settle(&mut bitmaps, &mut superblock, &found, &mut states, (&geometry, &regions));
    if superblock.consistency == Consistency::None {
        // No list contains the writes that these members missed.
        for (slot, state) in states.iter().enumerate() {
            if matches!(state, MemberState::Faulty | MemberState::Missing) {
                bitmaps.change(Bitmap::Member(MemberIndex(slot as u8)), Bits::fill);
            }
        }
    }
    let places = (&geometry, &regions);
    let mut losses = Losses::new(bitmaps.in_doubt(), regions.count());
    bitmaps.load(Bitmap::InDoubt, Bits::new(regions.count()));
    superblock.incompat &= !INCOMPAT_IN_DOUBT;
    let write_intent = bitmaps.write_intent();
    // After a clean shutdown, the bits mark regions that are not yet initialized or resynchronized, not writes in
    // progress. The array already served in this state, unless another member is missing now.
    let in_sync = |record: &strake_ondisk::MemberRecord| record.state == RecordedState::InSync;
    let known = found.superblock.members.iter().map(in_sync).zip(&states);
    let as_before =
        known.fold(true, |same, (was, now)| same && was == (*now == MemberState::InSync));
    let dirty = write_intent.count_ones() > 0 && geometry.parity_strips() > 0;
    let crashed = !superblock.clean;
    let mut replayed =
        if crashed { replay::covered(&found.superblock, &geometry) } else { MemberSet::EMPTY };
    let mut recovery = Recovery {
        crashed,
        label_finished: !found.confirmed,
        left_out: found.members.iter().filter(|member| member.stale.is_some()).count() as u32,
        ..Recovery::default()
    };
    let uncovered = !absent.is_subset(replayed);
    if uncovered && dirty && !(superblock.clean && as_before) {
        losses.damaged.join(write_intent);
    }
    let label = found.superblock.clone();
    let log = if replayed.is_empty() {
        None
    } else {
        let drives = (&members[..], &*bad.list);
        let log =
            replay::read(&label, places, drives, policy.accept_loss, &mut fleet).map_err(blame)?;
        losses.damaged.join(&log.unsure(regions.count()));
        recovery.loss_accepted = log.is_in_part();
        log.tell(&mut recovery);
        Some(log)
    };
    recovery.loss_accepted |= losses.any();
    losses.are_accepted(&superblock, places, policy, carried)?;
    let unserved = found.unserved;
    let mut assembled = Assembled::new(found.superblock, geometry, states, members, bitmaps, bad);
    behind.extend(pages);
    assembled.finish_update(behind, unserved, &mut fleet).map_err(blame)?;
    if superblock.history.is_empty() {
        // The label has no history, so the history starts with the last activation.
        let (epoch, first_generation) = (superblock.epoch, superblock.generation);
        superblock.history.push(Activation { epoch, first_generation });
    }
    let devices = assembled.drives.iter().flatten().map(|drive| &*drive.device);
    superblock.compat &= !COMPAT_REMOTE;
    superblock.compat |= COMPAT_HISTORY | COMPAT_MEMBER_BITMAPS | settling::mark(devices);
    superblock.clean = false;
    let mut writes_replayed = 0;
    if let Some(log) = log {
        // A remote drive may execute writes late, so the next start must know about remote drives.
        let newly_remote = superblock.compat & !assembled.superblock.compat & COMPAT_REMOTE != 0;
        if newly_remote || !assembled.has_every_member() {
            assembled.record_absent(&mut superblock, &mut fleet).map_err(blame)?;
        }
        if log.leaves_doubt() {
            // Parity of some stripes is not trusted, so the log does not cover the whole array.
            replayed = MemberSet::EMPTY;
        }
        let Assembled { drives, bitmaps, .. } = &mut assembled;
        writes_replayed =
            log.carry_out(&label, places, (drives, bitmaps), carried, &mut fleet).map_err(blame)?;
    }
    superblock.compat &= !COMPAT_CLEAN_START;
    if !crashed && as_before {
        superblock.compat |= COMPAT_CLEAN_START;
    }
    superblock.activate(epoch);
    let doubt = assembled.bitmaps.write_intent().count_ones() > 0;
    let after_crash = crashed || superblock.compat & COMPAT_AFTER_CRASH != 0;
    superblock.compat &= !COMPAT_AFTER_CRASH;
    if after_crash && doubt && geometry.parity_strips() > 0 {
        superblock.compat |= COMPAT_AFTER_CRASH;
    }
    note_start(&mut superblock, &geometry, absent, doubt, replayed);
    assembled.superblock = superblock;
    (assembled.replayed, assembled.writes_replayed) = (replayed, writes_replayed);
    assembled.lost_pages = carried.join_lost_pages(assembled.uuid(), &lost_pages);
    assembled.recovery = Recovery { resync_regions: assembled.resync_regions().0, ..recovery };
    assembled.write_bitmaps(&mut fleet).map_err(blame)?;
    assembled.write_labels(&mut fleet).map_err(blame)?;
    assembled.every_member_has_all();
    Ok(assembled)
}

/// Returns the states of the members, and the drive indices of the usable members.
fn standing(found: &[AssembledMember]) -> (Vec<MemberState>, Vec<Option<usize>>) {
    let one = |member: &AssembledMember| match (member.state, member.drive) {
        (RecordedState::Faulty, _) => (MemberState::Faulty, None),
        (RecordedState::Missing, _) | (_, None) => (MemberState::Missing, None),
        (RecordedState::InSync, drive) => (MemberState::InSync, drive),
        (RecordedState::Rebuilding, drive) => {
            let recovered_stripes = member.recovered_stripes;
            (MemberState::Rebuilding { recovered_stripes }, drive)
        }
    };
    found.iter().map(one).unzip()
}

/// Returns a sequence that no page or list of the array can have reached, for records that no present member has. Each
/// activation has its own generation and writes fewer than 2^32 records. An absent member may have any smaller
/// sequence.
fn sequence_above_all(newest: &Superblock) -> u64 {
    newest.generation.min(SEQUENCE_MAX >> 32) << 32
}

/// Returns the layout of `drive`, the drive of `member`.
fn layout_of(member: MemberIndex, drive: &Drive) -> Result<AreaLayout, Failed> {
    AreaLayout::of(drive.device.info().bytes()).ok_or_else(|| {
        let what = format!("{} is now too small to be a member", drive.path);
        Failed::Members(vec![(member, ArrayError::usage(what))])
    })
}

impl Assembled {
    pub(crate) fn new(
        superblock: Superblock,
        geometry: Geometry,
        states: Vec<MemberState>,
        drives: Vec<Option<Drive>>,
        bitmaps: Bitmaps,
        bad: BadBlocks,
    ) -> Self {
        let regions = Regions::new(&geometry);
        Self {
            superblock,
            regions,
            geometry,
            states,
            drives,
            bitmaps,
            bad,
            replayed: MemberSet::EMPTY,
            writes_replayed: 0,
            lost_pages: Vec::new(),
            recovery: Recovery::default(),
        }
    }

    /// Returns the name of the array.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.superblock.name
    }

    /// Returns the identity of the array.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.superblock.array
    }

    /// Returns the label of this activation.
    #[must_use]
    pub const fn label(&self) -> &Superblock {
        &self.superblock
    }

    /// Returns the number of regions that will be resynchronized after the start, and their bytes in the array.
    #[must_use]
    pub fn resync_regions(&self) -> (u32, u64) {
        if self.geometry.redundancy(MemberSet::EMPTY).is_none_or(|r| r == 0) {
            return (0, 0);
        }
        let regions = self.bitmaps.write_intent().iter_ones().count() as u32;
        let region_blocks = self.regions.stripes_per_region() * self.geometry.stripe_data_blocks();
        (regions, (u64::from(regions) * region_blocks) << self.geometry.block_size().shift())
    }

    /// Returns the findings after a crash, and the recovery.
    #[must_use]
    pub const fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Returns the states of the members, by slot.
    #[must_use]
    pub fn states(&self) -> &[MemberState] {
        &self.states
    }

    /// Returns the drives in use, by slot.
    #[must_use]
    pub fn drives(&self) -> Vec<Option<Drive>> {
        self.drives.clone()
    }

    pub(crate) fn untrusted(&self) -> Vec<RegionIndex> {
        if self.resync_regions().0 == 0 {
            return Vec::new();
        }
        self.bitmaps.write_intent().iter_ones().map(RegionIndex).collect()
    }

    /// Returns for every region the rebuilding members that lack the region.
    pub(crate) fn lacking(&self) -> Vec<MemberSet> {
        let mut lacking = vec![MemberSet::EMPTY; self.regions.count() as usize];
        for (slot, state) in self.states.iter().enumerate() {
            if matches!(state, MemberState::Rebuilding { .. }) {
                let stale = self.bitmaps.stale(MemberIndex(slot as u8));
                stale.iter_ones().for_each(|region| lacking[region as usize].insert(slot));
            }
        }
        lacking
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = (MemberIndex, &Drive)> {
        self.drives
            .iter()
            .enumerate()
            .filter_map(|(at, d)| d.as_ref().map(|d| (MemberIndex(at as u8), d)))
    }

    /// Returns the reason why this array may only be started, not changed otherwise; `None` if all members are in sync
    /// and no work is pending.
    pub(crate) fn unrest(&self) -> Option<&'static str> {
        let in_sync = |state: &MemberState| *state == MemberState::InSync;
        if !self.states.iter().all(in_sync) || self.drives.iter().any(Option::is_none) {
            return Some("not every member is in sync");
        }
        if !self.superblock.replacements.is_empty() {
            return Some("a member is being replaced");
        }
        if self.bitmaps.write_intent().count_ones() > 0 {
            return Some("regions are to be resynchronized");
        }
        (!self.bad.list.is_empty()).then_some("blocks of members are bad")
    }

    /// True if every member is present that is live according to the label.
    fn has_every_member(&self) -> bool {
        let mut rows = self.superblock.members.iter().zip(&self.drives);
        rows.all(|(row, drive)| drive.is_some() || !row.state.is_live())
    }

    /// Records that every page and label was written to every present member.
    pub(crate) fn every_member_has_all(&mut self) {
        let live = self.live().map(|(member, _)| member).collect();
        self.bitmaps.hold(live);
        self.bitmaps.recorded(live);
    }

    pub(crate) fn leader_state(&self) -> LeaderState {
        let mut bitmaps = self.bitmaps.clone();
        bitmaps.all_written();
        LeaderState {
            superblock: self.superblock.clone(),
            states: self.states.clone(),
            layouts: self
                .drives
                .iter()
                .map(|d| d.as_ref().and_then(|d| AreaLayout::of(d.device.info().bytes())))
                .collect(),
            bitmaps,
            bad: self.bad.clone(),
            writes_redone: self.writes_replayed,
            lost_pages: self.lost_pages.clone(),
        }
    }
}
