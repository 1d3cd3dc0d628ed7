//! Control operations on an active array: failing and replacing members, passing time, and stops.

use strake_raid::MemberState;
use strake_units::{MemberIndex, Nanos, Uuid};

use super::{Asked, World, patient, to_drive};
use crate::drive::Crash;
use crate::faults::Kind;

/// A part of the error for a drive that was re-added too early: old writes may still be executed on it.
pub(in crate::world) const OWES_ANSWERS: &str = "has not answered";

/// Largest number of former members that are kept.
const RETIRED_MAX: usize = 3;

impl World {
    pub(super) fn run_until_time(&mut self, until: Nanos) -> Result<(), String> {
        self.wake_all();
        while self.now < until {
            if self.round()? {
                self.now = self.now.plus(Nanos(1_000));
            } else if !self.skip_to(until) {
                break;
            }
            self.trace.set_now(self.now);
        }
        Ok(())
    }

    /// Advances the clock at most to `until`. Returns false if no event happens before.
    fn skip_to(&mut self, until: Nanos) -> bool {
        let Some(running) = &self.running else { return false };
        let mut sleep = strake_reactor::Sleep::new();
        running.shards.iter().for_each(|shard| shard.poller.sleep(&mut sleep));
        let next = if sleep.is_never() {
            self.now.plus(Nanos::MICRO)
        } else {
            sleep.deadline().unwrap_or(until)
        };
        self.now = next.max(self.now.plus(Nanos(1))).min(until);
        true
    }

    /// Slots whose member could fail now without data loss.
    pub(super) fn expendable(&self) -> Vec<u8> {
        if self.recovering || self.faults.is_held() {
            return Vec::new();
        }
        let impaired = self.faults.impaired();
        (0..self.shape.members as u8)
            .filter(|slot| self.geometry.tolerates(impaired.with(MemberIndex(*slot))))
            .collect()
    }

    pub(super) fn fail(&mut self, slot: u8) {
        self.trace.fault(Kind::Fail.word());
        self.trace.event(&[80, u64::from(slot)], || format!("control: fail member {slot}"));
        let member = MemberIndex(slot);
        let pending = self.array().begin_fail(member).expect("there is such a member");
        self.asked.push(Asked::Fail { member, pending });
    }

    /// Slots that are out of use and not being replaced.
    pub(super) fn replaceable(&self) -> Vec<usize> {
        let out =
            |(_, s): &(usize, MemberState)| matches!(s, MemberState::Faulty | MemberState::Missing);
        let slots = self.states().into_iter().enumerate().filter(out).map(|(at, _)| at);
        slots.filter(|at| !self.is_asked(*at)).collect()
    }

    pub(super) fn replace(&mut self, slot: usize) {
        self.trace.fault(Kind::Replace.word());
        self.trace.event(&[81, slot as u64], || format!("control: replace member {slot}"));
        let fresh = self.new_drive(slot);
        let uuid = Uuid::from_random(self.rng.bytes16());
        let drive = to_drive(&fresh);
        let armed = self.disarmed(|world| {
            let mut wait = patient(&mut world.now, &world.trace);
            strake_engine::prepare_drive(&drive, uuid, &mut wait).map(drop)
        });
        if armed.is_err() {
            return;
        }
        let member = MemberIndex(slot as u8);
        match self.array().begin_replace(member, &drive, uuid) {
            Ok(replacing) => {
                let old = std::mem::replace(&mut self.drives[slot], fresh);
                if self.retired.len() == RETIRED_MAX {
                    self.retired.remove(0);
                }
                if !self.is_estranged(slot) {
                    self.retired.push(old);
                }
                self.estranged.remove(slot);
                // The previous member returns among the retired drives.
                self.snapshot.take_if(|snapshot| snapshot.slot == slot);
                self.asked.push(Asked::Replace { member, replacing: Box::new(replacing) });
            }
            Err(error) => {
                // The member's state may have changed between the check and the command.
                self.trace.event(&[82, slot as u64], || format!("replace refused: {error}"));
            }
        }
    }

