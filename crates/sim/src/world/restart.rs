//! Assembling an array from its drives, and the permitted results.

use strake_engine::{AssemblePolicy, Assembled, Drive, Outcome};
use strake_raid::MemberState;
use strake_units::{Nanos, Uuid};

use super::{World, patient, to_drive};
use crate::drive::SimDrive;

/// Attempts of a restart: plain, after the return of a silent drive, degraded, with an accepted loss, and with a larger
/// accepted loss.
const ATTEMPTS: usize = 5;

impl World {
    /// Assembles the array from its drives and starts it. A drive that was `joining` may be named in the labels of
    /// other members without having a label itself.
    pub(super) fn restart(&mut self, joining: bool) -> Result<(), String> {
        let clean = !self.recovering;
        let here = self.here();
        self.wait_for_the_daemon_before(&here);
        let mut plan = self.plan_silence(clean);
        let mut policy = AssemblePolicy::default();
        for attempt in 0..ATTEMPTS {
            let began = self.now;
            let outcome = self.assemble(policy)?;
            let silent = self.drives.iter().any(|d| d.was_silent_after(began));
            let gone = self.drives.iter().any(SimDrive::is_gone);
            let absent_here = joining || gone || silent || !self.estranged.is_empty();
            match outcome {
                Outcome::Ready(assembled) => {
                    self.check_silence(plan, &assembled)?;
                    return self.ready(*assembled, policy, clean);
                }
                Outcome::Waiting { what, .. } if absent_here && !policy.allow_degraded => {
                    self.trace.event(&[86], || format!("waiting: {what}"));
                    let waits = self.silences.one_in(2) && self.outwait(&mut plan);
                    policy.allow_degraded = !waits;
                }
                Outcome::Refused { what, .. } if !clean && self.outwait(&mut plan) => {
                    self.trace.event(&[87], || format!("refused: {what}"));
                }
                Outcome::Refused { what, .. }
                    if (silent || !policy.accept_loss)
                        && (self.may_refuse(clean) || attempt > 0 && self.looks_served()) =>
                {
                    self.trace.event(&[87], || format!("refused: {what}"));
                    self.doubts.read(&what);
                    policy.accept_loss = true;
                }
                Outcome::Waiting { what, .. } => return Err(format!("waits without need: {what}")),
                Outcome::Refused { what, .. } => {
                    return Err(format!("refused without need: {what}"));
                }
            }
        }
        Err("every attempt to assemble the array was turned down".to_owned())
    }

    /// The available drives for an assembly: by slot, then former members.
    pub(super) fn here(&self) -> Vec<SimDrive> {
        let all = self.drives.iter().chain(&self.retired);
        all.filter(|drive| !drive.is_gone() && !drive.is_owing()).cloned().collect()
    }

    /// Only a parity array without a clean shutdown and without some members may be rejected, and not if the labels
    /// promised that a crash is harmless.
    fn may_refuse(&self, clean: bool) -> bool {
        let gone = self.drives.iter().enumerate().filter(|(_, drive)| drive.is_gone());
        let gone = self.out_before | gone.map(|(slot, _)| slot).collect();
        !clean && self.geometry.parity_strips() > 0 && !gone.is_subset(self.promised)
    }

    fn assemble(&mut self, policy: AssemblePolicy) -> Result<Outcome, String> {
        let mut drives: Vec<Drive> = self.here().iter().map(to_drive).collect();
        self.rng.shuffle(&mut drives);
        let began = self.now;
        let mut rng = self.rng.fork();
        let mut epoch = || Uuid::from_random(rng.bytes16());
        self.faults.arm(false);
        self.faults.stall(Nanos(0));
        let (mut outcomes, unreadable) = {
            let mut wait = patient(&mut self.now, &self.trace);
            strake_engine::assemble(&drives, policy, &|_, _| true, &mut epoch, &mut wait)
        };
        if self.now.since(began) > self.assembly_limit(began) {
            return Err(format!("an assembly took {:?}", self.now.since(began)));
        }
        let known = [self.estranged_names(), self.silent_names(began)].concat();
        let excused = |what: &str| known.iter().any(|name| what.contains(name.as_str()));
        if let Some(error) = unreadable.iter().find(|error| !excused(&error.what)) {
            return Err(format!("a drive could not be looked at: {error}"));
        }
        match (outcomes.pop(), outcomes.len()) {
            (Some(outcome), 0) => Ok(outcome),
            (_, count) => Err(format!("one array went down and {count} came up")),
        }
    }

    fn ready(
        &mut self,
        assembled: Assembled,
        policy: AssemblePolicy,
        clean: bool,
    ) -> Result<(), String> {
        let (regions, bytes) = assembled.resync_regions();
        self.trace.event(&[88, u64::from(regions), bytes], || {
            format!("ready: {regions} region(s) to resynchronize")
        });
        if clean && regions > 0 {
            return Err(format!("{regions} region(s) to resynchronize after a clean stop"));
        }
        self.start(assembled)?;
        let states = self.states();
        self.check_believed()?;
        if policy.accept_loss && states.iter().all(|s| *s == MemberState::InSync) {
            return Err("a loss had to be accepted and every member is in sync".to_owned());
        }
        self.settle_loss(policy);
        self.refresh();
        self.faults.arm(!self.recovering);
        Ok(())
    }

    /// Checks that no drive that lacks content is trusted. A drive that is large enough may be fully rebuilt.
    pub(super) fn check_believed(&mut self) -> Result<(), String> {
        for (slot, state) in self.states().into_iter().enumerate() {
            let whole = self.drives[slot].bytes() >= self.shape.drives[slot].bytes;
            match state {
                MemberState::Rebuilding { recovered_stripes: 0 } if whole => {
                    self.estranged.remove(slot);
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
