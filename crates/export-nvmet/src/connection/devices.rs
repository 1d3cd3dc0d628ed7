//! The ways of an I/O queue to the devices of its subsystem.

use super::copy::Copies;
use crate::guard::{Outlook, Raised, Sentry, Ticket};
use crate::limits::IO_ENTRIES;
use crate::namespace::{Facts, Served};
use crate::reservation::Rights;
use crate::subsystem::Subsystem;
use std::collections::BTreeMap;
use std::sync::Arc;
use strake_block::{CompletionBatch, DeviceError, Io};
use strake_export_net::{DeviceQueue, Seat};
use strake_nvme_wire::Status;
use strake_nvme_wire::reservation::HostId;
use strake_reactor::Sleep;
use strake_units::{CoreIndex, LbaRange, Nanos};

/// Names a device of an I/O queue while it has one open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceIndex(u16);

/// A queue of a device. The order of the fields is the order of dropping: the queue first, before the buffer of Copies;
/// then what says for it that it writes nowhere; and the seat last, whose going tells whoever waits that all is over.
struct Device {
    queue: DeviceQueue,
    copies: Copies,
    sentry: Sentry,
    seat: Seat<Served>,
    standing: Standing,
    /// What reservations let the host do.
    rights: Rights,
}

/// Whether a device takes new commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Serves,
    /// It goes when what is in flight is over.
    Leaves,
}

impl Device {
    fn open(
        served: &Arc<Served>,
        core: CoreIndex,
        host: &HostId,
    ) -> Result<Option<Self>, DeviceError> {
        let Ok(seat) = Seat::take(served) else { return Ok(None) };
        let queue = served.device.open_queue(core, IO_ENTRIES.into())?;
        let queue = DeviceQueue::new(queue, IO_ENTRIES.into());
        let (rights, sentry) = (served.kept.rights(host), Sentry::new(&served.gate));
        let (copies, standing) = (Copies::new(), Standing::Serves);
        Ok(Some(Self { queue, copies, sentry, seat, standing, rights }))
    }
}

/// All of them.
pub(super) struct Devices {
    /// Devices in fixed places.
    places: Vec<Option<Device>>,
    /// Namespaces without a device that can be used.
    inaccessible: Vec<u32>,
    /// Namespaces that had a device here, and which instance it was.
    used: BTreeMap<u32, [u8; 16]>,
    /// The change of the subsystem that they are of.
    seen: u64,
    core: CoreIndex,
    host: HostId,
}

impl Devices {
    /// Opens the devices that a subsystem has now.
    pub(super) fn open(
        subsystem: &Subsystem,
        core: CoreIndex,
        host: HostId,
    ) -> Result<Self, DeviceError> {
        let seen = subsystem.reached();
        let (places, inaccessible, used) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut devices = Self { places, inaccessible, used, seen, core, host };
        devices.open_new(subsystem, &subsystem.online())?;
        Ok(devices)
    }

    fn open_new(
        &mut self,
        subsystem: &Subsystem,
        online: &[Arc<Served>],
    ) -> Result<(), DeviceError> {
        for served in online {
            let is_known = |known: &Device| Arc::ptr_eq(&known.seat.export, served);
            if self.places.iter().flatten().any(is_known) {
                continue;
            }
            let Some(device) = Device::open(served, self.core, &self.host)? else { continue };
            self.used.insert(served.namespace, served.facts.page.instance);
            let free = self.places.iter().position(Option::is_none).unwrap_or_else(|| {
                self.places.push(None);
                self.places.len() - 1
            });
            self.places[free] = Some(device);
        }
        let is_open = |number: &u32| self.find(*number).is_some();
        self.inaccessible = subsystem.numbers().into_iter().filter(|n| !is_open(n)).collect();
        Ok(())
    }

    /// Follows a subsystem that has changed: lets go of devices that are not served any more, and opens new ones. Says
    /// which take no new commands from now on.
    ///
    /// `None` when the queue cannot go on: a device cannot be opened, or another instance has come where the host
    /// relies on what it wrote and did not flush. That may be lost, and hosts look for it when they connect.
    pub(super) fn follow(&mut self, subsystem: &Subsystem) -> Option<Vec<DeviceIndex>> {
        let now = subsystem.reached();
        if now == self.seen {
            return Some(Vec::new());
        }
        self.seen = now;
        let mut leaving = Vec::new();
        for (place, device) in self.places.iter_mut().enumerate() {
            let Some(device) = device else { continue };
            if device.standing == Standing::Serves && !device.seat.export.seats.is_open() {
                device.standing = Standing::Leaves;
                leaving.push(DeviceIndex(place as u16));
            }
        }
        let another = |served: &Arc<Served>| {
            let used = self.used.get(&served.namespace);
            used.is_some_and(|instance| *instance != served.facts.page.instance)
        };
        // One look for both: what comes behind it is found by the next one, and judged then.
        let online = subsystem.online();
        if online.iter().any(another) {
            return None;
        }
        self.open_new(subsystem, &online).ok()?;
        Some(leaving)
    }

