//! Commands of operators and hosts for an array: fail, replace, re-add, start with selected drives.

use strake_engine::{ArrayError, AssemblePolicy, Assembled, MemberIo, Outcome, Pending, Replacing};
use strake_ondisk::Superblock;
use strake_raid::MemberState;
use strake_units::{MemberIndex, Name, Uuid};

use super::Stage;
use crate::drive::SimDrive;
use crate::world::{make, oracle, patient, to_drive};

/// Permits a start with fewer members than at the last time.
pub const DEGRADED: AssemblePolicy = AssemblePolicy { allow_degraded: true, accept_loss: false };
/// Permits this, and the loss of data that a crash left in doubt.
pub const ACCEPT_LOSS: AssemblePolicy = AssemblePolicy { allow_degraded: true, accept_loss: true };

/// A command that has not completed.
pub enum Order {
    /// A member operation without a new drive.
    Change(Pending),
    /// An operation that installs a drive.
    Install(Box<Replacing>),
}

impl Order {
    pub(super) fn poll(&mut self) -> Option<Result<(), ArrayError>> {
        match self {
            Self::Change(pending) => pending.poll(),
            Self::Install(replacing) => replacing.poll(),
        }
    }
}

impl Stage {
    /// Fails a member by a command.
    ///
    /// Returns the reason of a rejection.
    pub fn fail(&mut self, slot: usize) -> Result<(), String> {
        let order = self.begin_fail(slot)?;
        self.world.condemned.insert(slot);
        let result = self.finish(order);
        self.world.condemned.remove(slot);
        result
    }

    /// As [`fail`](Self::fail), without a wait for the completion.
    ///
    /// Returns the reason of an immediate rejection.
    pub fn begin_fail(&mut self, slot: usize) -> Result<Order, String> {
        self.note(61, slot, "fail");
        self.world.trace.fault("fail");
        let pending = self.world.array().begin_fail(member(slot)).map_err(|e| e.to_string())?;
        Ok(Order::Change(pending))
    }

    /// Removes a member's drive. The array detects this at its next I/O.
    pub fn pull(&mut self, slot: usize) {
        self.note(62, slot, "pull");
        self.world.drives[slot].vanish();
    }

    /// Removes a member's drive, and reports this to the array.
    ///
    /// Returns the reason of a rejection.
    pub fn vanish(&mut self, slot: usize) -> Result<(), String> {
        self.pull(slot);
        let pending = self.world.array().begin_vanish(member(slot)).map_err(|e| e.to_string())?;
        self.finish(Order::Change(pending))
    }

    /// Replaces a member by a new drive of the same kind.
    ///
    /// Returns the reason of a rejection.
    pub fn replace(&mut self, slot: usize) -> Result<(), String> {
        let order = self.begin_replace(slot)?;
        self.finish(order)
    }

    /// As [`replace`](Self::replace), without a wait for the completion.
    ///
    /// Returns the reason of an immediate rejection.
    pub fn begin_replace(&mut self, slot: usize) -> Result<Order, String> {
        let fresh = self.new_drive(slot);
        self.begin_replace_with(slot, &fresh)
    }

    /// A new drive like that of `slot`, which belongs to no array.
    pub fn new_drive(&mut self, slot: usize) -> SimDrive {
        self.world.new_drive(slot)
    }

    /// A copy of the current drive of `slot`.
    pub fn clone_drive(&mut self, slot: usize) -> SimDrive {
        self.world.serial += 1;
        self.world.drives[slot].duplicate(self.world.serial)
    }

    /// Replaces a member by `drive`, regardless of its content.
    ///
    /// Returns the reason of an immediate rejection; the drive is then unchanged.
    pub fn begin_replace_with(&mut self, slot: usize, drive: &SimDrive) -> Result<Order, String> {
        self.note(63, slot, "replace");
        self.world.trace.fault("replace");
        let uuid = Uuid::from_random(self.world.rng.bytes16());
        let device = to_drive(drive);
        if self.states()[slot] == MemberState::InSync {
            return Err(format!("member {slot} serves: it can only be copied"));
        }
        let checked = self.world.array().check_replacement(member(slot), &device);
        checked.map_err(|e| e.to_string())?;
        prepare(&mut self.world, drive, uuid)?;
        let replacing = self.world.array().begin_replace(member(slot), &device, uuid);
        let replacing = replacing.map_err(|e| e.to_string())?;
        let old = std::mem::replace(&mut self.world.drives[slot], drive.clone());
        self.world.retired.push(old);
        self.world.retired.retain(|known| known.name() != drive.name());
        Ok(Order::Install(Box::new(replacing)))
    }

