//! Drives that do not answer for a time, or permanently: while the array is active, while it is being stopped, and
//! while it is being assembled.
//!
//! No wait for them exceeds the time limits of the engine; their outstanding requests may be executed at any later
//! time. A drive that stops answering during an assembly is lost in the event that stopped the array, so without a
//! clean shutdown the array may have to wait for it, unless the labels promised otherwise.

use strake_block::{BlockDevice, Patience};
use strake_engine::Assembled;
use strake_ondisk::{AreaLayout, Copy, RingScan};
use strake_raid::MemberState;
use strake_units::{MemberSet, Nanos};

use super::World;
use super::chance::Chance;
use crate::drive::{FOREVER, SimDrive};
use crate::faults::Kind;

/// The durations of finite silences: longer than the time limit of a local member, or of any member.
const SILENCES: [Nanos; 3] = [seconds(20), seconds(60), seconds(300)];

/// Time limit for completions of an array with a silent drive.
const SERVED: Nanos = seconds(20);

/// The limit with a silent remote drive.
const SERVED_REMOTE: Nanos = seconds(50);

/// Largest duration of an assembly without the waits for silent drives.
const ASSEMBLY: Nanos = seconds(10);

/// Largest number of requests to a drive before it stops answering during an assembly.
const START_REQUESTS_MAX: u64 = 24;

/// Largest number of requests while a drive is silent.
const BESIDE_MAX: u64 = 20;

const fn seconds(count: u64) -> Nanos {
    Nanos::SECOND.times(count)
}

/// A planned silence during an assembly.
#[derive(Clone, Copy, Debug)]
pub(super) struct SilentStart {
    slot: usize,
    lasts: Nanos,
}

/// The content of the head and the tail ring of a drive.
pub(super) fn rings(drive: &SimDrive) -> Option<[RingScan; 2]> {
    let layout = AreaLayout::of(drive.bytes())?;
    Some([Copy::Head, Copy::Tail].map(|copy| {
        let (offset, length) = layout.ring_range(copy);
        let mut ring = vec![0; length as usize];
        drive.copy_out(offset, &mut ring);
        strake_ondisk::newest(&ring, copy)
    }))
}

impl Chance {
    /// Makes a drive silent. In half of the cases the latency of requests is checked meanwhile.
    pub(super) fn silence_one(&mut self) -> Result<(), String> {
        self.world.refresh();
        let alone = self.world.faults.impaired().is_empty()
            && self.world.faults.stalled_until() <= self.world.now;
        let Some(slot) = self.world.silence_for(Kind::Silence) else { return Ok(()) };
        if !alone || !self.world.silences.one_in(2) {
            return Ok(());
        }
        self.world.faults.arm(false);
        let began = self.world.now;
        self.world.left = self.world.silences.between(1, BESIDE_MAX);
        self.world.run_until("requests beside a silent drive", |world| {
            world.left == 0 && world.outstanding() == 0
        })?;
        self.world.faults.arm(!self.world.recovering);
        self.world.in_time("requests", began, slot)
    }

    /// Ends the silence of all drives.
    pub(super) fn wake_all_drives(&self) {
        self.world.drives.iter().chain(&self.world.retired).for_each(SimDrive::speak);
    }
}

impl World {
    /// Makes a drive silent while the array is being stopped.
    pub(super) fn silence_at_stop(&mut self) -> Option<usize> {
        if !self.silences.one_in(3) {
            return None;
        }
        self.refresh();
        let alone = self.faults.impaired().is_empty() && self.faults.stalled_until() <= self.now;
        self.silence_for(Kind::SilentStop).filter(|_| alone)
    }

    /// Makes a drive silent that the array tolerates. Returns its slot.
    fn silence_for(&mut self, kind: Kind) -> Option<usize> {
        if !self.faults.has(kind) {
            return None;
        }
        let mut slots = self.expendable();
        slots.retain(|slot| self.drives[usize::from(*slot)].silent_until().is_none());
        let slot = *slots.get(self.silences.below(slots.len() as u64) as usize)?;
        if !self.faults.may_impair(slot) {
            return None;
        }
        let lasts = if self.silences.one_in(4) { FOREVER } else { self.silences.pick(&SILENCES) };
        self.happens(kind, &[u64::from(slot), lasts.0]);
        self.drives[usize::from(slot)].fall_silent(lasts);
        Some(usize::from(slot))
    }

    /// Checks that an operation that started at `began` has not exceeded its time limit beside the silent drive of
    /// `slot`. A drive that hung meanwhile adds its own time, the silent drive too: its first unanswered I/O may be
    /// sent only after the other drive has failed or answered.
    pub(super) fn in_time(&self, what: &str, began: Nanos, slot: usize) -> Result<(), String> {
        let limit = |drive: &SimDrive| if drive.is_remote() { SERVED_REMOTE } else { SERVED };
        let hangs = |(at, drive): &(usize, &SimDrive)| {
            let hung = if *at == slot { drive.is_hung() } else { drive.is_doomed() };
            hung && !drive.is_gone()
        };
        let hung = self.drives.iter().enumerate().filter(hangs);
        let limit = hung.fold(limit(&self.drives[slot]), |sum, (_, drive)| sum.plus(limit(drive)));
        let took = self.now.since(began);
        if took <= limit {
            return Ok(());
        }
        Err(format!("{what} took {took:?} beside the silent drive of member {slot}"))
    }