    fn find(&self, namespace: u32) -> Option<usize> {
        let serves = |device: &Option<Device>| {
            device.as_ref().is_some_and(|device| {
                device.seat.export.namespace == namespace && device.standing == Standing::Serves
            })
        };
        self.places.iter().position(serves)
    }

    /// The device of a namespace, and what is to be known of it.
    ///
    /// # Errors
    /// With the status to answer when there is none.
    pub(super) fn of(&self, namespace: u32) -> Result<(DeviceIndex, &Facts), Status> {
        if let Some(place) = self.find(namespace)
            && let Some(device) = &self.places[place]
        {
            return Ok((DeviceIndex(place as u16), &device.seat.export.facts));
        }
        if self.inaccessible.contains(&namespace) {
            return Err(Status::INACCESSIBLE);
        }
        Err(Status::INVALID_NAMESPACE)
    }

    /// Takes over what reservations let the host do now. Says at which devices a change after `seen` gave up its
    /// commands.
    pub(super) fn refresh_rights(&mut self, seen: u64) -> Vec<DeviceIndex> {
        let mut expelled = Vec::new();
        for (place, device) in self.places.iter_mut().enumerate() {
            let Some(device) = device else { continue };
            let kept = &device.seat.export.kept;
            device.rights = kept.rights(&self.host);
            if kept.has_expelled(&self.host, seen) {
                expelled.push(DeviceIndex(place as u16));
            }
        }
        expelled
    }

    /// What reservations let the host do at a device.
    pub(super) fn rights(&self, index: DeviceIndex) -> Rights {
        self.get(index).map_or(Rights::Nothing, |device| device.rights)
    }

    fn get(&self, index: DeviceIndex) -> Option<&Device> {
        self.places.get(usize::from(index.0))?.as_ref()
    }

    /// What is served at a place, unless it has gone.
    pub(super) fn served(&self, index: DeviceIndex) -> Option<&Served> {
        self.get(index).map(|device| &*device.seat.export)
    }

    /// Whether the device at a place takes new commands.
    pub(super) fn serves(&self, index: DeviceIndex) -> bool {
        self.get(index).is_some_and(|device| device.standing == Standing::Serves)
    }

    /// The Copies of the device at a place, which does not go while it has one.
    pub(super) fn copies(&mut self, index: DeviceIndex) -> &mut Copies {
        match self.places.get_mut(usize::from(index.0)) {
            Some(Some(device)) => &mut device.copies,
            Some(None) | None => unreachable!("a device with a Copy does not go"),
        }
    }

    /// Forgets Copies that are not at a device yet.
    pub(super) fn forget_copies(&mut self) {
        self.places.iter_mut().flatten().for_each(|device| device.copies.clear());
    }

    /// What is known of the guards of the device at a place.
    pub(super) fn outlook(&self, index: DeviceIndex) -> Option<&Outlook> {
        self.get(index).map(|device| &device.sentry.outlook)
    }

    /// Raises a guard on the device at a place.
    pub(super) fn raise(&self, index: DeviceIndex, range: LbaRange) -> Option<Raised> {
        self.get(index).map(|device| device.sentry.raise(range))
    }

    /// Looks at the guards of the device at a place, as [`Sentry::look`] does.
    pub(super) fn look(
        &mut self,
        place: usize,
        mut writes: impl FnMut(DeviceIndex, Ticket, LbaRange) -> bool,
    ) -> usize {
        let Some(device) = &mut self.places[place] else { return 0 };
        let index = DeviceIndex(place as u16);
        device.sentry.look(|ticket, range| writes(index, ticket, range))
    }

    /// Hands an I/O to a device, which does not go while one is in flight.
    pub(super) fn submit(&mut self, index: DeviceIndex, io: Io) {
        match self.places.get_mut(usize::from(index.0)) {
            Some(Some(device)) => device.queue.submit(io),
            Some(None) | None => unreachable!("a command whose device has gone is not begun"),
        }
    }

    pub(super) fn submit_backlog(&mut self) -> usize {
        self.places.iter_mut().flatten().map(|device| device.queue.submit_backlog()).sum()
    }

    pub(super) fn ring(&mut self, now: Nanos) {
        self.places.iter_mut().flatten().for_each(|device| device.queue.ring(now));
    }

    /// How many places there are.
    pub(super) const fn places(&self) -> usize {
        self.places.len()
    }

    /// Takes what the device at a place has completed, as [`DeviceQueue::poll`] does.
    pub(super) fn poll(&mut self, place: usize, now: Nanos) -> Option<CompletionBatch> {
        self.places[place].as_mut()?.queue.poll(now)
    }

    /// Returns the batch of the last poll of a place.
    pub(super) fn give_back(&mut self, place: usize, batch: CompletionBatch) {
        if let Some(device) = &mut self.places[place] {
            device.queue.give_back(batch);
        }
    }

    /// Closes what is left and has nothing in flight any more.
    pub(super) fn close_quiet(&mut self) {
        for place in &mut self.places {
            place.take_if(|device| device.standing == Standing::Leaves && device.queue.is_quiet());
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.places.iter().flatten().all(|device| device.queue.is_quiet())
    }

    pub(super) fn sleep(&self, sleep: &mut Sleep) {
        self.places.iter().flatten().for_each(|device| device.queue.sleep(sleep));
    }
}
