//! The end of a run: faults are disabled, all work completes, and everything is checked once more.

use strake_raid::MemberState;
use strake_units::{Lba, LbaRange, MemberSet, Nanos};

use super::World;
use super::chance::Chance;
use crate::drive::Crash;
use crate::textbook;

/// Blocks of one read of the final check.
const CHECK_BLOCKS: u64 = 64;

/// Rounds of failing, replacing and rebuilding, after which members that are not in sync count as an error.
const REPAIRS_MAX: usize = 40;

impl Chance {
    pub(super) fn end(&mut self) -> Result<(), String> {
        self.world.trace.event(&[95], || format!("the end begins; {}", self.world.picture()));
        self.world.ending = true;
        self.world.faults.arm(false);
        self.world.faults.stall(Nanos(0));
        self.wake_all_drives();
        self.world.drives.iter().for_each(|drive| drive.slow_down(1));
        self.world.left = 0;
        self.world.run_until("the last requests", |world| world.outstanding() == 0)?;
        self.world.make_whole()?;
        self.world.read_everything()?;
        self.restart_clean()?;
        self.world.read_everything()?;
        textbook::verify(&self.world.shape.placement(), &|member, offset| {
            self.world.drives[member].page(offset)
        })
    }

    /// A clean shutdown, a power cut, and a start without repairs.
    fn restart_clean(&mut self) -> Result<(), String> {
        if !self.world.stop()? {
            return Err("something was left to resynchronize at the end".to_owned());
        }
        self.world.drives.iter().for_each(|drive| drive.crash(Crash::Power));
        self.world.recovering = false;
        self.world.restart(false)?;
        self.world.faults.arm(false);
        Ok(())
    }
}

impl World {
    /// Replaces members that are out until every member is in sync and no parity is in doubt.
    pub(super) fn make_whole(&mut self) -> Result<(), String> {
        for _ in 0..REPAIRS_MAX {
            self.run_until("control operations", |world| world.asked.is_empty())?;
            self.wait_for_maintenance()?;
            let status = self.array().status();
            if status.lost {
                return Err(format!(
                    "the array was lost within its redundancy: {}",
                    self.picture()
                ));
            }
            let slots = self.replaceable();
            let doomed = |(at, s): &(usize, MemberState)| {
                *s == MemberState::InSync && self.drives[*at].is_doomed()
            };
            let doomed = self.states().into_iter().enumerate().find(doomed).map(|(at, _)| at as u8);
            if let Some(slot) = slots.first() {
                self.replace(*slot);
            } else if let Some(slot) =
                doomed.filter(|_| self.geometry.redundancy(MemberSet::EMPTY).is_some_and(|r| r > 0))
            {
                self.fail(slot);
            } else if self.states().iter().all(|s| *s == MemberState::InSync)
                && status.resync.is_none()
            {
                return Ok(());
            }
        }
        Err(format!("members do not get well: {}", self.picture()))
    }

    pub(super) fn wait_for_maintenance(&mut self) -> Result<(), String> {
        self.run_until("resync and rebuild to end", |world| {
            let status = world.array().status();
            let rebuilding =
                status.members.iter().any(|m| matches!(m.state, MemberState::Rebuilding { .. }));
            let resyncing = status.resync.is_some() && world.replaceable().is_empty();
            (!rebuilding && !resyncing) || status.rebuild_halted || status.lost
        })?;
        if self.array().status().rebuild_halted {
            return Err(format!("the rebuild halted within redundancy: {}", self.picture()));
        }
        Ok(())
    }

    /// Reads every block that was written at any time, and some others.
    pub(super) fn read_everything(&mut self) -> Result<(), String> {
        let mut ranges: Vec<LbaRange> = Vec::new();
        let extra = (0..4).map(|_| self.rng.below(self.ground.capacity)).collect::<Vec<_>>();
        let mut blocks: Vec<u64> = self.oracle.written().chain(extra).collect();
        blocks.sort_unstable();
        blocks.dedup();
        for lba in blocks {
            match ranges.last_mut() {
                Some(last) if last.end().0 == lba && last.blocks < CHECK_BLOCKS => last.blocks += 1,
                _ => ranges.push(LbaRange::new(Lba(lba), 1)),
            }
        }
        let depth = self.shape.depth;
        for part in ranges.chunks(depth) {
            for range in part {
                self.read(*range)?;
            }
            self.run_until("the final reads", |world| world.outstanding() == 0)?;
        }
        Ok(())
    }

    fn read(&mut self, range: LbaRange) -> Result<(), String> {
        self.say(|client, ground, scene| client.read(ground, range, scene))
    }
}
