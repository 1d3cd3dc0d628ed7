//! Drives that answer nothing for a time, or permanently: while the array serves, while it is stopped, and while it is
//! assembled.
//!
//! Nothing waits for them for ever, and nothing for longer than the limits of the engine say; what they owe they may do
//! at any later time. A drive that stops answering while an array is assembled is lost in the event that stopped it, so
//! an array that was not stopped in order may have to wait for it, unless the labels promised otherwise.

use strake_block::{BlockDevice, Patience};
use strake_engine::Assembled;
use strake_ondisk::{AreaLayout, Copy, RingScan};
use strake_raid::MemberState;
use strake_units::{MemberSet, Nanos};

use super::World;
use super::chance::Chance;
use crate::drive::{FOREVER, SimDrive};
use crate::faults::Kind;

/// How long a silence lasts that has an end: longer than what costs a member of this machine, or any member.
const SILENCES: [Nanos; 3] = [seconds(20), seconds(60), seconds(300)];

/// Within this time an array answers although a drive is silent.
const SERVED: Nanos = seconds(20);

/// The same for a remote drive.
const SERVED_REMOTE: Nanos = seconds(50);

/// What an assembly takes beside waiting for silent drives, at most.
const ASSEMBLY: Nanos = seconds(10);

/// Requests to a drive until it stops answering during an assembly, at most.
const START_REQUESTS_MAX: u64 = 24;

/// Requests beside a drive that is silent, at most.
const BESIDE_MAX: u64 = 20;

const fn seconds(count: u64) -> Nanos {
    Nanos::SECOND.times(count)
}

/// A silence that may come about while an array is assembled.
#[derive(Clone, Copy, Debug)]
pub(super) struct SilentStart {
    slot: usize,
    lasts: Nanos,
}

/// What the head and the tail ring of a drive hold.
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
    /// A drive stops answering. Half the time the latency of requests made meanwhile is checked.
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

    /// All drives answer again.
    pub(super) fn wake_all_drives(&self) {
        self.world.drives.iter().chain(&self.world.retired).for_each(SimDrive::speak);
    }
}

impl World {
    /// The same while the array is stopped.
    pub(super) fn silence_at_stop(&mut self) -> Option<usize> {
        if !self.silences.one_in(3) {
            return None;
        }
        self.refresh();
        let alone = self.faults.impaired().is_empty() && self.faults.stalled_until() <= self.now;
        self.silence_for(Kind::SilentStop).filter(|_| alone)
    }

    /// Makes a drive silent that the array can do without. Returns its slot.
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

    /// Sees that what began at `began` has not taken longer than it may beside the silent drive of `slot`. A drive that
    /// hung since takes its own time on top, the silent one too: its first unanswered I/O may be sent only after the
    /// other one was given up or answered.
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

    /// A drive whose member is still in sync may not be lost together with the machine: it answers again before.
    pub(super) fn wake_members(&mut self) {
        self.refresh();
        let states = self.states();
        for (drive, _) in self.drives.iter().zip(states).filter(|(_, s)| *s == MemberState::InSync)
        {
            drive.speak();
        }
    }

    /// A drive may be about to stop answering while the array is assembled.
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
        // A drive that was lost with the machine is one already.
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

    /// Waits until the drive answers again that fell silent. False when none did, or it never will.
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

    /// Counts a silence that came about, and checks that a drive that was silent for too long is left out.
    pub(super) fn check_silence(
        &self,
        plan: Option<SilentStart>,
        assembled: &Assembled,
    ) -> Result<(), String> {
        let Some(SilentStart { slot, lasts }) = plan else { return Ok(()) };
        let drive = &self.drives[slot];
        if drive.silent_until().is_none() {
            // There were not so many requests.
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

    /// How long an assembly may take from `began` on.
    pub(super) fn assembly_limit(&self, began: Nanos) -> Nanos {
        let silent = self.drives.iter().chain(&self.retired).filter(|d| d.was_silent_after(began));
        silent.fold(ASSEMBLY, |sum, drive| sum.plus(Patience::of(drive.hold()).io))
    }

    /// Whether an attempt to start that was cut short looks like one after which the array served: the tail ring of
    /// every drive with the newest label may hold it too. The drives then hold what they hold after a crash, and the
    /// array may be refused as after one. No data and no redundancy is lost. The array is not available until the
    /// operator accepts the loss, which no program could avoid: it cannot distinguish the two.
    pub(super) fn looks_served(&self) -> bool {
        let drives = self.here();
        let scans: Vec<[RingScan; 2]> = drives.iter().filter_map(rings).collect();
        let generation = |scan: &RingScan| scan.newest.as_ref().map(|label| label.generation);
        let newest = scans.iter().flatten().filter_map(generation).max();
        let holders = scans.iter().filter(|[head, _]| generation(head) == newest);
        holders.into_iter().all(|[_, tail]| generation(tail) == newest || tail.damaged != 0)
    }

    /// The names of drives that were silent at some time after `began`.
    pub(super) fn silent_names(&self, began: Nanos) -> Vec<String> {
        let silent = self.drives.iter().chain(&self.retired).filter(|d| d.was_silent_after(began));
        silent.map(SimDrive::name).collect()
    }
}
