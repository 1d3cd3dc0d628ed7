//! A world with random events, as opposed to the script of a [`Stage`](super::stage::Stage).

use strake_units::{MemberIndex, Nanos};

use super::{Asked, World, patient, to_drive};
use crate::drive::Crash;
use crate::faults::Kind;

/// A world with random events.
pub(super) struct Chance {
    pub(super) world: World,
}

impl Chance {
    /// Runs a whole world.
    pub(super) fn live(&mut self) -> Result<(), String> {
        self.world.faults.arm(true);
        let mut budget = self.world.shape.requests;
        while budget > 0 {
            let burst = self.world.rng.between(1, 2 * self.world.shape.calm).min(budget);
            budget -= burst;
            self.world.left = burst;
            // Sometimes the next event happens while the last requests are still in flight.
            let leave = if self.world.rng.one_in(2) { self.world.rng.below(burst) } else { 0 };
            self.world.run_until("requests to be made", |world| world.left <= leave)?;
            budget += std::mem::take(&mut self.world.left);
            if leave == 0 && self.world.rng.one_in(3) {
                self.world
                    .run_until("requests to be answered", |world| world.outstanding() == 0)?;
            }
            self.something_happens()?;
            self.something_else_happens()?;
        }
        if self.world.rng.one_in(4) && self.world.faults.has(Kind::Lose) {
            self.lose_too_many()?;
        }
        self.end()
    }

    /// Executes one event that is not a request.
    pub(super) fn something_happens(&mut self) -> Result<(), String> {
        self.world.refresh();
        let has = |kind| self.world.faults.has(kind);
        match self.world.rng.below(12) {
            0..=1 if has(Kind::Fail) => self.fail_one(),
            2..=4 => self.replace_one()?,
            5 if has(Kind::Vanish) => self.pull_one(),
            6 => self.pass_time()?,
            7 if has(Kind::Kill) => self.crash(Crash::Kill)?,
            8 if has(Kind::Power) => self.crash(Crash::Power)?,
            9 if has(Kind::Stop) => self.stop_and_start()?,
            _ => {}
        }
        Ok(())
    }

    /// Executes one further event that is not a request.
    pub(super) fn something_else_happens(&mut self) -> Result<(), String> {
        self.world.refresh();
        let has = |kind| self.world.faults.has(kind);
        match self.world.later.below(24) {
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

    /// Lets up to five seconds pass.
    fn pass_time(&mut self) -> Result<(), String> {
        let until = self.world.now.plus(Nanos(self.world.rng.below(5_000) * 1_000_000));
        self.world.faults.arm(self.world.rng.one_in(2) && !self.world.recovering);
        let result = self.world.run_until_time(until);
        self.world.faults.arm(!self.world.recovering);
        result
    }

    fn fail_one(&mut self) {
        let slots = self.world.expendable();
        if slots.is_empty() {
            return;
        }
        let slot = self.world.rng.pick(&slots);
        if self.world.faults.may_impair(slot) {
            self.world.fail(slot);
        }
    }

    /// Removes a drive.
    fn pull_one(&mut self) {
        let slots = self.world.expendable();
        if slots.is_empty() {
            return;
        }
        let slot = self.world.rng.pick(&slots);
        if self.world.faults.may_impair(slot) {
            self.world.trace.fault(Kind::Vanish.word());
            self.world.drives[usize::from(slot)].vanish();
        }
    }

    fn replace_one(&mut self) -> Result<(), String> {
        let slots = self.world.replaceable();
        if slots.is_empty() {
            return Ok(());
        }
        let slot = self.world.rng.pick(&slots);
        if self.world.rng.one_in(2) && self.world.faults.has(Kind::Readd) && self.take_back(slot)? {
            return Ok(());
        }
        if self.world.faults.has(Kind::Replace) {
            self.world.replace(slot);
        }
        Ok(())
    }

    /// Re-adds the drive of `slot`, if it works again. Returns false if it cannot be re-added.
    fn take_back(&mut self, slot: usize) -> Result<bool, String> {
        if self.world.drives[slot].silent_until().is_some() {
            return Ok(false);
        }
        self.return_with_less(slot);
        self.world.drives[slot].return_cold();
        let drive = to_drive(&self.world.drives[slot]);
        let label = self.world.disarmed(|world| {
            let mut wait = patient(&mut world.now, &world.trace);
            strake_engine::MemberIo::open(&drive, &mut wait).and_then(|mut io| io.inspect())
        });
        let Ok(Some(label)) = label.map(|found| found.label) else { return Ok(false) };
        let member = MemberIndex(slot as u8);
        match self.world.array().begin_readd(member, &drive, &label) {
            Ok(_) if self.world.is_estranged(slot) => {
                Err(format!("a drive that lacks something was taken back as member {slot}"))
            }
            Ok(replacing) => {
                self.world.trace.fault(Kind::Readd.word());
                self.world
                    .trace
                    .event(&[86, slot as u64], || format!("control: take back {member}"));
                self.world.asked.push(Asked::Replace { member, replacing: Box::new(replacing) });
                Ok(true)
            }
            Err(error) => {
                self.world
                    .trace
                    .event(&[87, slot as u64], || format!("taking back refused: {error}"));
                Ok(false)
            }
        }
    }
}