    /// Executes an action during which no drive has faults.
    pub(super) fn disarmed<T>(&mut self, what: impl FnOnce(&mut Self) -> T) -> T {
        let rates = self.faults.rates();
        self.faults.arm(false);
        self.faults.stall(Nanos(0));
        let result = what(self);
        self.faults.arm(rates != crate::faults::Rates::default());
        result
    }

    pub(super) fn take_control_answers(&mut self) -> Result<bool, String> {
        let mut work = false;
        let mut at = 0;
        while at < self.asked.len() {
            let (what, answer) = match &mut self.asked[at] {
                Asked::Fail { member, pending } => (format!("fail {member}"), pending.poll()),
                Asked::Replace { member, replacing } => {
                    (format!("replace {member}"), replacing.poll())
                }
            };
            let Some(answer) = answer else {
                at += 1;
                continue;
            };
            work = true;
            let asked = self.asked.swap_remove(at);
            self.trace
                .event(&[83, u64::from(answer.is_ok())], || format!("control: {what}: {answer:?}"));
            if let Asked::Replace { member, .. } = &asked
                && answer.is_ok()
            {
                self.outdate_snapshot(member.at());
            }
            let excused = match asked {
                Asked::Fail { .. } => self.stopping || self.lost,
                // The new drive may already be doomed, and a re-added one may still have outstanding requests.
                Asked::Replace { member, .. } => {
                    let owes =
                        answer.as_ref().is_err_and(|error| error.what.contains(OWES_ANSWERS));
                    self.drives[member.at()].is_doomed() || owes || self.stopping || self.lost
                }
            };
            if let Err(error) = answer
                && !excused
            {
                return Err(format!("{what} was refused: {error}"));
            }
        }
        Ok(work)
    }

    /// Stops the array cleanly. Returns true if nothing is left to resynchronize.
    pub(super) fn stop(&mut self) -> Result<bool, String> {
        // Control operations in progress complete first, as in a daemon.
        self.run_until("control operations", |world| world.asked.is_empty())?;
        self.stopping = true;
        let (began, silent) = (self.now, self.silence_at_stop());
        let quiet = self.array().begin_quiesce();
        for shard in quiet {
            let answered = std::cell::Cell::new(false);
            self.run_until("the shards to fall quiet", |_| {
                answered.set(answered.get() || shard.try_recv().is_ok());
                answered.get()
            })?;
        }
        let clean = self.array().status().resync.is_none();
        let mut pending = self.array().begin_stop();
        let answer = std::cell::RefCell::new(None);
        let pending = std::cell::RefCell::new(&mut pending);
        self.run_until("the stop to be recorded", |_| {
            let mut answer = answer.borrow_mut();
            if answer.is_none() {
                *answer = pending.borrow_mut().poll();
            }
            answer.is_some()
        })?;
        let answer = answer.into_inner();
        match answer {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(format!("stop: {error}")),
            None => unreachable!("waited for it"),
        }
        silent.map_or(Ok(()), |slot| self.in_time("the stop", began, slot))?;
        self.wake_members();
        self.settle_doubts();
        self.leave()?;
        self.oracle.crash(Crash::Kill);
        self.oracle.all_stable();
        Ok(clean)
    }

    /// Drops the array and checks that every request has completed.
    fn leave(&mut self) -> Result<(), String> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        running.shards.clear();
        for client in &mut running.clients {
            let mut scene = super::Scene {
                oracle: &mut self.oracle,
                trace: &self.trace,
                next_id: &mut self.next_id,
                left: &mut 0,
                stopping: true,
                lost: self.lost,
                now: self.now,
            };
            while client.take_answers(&self.ground, &mut scene)? {}
            if client.outstanding() > 0 {
                return Err(format!(
                    "{} request(s) were never answered by an array that was stopped",
                    client.outstanding()
                ));
            }
        }
        Ok(())
    }
}
