//! Silent faults: a drive contains or returns other data than was written, without an error.
//!
//! Only a scrub can find this, because data has no checksums, and only while nothing was computed from the wrong data.
//! So a drive has such a fault while the array is quiet, for one write, and a scrub follows. The scrub must find
//! exactly the wrong data, must name and repair the member if redundancy identifies it, and must change nothing
//! otherwise; then the test itself corrects the drive.

use std::collections::BTreeSet;

use strake_engine::{ScrubFinding, ScrubMode, ScrubState, ScrubStatus, ScrubVerdict};
use strake_ondisk::HEAD_BYTES;
use strake_raid::{MemberState, Place, Role};
use strake_units::{Lba, LbaRange, MemberIndex, MemberSet, Nanos};

use super::chance::Chance;
use crate::drive::{Lie, SimDrive, differing};
use crate::faults::Kind;
use crate::medium::{Medium, PAGE};

/// Larger arrays are skipped, because a scrub reads the whole array.
const SCRUBBED_MAX: u64 = 24 << 20;

/// Largest number of flipped bits.
const FLIPS_MAX: u64 = 3;

/// Largest size of the affected write.
const WRITE_BYTES_MAX: u64 = 1 << 20;

/// A member with a silent fault, and its right content.
struct Liar {
    kind: Kind,
    slot: usize,
    truth: Medium,
    /// Wrong pages of its data area, as byte offsets there.
    wrong: BTreeSet<u64>,
}

impl Chance {
    /// A drive has a silent fault, and a scrub finds it.
    pub(super) fn a_drive_lies(&mut self) -> Result<(), String> {
        let kinds = [Kind::BitFlip, Kind::LostWrite, Kind::Misdirected, Kind::StaleRead];
        let kind = self.world.later.pick(&kinds);
        if !self.is_sound() || !self.is_small() || !self.world.faults.has(kind) {
            return Ok(());
        }
        self.world.array().stop_scrub();
        self.world.faults.arm(false);
        self.world.faults.stall(Nanos(0));
        self.world.run_until("requests before a lie", |world| world.outstanding() == 0)?;
        self.world.refresh();
        if self.is_sound() {
            self.flush()?;
            let liar = self.lie(kind)?;
            self.find_out(liar)?;
            self.flush()?;
        }
        self.world.faults.arm(!self.world.recovering);
        Ok(())
    }

    /// True if every member is in sync and there is no other fault.
    pub(super) fn is_sound(&self) -> bool {
        !self.world.recovering
            && !self.world.faults.is_held()
            && self.world.faults.impaired().is_empty()
            && self.world.asked.is_empty()
            && self.world.geometry.redundancy(MemberSet::EMPTY).is_some_and(|spare| spare > 0)
            && self.world.array().status().resync.is_none()
            && self.world.states().iter().all(|state| *state == MemberState::InSync)
    }

    pub(super) fn is_small(&self) -> bool {
        self.world.geometry.capacity_blocks() << self.world.geometry.block_size().shift()
            <= SCRUBBED_MAX
    }

    /// True if redundancy identifies the wrong member.
    fn is_located(&self) -> bool {
        self.world.geometry.parity_strips() > 1 || self.world.geometry.copies() > 2
    }

    fn used(&self) -> u64 {
        self.world.geometry.member_blocks_used() << self.world.geometry.block_size().shift()
    }

    fn lie(&mut self, kind: Kind) -> Result<Liar, String> {
        let range = self.range_in_a_stripe();
        let slot = self.writer_of(range);
        let numbers = [slot as u64, range.start.0, range.blocks];
        self.world.happens(kind, &numbers);
        let drive = self.world.drives[slot].clone();
        let truth = if kind == Kind::BitFlip {
            let truth = drive.medium();
            for _ in 0..self.world.later.between(1, FLIPS_MAX) {
                let byte = self.world.later.below(self.used());
                drive.flip(HEAD_BYTES + byte, self.world.later.below(8) as u32);
            }
            truth
        } else {
            drive.begin_lie(self.lie_of(kind));
            self.world.ask(|client, ground, scene| client.write(ground, range, scene))?;
            drive.end_lie()
        };
        let area = HEAD_BYTES..HEAD_BYTES + self.used();
        let wrong = differing(&truth, &drive.medium(), area);
        let wrong = wrong.into_iter().map(|at| at - HEAD_BYTES).collect();
        Ok(Liar { kind, slot, truth, wrong })
    }

    fn lie_of(&mut self, kind: Kind) -> Lie {
        if kind != Kind::Misdirected {
            return Lie::Lost;
        }
        let (used, strip) = (self.used(), u64::from(self.world.geometry.strip_bytes()));
        // The write is misdirected to another row, because this row may still be read.
        Lie::Misdirected { by: self.world.later.between(1, used / strip - 1) * strip, used }
    }

    /// A range in one stripe.
    fn range_in_a_stripe(&mut self) -> LbaRange {
        let spot = self.world.later.pick(&self.world.ground.spots);
        let stripe = self.world.geometry.place(Lba(spot)).stripe;
        let first = self.world.geometry.lba(Place { stripe, strip: 0, offset: 0 });
        let (blocks, strip) = (self.world.ground.stripe, self.world.ground.strip);
        let most = (WRITE_BYTES_MAX >> self.world.ground.block_size.shift()).min(blocks);
        let length = match self.world.later.below(4) {
            0 => most,
            1 => strip.min(most),
            2 => 1,
            _ => self.world.later.between(1, most),
        };
        LbaRange::new(Lba(first.0 + self.world.later.below(blocks - length + 1)), length)
    }