    /// Replaces a serving member by a new drive, unless one of them fails during the copy; returns when this has
    /// finished. Client requests continue meanwhile.
    ///
    /// Returns the reason of an immediate rejection, or that the copy does not finish.
    pub fn exchange(&mut self, slot: usize) -> Result<(), String> {
        self.note(65, slot, "copy");
        self.world.trace.fault("copy");
        let (fresh, uuid) = (self.new_drive(slot), Uuid::from_random(self.world.rng.bytes16()));
        self.world.disarmed(|world| prepare(world, &fresh, uuid))?;
        let order = self.world.array().begin_replace(member(slot), &to_drive(&fresh), uuid);
        let order = order.map_err(|e| e.to_string())?;
        let answer = self.finish(Order::Install(Box::new(order)));
        if self.status().maintenance.paused {
            let turns = self.below(40);
            self.turns(turns)?;
            if let Ok(pending) = self.world.array().begin_cancel_replace(member(slot)) {
                // The drive may have failed by a fault before.
                let _ = self.finish(Order::Change(pending));
            }
        }
        self.wait("the end of a copy", |s| s.lost || s.members[slot].replacement.is_empty())?;
        if self.status().members[slot].uuid == uuid {
            let old = std::mem::replace(&mut self.world.drives[slot], fresh);
            self.world.retired.push(old);
        } else {
            self.world.retired.push(fresh);
        }
        answer
    }

    /// The newest label on `drive`, if it has one.
    ///
    /// Returns an error if the drive cannot be read.
    pub fn label_of(&mut self, drive: &SimDrive) -> Result<Option<Superblock>, String> {
        let device = to_drive(drive);
        let mut wait = patient(&mut self.world.now, &self.world.trace);
        let label = MemberIo::open(&device, &mut wait).and_then(|mut io| io.newest_label());
        label.map_err(|error| error.to_string())
    }

    /// Re-adds the drive of `slot` as the same member.
    ///
    /// Returns the reason of a rejection.
    pub fn readd(&mut self, slot: usize) -> Result<(), String> {
        let drive = self.drive(slot);
        self.readd_as(slot, &drive)
    }

    /// Re-adds `drive` as the member of `slot`.
    ///
    /// Returns the reason of a rejection.
    pub fn readd_as(&mut self, slot: usize, drive: &SimDrive) -> Result<(), String> {
        let order = self.begin_readd(slot, drive)?;
        self.finish(order)
    }

    /// As [`readd_as`](Self::readd_as), without a wait for the completion.
    ///
    /// Returns the reason of an immediate rejection.
    pub fn begin_readd(&mut self, slot: usize, drive: &SimDrive) -> Result<Order, String> {
        self.note(64, slot, "take back");
        self.world.trace.fault("readd");
        let device = to_drive(drive);
        let label = self.label_of(drive)?.ok_or("the drive has no label")?;
        let replacing = self.world.array().begin_readd(member(slot), &device, &label);
        let replacing = replacing.map_err(|e| e.to_string())?;
        self.world.drives[slot] = drive.clone();
        Ok(Order::Install(Box::new(replacing)))
    }

    /// Waits for the completion of a command.
    ///
    /// Returns the error of the command.
    pub fn finish(&mut self, order: Order) -> Result<(), String> {
        let order = std::cell::RefCell::new(order);
        let answer = std::cell::RefCell::new(None);
        self.world.run_until("an order to be carried out", |_| {
            let mut answer = answer.borrow_mut();
            if answer.is_none() {
                *answer = order.borrow_mut().poll();
            }
            answer.is_some()
        })?;
        match answer.into_inner() {
            Some(answer) => answer.map_err(|error| error.to_string()),
            None => Err("waited for it in vain".to_owned()),
        }
    }

