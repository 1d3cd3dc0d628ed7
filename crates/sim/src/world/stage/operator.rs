//! A random operator: by seed, many commands, most of them valid, some of them invalid, with concurrent clients and
//! drive faults.
//! Three checks follow every command. No member with a good drive is out unless the command named it: no command
//! reduces redundancy silently. Invalid commands were rejected: failing a member that the data needs, a start without
//! members in sync, re-adding a drive that is not the member, two histories in one array. And the clients' oracle
//! holds: no acknowledged write is lost while the promised redundancy exists. At the end every member is brought in
//! sync, everything is read and parity is compared, twice.

use strake_engine::{AssemblePolicy, Maintenance};
use strake_raid::MemberState;
use strake_units::{MemberSet, Nanos};

use super::{ACCEPT_LOSS, DEGRADED, Order, Stage, refused};
use crate::drive::{Crash, SimDrive};
use crate::rng::Rng;
use crate::shape::Shape;
use crate::trace::Trace;
use crate::world::control::OWES_ANSWERS;
use crate::world::{Report, Settings, panic_text};

/// Runs the operator of `seed`.
#[must_use]
pub fn operate(seed: u64, settings: Settings) -> Report {
    let trace = Trace::new(settings.keep, settings.print);
    let mut rng = Rng::new(seed);
    let shape = Shape::draw(&mut rng).within(&settings.limits);
    let mut requests = 0;
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let stage = Stage::of_shape(&shape, rng, settings, &trace)?;
        let mut operator = Operator { stage, orders: Vec::new() };
        let result = operator.live();
        requests = operator.stage.world.next_id;
        result
    }));
    let violation = match result {
        Ok(result) => result.err(),
        Err(panic) => Some(format!("panic: {}", panic_text(&*panic))),
    };
    Report { seed, shape: shape.describe(), violation, trace, requests }
}

/// Largest number of commands in one run.
const COMMANDS_MAX: u64 = 60;

struct Operator {
    stage: Stage,
    /// Commands in progress, each with its slot.
    orders: Vec<(usize, Order)>,
}

/// A set of slots.
type Slots = MemberSet;

impl Operator {
    fn live(&mut self) -> Result<(), String> {
        let commands = self.stage.world.rng.between(10, COMMANDS_MAX);
        self.rearm();
        for _ in 0..commands {
            let burst = self.stage.below(40);
            self.stage.load(burst);
            let turns = self.stage.below(120);
            self.stage.turns(turns)?;
            if self.stage.below(3) == 0 {
                self.stage.settle()?;
            }
            self.command()?;
            self.take_answers()?;
            if self.stage.status().lost {
                let picture = self.stage.world.picture();
                return Err(format!("the array was lost within its redundancy: {picture}"));
            }
        }
        self.end()
    }

    fn command(&mut self) -> Result<(), String> {
        self.stage.world.refresh();
        let impaired = self.stage.world.faults.impaired();
        self.stage.world.trace.event(&[68, impaired.bits()], || {
            format!("operator: impaired {impaired:?}, {}", self.stage.world.picture())
        });
        match self.stage.below(18) {
            0 | 1 => self.fail(),
            2..=4 => self.replace(),
            5..=7 => self.take_back(),
            8 => self.take_back_a_stranger(),
            9 => self.pull(),
            10 | 11 => self.start_again(),
            12 => self.start_with_a_clone(),
            13 => self.split_brain(),
            14 => self.destroy_by_mistake(),
            15 => self.set(),
            _ => {
                let time = self.stage.below(4_000);
                self.stage.pass(Nanos(time * Nanos::MILLI.0))
            }
        }
    }

    /// Enables faults unless a crash left regions to resynchronize.
    fn rearm(&mut self) {
        self.stage.world.refresh();
        let armed = !self.stage.world.recovering;
        self.stage.world.faults.arm(armed);
    }

    fn some_slot(&mut self) -> usize {
        let members = self.stage.geometry().members() as u64;
        self.stage.below(members) as usize
    }

    fn doomed(&self) -> Slots {
        let drives = self.stage.world.drives.iter().enumerate();
        drives.filter(|(_, drive)| drive.is_doomed()).map(|(slot, _)| slot).collect()
    }

    fn out(&self) -> Slots {
        self.stage.out().iter().collect()
    }

