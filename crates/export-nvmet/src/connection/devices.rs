//! The device queues of an I/O queue, one for each namespace of its subsystem.

use super::copies::Copies;
use super::effects::Effects;
use crate::admit::Terms;
use crate::controller::Host;
use crate::limits::IO_ENTRIES;
use crate::namespace::{Facts, Served};
use crate::range_lock::{Outlook, Raised, Sentry, Ticket};
use crate::reservation::Rights;
use crate::slots::{Slot, SlotIndex};
use crate::subsystem::Subsystem;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use strake_block::{CompletionBatch, DeviceError, Io, Op};
use strake_export_net::{Budgets, ConnectionSlot, CoreContext, DeviceQueue, LimitedBy};
use strake_nvme_wire::Status;
use strake_reactor::Sleep;
use strake_units::{CoreIndex, LbaRange, Nanos};

/// The index of an open device of an I/O queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceIndex(u16);

/// A queue of a device. The order of the fields is the order of dropping: the queue first, before the buffer of Copies;
/// then the sentry, which reports that this queue has no write in flight; and the connection slot last, because its
/// release reports the end of the connection.
struct Device {
    /// `None` after the last I/O of a paused device has completed.
    queue: Option<DeviceQueue>,
    /// I/Os that wait for the next device, in order. The rest of the connection treats them as in flight.
    held: VecDeque<Io>,
    copies: Copies,
    sentry: Sentry,
    served: Arc<Served>,
    /// Present exactly while there is a queue.
    connection_slot: Option<ConnectionSlot<Served>>,
    standing: Standing,
    /// The access rights of the host under reservations.
    rights: Rights,
    effects: Effects,
}

/// Whether a device accepts new commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Serves,
    /// The device accepts commands and holds their I/Os, at most until this time: the next device is expected.
    Pauses {
        until: Nanos,
    },
    /// The device is closed when the I/O in flight has completed. Held I/O fails.
    Leaves,
}

impl Device {
    fn open(
        served: &Arc<Served>,
        core: CoreIndex,
        host: &Host,
        now: Nanos,
    ) -> Result<Option<Self>, DeviceError> {
        let Ok(connection_slot) = ConnectionSlot::take(served) else { return Ok(None) };
        let queue = open_queue(served, core, now)?;
        let mut device = Self::closed(served, Standing::Serves, host);
        (device.queue, device.connection_slot) = (Some(queue), Some(connection_slot));
        Ok(Some(device))
    }

    /// Creates a device without a queue.
    fn closed(served: &Arc<Served>, standing: Standing, host: &Host) -> Self {
        let (queue, connection_slot, held, served) =
            (None, None, VecDeque::new(), Arc::clone(served));
        let (rights, sentry) = (served.kept.rights(host), Sentry::new(&served.gate));
        Self {
            queue,
            held,
            copies: Copies::new(),
            sentry,
            served,
            connection_slot,
            standing,
            rights,
            effects: Effects::new(),
        }
    }

    /// Holds I/O from now on. The memory for held I/O is reserved here, not on the data path.
    fn pause(&mut self, until: Nanos) {
        self.held.reserve(IO_ENTRIES.into());
        self.lift_limits();
        self.standing = Standing::Pauses { until };
    }

    /// Has I/O pass without waiting for limits from now on, because something waits for its end.
    fn lift_limits(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.lift();
        }
    }

    /// Continues with the next device, and submits the held I/O. Returns false on failure.
    fn go_on(&mut self, next: &Arc<Served>, core: CoreIndex, host: &Host, now: Nanos) -> bool {
        let is_ready = self.queue.is_none() && Arc::ptr_eq(&self.served.gate, &next.gate);
        let (true, Ok(connection_slot)) = (is_ready, ConnectionSlot::take(next)) else {
            return false;
        };
        let Ok(mut queue) = open_queue(next, core, now) else { return false };
        self.held.drain(..).for_each(|io| queue.submit(io));
        (self.queue, self.connection_slot, self.served) =
            (Some(queue), Some(connection_slot), Arc::clone(next));
        (self.rights, self.standing) = (next.kept.rights(host), Standing::Serves);
        true
    }

    /// Closes the queue of a paused device when no I/O is in flight.
    fn close_paused(&mut self) {
        let is_quiet = self.queue.as_ref().is_some_and(DeviceQueue::is_quiet);
        if is_quiet && matches!(self.standing, Standing::Pauses { .. }) {
            self.queue = None;
            self.connection_slot = None;
        }
    }

    /// True if the pause has exceeded its time limit.
    const fn is_overdue(&self, now: Nanos) -> bool {
        match self.standing {
            Standing::Pauses { until } => now.0 >= until.0,
            Standing::Serves | Standing::Leaves => false,
        }
    }

    #[inline]
    fn is_quiet(&self) -> bool {
        self.held.is_empty() && self.queue.as_ref().is_none_or(DeviceQueue::is_quiet)
    }

    /// True if the device accepts new commands.
    const fn takes(&self) -> bool {
        match self.standing {
            Standing::Serves | Standing::Pauses { .. } => true,
            Standing::Leaves => false,
        }
    }
}