    /// Ends the silence of drives whose member is in sync, because such a drive must not be lost together with a crash.
    pub(super) fn wake_members(&mut self) {
        self.refresh();
        let states = self.states();
        for (drive, _) in self.drives.iter().zip(states).filter(|(_, s)| *s == MemberState::InSync)
        {
            drive.speak();
        }
    }

    /// Plans a silence of a drive during the assembly, or none.
    pub(super) fn plan_silence(&mut self, clean: bool) -> Option<SilentStart> {
        if self.ending || !self.silences.one_in(3) || !self.faults.has(Kind::SilentStart) {
            return None;
        }
        let slots = |lost: &dyn Fn(&SimDrive) -> bool| -> MemberSet {
            let lost = self.drives.iter().enumerate().filter(|(_, drive)| lost(drive));
            lost.map(|(at, _)| at).collect()
        };
        let gone = slots(&SimDrive::is_gone);
        let silent = slots(&|drive| drive.silent_until().is_some());
        let crashed = if clean { MemberSet::EMPTY } else { self.out_before };
        let before = self.faults.impaired() | crashed;
        let out = before | gone | silent | self.estranged;
        // A drive that was lost with the crash already counts as one.
        let covered = clean || (self.loss_covered && gone.is_subset(self.out_before));
        let slot = self.silences.below(self.shape.members as u64) as usize;
        if out.contains(slot) || !self.geometry.tolerates(out.with(slot)) {
            return None;
        }
        let forever = covered && self.silences.one_in(3);
        let lasts = if forever { FOREVER } else { self.silences.pick(&SILENCES) };
        self.drives[slot].fall_silent_after(self.silences.below(START_REQUESTS_MAX), lasts);
        Some(SilentStart { slot, lasts })
    }

    /// Waits for the end of the silence. Returns false if there was none, or if it does not end.
    pub(super) fn outwait(&mut self, plan: &mut Option<SilentStart>) -> bool {
        let Some(SilentStart { slot, lasts }) = *plan else { return false };
        let Some(until) = self.drives[slot].silent_until().filter(|_| lasts != FOREVER) else {
            return false;
        };
        *plan = None;
        self.trace.event(&[96, slot as u64], || format!("control: waits for the drive of {slot}"));
        self.pass_to(self.now.max(until));
        self.drives[slot].speak();
        true
    }

    /// Counts a silence that happened, and checks that a drive that was silent for too long is left out.
    pub(super) fn check_silence(
        &self,
        plan: Option<SilentStart>,
        assembled: &Assembled,
    ) -> Result<(), String> {
        let Some(SilentStart { slot, lasts }) = plan else { return Ok(()) };
        let drive = &self.drives[slot];
        if drive.silent_until().is_none() {
            // The drive received fewer requests than planned.
            drive.speak();
            return Ok(());
        }
        self.happens(Kind::SilentStart, &[slot as u64, lasts.0]);
        let limit = Patience::of(drive.hold()).io;
        let state = assembled.states()[slot];
        if lasts > limit && state == MemberState::InSync {
            return Err(format!("the drive of member {slot} is silent and in sync"));
        }
        Ok(())
    }

    /// The time limit of an assembly that started at `began`.
    pub(super) fn assembly_limit(&self, began: Nanos) -> Nanos {
        let silent = self.drives.iter().chain(&self.retired).filter(|d| d.was_silent_after(began));
        silent.fold(ASSEMBLY, |sum, drive| sum.plus(Patience::of(drive.hold()).io))
    }

    /// True if an interrupted start looks like an active array: the tail ring of every drive with the newest label may
    /// contain it too. The content of the drives is then the same as after a crash, and the array may be rejected in
    /// the same way. No data and no redundancy is lost. The array is not available until the operator accepts the loss.
    /// No program could avoid this, because the two cases are indistinguishable.
    pub(super) fn looks_served(&self) -> bool {
        let drives = self.here();
        let scans: Vec<[RingScan; 2]> = drives.iter().filter_map(rings).collect();
        let generation = |scan: &RingScan| scan.newest.as_ref().map(|label| label.generation);
        let newest = scans.iter().flatten().filter_map(generation).max();
        let holders = scans.iter().filter(|[head, _]| generation(head) == newest);
        holders.into_iter().all(|[_, tail]| generation(tail) == newest || tail.damaged != 0)
    }

    /// The names of drives that were silent at any time after `began`.
    pub(super) fn silent_names(&self, began: Nanos) -> Vec<String> {
        let silent = self.drives.iter().chain(&self.retired).filter(|d| d.was_silent_after(began));
        silent.map(SimDrive::name).collect()
    }
}
