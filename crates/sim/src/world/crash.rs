//! Crashes, the loss of more drives than an array tolerates, and stops, each with the following start.

use strake_engine::Consistency;
use strake_ondisk::{MemberRecord, RecordedState};
use strake_raid::MemberState;
use strake_units::{Lba, MemberSet};

use super::chance::Chance;
use super::silence::rings;
use super::{Asked, World};
use crate::drive::{Crash, SimDrive};
use crate::faults::Kind;

impl Chance {
    /// Crashes the host and starts it again.
    pub(super) fn crash(&mut self, crash: Crash) -> Result<(), String> {
        let degraded = !self.world.faults.impaired().is_empty()
            || self.world.states().iter().any(|s| *s != MemberState::InSync);
        // Most crashes hit a healthy array, so that most runs keep checking untouched blocks. With a log, a crash of a
        // degraded array is equivalent to any other crash.
        if degraded && self.world.shape.consistency < Consistency::Safe && self.world.rng.one_in(2)
        {
            return Ok(());
        }
        let kind = match crash {
            Crash::Kill => Kind::Kill,
            Crash::Power => Kind::Power,
        };
        self.world.trace.fault(kind.word());
        let stripes = self.world.unsettled_stripes(crash);
        self.world.trace.event(&[84, crash as u64], || {
            format!("control: {crash:?}; {}; stripes in doubt: {stripes:?}", self.world.picture())
        });
        let joining: Vec<usize> = self.world.asked.iter().filter_map(Asked::joins).collect();
        self.world.note_promise();
        self.world.wake_members();
        self.world.settle_doubts();
        self.world.doubts.add(stripes);
        for drive in self.world.drives.iter().chain(&self.world.retired) {
            drive.crash(crash);
        }
        self.world.note_labels_left(&joining);
        let joining = !joining.is_empty();
        self.world.killed = true;
        self.world.running = None;
        self.world.asked.clear();
        self.world.oracle.crash(crash);
        // An unreadable block next to parity that is in doubt after a crash is a second fault in the same event.
        self.world.drives.iter().for_each(SimDrive::heal);
        self.world.recovering = true;
        self.return_some();
        self.lose_one_with_the_crash();
        // Labels are read before the array starts: another loss at that time would be one more in the same event.
        self.world.faults.hold(true);
        self.world.restart(joining)
    }

    /// The same event may cost a drive if every write is in the log.
    fn lose_one_with_the_crash(&mut self) {
        if !self.world.loss_covered
            || !self.world.rng.one_in(3)
            || !self.world.faults.has(Kind::CrashAndLoss)
        {
            return;
        }
        let gone = |world: &World| {
            let gone = world.drives.iter().enumerate().filter(|(_, drive)| drive.is_gone());
            world.out_before | gone.map(|(slot, _)| slot).collect()
        };
        let slot = self.world.rng.below(self.world.shape.members as u64) as usize;
        let without = gone(&self.world).with(slot);
        if !self.world.drives[slot].is_gone() && self.world.geometry.tolerates(without) {
            self.world.trace.fault(Kind::CrashAndLoss.word());
            self.world
                .trace
                .event(&[90, slot as u64], || format!("control: and drive {slot} with it"));
            self.world.drives[slot].vanish();
        }
    }

    /// Removes more drives at once than the array tolerates, under load. Requests may then fail, but each must
    /// complete, without wrong data; and after the drives have returned, all acknowledged writes are present.
    pub(super) fn lose_too_many(&mut self) -> Result<(), String> {
        self.world.faults.arm(false);
        self.world.run_until("control operations", |world| world.asked.is_empty())?;
        self.world
            .run_until("the last requests before the loss", |world| world.outstanding() == 0)?;
        self.world.make_whole()?;
        let most = self.world.rng.between(1, 40);
        self.world.left = most;
        self.world.run_until("requests before the loss", |world| world.left <= most / 2)?;
        self.world.trace.event(&[89], || {
            format!("control: too many drives are pulled; {}", self.world.picture())
        });
        let mut slots: Vec<usize> = (0..self.world.shape.members).collect();
        self.world.rng.shuffle(&mut slots);
        let mut gone = MemberSet::EMPTY;
        while self.world.geometry.tolerates(gone) {
            let Some(slot) = slots.pop() else { break };
            self.world.trace.fault(Kind::Lose.word());
            self.world.drives[slot].vanish();
            gone.insert(slot);
        }
        self.world.lost = true;
        self.world.run_until("answers from an array that is lost", |world| {
            world.left == 0 && world.outstanding() == 0
        })?;
        let stripes = self.world.unsettled_stripes(Crash::Kill);
        self.world.note_promise();
        self.world.wake_members();
        self.world.settle_doubts();
        self.world.doubts.add(stripes);
        self.world.drives.iter().for_each(|drive| drive.crash(Crash::Kill));
        self.world.drives.iter().for_each(SimDrive::come_back);
        self.world.killed = true;
        self.world.running = None;
        self.world.oracle.crash(Crash::Kill);
        self.world.recovering = true;
        self.world.lost = false;
        self.world.restart(false)
    }

