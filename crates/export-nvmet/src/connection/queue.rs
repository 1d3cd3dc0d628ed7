//! The commands of a queue, from their arrival to their completions.
//!
//! ```text
//! command -> waiting for buffers -> data from the host -> (range lock) -> device -> deliver
//! ```
//! [`command`] decides what a command needs and processes it up to submission to the device; [`deliver`] continues
//! after the completion. Between them are Copies ([`copy`]), fused commands ([`fused`]), range locks
//! ([`range_locked`]), budgets ([`effects`]) and reservations ([`reserve`]).

mod command;
mod copy;
mod deliver;
mod effects;
mod fused;
mod range_locked;
mod reserve;

use super::accounting::Accounting;
use super::admin_queue::AdminQueue;
use super::devices::{DeviceIndex, Devices};
use super::pairs::Pairs;
use super::reserving::Reserving;
use super::sending::Sending;
use crate::controller::Place;
use crate::registry::Registry;
use crate::slots::{Progress, SlotIndex, Slots, Stage, Task};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use strake_block::{Completion, Io, IoError, IoErrorKind, Op, SgMut, Token};
use strake_export_net::Supply;
use strake_nvme_wire::Status;
use strake_nvme_wire::command::Fuse;
use strake_units::Nanos;

/// The states of a queue, see [`connection`](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Open,
    Draining { since: Option<Nanos>, voice: Voice },
    Broken,
}

/// Whether completions are still sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Voice {
    Speaks,
    /// The host's request to end the connection was the last PDU.
    Silent,
}

impl Life {
    /// True while completions are sent.
    const fn speaks(self) -> bool {
        match self {
            Self::Open | Self::Draining { voice: Voice::Speaks, .. } => true,
            Self::Draining { voice: Voice::Silent, .. } | Self::Broken => false,
        }
    }
}

/// The order of the fields is the order of dropping: device queues before the buffers.
pub(super) struct Queue {
    /// Empty for an admin queue.
    pub(super) devices: Devices,
    /// `None` for an I/O queue.
    pub(super) admin: Option<AdminQueue>,
    pub(super) slots: Slots,
    pub(super) sending: Sending,
    /// Commands that wait for buffers, in order.
    waiting: VecDeque<SlotIndex>,
    pub(super) pools: Supply,
    reserving: Reserving,
    pairs: Pairs,
    /// Commands that wait for range locks, in order.
    held_off: VecDeque<SlotIndex>,
    /// The Disconnect of the host.
    parting: Option<SlotIndex>,
    pub(super) life: Life,
    pub(super) registry: Arc<Registry>,
    accounting: Accounting,
    /// The local address of the connection.
    address: SocketAddr,
    pub(super) place: Place,
}

/// The initial parts of a queue.
pub(super) struct Parts {
    pub(super) devices: Devices,
    pub(super) admin: Option<AdminQueue>,
    pub(super) reserving: Reserving,
    pub(super) sending: Sending,
    pub(super) pools: Supply,
    pub(super) accounting: Accounting,
    pub(super) registry: Arc<Registry>,
    pub(super) address: SocketAddr,
    pub(super) place: Place,
}

impl Queue {
    /// Creates a queue with this number of entries.
    pub(super) fn new(parts: Parts, entries: u16) -> Self {
        let line = || VecDeque::with_capacity(usize::from(entries));
        Self {
            devices: parts.devices,
            admin: parts.admin,
            slots: Slots::new(entries),
            sending: parts.sending,
            waiting: line(),
            pools: parts.pools,
            reserving: parts.reserving,
            pairs: Pairs::new(entries),
            held_off: line(),
            parting: None,
            life: Life::Open,
            registry: parts.registry,
            accounting: parts.accounting,
            address: parts.address,
            place: parts.place,
        }
    }

    /// Completes an Asynchronous Event Request if an event has occurred.
    #[inline]
    pub(super) fn announce(&mut self) {
        let Some(admin) = &mut self.admin else { return };
        if self.life != Life::Open {
            return;
        }
        let event = admin.next_event(&self.place.controller, &self.registry);
        let Some((event, index)) = event.zip(self.slots.held()) else { return };
        self.slots.get(index).result = event;
        self.conclude(index);
    }

