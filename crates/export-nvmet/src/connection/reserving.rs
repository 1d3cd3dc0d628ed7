//! The reservation state of a queue: access rights, and commands for the reservation thread.
//!
//! Commands go to the reservation thread, which may have to write to a file; the queue continues meanwhile. The queue
//! applies changes of the reservation thread between two turns, so that a command is checked against a value of its own
//! queue.

use super::devices::Devices;
use crate::admin::Page;
use crate::admit::{self, Need};
use crate::limits::{RESERVATIONS_ASKED_MAX, TRANSFER_BYTES_MAX};
use crate::reservation_thread::Answer;
use crate::slots::{Slot, SlotIndex, Slots, Stage, Task};
use crate::subsystem::Subsystem;
use crate::watch::{Namespaces, Watch};
use std::sync::Arc;
use std::thread::Thread;
use strake_nvme_wire::reservation::{Action, HostId, KEYS_BYTES, Report, opcode};
use strake_nvme_wire::{Sqe, Status};

/// The reservation state of a connection.
#[derive(Default)]
pub(super) struct Reserving {
    /// Commands at the reservation thread, with the place of the answer.
    pub(super) asked: Vec<(SlotIndex, Arc<Answer>)>,
    /// The reports of an I/O queue to the reservation thread.
    watch: Option<Arc<Watch>>,
    /// The last change that this queue has applied.
    seen: u64,
    /// Namespaces with aborted commands that are still in flight.
    awaited: Namespaces,
}

impl Reserving {
    /// Creates the state of an I/O queue. Its devices are opened later.
    pub(super) fn of(subsystem: &Subsystem, host: HostId, reservation_thread: Thread) -> Self {
        let watch = subsystem.watches.join(host, reservation_thread);
        let seen = subsystem.watches.changes();
        let awaited = Namespaces::default();
        watch.set_applied(seen, awaited);
        let asked = Vec::with_capacity(RESERVATIONS_ASKED_MAX);
        Self { asked, watch: Some(watch), seen, awaited }
    }

    /// Updates the access rights of the host if they have changed, and reports completed aborted commands to the
    /// reservation thread. Returns whether there was a change; polling again does not speed up a device.
    #[inline]
    pub(super) fn apply(
        &mut self,
        subsystem: &Subsystem,
        slots: &mut Slots,
        devices: &mut Devices,
    ) -> usize {
        let now = subsystem.watches.changes();
        let is_new = now != self.seen;
        if is_new {
            self.take_over(now, slots, devices);
        } else if self.awaited.is_empty() {
            return 0;
        }
        let awaited = given_up_at(slots, devices);
        let is_reported = is_new || awaited != self.awaited;
        self.awaited = awaited;
        if let Some(watch) = self.watch.as_ref().filter(|_| is_reported) {
            watch.set_applied(now, awaited);
        }
        is_reported.into()
    }

    /// Applies the changes up to `now`: a command that has not reached a device and is no longer permitted is not
    /// submitted.
    fn take_over(&mut self, now: u64, slots: &mut Slots, devices: &mut Devices) {
        let expelled = devices.refresh_rights(self.seen);
        self.seen = now;
        for slot in slots.iter_mut() {
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

    /// The next command that the reservation thread has answered, and its status.
    #[inline]
    pub(super) fn next_answer(&mut self) -> Option<(SlotIndex, Status)> {
        let mut asked = self.asked.iter().enumerate();
        let (at, status) = asked.find_map(|(at, (_, answer))| Some((at, answer.get()?)))?;
        Some((self.asked.swap_remove(at).0, status))
    }

    /// Stops waiting for answers.
    pub(super) fn forget(&mut self) {
        self.asked.clear();
    }
}

/// Decides on a reservation command of an I/O queue; returns `None` for other commands.
pub(super) fn decide(sqe: &Sqe) -> Option<Result<(Task, Need), Status>> {
    let namespace = sqe.nsid();
    match sqe.opcode() {
        opcode::REGISTER | opcode::ACQUIRE | opcode::RELEASE | opcode::REPORT if sqe.is_fused() => {
            Some(Err(Status::INVALID_FIELD))
        }
        opcode::REGISTER | opcode::ACQUIRE | opcode::RELEASE => {
            let action = Action::parse(sqe).ok_or(Status::INVALID_FIELD);
            // Some hosts send two keys where one is enough.
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

/// Namespaces whose devices have aborted commands in flight.
fn given_up_at(slots: &mut Slots, devices: &Devices) -> Namespaces {
    let of_slot = |slot: &mut Slot| {
        let (Task::Device(_, at), Stage::AtDevice { .. }) = (slot.task, &slot.stage) else {
            return None;
        };
        devices.served(at).filter(|_| slot.is_given_up)
    };
    let served = slots.iter_mut().filter_map(of_slot);
    served.fold(Namespaces::default(), |all, one| all.and(Namespaces::one(one.namespace)))
}
