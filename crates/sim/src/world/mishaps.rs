//! Loud faults beyond those that drives draw for themselves: drives that are slow or stall, several that fail in one
//! moment, drives that come back with less than they went with.

use strake_raid::MemberState;
use strake_units::{MemberIndex, Nanos};

use super::{Asked, Snapshot, World};
use crate::drive::{Crash, SimDrive};
use crate::faults::Kind;

/// Milliseconds that no drive answers for, at most: less than what costs a member, with what else delays an answer.
const STALL_MS_MAX: u64 = 5_000;

/// The same where members may be thrown out, as nothing else is wrong that the array does not know.
const STANDSTILL_MS_MAX: u64 = 60_000;

/// How long after a standstill it may still come out that members were thrown out.
const AFTER_STANDSTILL: Nanos = Nanos(10 * Nanos::SECOND.0);

/// Blocks of 4 KiB by which a drive shrinks, at most.
const SHRINK_MAX: u64 = 64;

/// Requests between the begin of a lie about flushes and the stop.
const LIE_REQUESTS_MAX: u64 = 30;

impl World {
    /// One more thing that is not a request.
    pub(super) fn something_else_happens(&mut self) -> Result<(), String> {
        self.refresh();
        let has = |kind| self.faults.has(kind);
        match self.later.below(24) {
            0 if has(Kind::Slow) => self.slow_one(),
            1 if has(Kind::Stall) => self.stall(),
            2 if has(Kind::AllAtOnce) => self.all_at_once(),
            3 if has(Kind::FlushLie) => self.lie_about_flush()?,
            4..=6 => self.a_drive_lies()?,
            7 if has(Kind::Scrub) => self.scrub_beside_clients()?,
            8 if has(Kind::Mode) => self.change_mode()?,
            9..=10 if has(Kind::Silence) => self.silence_one()?,
            _ => {}
        }
        Ok(())
    }

    pub(super) fn happens(&self, kind: Kind, numbers: &[u64]) {
        self.trace.fault(kind.word());
        let numbers = [&[91, kind as u64], numbers].concat();
        self.trace.event(&numbers, || format!("mishap: {} {:?}", kind.word(), &numbers[2..]));
    }

    /// One drive is slower than the others from now on.
    fn slow_one(&mut self) {
        let slot = self.later.below(self.shape.members as u64);
        let factor = self.later.pick(&[3, 20, 100]);
        self.happens(Kind::Slow, &[slot, factor]);
        self.drives.iter().for_each(|drive| drive.slow_down(1));
        self.drives[slot as usize].slow_down(factor);
    }

    /// The controller that all drives share has a hiccup.
    fn stall(&mut self) {
        if self.may_stand_still() && self.silences.one_in(2) {
            return self.stand_still();
        }
        let millis = self.later.between(1, STALL_MS_MAX);
        self.stall_for(millis);
    }

    fn stall_for(&mut self, millis: u64) {
        self.happens(Kind::Stall, &[millis]);
        self.faults.stall(self.now.plus(Nanos::MILLI.times(millis)));
    }

    /// It takes longer than a drive may. No more members may be thrown out than redundancy covers; no other fault is
    /// injected before that is settled.
    fn stand_still(&mut self) {
        let millis = self.silences.between(STALL_MS_MAX, STANDSTILL_MS_MAX);
        self.happens(Kind::Standstill, &[millis]);
        let until = self.now.plus(Nanos::MILLI.times(millis));
        self.faults.stall(until);
        self.standstill_until = until.plus(AFTER_STANDSTILL);
        self.refresh();
    }

    /// The array knows of everything that is wrong with its members.
    fn may_stand_still(&mut self) -> bool {
        self.refresh();
        let out = self.states().into_iter().enumerate();
        let out = out.filter(|(_, state)| *state != MemberState::InSync);
        let known = out.fold(0, |mask, (at, _)| mask | 1 << at) == self.faults.impaired();
        let free = !self.recovering && self.asked.is_empty() && !self.faults.is_held();
        known && free && self.faults.has(Kind::Standstill)
    }

    /// As many drives as chance and redundancy allow fail in one moment.
    fn all_at_once(&mut self) {
        if self.recovering {
            return;
        }
        let still = self.may_stand_still() && self.silences.one_in(2);
        let mut slots: Vec<u8> = (0..self.shape.members as u8).collect();
        self.later.shuffle(&mut slots);
        slots.retain(|slot| !self.later.one_in(4) && self.faults.may_impair(*slot));
        if slots.is_empty() {
            return;
        }
        self.happens(Kind::AllAtOnce, &[slots.len() as u64]);
        if still {
            slots.into_iter().for_each(|slot| self.pull(slot));
            return self.stand_still();
        }
        for slot in slots {
            self.strike(slot);
        }
        let millis = self.later.between(1, STALL_MS_MAX);
        self.stall_for(millis);
    }

    /// A drive is pulled, and the control plane sees it.
    fn pull(&mut self, slot: u8) {
        self.trace.fault(Kind::Vanish.word());
        self.drives[usize::from(slot)].vanish();
        let member = MemberIndex(slot);
        if let Ok(pending) = self.array().begin_vanish(member) {
            self.asked.push(Asked::Fail { member, pending });
        }
    }

    fn strike(&mut self, slot: u8) {
        let drive = self.drives[usize::from(slot)].clone();
        match self.later.below(3) {
            0 => self.fail(slot),
            1 if self.faults.may_impair(slot) => {
                self.trace.fault(Kind::Medium.word());
                let shift = self.geometry.block_size().shift();
                let block = self.later.below(self.geometry.member_blocks_used());
                drive.spoil(strake_ondisk::HEAD_BYTES + (block << shift));
            }
            _ => {
                self.trace.fault(Kind::Vanish.word());
                drive.vanish();
            }
        }
    }