    /// Slots that are out, or whose drives are about to fail.
    fn impaired(&mut self) -> Slots {
        self.stage.world.refresh();
        let ordered: Slots = self.orders.iter().map(|(slot, _)| slot).collect();
        self.stage.world.faults.impaired() | self.out() | ordered
    }

    /// Checks that no member with a good drive except `named` has gone out since `before`.
    fn no_other(&self, before: Slots, named: Option<usize>, what: &str) -> Result<(), String> {
        let gone = self.out() - before;
        for (slot, drive) in self.stage.world.drives.iter().enumerate() {
            let excused = named == Some(slot)
                || drive.is_doomed()
                || self.orders.iter().any(|(ordered, _)| *ordered == slot);
            if gone.contains(slot) && !excused {
                return Err(format!(
                    "{what}: member {slot} is out as well: {:?}",
                    self.stage.states()
                ));
            }
        }
        Ok(())
    }

    /// Fails any member, regardless of whether the array tolerates this.
    fn fail(&mut self) -> Result<(), String> {
        if self.stage.world.recovering {
            return Ok(());
        }
        let slot = self.some_slot();
        let (before, impaired) = (self.out(), self.impaired());
        // The operator does not know the pending faults of drives, but the oracle does.
        let possible = self.stage.geometry().tolerates(impaired.with(slot));
        if possible && !self.stage.world.faults.may_impair(slot as u8) {
            return Ok(());
        }
        if !possible && self.stage.geometry().tolerates(before.with(slot)) {
            return Ok(());
        }
        // The command is still executed if a rebuild finishes first, and then no other member may fail.
        self.stage.world.faults.arm(possible);
        let failed = self.stage.fail(slot);
        self.rearm();
        match failed {
            // A rebuild may have finished meanwhile; the remaining members must be sufficient in any case.
            Ok(()) if !self.stage.geometry().tolerates(self.out()) => {
                return Err(format!("failing member {slot} cost data: {:?}", self.stage.states()));
            }
            Err(what) if possible && !self.stage.world.drives[slot].is_doomed() => {
                return Err(format!("failing member {slot} was refused: {what}"));
            }
            Ok(()) | Err(_) => {}
        }
        self.no_other(before, Some(slot), "failing a member")
    }

    fn replace(&mut self) -> Result<(), String> {
        let slot = self.some_slot();
        if self.ordered(slot) {
            return Ok(());
        }
        let before = self.out();
        let was = self.stage.states()[slot];
        let in_use = matches!(was, MemberState::InSync | MemberState::Rebuilding { .. });
        if was == MemberState::InSync && !self.stage.world.drives[slot].is_doomed() {
            return self.exchange(slot);
        }
        self.stage.world.faults.arm(false);
        let order = self.stage.begin_replace(slot);
        self.rearm();
        match order {
            Ok(order) => self.orders.push((slot, order)),
            Err(_) if in_use => {}
            Err(what) => return Err(format!("replacing member {slot}: {what}")),
        }
        self.perhaps_wait()?;
        self.no_other(before, None, "replacing a member")
    }

    /// Replaces a serving member by a new drive. Either may fail meanwhile.
    fn exchange(&mut self, slot: usize) -> Result<(), String> {
        let before = self.out();
        let burst = self.stage.below(60);
        self.stage.load(burst);
        let copied = self.stage.exchange(slot);
        let busy = self.orders.is_empty() && !self.out().contains(slot);
        if let Err(what) = copied
            && busy
            && !self.stage.world.drives[slot].is_doomed()
        {
            return Err(format!("copying member {slot}: {what}"));
        }
        self.no_other(before, Some(slot), "copying a member")
    }

    fn ordered(&self, slot: usize) -> bool {
        self.orders.iter().any(|(ordered, _)| *ordered == slot)
    }

    fn perhaps_wait(&mut self) -> Result<(), String> {
        if self.stage.below(2) == 0 {
            return Ok(());
        }
        while let Some((slot, order)) = self.orders.pop() {
            let result = self.stage.finish(order);
            self.judge(slot, result)?;
        }
        Ok(())
    }

