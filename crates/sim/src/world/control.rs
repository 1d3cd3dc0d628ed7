//! What happens to an array besides requests: members fail and are replaced, it is stopped, it crashes.

use strake_engine::{AssemblePolicy, Assembled, Consistency, Drive, Outcome};
use strake_ondisk::{MemberRecord, RecordedState};
use strake_raid::MemberState;
use strake_units::{Lba, MemberIndex, Nanos, Uuid};

use super::{Asked, World, patient, to_drive};
use crate::drive::{Crash, SimDrive};
use crate::faults::Kind;

/// Part of what is said of a drive that was taken back too early: old writes may still be on their way to it.
pub(in crate::world) const OWES_ANSWERS: &str = "has not answered";

/// Drives that were members once and are kept beside those that are.
const RETIRED_MAX: usize = 3;

/// Attempts of a restart: plain, when a silent drive is back, degraded, with loss accepted, with a larger one accepted.
const ATTEMPTS: usize = 5;

impl World {
    /// One thing that is not a request.
    pub(super) fn something_happens(&mut self) -> Result<(), String> {
        self.refresh();
        let has = |kind| self.faults.has(kind);
        match self.rng.below(12) {
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

    /// Lets up to five seconds go by.
    fn pass_time(&mut self) -> Result<(), String> {
        let until = self.now.plus(Nanos(self.rng.below(5_000) * 1_000_000));
        self.faults.arm(self.rng.one_in(2) && !self.recovering);
        let result = self.run_until_time(until);
        self.faults.arm(!self.recovering);
        result
    }

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

    /// Moves the clock as far as `until`. False when nothing will happen before.
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

    /// Slots whose member could fail now without loss.
    pub(super) fn expendable(&self) -> Vec<u8> {
        if self.recovering || self.faults.is_held() {
            return Vec::new();
        }
        let impaired = self.faults.impaired();
        (0..self.shape.members as u8)
            .filter(|slot| self.geometry.tolerates(impaired | 1 << slot))
            .collect()
    }

    fn fail_one(&mut self) {
        let slots = self.expendable();
        if slots.is_empty() {
            return;
        }
        let slot = self.rng.pick(&slots);
        if self.faults.may_impair(slot) {
            self.fail(slot);
        }
    }

    pub(super) fn fail(&mut self, slot: u8) {
        self.trace.fault(Kind::Fail.word());
        self.trace.event(&[80, u64::from(slot)], || format!("control: fail member {slot}"));
        let member = MemberIndex(slot);
        let pending = self.array().begin_fail(member).expect("there is such a member");
        self.asked.push(Asked::Fail { member, pending });
    }

    /// Pulls a drive.
    fn pull_one(&mut self) {
        let slots = self.expendable();
        if slots.is_empty() {
            return;
        }
        let slot = self.rng.pick(&slots);
        if self.faults.may_impair(slot) {
            self.trace.fault(Kind::Vanish.word());
            self.drives[usize::from(slot)].vanish();
        }
    }

    fn replace_one(&mut self) -> Result<(), String> {
        let slots = self.replaceable();
        if slots.is_empty() {
            return Ok(());
        }
        let slot = self.rng.pick(&slots);
        if self.rng.one_in(2) && self.faults.has(Kind::Readd) && self.take_back(slot)? {
            return Ok(());
        }
        if self.faults.has(Kind::Replace) {
            self.replace(slot);
        }
        Ok(())
    }

    /// Takes the drive of `slot` back, if it works again. False when it cannot be taken back.
    fn take_back(&mut self, slot: usize) -> Result<bool, String> {
        if self.drives[slot].silent_until().is_some() {
            return Ok(false);
        }
        self.return_with_less(slot);
        self.drives[slot].return_cold();
        let drive = to_drive(&self.drives[slot]);
        let label = self.disarmed(|world| {
            let mut wait = patient(&mut world.now);
            strake_engine::MemberIo::open(&drive, &mut wait).and_then(|mut io| io.inspect())
        });
        let Ok(Some(label)) = label.map(|found| found.label) else { return Ok(false) };
        let member = MemberIndex(slot as u8);
        match self.array().begin_readd(member, &drive, &label) {
            Ok(_) if self.is_estranged(slot) => {
                Err(format!("a drive that lacks something was taken back as member {slot}"))
            }
            Ok(replacing) => {
                self.trace.fault(Kind::Readd.word());
                self.trace.event(&[86, slot as u64], || format!("control: take back {member}"));
                self.asked.push(Asked::Replace { member, replacing: Box::new(replacing) });
                Ok(true)
            }
            Err(error) => {
                self.trace.event(&[87, slot as u64], || format!("taking back refused: {error}"));
                Ok(false)
            }
        }
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
            let mut wait = patient(&mut world.now);
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
                self.estranged &= !(1 << slot);
                // Who was a member comes back among the retired.
                self.snapshot.take_if(|snapshot| snapshot.slot == slot);
                self.asked.push(Asked::Replace { member, replacing: Box::new(replacing) });
            }
            Err(error) => {
                // The member's state may have moved on between the look and the order.
                self.trace.event(&[82, slot as u64], || format!("replace refused: {error}"));
            }
        }
    }