fn open_queue(served: &Served, core: CoreIndex, now: Nanos) -> Result<DeviceQueue, DeviceError> {
    let queue =
        DeviceQueue::new(served.device.open_queue(core, IO_ENTRIES.into())?, IO_ENTRIES.into());
    let Some(gate) = &served.limits else { return Ok(queue) };
    Ok(queue.limited_by(LimitedBy::new(gate, core, &served.device.info(), now)))
}

/// Whether a command can change blocks at once, or waits for a range lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The command can proceed.
    Free,
    /// A range lock overlaps the blocks, and the command waits.
    Locked,
}

/// All devices of a queue.
pub(super) struct Devices {
    /// Devices at fixed indices.
    places: Vec<Option<Device>>,
    /// Namespaces whose devices are inaccessible.
    inaccessible: Vec<u32>,
    /// Namespaces that had a device here, and the instance of each.
    used: BTreeMap<u32, [u8; 16]>,
    /// The last change of the subsystem that was applied.
    seen: u64,
    core: CoreIndex,
    host: Host,
    /// The budgets of the core.
    budgets: Rc<Budgets>,
    /// True after the loss of the connection.
    is_lost: bool,
}

impl Devices {
    /// Creates the empty set of an admin queue.
    pub(super) fn none(at: &CoreContext, host: Host) -> Self {
        let (places, inaccessible) = (Vec::new(), Vec::new());
        let (core, budgets) = (at.core, Rc::clone(&at.budgets));
        let (used, is_lost) = (BTreeMap::new(), false);
        Self { places, inaccessible, used, seen: 0, core, host, budgets, is_lost }
    }

    /// Opens the current devices of a subsystem.
    pub(super) fn open(
        subsystem: &Subsystem,
        at: &CoreContext,
        host: Host,
        now: Nanos,
    ) -> Result<Self, DeviceError> {
        let seen = subsystem.moved();
        let mut devices = Self { seen, ..Self::none(at, host) };
        for served in subsystem.paused() {
            let mut device = Device::closed(&served, Standing::Serves, &devices.host);
            device.pause(now.plus(subsystem.pause_time_max));
            devices.add(subsystem, device);
        }
        devices.open_new(subsystem, &subsystem.online(), now)?;
        Ok(devices)
    }

    fn add(&mut self, subsystem: &Subsystem, mut device: Device) {
        let namespace = device.served.namespace;
        device.effects.budget = self.budgets.of(&self.host.nqn, (&subsystem.nqn, namespace));
        self.used.insert(namespace, device.served.facts.page.instance);
        let free = self.places.iter().position(Option::is_none).unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[free] = Some(device);
    }

    fn open_new(
        &mut self,
        subsystem: &Subsystem,
        online: &[Arc<Served>],
        now: Nanos,
    ) -> Result<(), DeviceError> {
        for served in online {
            let is_known = |known: &Device| Arc::ptr_eq(&known.served, served);
            if self.places.iter().flatten().any(is_known) {
                continue;
            }
            let Some(device) = Device::open(served, self.core, &self.host, now)? else { continue };
            self.add(subsystem, device);
        }
        let is_open = |number: &u32| self.find(*number).is_some();
        self.inaccessible = subsystem.numbers().into_iter().filter(|n| !is_open(n)).collect();
        Ok(())
    }