    /// A member that a write of `range` modifies.
    fn writer_of(&mut self, range: LbaRange) -> usize {
        let block = range.start.0 + self.world.later.below(range.blocks);
        let place = self.world.geometry.place(Lba(block));
        let parities = self.world.geometry.parity_strips();
        let role = if parities > 0 && self.world.later.one_in(2) {
            Role::Parity { index: self.world.later.below(u64::from(parities)) as u8 }
        } else {
            let copy = self.world.later.below(u64::from(self.world.geometry.copies())) as u8;
            Role::Data { strip: place.strip, copy }
        };
        self.world
            .geometry
            .member(place.stripe, self.world.geometry.position(place.stripe, role))
            .at()
    }

    fn find_out(&mut self, liar: Liar) -> Result<(), String> {
        let repairs = self.is_located() && liar.kind != Kind::StaleRead;
        let mode = match repairs || self.world.later.one_in(2) && !self.is_located() {
            true => ScrubMode::Repair,
            false => ScrubMode::Check,
        };
        let before: Vec<Medium> = self.world.drives.iter().map(SimDrive::medium).collect();
        let status = self.scrub(mode)?;
        let story =
            |what| format!("{mode:?} after a {} of member {}: {what}", liar.kind.word(), liar.slot);
        self.judge(&liar, repairs).map_err(story)?;
        let area = HEAD_BYTES..HEAD_BYTES + self.used();
        for (slot, drive) in self.world.drives.iter().enumerate() {
            let should = if slot == liar.slot && repairs { &liar.truth } else { &before[slot] };
            if let Some(at) = differing(should, &drive.medium(), area.clone()).first() {
                return Err(story(format!(
                    "left byte {at} of drive {slot} wrong, {:?}",
                    status.counts
                )));
            }
        }
        if !repairs {
            let drive = &self.world.drives[liar.slot];
            liar.wrong.iter().for_each(|at| drive.correct(HEAD_BYTES + at, &liar.truth));
        }
        self.scrub(ScrubMode::Check)?;
        self.nothing_found("a second scrub")
    }

    /// Scrubs the whole array.
    pub(super) fn scrub(&mut self, mode: ScrubMode) -> Result<ScrubStatus, String> {
        self.world.array().begin_scrub(mode).map_err(|error| error.to_string())?;
        self.world.run_until("the end of a scrub", |world| {
            world.array().status().scrub.is_some_and(|scrub| scrub.state == ScrubState::Finished)
        })?;
        let status = self.world.array().status().scrub.ok_or("a scrub was forgotten")?;
        let size =
            self.world.geometry.capacity_blocks() << self.world.geometry.block_size().shift();
        if status.counts.checked != size {
            return Err(format!("a scrub of {size} bytes is over: {status:?}"));
        }
        Ok(status)
    }

    /// Checks that the last scrub has found nothing.
    pub(super) fn nothing_found(&self, what: &str) -> Result<(), String> {
        match self.world.array().scrub_findings().first() {
            Some(finding) => Err(format!("{what} found what is not so: {finding:?}")),
            None => Ok(()),
        }
    }

    /// Compares the findings with the wrong pages.
    fn judge(&self, liar: &Liar, repairs: bool) -> Result<(), String> {
        let mut found = BTreeSet::new();
        for finding in self.world.array().scrub_findings() {
            let rows = finding.rows.start.bytes(self.world.ground.block_size)
                ..finding.rows.end().bytes(self.world.ground.block_size);
            self.judge_one(liar, &finding, repairs)
                .map_err(|what| format!("{what}: {finding:?}"))?;
            for at in rows.step_by(PAGE) {
                if !found.insert(at) {
                    return Err(format!("rows are found twice: {finding:?}"));
                }
            }
        }
        if found == liar.wrong {
            return Ok(());
        }
        Err(format!("found {found:?}, wrong are {:?}", liar.wrong))
    }

    fn judge_one(&self, liar: &Liar, found: &ScrubFinding, repairs: bool) -> Result<(), String> {
        let member = MemberIndex(liar.slot as u8);
        let holds = self.world.geometry.data_at(member, found.rows.start);
        let copies = self.world.geometry.parity_strips() == 0;
        let verdict = match (self.is_located(), copies, holds) {
            (false, true, _) => ScrubVerdict::CopiesDiffer,
            (false, false, _) => ScrubVerdict::ParityDiffers,
            (true, true, _) => ScrubVerdict::CopyWrong,
            (true, false, Some(_)) => ScrubVerdict::DataWrong,
            (true, false, None) => ScrubVerdict::ParityWrong,
        };
        if found.verdict != verdict {
            return Err(format!("should be {verdict:?}"));
        }
        if found.member != self.is_located().then_some(member) {
            return Err("names another member".to_owned());
        }
        if self.world.geometry.position_of_member(found.stripe, member).is_none() {
            return Err("is of another group".to_owned());
        }
        if holds.is_some_and(|lba| lba < found.array.start || lba >= found.array.end()) {
            return Err(format!("does not tell of block {holds:?}"));
        }
        if found.repaired != repairs {
            return Err(format!("repaired should be {repairs}"));
        }
        Ok(())
    }

    /// Makes all acknowledged writes stable.
    fn flush(&mut self) -> Result<(), String> {
        self.world.ask(|client, _, scene| client.flush(scene))
    }
}
