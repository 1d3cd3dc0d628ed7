//! What people and machines do to an array: fail, replace, take back, start with these drives or those.

use strake_engine::{ArrayError, AssemblePolicy, Assembled, MemberIo, Outcome, Pending, Replacing};
use strake_ondisk::Superblock;
use strake_raid::MemberState;
use strake_units::{MemberIndex, Name, Uuid};

use super::Stage;
use crate::drive::SimDrive;
use crate::world::{make, oracle, patient, to_drive};

/// Start with fewer members than were last seen together.
pub const DEGRADED: AssemblePolicy = AssemblePolicy { allow_degraded: true, accept_loss: false };
/// The same, and whatever a crash took with it.
pub const ACCEPT_LOSS: AssemblePolicy = AssemblePolicy { allow_degraded: true, accept_loss: true };

/// An order that was given and is not answered yet.
pub enum Order {
    /// To take a member out of use.
    Change(Pending),
    /// To put a drive in a member's place.
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
    /// Fails a member by hand.
    ///
    /// # Errors
    /// What the array has against it.
    pub fn fail(&mut self, slot: usize) -> Result<(), String> {
        let order = self.begin_fail(slot)?;
        self.world.condemned.insert(slot);
        let result = self.finish(order);
        self.world.condemned.remove(slot);
        result
    }

    /// The same without waiting for the answer.
    ///
    /// # Errors
    /// What the array has against it at once.
    pub fn begin_fail(&mut self, slot: usize) -> Result<Order, String> {
        self.note(61, slot, "fail");
        self.world.trace.fault("fail");
        let pending = self.world.array().begin_fail(member(slot)).map_err(|e| e.to_string())?;
        Ok(Order::Change(pending))
    }

    /// Pulls a member's drive. The array notices at its next I/O.
    pub fn pull(&mut self, slot: usize) {
        self.note(62, slot, "pull");
        self.world.drives[slot].vanish();
    }

    /// Tells the array that a member's drive is not where it was.
    ///
    /// # Errors
    /// What the array has against it.
    pub fn vanish(&mut self, slot: usize) -> Result<(), String> {
        self.pull(slot);
        let pending = self.world.array().begin_vanish(member(slot)).map_err(|e| e.to_string())?;
        self.finish(Order::Change(pending))
    }

    /// Puts a new drive, like the old one, in a member's place.
    ///
    /// # Errors
    /// What the array has against it.
    pub fn replace(&mut self, slot: usize) -> Result<(), String> {
        let order = self.begin_replace(slot)?;
        self.finish(order)
    }

    /// The same without waiting for the answer.
    ///
    /// # Errors
    /// What the array has against it at once.
    pub fn begin_replace(&mut self, slot: usize) -> Result<Order, String> {
        let fresh = self.new_drive(slot);
        self.begin_replace_with(slot, &fresh)
    }

    /// A drive like that of `slot` that is a member of no array.
    pub fn new_drive(&mut self, slot: usize) -> SimDrive {
        self.world.new_drive(slot)
    }

    /// A copy of the drive of `slot` as it is now.
    pub fn clone_drive(&mut self, slot: usize) -> SimDrive {
        self.world.serial += 1;
        self.world.drives[slot].duplicate(self.world.serial)
    }

    /// Puts `drive` in a member's place, whatever was on it.
    ///
    /// # Errors
    /// What the array has against it at once; the drive is not touched then.
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

    /// Copies a member that serves to a new drive, which takes its place, unless one of them fails on the way; returns
    /// when that is over. Whatever clients are to do continues meanwhile.
    ///
    /// # Errors
    /// What the array has against it at once, or that it does not end.
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
                // It may have failed by itself before.
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
    /// # Errors
    /// When the drive cannot be read.
    pub fn label_of(&mut self, drive: &SimDrive) -> Result<Option<Superblock>, String> {
        let device = to_drive(drive);
        let mut wait = patient(&mut self.world.now, &self.world.trace);
        let label = MemberIo::open(&device, &mut wait).and_then(|mut io| io.newest_label());
        label.map_err(|error| error.to_string())
    }

    /// Takes the drive of `slot` back as the member it was.
    ///
    /// # Errors
    /// What the array has against it.
    pub fn readd(&mut self, slot: usize) -> Result<(), String> {
        let drive = self.drive(slot);
        self.readd_as(slot, &drive)
    }

    /// Takes `drive` back as the member of `slot`.
    ///
    /// # Errors
    /// What the array has against it.
    pub fn readd_as(&mut self, slot: usize, drive: &SimDrive) -> Result<(), String> {
        let order = self.begin_readd(slot, drive)?;
        self.finish(order)
    }

    /// The same without waiting for the answer.
    ///
    /// # Errors
    /// What the array has against it at once.
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

    /// Waits for an order to be answered.
    ///
    /// # Errors
    /// What the array has against it.
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

    /// What the labels on `drives` amount to, in the order given.
    ///
    /// # Errors
    /// What keeps the array from starting; nothing has been written then.
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
    /// # Errors
    /// What keeps it from starting.
    pub fn start(&mut self, drives: &[SimDrive], policy: AssemblePolicy) -> Result<(), String> {
        let assembled = self.assemble(drives, policy)?;
        self.run(drives, assembled, policy)
    }

    /// Starts `assembled`, made of `drives`.
    ///
    /// # Errors
    /// When it cannot be started.
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

    /// Gives the array another name.
    ///
    /// # Errors
    /// What the array has against it.
    pub fn rename(&mut self, name: &str) -> Result<(), String> {
        let name: Name = name.parse().map_err(|e| format!("{name}: {e}"))?;
        let pending = self.world.array().begin_rename(name);
        self.finish(Order::Change(pending))
    }

    /// Marks a stopped array as destroyed on `drives`.
    ///
    /// # Errors
    /// When a drive fails.
    pub fn destroy(&mut self, drives: &[SimDrive]) -> Result<(), String> {
        self.world.trace.fault("destroy");
        let drives: Vec<_> = drives.iter().map(to_drive).collect();
        let mut wait = patient(&mut self.world.now, &self.world.trace);
        strake_engine::mark_destroyed(&drives, &mut wait).map_err(|e| e.to_string())
    }

    /// Brings a destroyed array back.
    ///
    /// # Errors
    /// When it is too late.
    pub fn undelete(&mut self, drives: &[SimDrive]) -> Result<(), String> {
        let drives: Vec<_> = drives.iter().map(to_drive).collect();
        let mut wait = patient(&mut self.world.now, &self.world.trace);
        strake_engine::unmark_destroyed(&drives, &mut wait).map(drop).map_err(|e| e.to_string())
    }

    /// Makes a new array of all members' drives, which are not in use.
    ///
    /// # Errors
    /// What keeps it from being made: without `overwrite` that the drives hold something.
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

/// Empties a drive that is to be a member.
fn prepare(world: &mut crate::world::World, drive: &SimDrive, uuid: Uuid) -> Result<(), String> {
    let mut wait = patient(&mut world.now, &world.trace);
    let prepared = strake_engine::prepare_drive(&to_drive(drive), uuid, &mut wait);
    prepared.map(drop).map_err(|error| error.to_string())
}
