//! Commands of a killed daemon that remote drives may still execute, and the wait for them before an array starts, as
//! the control plane does it.

use strake_engine::MemberIo;
use strake_engine::settling::{Candidate, LastUse, wait_until};
use strake_ondisk::Superblock;
use strake_units::Nanos;

use super::{World, patient, to_drive};
use crate::drive::SimDrive;
use crate::faults::Mutant;

/// Longest time between the end of a daemon and the start of the next one, in milliseconds.
const DOWN_MS_MAX: u64 = 3_000;

impl World {
    /// Waits until an array may be started from `drives`.
    pub(super) fn wait_for_the_daemon_before(&mut self, drives: &[SimDrive]) {
        let killed = std::mem::take(&mut self.killed);
        if !drives.iter().any(SimDrive::is_remote) {
            return;
        }
        if killed {
            let down = Nanos::MILLI.times(self.silences.below(DOWN_MS_MAX));
            self.pass_to(self.now.plus(down));
        }
        // The records of a daemon may be lost with its state directory.
        let recorded = killed && self.silences.one_in(2);
        let began = self.now;
        let labels = self.labels(drives);
        let candidates: Vec<Candidate<'_>> = labels
            .iter()
            .map(|(label, settle_time)| Candidate {
                label,
                settle_time: *settle_time,
                settled_at: (recorded && *settle_time > Nanos(0)).then(|| began.plus(*settle_time)),
            })
            .collect();
        let until = wait_until(&candidates, |_| match (killed, recorded) {
            (false, _) => LastUse::Ours,
            (true, true) => LastUse::Recorded,
            (true, false) => LastUse::Unknown { first_seen: began },
        });
        if self.faults.mutant() == Mutant::Hasty {
            return;
        }
        let Some(until) = until.filter(|until| *until > self.now) else { return };
        self.trace.event(&[94, until.0], || format!("control: waits until {until:?}"));
        self.pass_to(until);
    }

    /// The labels of the drives that have one, with their settle times. Silent drives are not read.
    fn labels(&mut self, drives: &[SimDrive]) -> Vec<(Superblock, Nanos)> {
        let mut labels = Vec::new();
        for drive in drives.iter().filter(|drive| drive.silent_until().is_none()) {
            let here = to_drive(drive);
            let mut wait = patient(&mut self.now, &self.trace);
            let label = MemberIo::open(&here, &mut wait).and_then(|mut io| io.newest_label());
            let label = label.ok().flatten();
            labels.extend(label.map(|label| (label, here.device.settle_time())));
        }
        labels
    }
}

#[cfg(test)]
mod tests {
    use strake_raid::Level;
    use strake_units::MemberSet;

    use super::*;
    use crate::drive::Crash;
    use crate::rng::Rng;
    use crate::stage::Cast;
    use crate::trace::Trace;
    use crate::world::Settings;

    /// The world waited and its drives did not observe this: a drive that answered again meanwhile was left out of the
    /// start.
    #[test]
    fn the_drives_see_the_wait() {
        let cast = Cast { remote: MemberSet::first_n(2), ..Cast::new(Level::Raid1, 2) };
        for seed in 0..4 {
            let (mut rng, trace) = (Rng::new(seed), Trace::new(false, false));
            let shape = cast.shape(&mut rng);
            let mut world = World::new(&shape, rng, Settings::default(), &trace).expect("it runs");
            // Longer than the start of the next daemon takes, shorter than its wait.
            world.drives[1].fall_silent(Nanos::SECOND.times(5));
            world.drives.iter().for_each(|drive| drive.crash(Crash::Kill));
            (world.running, world.killed) = (None, true);
            let drives = world.here();
            world.wait_for_the_daemon_before(&drives);
            assert_eq!(world.drives[1].silent_until(), None, "seed {seed}");
            assert_eq!(world.trace.now(), world.now, "seed {seed}");
        }
    }
}
