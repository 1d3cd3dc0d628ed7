//! Maintenance of an active array, which clients should not notice: scrubs, and changes of the consistency mode.

use strake_engine::{Consistency, ScrubMode, ScrubState};
use strake_units::Nanos;

use super::chance::Chance;
use crate::faults::Kind;

/// Largest number of requests during a scrub or a change of the mode.
const BESIDE_MAX: u64 = 40;

impl Chance {
    /// A consistent array is scrubbed while clients use it, and the scrub finds nothing. Afterwards chance decides
    /// whether it continues.
    pub(super) fn scrub_beside_clients(&mut self) -> Result<(), String> {
        if !self.is_sound() || !self.is_small() {
            return Ok(());
        }
        self.world.faults.arm(false);
        self.world.faults.stall(Nanos(0));
        self.world.array().stop_scrub();
        let mode = self.world.later.pick(&[ScrubMode::Check, ScrubMode::Repair]);
        self.world.happens(Kind::Scrub, &[mode as u64]);
        self.world.array().begin_scrub(mode).map_err(|error| error.to_string())?;
        self.work_beside("requests beside a scrub")?;
        match self.world.later.below(4) {
            0 => {
                self.world.array().pause_scrub(true);
                self.work_beside("requests beside a scrub that rests")?;
                self.world.array().pause_scrub(false);
                self.finish_scrub()?;
            }
            1 => {
                self.world.array().stop_scrub();
            }
            // The scrub continues during later events, or ends with a crash.
            2 => {}
            _ => self.finish_scrub()?,
        }
        self.nothing_found("a scrub beside clients")?;
        self.world.faults.arm(!self.world.recovering);
        Ok(())
    }

    fn work_beside(&mut self, what: &str) -> Result<(), String> {
        self.world.left = self.world.later.between(1, BESIDE_MAX);
        self.world.run_until(what, |world| world.left == 0)
    }

    fn finish_scrub(&mut self) -> Result<(), String> {
        self.world.run_until("the end of a scrub", |world| {
            world.array().status().scrub.is_none_or(|scrub| scrub.state == ScrubState::Finished)
        })
    }

    /// Changes the consistency mode during writes. A crash during the change may meet the guarantees of either mode, so
    /// there is none before the change has finished.
    pub(super) fn change_mode(&mut self) -> Result<(), String> {
        let mode =
            self.world.later.pick(&[Consistency::Resync, Consistency::Safe, Consistency::Strict]);
        // A change from `strict` to `safe` records nothing as logged for a short time. Worlds do not yet do this with
        // members out and two parity strips.
        let from_partial_writes = self.world.shape.consistency == Consistency::Strict
            && mode == Consistency::Safe
            && self.world.geometry.parity_strips() > 1;
        if from_partial_writes && !self.is_sound() {
            return Ok(());
        }
        let armed = !from_partial_writes && !self.world.recovering;
        self.world.faults.arm(armed);
        self.world.happens(Kind::Mode, &[mode as u64]);
        let mut pending = self.world.array().begin_set_consistency(mode);
        self.work_beside("requests beside a change of the mode")?;
        let answer = std::cell::RefCell::new(None);
        let pending = std::cell::RefCell::new(&mut pending);
        self.world.run_until("a change of the mode", |world| {
            let mut answer = answer.borrow_mut();
            if answer.is_none() {
                *answer = pending.borrow_mut().poll();
            }
            answer.is_some() && world.array().status().consistency == mode
        })?;
        if let Some(Err(error)) = answer.into_inner() {
            return Err(format!("the mode was not changed to {mode}: {error}"));
        }
        self.world.shape.consistency = mode;
        self.world.faults.arm(!self.world.recovering);
        Ok(())
    }
}