    /// Applies changes of the subsystem: releases devices that are no longer served, continues with devices after a
    /// pause, and opens new ones. Returns the devices that no longer accept commands.
    ///
    /// Returns `None` if the queue must be closed: a device cannot be opened, or another instance replaced a device to
    /// which the host wrote without a flush. Those writes may be lost, and hosts check for this when they connect.
    #[inline]
    pub(super) fn follow(&mut self, subsystem: &Subsystem, now: Nanos) -> Option<Vec<DeviceIndex>> {
        let moved = subsystem.moved();
        if moved == self.seen {
            return Some(Vec::new());
        }
        self.seen = moved;
        // Each list is read once; later changes are found by the next call. A device that is neither paused nor online
        // was removed, even if it was added again between two calls.
        let (paused, online) = (subsystem.paused(), subsystem.online());
        let another = |served: &Arc<Served>| {
            let used = self.used.get(&served.namespace);
            used.is_some_and(|instance| *instance != served.facts.page.instance)
        };
        if online.iter().any(another) {
            return None;
        }
        let mut leaving = Vec::new();
        for (place, device) in self.places.iter_mut().enumerate() {
            let Some(device) = device else { continue };
            if device.standing == Standing::Leaves || device.served.connection_slots.is_open() {
                continue;
            }
            if paused.iter().any(|served| Arc::ptr_eq(served, &device.served)) {
                if device.standing == Standing::Serves {
                    device.pause(now.plus(subsystem.pause_time_max));
                }
                continue;
            }
            let next = online.iter().find(|served| served.namespace == device.served.namespace);
            match (device.standing, next) {
                (Standing::Pauses { .. }, Some(next)) => {
                    if !device.go_on(next, self.core, &self.host, now) {
                        return None;
                    }
                }
                (Standing::Serves | Standing::Pauses { .. } | Standing::Leaves, _) => {
                    device.standing = Standing::Leaves;
                    device.lift_limits();
                    leaving.push(DeviceIndex(place as u16));
                }
            }
        }
        self.open_new(subsystem, &online, now).ok()?;
        Some(leaving)
    }

    /// Ends pauses that exceed the time limit, for all queues of the subsystem; returns whether there was one.
    #[inline]
    pub(super) fn end_pauses(&self, subsystem: &Subsystem, now: Nanos) -> bool {
        let overdue = self.places.iter().flatten().filter(|device| device.is_overdue(now));
        overdue.filter(|device| subsystem.end_pause(device.served.namespace)).count() > 0
    }

    /// Has all I/O that waits for limits pass now, because the connection ends.
    pub(super) fn lift_limits(&mut self) {
        if !self.is_lost {
            self.places.iter_mut().flatten().for_each(Device::lift_limits);
        }
    }

    /// Marks held I/O as failed: the host has disconnected, and none of its commands may reach a device after its next
    /// commands.
    pub(super) fn give_up_held(&mut self) {
        for device in self.places.iter_mut().flatten() {
            if matches!(device.standing, Standing::Pauses { .. }) {
                device.standing = Standing::Leaves;
            }
        }
    }

    /// Marks I/O that waits for limits as failed: the connection was lost, so the host may have repeated its commands
    /// elsewhere.
    pub(super) const fn give_up_limited(&mut self) {
        self.is_lost = true;
    }

    /// The next held I/O that fails.
    #[inline]
    pub(super) fn next_given_up(&mut self) -> Option<Io> {
        let is_lost = self.is_lost;
        self.places.iter_mut().flatten().find_map(|device| {
            let leaves = device.standing == Standing::Leaves;
            let held = if leaves { device.held.pop_front() } else { None };
            let queue = device.queue.as_mut().filter(|_| is_lost);
            held.or_else(|| queue.and_then(DeviceQueue::take_held))
        })
    }

    /// The earliest end of a pause.
    fn pause_ends_at(&self) -> Option<Nanos> {
        let until = |device: &Device| match device.standing {
            Standing::Pauses { until } => Some(until),
            Standing::Serves | Standing::Leaves => None,
        };
        self.places.iter().flatten().filter_map(until).min()
    }

    fn find(&self, namespace: u32) -> Option<usize> {
        let serves = |device: &Option<Device>| {
            device
                .as_ref()
                .is_some_and(|device| device.served.namespace == namespace && device.takes())
        };
        self.places.iter().position(serves)
    }