    /// A command may fail if its drive did, or if the drive has outstanding requests of an earlier use.
    fn judge(&mut self, slot: usize, result: Result<(), String>) -> Result<(), String> {
        let drive = &self.stage.world.drives[slot];
        match result {
            Err(what)
                if !drive.is_doomed()
                    && !what.contains("is not running")
                    && !what.contains(OWES_ANSWERS) =>
            {
                Err(format!("an order about member {slot} came to nothing: {what}"))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn take_answers(&mut self) -> Result<(), String> {
        for at in (0..self.orders.len()).rev() {
            if let Some(answer) = self.orders[at].1.poll() {
                let (slot, _) = self.orders.swap_remove(at);
                self.judge(slot, answer.map_err(|e| e.to_string()))?;
            }
        }
        Ok(())
    }

    /// Re-adds the former drive of a member, with or without its cache.
    fn take_back(&mut self) -> Result<(), String> {
        let slot = self.some_slot();
        if self.ordered(slot) {
            return Ok(());
        }
        let before = self.out();
        let drive = self.stage.drive(slot);
        self.stage.world.faults.arm(false);
        if before.contains(slot) {
            drive.return_cold();
        }
        let order = self.stage.begin_readd(slot, &drive);
        self.rearm();
        match order {
            Ok(_) if !before.contains(slot) => {
                return Err(format!("member {slot} is in use and was taken back"));
            }
            Ok(order) => self.orders.push((slot, order)),
            // The drive is too old, has no label, or is in use: all of these are valid reasons.
            Err(what) => self.stage.world.trace.event(&[67], || format!("not taken back: {what}")),
        }
        self.perhaps_wait()?;
        self.no_other(before, None, "taking a member back")
    }

    /// Tries to re-add another drive than the member's: a former member, a clone of another member, or a new drive.
    fn take_back_a_stranger(&mut self) -> Result<(), String> {
        let slot = self.some_slot();
        if self.ordered(slot) {
            return Ok(());
        }
        let before = self.out();
        let members = self.stage.geometry().members();
        let retired = self.stage.world.retired.clone();
        self.stage.world.faults.arm(false);
        let stranger = match self.stage.below(3) {
            0 => self.stage.new_drive(slot),
            1 => self.stage.clone_drive((slot + 1) % members),
            _ => match retired.last() {
                Some(old) if old.name() != self.stage.drive(slot).name() => old.clone(),
                Some(_) | None => self.stage.new_drive(slot),
            },
        };
        stranger.come_back();
        // After a failed replacement, the previous drive is still the member.
        let label = self.stage.label_of(&stranger)?;
        if label.is_some_and(|l| l.member == self.stage.status().members[slot].uuid) {
            self.rearm();
            return Ok(());
        }
        let keep = self.stage.drive(slot);
        let order = self.stage.begin_readd(slot, &stranger);
        self.stage.world.drives[slot] = keep;
        self.rearm();
        refused(order.map(drop), "").map_err(|what| {
            format!("{} is not member {slot}, and was taken back: {what}", stranger.name())
        })?;
        self.no_other(before, None, "refusing a drive")
    }

    fn pull(&mut self) -> Result<(), String> {
        if self.stage.world.recovering {
            return Ok(());
        }
        let slot = self.some_slot();
        let impaired = self.impaired().with(slot);
        if self.stage.geometry().tolerates(impaired)
            && self.stage.world.faults.may_impair(slot as u8)
        {
            self.stage.pull(slot);
        }
        Ok(())
    }

    /// Stops the array cleanly or by a crash; a crash drops the commands in progress.
    fn go_down(&mut self) -> Result<Option<Crash>, String> {
        self.stage.world.faults.arm(false);
        let crash = match self.stage.below(4) {
            0 => Some(Crash::Kill),
            1 => Some(Crash::Power),
            _ => None,
        };
        match crash {
            Some(crash) => {
                self.stage.crash(crash);
                // An unreadable block next to regions that the crash left in doubt would be a second fault in one
                // event.
                self.stage.drives().iter().for_each(SimDrive::heal);
                self.orders.clear();
            }
            None => self.stop()?,
        }
        Ok(crash)
    }

    fn stop(&mut self) -> Result<(), String> {
        self.stage.world.faults.arm(false);
        while let Some((slot, order)) = self.orders.pop() {
            let result = self.stage.finish(order);
            self.judge(slot, result)?;
        }
        self.stage.stop()
    }

    /// Stops the array, and starts it with some of the drives in some order, with the required policy.
    fn start_again(&mut self) -> Result<(), String> {
        let mut in_sync = self.stage.geometry().all_members() - self.out() - self.doomed();
        let unanswered = !self.orders.is_empty();
        let crash = self.go_down()?;
        in_sync -= self.doomed();
        if self.stage.below(2) == 0 {
            self.stage.drives().iter().for_each(SimDrive::come_back);
        }
        let here = self.here();
        let some: Vec<(usize, SimDrive)> =
            here.iter().filter(|_| self.stage.world.rng.one_in(2)).cloned().collect();
        let good = |(slot, _): &(usize, SimDrive)| in_sync.contains(slot);
        let left_out = here.iter().filter(|m| good(m)).any(|(slot, _)| !has(&some, *slot));
        if left_out && !unanswered && !some.is_empty() {
            let drives = self.in_some_order(&some);
            if self.start(&drives, AssemblePolicy::default()).is_ok() {
                return Err("started without members that were in sync".to_owned());
            }
            // The operator forces the start if at least one of these drives was in sync last.
            let known = some.iter().any(good);
            if known && !self.stage.world.recovering && self.stage.below(2) == 0 {
                // The members that are left out reduce redundancy; unreadable blocks in addition would exceed it.
                self.stage.drives().iter().for_each(SimDrive::heal);
                let started = self.start(&drives, DEGRADED);
                if started.is_ok() {
                    return Ok(());
                }
            }
        }
        self.start_with_all(crash)
    }

    /// The drives of members that answer, by slot.
    fn here(&self) -> Vec<(usize, SimDrive)> {
        let drives = self.stage.drives().into_iter().enumerate();
        drives.filter(|(_, drive)| !drive.is_gone()).collect()
    }

    /// These drives and former members, in random order.
    fn in_some_order(&mut self, members: &[(usize, SimDrive)]) -> Vec<SimDrive> {
        let retired = self.stage.world.retired.iter().filter(|drive| !drive.is_gone()).cloned();
        let drives = members.iter().map(|(_, drive)| drive.clone()).chain(retired).collect();
        self.stage.shuffled(drives)
    }

    fn start(&mut self, drives: &[SimDrive], policy: AssemblePolicy) -> Result<(), String> {
        self.stage.world.faults.arm(false);
        self.stage.start(drives, policy)?;
        self.rearm();
        Ok(())
    }

    /// Starts the array with all drives that answer, with the weakest sufficient policy.
    fn start_with_all(&mut self, crash: Option<Crash>) -> Result<(), String> {
        let all = self.here();
        let drives = self.in_some_order(&all);
        let mut said = Vec::new();
        for policy in [AssemblePolicy::default(), DEGRADED, ACCEPT_LOSS] {
            if policy == ACCEPT_LOSS && crash.is_none() && !self.stage.world.recovering {
                break;
            }
            match self.start(&drives, policy) {
                Ok(()) => return Ok(()),
                Err(what) => said.push(what),
            }
        }
        Err(format!("does not start: {}", said.join("; ")))
    }

    /// Starts the array with a member and a clone of it.
    fn start_with_a_clone(&mut self) -> Result<(), String> {
        let crash = self.go_down()?;
        let all = self.here();
        let slot = self.some_slot();
        if has(&all, slot) && self.stage.label_of(&self.stage.drive(slot))?.is_some() {
            let clone = self.stage.clone_drive(slot);
            let mut drives = self.in_some_order(&all);
            drives.push(clone);
            for policy in [AssemblePolicy::default(), DEGRADED, ACCEPT_LOSS] {
                refused(self.start(&drives, policy), "one member is on")?;
            }
        }
        self.start_with_all(crash)
    }

    /// The drives are divided between two hosts, both of which continue. A start with all of them is rejected, and
    /// neither side can re-add members of the other.
    fn split_brain(&mut self) -> Result<(), String> {
        if self.stage.world.recovering || self.stage.status().resync.is_some() {
            return Ok(());
        }
        self.stop()?;
        let good = self.whole_members()?;
        let (left, right): (Vec<_>, Vec<_>) = good.into_iter().partition(|(slot, _)| slot % 2 == 0);
        let whole = |side: &[(usize, SimDrive)]| {
            let here: Slots = side.iter().map(|(slot, _)| slot).collect();
            let geometry = self.stage.geometry();
            geometry.tolerates(geometry.all_members() - here)
        };
        if !whole(&left) || !whole(&right) {
            return self.start_with_all(None);
        }
        self.stage.world.trace.fault("split");
        self.stage.drives().iter().for_each(SimDrive::heal);
        let fork = self.stage.memory();
        self.alone(&left)?;
        let kept = self.stage.memory();
        self.stage.recall(&fork);
        self.alone(&right)?;
        self.stage.recall(&kept);
        let all: Vec<_> = left.iter().chain(&right).cloned().collect();
        for policy in [AssemblePolicy::default(), DEGRADED, ACCEPT_LOSS] {
            let drives = self.in_some_order(&all);
            refused(self.stage.start(&drives, policy), "started apart from each other")?;
        }
        let drives = self.in_some_order(&left);
        self.stage.start(&drives, DEGRADED)?;
        for (slot, other) in &right {
            refused(self.stage.readd_as(*slot, other), "was used without the array")?;
            let order = self.stage.begin_replace_with(*slot, other)?;
            self.stage.finish(order)?;
        }
        self.rearm();
        Ok(())
    }

    /// Members that are present and in sync according to the newest label.
    fn whole_members(&mut self) -> Result<Vec<(usize, SimDrive)>, String> {
        let mut labels = Vec::new();
        for (slot, drive) in self.here() {
            let label = self.stage.label_of(&drive)?;
            labels.extend(label.map(|label| (slot, drive, label)));
        }
        let Some(newest) = labels.iter().map(|(.., label)| label).max_by_key(|l| l.generation)
        else {
            return Ok(Vec::new());
        };
        let (newest, generation) = (newest.members.clone(), newest.generation);
        let in_sync = |slot: usize, label: &strake_ondisk::Superblock| {
            newest[slot].state == strake_ondisk::RecordedState::InSync
                && newest[slot].uuid == label.member
                && label.generation == generation
        };
        labels.retain(|(slot, _, label)| in_sync(*slot, label));
        Ok(labels.into_iter().map(|(slot, drive, _)| (slot, drive)).collect())
    }

    /// Runs one side of a divided array for a while.
    fn alone(&mut self, side: &[(usize, SimDrive)]) -> Result<(), String> {
        let drives: Vec<SimDrive> = side.iter().map(|(_, drive)| drive.clone()).collect();
        self.stage.start(&drives, DEGRADED)?;
        let work = self.stage.below(40);
        self.stage.work(work)?;
        self.stage.stop()
    }

    /// Destroys the array, and undeletes it before the drives are used for anything else.
    fn destroy_by_mistake(&mut self) -> Result<(), String> {
        let before = self.out() | self.doomed();
        self.stop()?;
        let before = before | self.doomed();
        // The drive of an abandoned replacement is no member and has no label.
        let mut drives = Vec::new();
        for (_, drive) in self.here() {
            let label = self.stage.label_of(&drive)?;
            drives.extend(label.map(|_| drive));
        }
        self.stage.destroy(&drives)?;
        let order = self.stage.shuffled(drives.clone());
        refused(self.stage.start(&order, ACCEPT_LOSS), "no array was found")?;
        let order = self.stage.shuffled(drives);
        self.stage.undelete(&order)?;
        self.start_with_all(None)?;
        self.no_other(before, None, "destroying and bringing back")
    }

    /// Sets another name, and another speed of maintenance or a pause.
    fn set(&mut self) -> Result<(), String> {
        let before = self.out();
        let maintenance =
            Maintenance { priority: self.stage.below(101) as u8, paused: self.stage.below(3) == 0 };
        self.stage.world.array().set_maintenance(maintenance);
        let name = format!("sim{}", self.stage.below(1_000));
        self.stage.rename(&name)?;
        self.no_other(before, None, "renaming and pausing")
    }

    /// Disables faults, brings every member in sync, and checks everything twice.
    fn end(&mut self) -> Result<(), String> {
        self.stage.world.faults.arm(false);
        self.stage.settle()?;
        while let Some((slot, order)) = self.orders.pop() {
            let result = self.stage.finish(order);
            self.judge(slot, result)?;
        }
        self.stage.world.array().set_maintenance(Maintenance::default());
        self.stage.world.make_whole()?;
        self.stage.all_is_well()
    }
}

fn has(members: &[(usize, SimDrive)], slot: usize) -> bool {
    members.iter().any(|(at, _)| *at == slot)
}
