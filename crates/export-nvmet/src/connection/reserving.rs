//! Reservations as a queue sees them: applying them, and passing on commands about them.
//!
//! Commands go to the reservation thread, which may have to write to a file; the queue continues meanwhile. What the
//! reservation thread puts in force is taken over between two turns, so that a command is checked against a value of
//! its own queue.

use super::{Connection, Role};
use crate::admin::Page;
use crate::admit::{self, Need, Work};
use crate::connection::DeviceIndex;
use crate::limits::{RESERVATIONS_ASKED_MAX, TRANSFER_BYTES_MAX};
use crate::reservation_thread::{Answer, Asker, Place, Wish};
use crate::slots::{Slot, SlotIndex, Stage, Task};
use crate::subsystem::Subsystem;
use crate::watch::{Namespaces, Watch};
use std::sync::Arc;
use std::thread::Thread;
use strake_block::SgMut;
use strake_nvme_wire::nvm::ALL_NAMESPACES;
use strake_nvme_wire::reservation::{Action, HostId, KEYS_BYTES, Keys, Report, opcode};
use strake_nvme_wire::{Sqe, Status};

/// What a connection knows of reservations.
#[derive(Default)]
pub(super) struct Reserving {
    /// Commands that the reservation thread has, with where it answers.
    asked: Vec<(SlotIndex, Arc<Answer>)>,
    /// What an I/O queue tells the reservation thread.
    watch: Option<Arc<Watch>>,
    /// The change up to which they are applied here.
    seen: u64,
    /// Namespaces at whose devices commands are that were given up.
    awaited: Namespaces,
}

impl Reserving {
    /// Those of an I/O queue. Its devices are to be opened after this.
    pub(super) fn of(subsystem: &Subsystem, host: HostId, reservation_thread: Thread) -> Self {
        let watch = subsystem.watches.join(host, reservation_thread);
        let seen = subsystem.watches.changes();
        let awaited = Namespaces::default();
        watch.set_applied(seen, awaited);
        let asked = Vec::with_capacity(RESERVATIONS_ASKED_MAX);
        Self { asked, watch: Some(watch), seen, awaited }
    }

    /// Waits for no answer any more.
    pub(super) fn forget(&mut self) {
        self.asked.clear();
    }
}

/// Decides on a command of an I/O queue that is about reservations; `None` when it is about something else.
pub(super) fn decide(sqe: &Sqe) -> Option<Result<(Task, Need), Status>> {
    let namespace = sqe.nsid();
    match sqe.opcode() {
        opcode::REGISTER | opcode::ACQUIRE | opcode::RELEASE | opcode::REPORT if sqe.is_fused() => {
            Some(Err(Status::INVALID_FIELD))
        }
        opcode::REGISTER | opcode::ACQUIRE | opcode::RELEASE => {
            let action = Action::parse(sqe).ok_or(Status::INVALID_FIELD);
            // Some hosts bring two keys where one is enough.
            let need = |action: &Action| Need::Receive {
                least: action.data_bytes(),
                most: KEYS_BYTES as u32,
            };
            Some(action.map(|action| (Task::Reserve(action, namespace), need(&action))))
        }
        opcode::REPORT => {
            let wanted = Report::parse(sqe);
            let too_long = wanted.length > u64::from(TRANSFER_BYTES_MAX);
            let page = Page::Reservations { namespace, bytes: wanted.length as u32 };
            Some(match (too_long, wanted.is_extended) {
                (true, _) => Err(Status::INVALID_FIELD),
                (false, false) => Err(Status::HOST_ID_FORMAT),
                (false, true) => Ok((Task::Page(page), page.need())),
            })
        }
        _ => None,
    }
}

impl Connection {
    /// Takes over what reservations let the host do, if that has changed, and tells the reservation thread when
    /// commands that were given up are over. Says whether there was something to do: a device is not hurried by looking
    /// again.
    pub(super) fn apply_reservations(&mut self) -> usize {
        let Some(subsystem) = self.subsystem() else { return 0 };
        let now = subsystem.watches.changes();
        let is_new = now != self.reserving.seen;
        if is_new {
            self.take_over(now);
        } else if self.reserving.awaited.is_empty() {
            return 0;
        }
        let awaited = self.given_up_at();
        let is_reported = is_new || awaited != self.reserving.awaited;
        self.reserving.awaited = awaited;
        if let Some(watch) = self.reserving.watch.as_ref().filter(|_| is_reported) {
            watch.set_applied(now, awaited);
        }
        is_reported.into()
    }