    /// The device of a namespace, and its properties.
    ///
    /// # Errors
    /// Returns a status if there is none.
    pub(super) fn of(&self, namespace: u32) -> Result<(DeviceIndex, &Facts), Status> {
        if let Some(place) = self.find(namespace)
            && let Some(device) = &self.places[place]
        {
            return Ok((DeviceIndex(place as u16), &device.served.facts));
        }
        if self.inaccessible.contains(&namespace) {
            return Err(Status::INACCESSIBLE);
        }
        Err(Status::INVALID_NAMESPACE)
    }

    /// Updates the access rights of the host. Returns the devices at which a change after `seen` aborted the commands
    /// of the host.
    pub(super) fn refresh_rights(&mut self, seen: u64) -> Vec<DeviceIndex> {
        let mut expelled = Vec::new();
        for (place, device) in self.places.iter_mut().enumerate() {
            let Some(device) = device else { continue };
            let kept = &device.served.kept;
            let before = std::mem::replace(&mut device.rights, kept.rights(&self.host));
            let is_expelled = kept.has_expelled(&self.host.id, seen);
            if is_expelled || before != device.rights {
                // No command that is excluded now may be submitted after the answer to the reservation command, and the
                // host that reserved the device may wait for the end of these commands.
                device.queue.iter_mut().for_each(DeviceQueue::release);
            }
            if is_expelled {
                expelled.push(DeviceIndex(place as u16));
            }
        }
        expelled
    }

    /// The access rights of the host at a device.
    pub(super) fn rights(&self, index: DeviceIndex) -> Rights {
        self.get(index).map_or(Rights::Nothing, |device| device.rights)
    }

    fn get(&self, index: DeviceIndex) -> Option<&Device> {
        self.places.get(usize::from(index.0))?.as_ref()
    }

    /// The served device at an index, unless it was removed.
    pub(super) fn served(&self, index: DeviceIndex) -> Option<&Served> {
        self.get(index).map(|device| &*device.served)
    }

    /// True if the device at an index accepts new commands.
    pub(super) fn serves(&self, index: DeviceIndex) -> bool {
        self.get(index).is_some_and(Device::takes)
    }

    /// The Copies of a device, which is not removed while it has one.
    pub(super) fn copies(&mut self, index: DeviceIndex) -> &mut Copies {
        match self.places.get_mut(usize::from(index.0)) {
            Some(Some(device)) => &mut device.copies,
            Some(None) | None => unreachable!("a device with a Copy does not go"),
        }
    }

    /// Removes Copies, and changes without data, that have no I/O in flight.
    pub(super) fn forget_waiting(&mut self) {
        for device in self.places.iter_mut().flatten() {
            device.copies.line.clear();
            device.effects.line.clear();
        }
    }

    /// The properties that commands for a device are checked against.
    #[inline]
    pub(super) fn terms(&self, index: DeviceIndex) -> Result<&Terms, Status> {
        self.served(index).map(|served| &served.facts.terms).ok_or(Status::INTERNAL)
    }

    /// The changes without data at a device, which is not removed while it has one.
    pub(super) fn effects(&mut self, index: DeviceIndex) -> &mut Effects {
        match self.places.get_mut(usize::from(index.0)) {
            Some(Some(device)) => &mut device.effects,
            Some(None) | None => unreachable!("a device with a command does not go"),
        }
    }

    /// The bytes of a range.
    pub(super) fn bytes_of(&self, index: DeviceIndex, range: LbaRange) -> u64 {
        self.terms(index).map_or(0, |terms| range.blocks << terms.block.shift())
    }

    /// Returns the budget of an I/O that has completed, if it had one.
    #[inline]
    pub(super) fn note_changed(&mut self, index: DeviceIndex, op: &Op) {
        let range = match op {
            Op::WriteZeroes { range, .. } | Op::Deallocate { range } => *range,
            Op::Read { .. } | Op::Write { .. } | Op::Flush => return,
        };
        let bytes = self.bytes_of(index, range);
        self.effects(index).budget.give_back(bytes);
    }

    /// The first command that waits for the budget at the device at `place`, and whether the budget permits it.
    #[inline]
    pub(super) fn waiting_effect(&self, place: usize) -> Option<(SlotIndex, bool)> {
        self.places[place].as_ref()?.effects.first()
    }

    /// Removes the first command that waits for the budget.
    pub(super) fn pop_effect(&mut self, place: usize) {
        if let Some(device) = &mut self.places[place] {
            device.effects.line.pop_front();
        }
    }

