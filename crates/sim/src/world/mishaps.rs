//! Reported faults beyond those that drives draw themselves: slow and stalled drives, several simultaneous failures,
//! and drives that return with less content.

use strake_raid::MemberState;
use strake_units::{MemberIndex, MemberSet, Nanos};

use super::chance::Chance;
use super::{Asked, Snapshot, World};
use crate::drive::{Crash, SimDrive};
use crate::faults::Kind;

/// Longest stall of all drives in milliseconds: too short to fail a member, even with other delays.
const STALL_MS_MAX: u64 = 5_000;

/// The limit for stalls that may fail members, which happen only if the array knows of all other faults.
const STANDSTILL_MS_MAX: u64 = 60_000;

/// Time after such a stall during which members may still be failed because of it.
const AFTER_STANDSTILL: Nanos = Nanos(10 * Nanos::SECOND.0);

/// Largest number of 4 KiB blocks by which a drive shrinks.
const SHRINK_MAX: u64 = 64;

/// Requests between the start of ignored flushes and the stop.
const LIE_REQUESTS_MAX: u64 = 30;

impl Chance {
    /// Makes one drive slower than the others from now on.
    pub(super) fn slow_one(&mut self) {
        let slot = self.world.later.below(self.world.shape.members as u64);
        let factor = self.world.later.pick(&[3, 20, 100]);
        self.world.happens(Kind::Slow, &[slot, factor]);
        self.world.drives.iter().for_each(|drive| drive.slow_down(1));
        self.world.drives[slot as usize].slow_down(factor);
    }

    /// Stalls all drives, like a shared controller.
    pub(super) fn stall(&mut self) {
        if self.may_stand_still() && self.world.silences.one_in(2) {
            return self.stand_still();
        }
        let millis = self.world.later.between(1, STALL_MS_MAX);
        self.stall_for(millis);
    }

    fn stall_for(&mut self, millis: u64) {
        self.world.happens(Kind::Stall, &[millis]);
        self.world.faults.stall(self.world.now.plus(Nanos::MILLI.times(millis)));
    }

    /// A stall above the time limit of a member. The array must not take more members out of use than redundancy
    /// covers; no other fault is injected before this is settled.
    fn stand_still(&mut self) {
        let millis = self.world.silences.between(STALL_MS_MAX, STANDSTILL_MS_MAX);
        self.world.happens(Kind::Standstill, &[millis]);
        let until = self.world.now.plus(Nanos::MILLI.times(millis));
        self.world.faults.stall(until);
        self.world.standstill_until = until.plus(AFTER_STANDSTILL);
        self.world.refresh();
    }

    /// True if the array knows of all faults of its members.
    fn may_stand_still(&mut self) -> bool {
        self.world.refresh();
        let out = self.world.states().into_iter().enumerate();
        let out = out.filter(|(_, state)| *state != MemberState::InSync);
        let out: MemberSet = out.map(|(slot, _)| slot).collect();
        let known = out == self.world.faults.impaired();
        let free =
            !self.world.recovering && self.world.asked.is_empty() && !self.world.faults.is_held();
        known && free && self.world.faults.has(Kind::Standstill)
    }

    /// As many drives as chance and redundancy permit fail at once.
    pub(super) fn all_at_once(&mut self) {
        if self.world.recovering {
            return;
        }
        let still = self.may_stand_still() && self.world.silences.one_in(2);
        let mut slots: Vec<u8> = (0..self.world.shape.members as u8).collect();
        self.world.later.shuffle(&mut slots);
        slots.retain(|slot| !self.world.later.one_in(4) && self.world.faults.may_impair(*slot));
        if slots.is_empty() {
            return;
        }
        self.world.happens(Kind::AllAtOnce, &[slots.len() as u64]);
        if still {
            slots.into_iter().for_each(|slot| self.pull(slot));
            return self.stand_still();
        }
        for slot in slots {
            self.strike(slot);
        }
        let millis = self.world.later.between(1, STALL_MS_MAX);
        self.stall_for(millis);
    }

    /// Removes a drive, and the control plane detects this.
    fn pull(&mut self, slot: u8) {
        self.world.trace.fault(Kind::Vanish.word());
        self.world.drives[usize::from(slot)].vanish();
        let member = MemberIndex(slot);
        if let Ok(pending) = self.world.array().begin_vanish(member) {
            self.world.asked.push(Asked::Fail { member, pending });
        }
    }

    fn strike(&mut self, slot: u8) {
        let drive = self.world.drives[usize::from(slot)].clone();
        match self.world.later.below(3) {
            0 => self.world.fail(slot),
            1 if self.world.faults.may_impair(slot) => {
                self.world.trace.fault(Kind::Medium.word());
                let shift = self.world.geometry.block_size().shift();
                let block = self.world.later.below(self.world.geometry.member_blocks_used());
                drive.spoil(strake_ondisk::HEAD_BYTES + (block << shift));
            }
            _ => {
                self.world.trace.fault(Kind::Vanish.word());
                drive.vanish();
            }
        }
    }