    /// A drive keeps in its cache what it calls stable, and the power fails after the array was stopped in order. It
    /// is an older picture of itself then, and everybody else has a newer label.
    fn lie_about_flush(&mut self) -> Result<(), String> {
        let sound = |slot: &u8| {
            let at = usize::from(*slot);
            let drive = &self.drives[at];
            self.states()[at] == MemberState::InSync
                && drive.is_cached()
                && !drive.is_doomed()
                && !self.is_asked(at)
        };
        let slots: Vec<u8> = self.expendable().into_iter().filter(sound).collect();
        if slots.is_empty() || self.array().status().resync.is_some() {
            return Ok(());
        }
        let slot = usize::from(self.later.pick(&slots));
        self.happens(Kind::FlushLie, &[slot as u64]);
        self.faults.arm(false);
        self.drives[slot].lie_about_flush();
        self.left = self.later.between(1, LIE_REQUESTS_MAX);
        self.run_until("requests while a drive lies", |world| world.left == 0)?;
        if !self.stop()? {
            return Err("something was left to resynchronize although nothing happened".to_owned());
        }
        self.estranged |= 1 << slot;
        self.drives.iter().for_each(|drive| drive.crash(Crash::Power));
        self.promised = 0;
        self.while_it_rests();
        self.restart(false)
    }

    /// What may happen to drives between an orderly stop and the next start.
    pub(super) fn while_it_rests(&mut self) {
        let gone = self.drives.iter().enumerate().filter(|(_, drive)| drive.is_doomed());
        let out =
            gone.fold(self.faults.impaired() | self.estranged, |mask, (at, _)| mask | 1 << at);
        let slot = self.later.below(self.shape.members as u64) as usize;
        let slot = self.snapshot.as_ref().map_or(slot, |snapshot| snapshot.slot);
        if !self.recovering && self.geometry.tolerates(out | 1 << slot) {
            self.return_with_less(slot);
        }
        if self.later.one_in(2) && self.faults.has(Kind::Swap) {
            self.swap();
        }
        let slot = self.later.below(self.shape.members as u64) as usize;
        if (out | self.estranged) & 1 << slot == 0 {
            self.serial += 1;
            let drive = self.drives[slot].duplicate(self.serial);
            self.snapshot = Some(Snapshot { slot, drive, is_older: false });
        }
    }

    /// The array has begun to write to the drive of `slot` again.
    pub(super) fn outdate_snapshot(&mut self, slot: usize) {
        if let Some(snapshot) = self.snapshot.as_mut().filter(|of| of.slot == slot) {
            snapshot.is_older = true;
        }
    }

    /// The drive of `slot` may have become smaller, or be what it was some time before.
    ///
    /// A drive that no start used since is not older: it was never written after the stop, and the array has recorded
    /// everything that it missed. The array may re-add it, and no data is at risk: the rebuild fills what is recorded,
    /// and every block is compared with what was written, as on any other drive.
    pub(super) fn return_with_less(&mut self, slot: usize) {
        if self.is_estranged(slot) || !self.later.one_in(3) || !self.drives[slot].is_idle() {
            return;
        }
        let older = self.snapshot.take_if(|snapshot| snapshot.slot == slot);
        let older = older.filter(|_| !self.later.one_in(4));
        let kind = if older.is_some() { Kind::ReturnStale } else { Kind::Shrink };
        if !self.faults.has(kind) {
            return;
        }
        match older {
            Some(Snapshot { drive, is_older, .. }) => {
                self.happens(kind, &[slot as u64]);
                self.drives[slot] = drive;
                if !is_older {
                    return;
                }
            }
            None => {
                let blocks = self.later.between(1, SHRINK_MAX);
                self.happens(kind, &[slot as u64, blocks]);
                self.drives[slot].shrink(4096 * blocks);
            }
        }
        self.estranged |= 1 << slot;
    }

    /// Two drives are where the other one was.
    fn swap(&mut self) {
        let mut drives: Vec<&SimDrive> = self.drives.iter().collect();
        self.later.shuffle(&mut drives);
        if let [one, other, ..] = drives[..] {
            one.swap_names(other);
            self.happens(Kind::Swap, &[]);
        }
    }

    /// True when the drive of `slot` lacks something that it should hold.
    pub(super) const fn is_estranged(&self, slot: usize) -> bool {
        self.estranged & 1 << slot != 0
    }

    /// The names of all of them.
    pub(super) fn estranged_names(&self) -> Vec<String> {
        let drives = self.drives.iter().enumerate().filter(|(slot, _)| self.is_estranged(*slot));
        drives.map(|(_, drive)| drive.name()).collect()
    }

    /// Sees that no drive is believed that lacks something. One that is large enough may be rebuilt as a whole.
    pub(super) fn check_believed(&mut self) -> Result<(), String> {
        for (slot, state) in self.states().into_iter().enumerate() {
            let whole = self.drives[slot].bytes() >= self.shape.drives[slot].bytes;
            match state {
                MemberState::Rebuilding { recovered_stripes: 0 } if whole => {
                    self.estranged &= !(1 << slot);
                }
                MemberState::Rebuilding { .. } | MemberState::InSync if self.is_estranged(slot) => {
                    return Err(format!("the drive of member {slot} lacks something: {state}"));
                }
                MemberState::Rebuilding { .. }
                | MemberState::InSync
                | MemberState::Faulty
                | MemberState::Missing => {}
            }
        }
        Ok(())
    }
}