    /// Records that a command is about to change these blocks of the device at `place`, and returns whether it can
    /// proceed. If it can, no range lock is granted for any of the blocks until the next I/O of the command completes.
    pub(super) fn begin_change(&self, slot: &mut Slot, place: DeviceIndex, range: LbaRange) -> Way {
        slot.changes = range;
        let Some(outlook) = self.outlook(place) else { return Way::Free };
        slot.behind = match slot.behind {
            _ if outlook.is_clear() => None,
            None => outlook.before(range),
            Some(last) if outlook.is_past(range, last) => None,
            waits => waits,
        };
        if slot.behind.is_some() { Way::Locked } else { Way::Free }
    }

    /// The view of the range locks of a device.
    pub(super) fn outlook(&self, index: DeviceIndex) -> Option<&Outlook> {
        self.get(index).map(|device| &device.sentry.outlook)
    }

    /// Requests a range lock on a device.
    pub(super) fn raise(&self, index: DeviceIndex, range: LbaRange) -> Option<Raised> {
        self.get(index).map(|device| device.sentry.raise(range))
    }

    /// Checks the range locks of a device, as [`Sentry::look`] does.
    #[inline]
    pub(super) fn look(
        &mut self,
        place: usize,
        mut writes: impl FnMut(DeviceIndex, Ticket, LbaRange) -> bool,
    ) -> usize {
        let Some(device) = &mut self.places[place] else { return 0 };
        let index = DeviceIndex(place as u16);
        device.sentry.look(|ticket, range| writes(index, ticket, range))
    }

    /// Submits an I/O to a device, which is not removed while an I/O is in flight.
    #[inline]
    pub(super) fn submit(&mut self, index: DeviceIndex, io: Io) {
        match self.places.get_mut(usize::from(index.0)) {
            Some(Some(device)) => match (&mut device.queue, device.standing) {
                (Some(queue), Standing::Serves | Standing::Leaves) => queue.submit(io),
                (Some(_), Standing::Pauses { .. }) | (None, _) => device.held.push_back(io),
            },
            Some(None) | None => unreachable!("a command whose device has gone is not started"),
        }
    }

    fn queues_mut(&mut self) -> impl Iterator<Item = &mut DeviceQueue> {
        self.places.iter_mut().flatten().filter_map(|device| device.queue.as_mut())
    }

    #[inline]
    pub(super) fn submit_backlog(&mut self) -> usize {
        self.queues_mut().map(DeviceQueue::submit_backlog).sum()
    }

    /// Sets the time of a turn, before I/Os are submitted.
    #[inline]
    pub(super) fn begin_turn(&mut self, now: Nanos) {
        self.queues_mut().for_each(|queue| queue.begin_turn(now));
    }

    #[inline]
    pub(super) fn ring(&mut self, now: Nanos) {
        self.queues_mut().for_each(|queue| queue.ring(now));
    }

    /// The number of indices.
    pub(super) const fn places(&self) -> usize {
        self.places.len()
    }

    /// Takes the completions of a device, as [`DeviceQueue::poll`] does.
    #[inline]
    pub(super) fn poll(&mut self, place: usize, now: Nanos) -> Option<CompletionBatch> {
        self.places[place].as_mut()?.queue.as_mut()?.poll(now)
    }

    /// Returns the batch of the last poll of a device.
    #[inline]
    pub(super) fn give_back(&mut self, place: usize, batch: CompletionBatch) {
        let device = self.places[place].as_mut();
        if let Some(queue) = device.and_then(|device| device.queue.as_mut()) {
            queue.give_back(batch);
        }
    }

    /// Closes removed and paused devices that have no I/O in flight.
    #[inline]
    pub(super) fn close_quiet(&mut self) {
        for place in &mut self.places {
            place.iter_mut().for_each(Device::close_paused);
            place.take_if(|device| device.standing == Standing::Leaves && device.is_quiet());
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.places.iter().flatten().all(Device::is_quiet)
    }

    pub(super) fn sleep(&self, sleep: &mut Sleep) {
        let queues = self.places.iter().flatten().filter_map(|device| device.queue.as_ref());
        queues.for_each(|queue| queue.sleep(sleep));
        if let Some(at) = self.pause_ends_at() {
            sleep.until(at);
        }
    }
}