    /// A drive ignores flushes and FUA, and the power fails after a clean shutdown. The drive then has older content,
    /// and every other member has a newer label.
    pub(super) fn lie_about_flush(&mut self) -> Result<(), String> {
        let sound = |slot: &u8| {
            let at = usize::from(*slot);
            let drive = &self.world.drives[at];
            self.world.states()[at] == MemberState::InSync
                && drive.is_cached()
                && !drive.is_doomed()
                && !self.world.is_asked(at)
        };
        let slots: Vec<u8> = self.world.expendable().into_iter().filter(sound).collect();
        if slots.is_empty() || self.world.array().status().resync.is_some() {
            return Ok(());
        }
        let slot = usize::from(self.world.later.pick(&slots));
        self.world.happens(Kind::FlushLie, &[slot as u64]);
        self.world.faults.arm(false);
        self.world.drives[slot].lie_about_flush();
        self.world.left = self.world.later.between(1, LIE_REQUESTS_MAX);
        self.world.run_until("requests while a drive lies", |world| world.left == 0)?;
        if !self.world.stop()? {
            return Err("something was left to resynchronize although nothing happened".to_owned());
        }
        self.world.estranged.insert(slot);
        self.world.drives.iter().for_each(|drive| drive.crash(Crash::Power));
        self.world.promised = MemberSet::EMPTY;
        self.while_it_rests();
        self.world.restart(false)
    }

    /// Events of drives between a clean shutdown and the next start.
    pub(super) fn while_it_rests(&mut self) {
        let gone = self.world.drives.iter().enumerate().filter(|(_, drive)| drive.is_doomed());
        let gone: MemberSet = gone.map(|(slot, _)| slot).collect();
        let out = self.world.faults.impaired() | self.world.estranged | gone;
        let slot = self.world.later.below(self.world.shape.members as u64) as usize;
        let slot = self.world.snapshot.as_ref().map_or(slot, |snapshot| snapshot.slot);
        if !self.world.recovering && self.world.geometry.tolerates(out.with(slot)) {
            self.return_with_less(slot);
        }
        if self.world.later.one_in(2) && self.world.faults.has(Kind::Swap) {
            self.swap();
        }
        let slot = self.world.later.below(self.world.shape.members as u64) as usize;
        if !(out | self.world.estranged).contains(slot) {
            self.world.serial += 1;
            let drive = self.world.drives[slot].duplicate(self.world.serial);
            self.world.snapshot = Some(Snapshot { slot, drive, is_older: false });
        }
    }

    /// Makes the drive of `slot` smaller, or returns it with older content.
    ///
    /// A drive that no start has used since is not older: it was not written after the stop, and the array has recorded
    /// all writes that it lacks. The array may re-add it without a risk for data: the rebuild fills the recorded
    /// regions, and every block is compared with the written data, as on any other drive.
    pub(super) fn return_with_less(&mut self, slot: usize) {
        if self.world.is_estranged(slot)
            || !self.world.later.one_in(3)
            || !self.world.drives[slot].is_idle()
        {
            return;
        }
        let older = self.world.snapshot.take_if(|snapshot| snapshot.slot == slot);
        let older = older.filter(|_| !self.world.later.one_in(4));
        let kind = if older.is_some() { Kind::ReturnStale } else { Kind::Shrink };
        if !self.world.faults.has(kind) {
            return;
        }
        match older {
            Some(Snapshot { drive, is_older, .. }) => {
                self.world.happens(kind, &[slot as u64]);
                self.world.drives[slot] = drive;
                if !is_older {
                    return;
                }
            }
            None => {
                let blocks = self.world.later.between(1, SHRINK_MAX);
                self.world.happens(kind, &[slot as u64, blocks]);
                self.world.drives[slot].shrink(4096 * blocks);
            }
        }
        self.world.estranged.insert(slot);
    }

    /// Exchanges the names of two drives.
    fn swap(&mut self) {
        let mut drives: Vec<&SimDrive> = self.world.drives.iter().collect();
        self.world.later.shuffle(&mut drives);
        if let [one, other, ..] = drives[..] {
            one.swap_names(other);
            self.world.happens(Kind::Swap, &[]);
        }
    }
}

impl World {
    pub(super) fn happens(&self, kind: Kind, numbers: &[u64]) {
        self.trace.fault(kind.word());
        let numbers = [&[91, kind as u64], numbers].concat();
        self.trace.event(&numbers, || format!("mishap: {} {:?}", kind.word(), &numbers[2..]));
    }

    /// Marks the snapshot of `slot` as older, because the array writes to the drive again.
    pub(super) fn outdate_snapshot(&mut self, slot: usize) {
        if let Some(snapshot) = self.snapshot.as_mut().filter(|of| of.slot == slot) {
            snapshot.is_older = true;
        }
    }

    /// True if the drive of `slot` lacks content.
    pub(super) fn is_estranged(&self, slot: usize) -> bool {
        self.estranged.contains(slot)
    }

    /// The names of all such drives.
    pub(super) fn estranged_names(&self) -> Vec<String> {
        let drives = self.drives.iter().enumerate().filter(|(slot, _)| self.is_estranged(*slot));
        drives.map(|(_, drive)| drive.name()).collect()
    }
}