    /// Does something during which no drive misbehaves.
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
                // The new drive may have died already, and one that is taken back may still owe answers.
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

    /// The machine stops without warning and starts again.
    fn crash(&mut self, crash: Crash) -> Result<(), String> {
        let degraded =
            self.faults.impaired() != 0 || self.states().iter().any(|s| *s != MemberState::InSync);
        // Most crashes hit a healthy array, so that most runs keep their bystanders under watch.
        // A log makes it as good as any other crash.
        if degraded && self.shape.consistency < Consistency::Safe && self.rng.one_in(2) {
            return Ok(());
        }
        let kind = match crash {
            Crash::Kill => Kind::Kill,
            Crash::Power => Kind::Power,
        };
        self.trace.fault(kind.word());
        let stripes = self.unsettled_stripes(crash);
        self.trace.event(&[84, crash as u64], || {
            format!("control: {crash:?}; {}; stripes in doubt: {stripes:?}", self.picture())
        });
        let joining: Vec<usize> = self.asked.iter().filter_map(Asked::joins).collect();
        joining.iter().for_each(|slot| self.outdate_snapshot(*slot));
        let joining = !joining.is_empty();
        self.note_promise();
        self.wake_members();
        self.settle_doubts();
        self.doubts.add(stripes);
        for drive in self.drives.iter().chain(&self.retired) {
            drive.crash(crash);
        }
        self.killed = true;
        self.running = None;
        self.asked.clear();
        self.oracle.crash(crash);
        // An unreadable block next to parity that a crash left behind is a second fault in the same event.
        self.drives.iter().for_each(SimDrive::heal);
        self.recovering = true;
        self.return_some();
        self.lose_one_with_the_crash();
        // Labels are read before the array starts: another loss then would be one more in the same event.
        self.faults.hold(true);
        self.restart(joining)
    }

    /// What the labels say of the redo log just before the machine stops.
    fn note_promise(&mut self) {
        let label = self.array().newest_label();
        let out = label.members.iter().enumerate();
        let out = out.filter(|(_, row)| row.state != RecordedState::InSync);
        let out = out.fold(0, |mask, (at, _)| mask | 1 << at);
        let every_member = u64::MAX >> (64 - label.members.len());
        let all = label.consistency == Consistency::Strict && label.logged == every_member;
        let logged = if all { u64::MAX } else { label.logged & out };
        // Whoever is about to go out may be called so by a newer label that not everybody has.
        self.out_before = out | self.faults.impaired();
        self.promised = self.geometry.groups_with(logged);
        // Whoever is being rebuilt may be called in sync by a label under way; then nothing is logged but in `strict`.
        let rebuilding = |row: &MemberRecord| row.state == RecordedState::Rebuilding;
        let changing = !all && label.members.iter().any(rebuilding);
        self.loss_covered = !changing && self.promised == self.geometry.groups_with(u64::MAX);
    }

    /// The same event may cost a drive where every write is in the log.
    fn lose_one_with_the_crash(&mut self) {
        if !self.loss_covered || !self.rng.one_in(3) || !self.faults.has(Kind::CrashAndLoss) {
            return;
        }
        let gone = |world: &Self| {
            let gone = world.drives.iter().enumerate().filter(|(_, drive)| drive.is_gone());
            gone.fold(world.out_before, |mask, (at, _)| mask | 1 << at)
        };
        let slot = self.rng.below(self.shape.members as u64) as usize;
        let without = gone(self) | 1 << slot;
        if !self.drives[slot].is_gone() && self.geometry.tolerates(without) {
            self.trace.fault(Kind::CrashAndLoss.word());
            self.trace.event(&[90, slot as u64], || format!("control: and drive {slot} with it"));
            self.drives[slot].vanish();
        }
    }