    /// Evaluates the labels on `drives`, in the given order.
    ///
    /// Returns the reason why the array cannot be started; nothing has been written then.
    pub fn assemble(
        &mut self,
        drives: &[SimDrive],
        policy: AssemblePolicy,
    ) -> Result<Assembled, String> {
        self.world.wait_for_the_daemon_before(drives);
        let names: Vec<String> = drives.iter().map(SimDrive::name).collect();
        self.world.trace.event(&[65, drives.len() as u64], || {
            format!("script: assemble {} with {policy:?}", names.join(" "))
        });
        let drives: Vec<_> = drives.iter().map(to_drive).collect();
        let mut rng = self.world.rng.fork();
        let mut epoch = || Uuid::from_random(rng.bytes16());
        let mut wait = patient(&mut self.world.now, &self.world.trace);
        let (mut outcomes, unreadable) =
            strake_engine::assemble(&drives, policy, &|_, _| true, &mut epoch, &mut wait);
        let unreadable: Vec<String> = unreadable.iter().map(ToString::to_string).collect();
        if outcomes.len() > 1 {
            return Err(format!("one array became {}", outcomes.len()));
        }
        match outcomes.pop() {
            Some(Outcome::Ready(assembled)) => Ok(*assembled),
            Some(Outcome::Waiting { what, .. } | Outcome::Refused { what, .. }) => {
                self.world.trace.event(&[66], || format!("script: not started: {what}"));
                self.world.doubts.read(&what);
                Err(what)
            }
            None => Err(format!("no array was found {}", unreadable.join("; "))),
        }
    }

    /// Assembles `drives` and starts the result.
    ///
    /// Returns the reason why the array does not start.
    pub fn start(&mut self, drives: &[SimDrive], policy: AssemblePolicy) -> Result<(), String> {
        let assembled = self.assemble(drives, policy)?;
        self.run(drives, assembled, policy)
    }

    /// Starts `assembled`, which was assembled from `drives`.
    ///
    /// Returns an error if it cannot be started.
    pub fn run(
        &mut self,
        drives: &[SimDrive],
        assembled: Assembled,
        policy: AssemblePolicy,
    ) -> Result<(), String> {
        for (slot, used) in assembled.drives().into_iter().enumerate() {
            let Some(used) = used else { continue };
            let drive = drives.iter().find(|drive| drive.name() == used.path);
            self.world.drives[slot] = drive.ok_or("a drive nobody gave")?.clone();
        }
        self.world.lost = false;
        self.world.start(assembled)?;
        if policy.accept_loss {
            self.world.doubts.accept_unread();
        }
        self.world.settle_loss(policy);
        self.open_probe()
    }

    /// Renames the array.
    ///
    /// Returns the reason of a rejection.
    pub fn rename(&mut self, name: &str) -> Result<(), String> {
        let name: Name = name.parse().map_err(|e| format!("{name}: {e}"))?;
        let pending = self.world.array().begin_rename(name);
        self.finish(Order::Change(pending))
    }

    /// Marks a stopped array as destroyed on `drives`.
    ///
    /// Returns an error if a drive fails.
    pub fn destroy(&mut self, drives: &[SimDrive]) -> Result<(), String> {
        self.world.trace.fault("destroy");
        let drives: Vec<_> = drives.iter().map(to_drive).collect();
        let mut wait = patient(&mut self.world.now, &self.world.trace);
        strake_engine::mark_destroyed(&drives, &mut wait).map_err(|e| e.to_string())
    }

    /// Undeletes a destroyed array.
    ///
    /// Returns an error if this is no longer possible.
    pub fn undelete(&mut self, drives: &[SimDrive]) -> Result<(), String> {
        let drives: Vec<_> = drives.iter().map(to_drive).collect();
        let mut wait = patient(&mut self.world.now, &self.world.trace);
        strake_engine::unmark_destroyed(&drives, &mut wait).map(drop).map_err(|e| e.to_string())
    }

    /// Creates a new array from all members' drives, which are not in use.
    ///
    /// Returns the reason of a rejection: without `overwrite`, that the drives have content.
    pub fn create_again(&mut self, overwrite: bool) -> Result<(), String> {
        let world = &mut self.world;
        let (assembled, geometry) = make(
            &world.shape,
            &world.drives,
            overwrite,
            &mut world.rng,
            (&mut world.now, &world.trace),
        )?;
        world.geometry = geometry;
        world.oracle = oracle(&world.shape, &geometry);
        world.start(assembled)?;
        self.open_probe()
    }

    fn note(&self, number: u64, slot: usize, what: &str) {
        self.world.trace.event(&[number, slot as u64], || format!("script: {what} member {slot}"));
    }
}

const fn member(slot: usize) -> MemberIndex {
    MemberIndex(slot as u8)
}

/// Prepares a drive for becoming a member.
fn prepare(world: &mut crate::world::World, drive: &SimDrive, uuid: Uuid) -> Result<(), String> {
    let mut wait = patient(&mut world.now, &world.trace);
    let prepared = strake_engine::prepare_drive(&to_drive(drive), uuid, &mut wait);
    prepared.map(drop).map_err(|error| error.to_string())
}