    /// Removed drives may have returned after a restart.
    fn return_some(&mut self) {
        for drive in &self.world.drives {
            if self.world.rng.one_in(2) || !drive.is_gone() {
                drive.come_back();
            }
        }
    }

    pub(super) fn stop_and_start(&mut self) -> Result<(), String> {
        self.world.trace.fault(Kind::Stop.word());
        self.world.trace.event(&[85], || format!("control: stop; {}", self.world.picture()));
        if self.world.rng.one_in(2) {
            self.world.run_until("requests before a stop", |world| world.outstanding() == 0)?;
        }
        let clean = self.world.stop()?;
        if self.world.rng.one_in(2) {
            self.world.drives.iter().for_each(|drive| drive.crash(Crash::Power));
        }
        self.return_some();
        self.world.recovering |= !clean;
        self.world.promised = MemberSet::EMPTY;
        self.while_it_rests();
        self.world.restart(false)
    }
}

impl World {
    /// Records the redo log state of the labels just before a crash.
    fn note_promise(&mut self) {
        let label = self.array().newest_label();
        let out = label.members.iter().enumerate();
        let out = out.filter(|(_, row)| row.state != RecordedState::InSync);
        let out: MemberSet = out.map(|(slot, _)| slot).collect();
        let every_member = MemberSet::first_n(label.members.len());
        let all = label.consistency == Consistency::Strict && label.logged == every_member;
        let logged = if all { every_member } else { label.logged & out };
        // A newer label that not every member has may already record a member as out that is about to go out.
        self.out_before = out | self.faults.impaired();
        self.promised = self.geometry.groups_with(logged);
        // A label in progress may record a rebuilding member as in sync; then nothing is logged except in `strict`.
        let rebuilding = |row: &MemberRecord| row.state == RecordedState::Rebuilding;
        let changing = !all && label.members.iter().any(rebuilding);
        self.loss_covered = !changing && self.promised == self.geometry.all_members();
    }

    /// A label in progress may be on some drives, and records a member as out that missed its time limit because of a
    /// long stall. No fault impaired that member, and it was in use until every member has the label.
    ///
    /// A drive that was `joining` receives content only after a label records its member as in use. Without that label,
    /// an earlier image of the drive lacks nothing.
    fn note_labels_left(&mut self, joining: &[usize]) {
        let labels = self.drives.iter().filter_map(rings).flatten().filter_map(|scan| scan.newest);
        let Some(newest) = labels.max_by_key(|label| label.generation) else { return };
        for (slot, row) in newest.members.iter().enumerate() {
            if row.state != RecordedState::InSync {
                self.out_before.insert(slot);
            }
            let is_used = matches!(row.state, RecordedState::InSync | RecordedState::Rebuilding);
            if joining.contains(&slot) && is_used {
                self.outdate_snapshot(slot);
            }
        }
    }

    /// Stripes whose parity may disagree with the data after a crash now.
    pub(super) fn unsettled_stripes(&self, crash: Crash) -> Vec<u64> {
        let blocks = self.oracle.written().filter(|lba| self.oracle.is_unsettled(*lba, crash));
        let mut stripes: Vec<u64> =
            blocks.map(|lba| self.geometry.place(Lba(lba)).stripe.0).collect();
        stripes.dedup();
        stripes
    }
}