    /// Applies changes of the subsystem's devices. Commands that have not reached a removed device are not submitted.
    /// Returns the number of steps: removed devices are closed in a later turn, so that turn must run. Returns `None`
    /// if the queue must be closed.
    #[inline]
    pub(super) fn follow(&mut self, now: Nanos) -> Option<usize> {
        let (None, Some(subsystem)) = (&self.admin, &self.place.controller.subsystem) else {
            return Some(0);
        };
        self.devices.close_quiet();
        if self.devices.end_pauses(subsystem, now) {
            self.registry.wake();
        }
        if self.life != Life::Open {
            self.devices.give_up_held();
        }
        let leaving = self.devices.follow(subsystem, now)?;
        if leaving.is_empty() {
            return Some(0);
        }
        for slot in self.slots.iter_mut() {
            if let Task::Device(_, at) = slot.task
                && slot.is_before_device()
                && leaving.contains(&at)
            {
                slot.fail(Status::INACCESSIBLE);
            }
        }
        Some(leaving.len())
    }

    /// Fails the I/Os that were held for a device that was not replaced in time; returns their number.
    #[inline]
    pub(super) fn end_given_up(&mut self) -> usize {
        let mut ended = 0;
        while let Some(Io { token, op }) = self.devices.next_given_up() {
            let result = Err(IoError::new(IoErrorKind::Lost));
            self.complete(Completion { token, op, result });
            ended += 1;
        }
        ended
    }

    /// True after the Disconnect command of the host.
    pub(super) const fn is_parting(&self) -> bool {
        self.parting.is_some()
    }

    /// Stops sending.
    pub(super) fn break_off(&mut self) {
        self.life = Life::Broken;
        self.sending.abandon(&mut self.pools, &mut self.slots);
        self.abandon();
    }

    /// Drops every command that has no I/O in flight.
    pub(super) fn abandon(&mut self) {
        self.waiting.clear();
        if self.life == Life::Broken {
            self.devices.give_up_limited();
        }
        self.devices.lift_limits();
        self.devices.forget_waiting();
        self.reserving.forget();
        self.held_off.clear();
        self.pairs.abandon(&mut self.slots);
        let pools = &mut self.pools;
        self.slots.end_if(|slot| match slot.take_stage() {
            Stage::Waiting { .. } | Stage::Held | Stage::Asked => true,
            Stage::Receiving { data, spare, .. } | Stage::Ready { data, spare, .. } => {
                pools.put(data);
                pools.put(spare);
                true
            }
            stage @ (Stage::AtDevice { .. } | Stage::Replying) => {
                slot.stage = stage;
                false
            }
        });
    }

    /// True if a new step may be started at a device.
    fn is_open_at(&self, place: DeviceIndex) -> bool {
        self.life == Life::Open && self.devices.serves(place)
    }

    /// Submits an I/O of a command to the device; `kept` stays here meanwhile.
    fn submit(&mut self, index: SlotIndex, kept: Option<SgMut>, op: Op) {
        self.submit_step(index, kept, Progress::default(), op);
    }

    /// Submits the next I/O of a command that takes several; `at` is its progress.
    #[inline]
    fn submit_step(&mut self, index: SlotIndex, kept: Option<SgMut>, at: Progress, op: Op) {
        let slot = self.slots.get(index);
        let Task::Device(_, place) = slot.task else {
            unreachable!("only a command for a device goes there");
        };
        debug_assert!(self.life != Life::Broken, "nothing starts on a broken connection");
        slot.stage = Stage::AtDevice { kept, at };
        self.devices.submit(place, Io { token: Token(u64::from(index.0)), op });
    }

    fn fail_with(&mut self, index: SlotIndex, data: SgMut, status: Status) {
        self.slots.get(index).status = status;
        self.pools.put(data);
        self.conclude(index);
    }

    /// Completes a command that has nothing outstanding and no data for the host.
    #[inline]
    fn conclude(&mut self, index: SlotIndex) {
        let slot = self.slots.get(index);
        let (fuse, status) = (slot.fuse, slot.status);
        if self.life.speaks() {
            self.accounting.failure(slot, &self.devices, &self.place);
            self.accounting.end(slot, &self.devices);
            slot.stage = Stage::Replying;
            self.sending.completion(&mut self.slots, index);
        } else {
            self.slots.end(index);
        }
        if fuse != Fuse::Alone {
            self.settle(index, status);
        }
    }
}