    /// Namespaces at whose devices commands are that were given up.
    fn given_up_at(&mut self) -> Namespaces {
        let Role::Io(devices) = &self.role else { return Namespaces::default() };
        let of_slot = |slot: &mut Slot| {
            let (Task::Device(_, at), Stage::AtDevice { .. }) = (slot.task, &slot.stage) else {
                return None;
            };
            devices.served(at).filter(|_| slot.is_given_up)
        };
        let served = self.slots.iter_mut().filter_map(of_slot);
        served.fold(Namespaces::default(), |all, one| all.and(Namespaces::one(one.namespace)))
    }

    /// Applies the changes up to `now`: what has not reached a device and is not permitted any more does not reach it.
    fn take_over(&mut self, now: u64) {
        let Role::Io(devices) = &mut self.role else {
            self.reserving.seen = now;
            return;
        };
        let expelled = devices.refresh_rights(self.reserving.seen);
        self.reserving.seen = now;
        for slot in self.slots.iter_mut() {
            let Task::Device(work, at) = slot.task else { continue };
            let is_given_up = expelled.contains(&at);
            if let Stage::AtDevice { .. } = slot.stage {
                slot.is_given_up |= is_given_up;
            } else if slot.is_before_device() && is_given_up {
                slot.fail(Status::PREEMPTED);
            } else if slot.is_before_device()
                && let Err(status) = admit::permit(&work, devices.rights(at))
            {
                slot.fail(status);
            }
        }
    }

    /// Whether a command of which a part is over may begin another part at the device.
    pub(super) fn may_go_on(
        &mut self,
        index: SlotIndex,
        (work, at): (Work, DeviceIndex),
    ) -> Result<(), Status> {
        if self.slots.get(index).is_given_up {
            return Err(Status::PREEMPTED);
        }
        let Role::Io(devices) = &self.role else { return Ok(()) };
        admit::permit(&work, devices.rights(at))
    }

    /// Passes a command with its keys on to the reservation thread.
    pub(super) fn reserve(
        &mut self,
        index: SlotIndex,
        (action, namespace): (Action, u32),
        data: &SgMut,
    ) {
        let mut bytes = [0; KEYS_BYTES];
        let given = data.parts().first().map_or(&[][..], |part| part.as_slice());
        let used = given.len().min(action.data_bytes() as usize);
        bytes[..used].copy_from_slice(&given[..used]);
        let host = self.place.controller.host.clone();
        self.ask(index, namespace, Wish::Act(host, action, Keys::parse(&bytes)));
    }

    /// Passes on what is to be done at a namespace, or at all of them.
    pub(super) fn ask(&mut self, index: SlotIndex, namespace: u32, wish: Wish) {
        let places = match self.subsystem().map(|known| places(known, namespace)) {
            Some(Ok(_)) if self.reserving.asked.len() >= RESERVATIONS_ASKED_MAX => {
                Err(Status::INTERRUPTED)
            }
            Some(found) => found,
            None => Err(Status::INVALID_NAMESPACE),
        };
        let places = match places {
            Ok(places) => places,
            Err(status) => {
                self.slots.get(index).status = status;
                return self.conclude(index);
            }
        };
        let asker = Asker::Host(self.place.controller.host.nqn.clone());
        let answer = self.registry.reservation_thread.ask(&asker, places, wish);
        self.slots.get(index).stage = Stage::Asked;
        self.reserving.asked.push((index, answer));
    }

    /// Answers commands that the reservation thread is done with; says how many.
    pub(super) fn hear(&mut self) -> usize {
        let mut heard = 0;
        let mut at = 0;
        while let Some((index, answer)) = self.reserving.asked.get(at) {
            let (index, Some(status)) = (*index, answer.get()) else {
                at += 1;
                continue;
            };
            self.reserving.asked.swap_remove(at);
            self.slots.get(index).status = status;
            self.conclude(index);
            heard += 1;
        }
        heard
    }
}

/// A namespace whose device is served, or all of them.
///
/// # Errors
/// With the status to answer when there is none.
fn places(subsystem: &Arc<Subsystem>, namespace: u32) -> Result<Vec<Place>, Status> {
    let place = |namespace| {
        let kept = subsystem.kept(namespace)?;
        Ok(Place { subsystem: Arc::clone(subsystem), namespace, kept })
    };
    if namespace != ALL_NAMESPACES {
        return Ok(vec![place(namespace)?]);
    }
    let all: Vec<_> = subsystem.numbers().into_iter().flat_map(place).collect();
    if all.is_empty() { Err(Status::INACCESSIBLE) } else { Ok(all) }
}