    /// Pulls more drives at once than the array survives, while it is busy. Requests may fail then, but none may be
    /// left unanswered or be answered with wrong data; and when the drives are back, so is everything acknowledged.
    pub(super) fn lose_too_many(&mut self) -> Result<(), String> {
        self.faults.arm(false);
        self.run_until("control operations", |world| world.asked.is_empty())?;
        self.run_until("the last requests before the loss", |world| world.outstanding() == 0)?;
        self.make_whole()?;
        let most = self.rng.between(1, 40);
        self.left = most;
        self.run_until("requests before the loss", |world| world.left <= most / 2)?;
        self.trace
            .event(&[89], || format!("control: too many drives are pulled; {}", self.picture()));
        let mut slots: Vec<usize> = (0..self.shape.members).collect();
        self.rng.shuffle(&mut slots);
        let mut gone = 0;
        while self.geometry.tolerates(gone) {
            let Some(slot) = slots.pop() else { break };
            self.trace.fault(Kind::Lose.word());
            self.drives[slot].vanish();
            gone |= 1 << slot;
        }
        self.lost = true;
        self.run_until("answers from an array that is lost", |world| {
            world.left == 0 && world.outstanding() == 0
        })?;
        let stripes = self.unsettled_stripes(Crash::Kill);
        self.note_promise();
        self.wake_members();
        self.settle_doubts();
        self.doubts.add(stripes);
        self.drives.iter().for_each(|drive| drive.crash(Crash::Kill));
        self.drives.iter().for_each(SimDrive::come_back);
        self.killed = true;
        self.running = None;
        self.oracle.crash(Crash::Kill);
        self.recovering = true;
        self.lost = false;
        self.restart(false)
    }

    /// Pulled drives may be back after a restart.
    fn return_some(&mut self) {
        for drive in &self.drives {
            if self.rng.one_in(2) || !drive.is_gone() {
                drive.come_back();
            }
        }
    }

    /// Stripes that a crash now leaves with parity that may disagree with the data.
    pub(super) fn unsettled_stripes(&self, crash: Crash) -> Vec<u64> {
        let blocks = self.oracle.written().filter(|lba| self.oracle.is_unsettled(*lba, crash));
        let mut stripes: Vec<u64> =
            blocks.map(|lba| self.geometry.place(Lba(lba)).stripe.0).collect();
        stripes.dedup();
        stripes
    }

    fn stop_and_start(&mut self) -> Result<(), String> {
        self.trace.fault(Kind::Stop.word());
        self.trace.event(&[85], || format!("control: stop; {}", self.picture()));
        if self.rng.one_in(2) {
            self.run_until("requests before a stop", |world| world.outstanding() == 0)?;
        }
        let clean = self.stop()?;
        if self.rng.one_in(2) {
            self.drives.iter().for_each(|drive| drive.crash(Crash::Power));
        }
        self.return_some();
        self.recovering |= !clean;
        self.promised = 0;
        self.while_it_rests();
        self.restart(false)
    }

    /// Stops in order. True when nothing is left to resynchronize.
    pub(super) fn stop(&mut self) -> Result<bool, String> {
        // Control operations under way are answered first, as a daemon would see to.
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

    /// Drops the array and sees that every request was answered.
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

    /// Assembles what the drives hold and starts it. A drive that was `joining` may be named in the labels of the
    /// others and have none itself.
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
            let absent_here = joining || gone || silent || self.estranged != 0;
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

    /// The drives that an array may be assembled from, by slot and then those that were members once.
    pub(super) fn here(&self) -> Vec<SimDrive> {
        let all = self.drives.iter().chain(&self.retired);
        all.filter(|drive| !drive.is_gone() && !drive.is_owing()).cloned().collect()
    }

    /// Only a dirty parity array that lacks members may refuse, and not where the labels promised that a crash does no
    /// harm.
    fn may_refuse(&self, clean: bool) -> bool {
        let gone = self.drives.iter().enumerate().filter(|(_, drive)| drive.is_gone());
        let gone = gone.fold(self.out_before, |mask, (at, _)| mask | 1 << at);
        !clean && self.geometry.parity_strips() > 0 && gone & !self.promised != 0
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
            let mut wait = patient(&mut self.now);
            strake_engine::assemble(&drives, policy, &|_, _| true, &mut epoch, &mut wait)
        };
        self.trace.set_now(self.now);
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
}
