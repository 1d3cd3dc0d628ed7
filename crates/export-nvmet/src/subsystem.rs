//! A subsystem: its namespaces, who may connect to it, and what of it has changed.

use crate::controller::{CONTROLLER_MAX, Controller};
use crate::kept::Kept;
use crate::limits::{CONNECTIONS_PER_HOST_MAX, NAMESPACES_MAX, PAUSE_TIME_MAX};
use crate::namespace::{Export, Facts, Served};
use crate::range_lock::Gate;
use crate::stats::ControllerStats;
use crate::watch::Watches;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use strake_block::DeviceInfo;
use strake_export_net::{ConnectionSlots, ExportError, ExportErrorKind, ExportStats};
use strake_nvme_wire::Status;
use strake_nvme_wire::log::{Access, AccessGroup};
use strake_nvme_wire::reservation::{HostId, NoticeKind};
use strake_units::Nanos;

/// A subsystem of a target.
pub(crate) struct Subsystem {
    pub(crate) nqn: String,
    hosts: Vec<String>,
    /// TLS is required.
    pub(crate) secure: bool,
    /// Its connections.
    pub(crate) connection_slots: ConnectionSlots,
    controllers: Mutex<Controllers>,
    namespaces: Mutex<Namespaces>,
    /// When a namespace last came, went or got another size, as a count of changes.
    listed: AtomicU64,
    /// The same for devices whose coming and going is reported to hosts.
    reached: AtomicU64,
    /// The same for all devices that came and went, those that are paused among them.
    moved: AtomicU64,
    /// What its I/O queues have seen of reservations.
    pub(crate) watches: Watches,
    /// How long commands wait for the next device of a namespace that is paused.
    pub(crate) pause_time_max: Nanos,
}

/// Its controllers.
#[derive(Default)]
struct Controllers {
    there: Vec<Weak<Controller>>,
    /// The number that was given last.
    last: u16,
}

impl Controllers {
    fn iter(&self) -> impl Iterator<Item = Arc<Controller>> {
        self.there.iter().filter_map(Weak::upgrade)
    }
}

#[derive(Default)]
struct Namespaces {
    there: BTreeMap<u32, Namespace>,
    /// When each last came, went or got another size: those that are gone are still to be reported.
    listed: BTreeMap<u32, u64>,
    /// Changes there were.
    changes: u64,
}

struct Namespace {
    uuid: [u8; 16],
    /// Its device. One whose connection slots are closed is on its way out.
    served: Option<Arc<Served>>,
    /// When its device last came or went.
    reached: u64,
    /// The instance that its next device is, when that has everything that this one acknowledged.
    next: Option<[u8; 16]>,
    /// Commands wait for its next device, which is to come at once.
    is_paused: bool,
}

impl Namespace {
    fn online(&self) -> Option<&Arc<Served>> {
        self.served.as_ref().filter(|served| served.connection_slots.is_open())
    }

    /// The device whose commands wait for the next one.
    fn paused(&self) -> Option<&Arc<Served>> {
        self.served.as_ref().filter(|served| self.is_paused && !served.connection_slots.is_open())
    }

    /// The device that hosts are to see: the one that is served, or the one that was until the pause.
    fn seen(&self) -> Option<&Arc<Served>> {
        self.online().or_else(|| self.paused())
    }
}

/// What a host learns of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// There is none of that number.
    Absent,
    /// There is, and it cannot be reached for now.
    Inaccessible,
    /// It can be used.
    Online(Facts),
}

impl strake_export_net::Export for Subsystem {
    fn connection_slots(&self) -> &ConnectionSlots {
        &self.connection_slots
    }
}

impl Subsystem {
    /// The one that an export belongs to, without namespaces.
    pub(crate) fn of(export: &Export, connection_slots: u32) -> Self {
        Self {
            nqn: export.nqn.clone(),
            hosts: export.hosts.clone(),
            secure: export.secure,
            connection_slots: ConnectionSlots::new(connection_slots),
            controllers: Mutex::new(Controllers::default()),
            namespaces: Mutex::new(Namespaces::default()),
            listed: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            watches: Watches::default(),
            pause_time_max: PAUSE_TIME_MAX,
        }
    }

    /// Nothing panics while holding the lock, so a poisoned one holds a sound list. It is taken when a host comes or
    /// asks, and when devices come and go, never for an I/O command.
    fn lock(&self) -> MutexGuard<'_, Namespaces> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn admits(&self, host: &str) -> bool {
        self.hosts.iter().any(|allowed| allowed == host)
    }

    /// As for namespaces: a poisoned lock holds a sound list.
    fn controllers(&self) -> MutexGuard<'_, Controllers> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a controller, which none has that is there: numbers come around, and a controller may last. There
    /// are far fewer controllers than numbers.
    pub(crate) fn next_number(&self) -> u16 {
        let mut controllers = self.controllers();
        loop {
            controllers.last = controllers.last % CONTROLLER_MAX + 1;
            if controllers.iter().all(|controller| controller.id != controllers.last) {
                return controllers.last;
            }
        }
    }

    /// Remembers a controller, so that I/O queues find it. False when another with its number came first, while the
    /// host of this one was proving who it is.
    #[must_use]
    pub(crate) fn add_controller(&self, controller: &Arc<Controller>) -> bool {
        let mut controllers = self.controllers();
        controllers.there.retain(|known| known.strong_count() > 0);
        let is_free = controllers.iter().all(|known| known.id != controller.id);
        if is_free {
            controllers.there.push(Arc::downgrade(controller));
        }
        is_free
    }

    pub(crate) fn controller(&self, id: u16) -> Option<Arc<Controller>> {
        self.controllers().iter().find(|controller| controller.id == id)
    }

    /// How many queues a host has connected.
    pub(crate) fn taken_by(&self, host: &str) -> u32 {
        let controllers = self.controllers();
        let of_it = controllers.iter().filter(|controller| controller.host.nqn == host);
        of_it.map(|controller| controller.places()).sum()
    }

    /// How many more it can connect here: as many as there are connection slots, and no more than one host may have.
    pub(crate) fn room_for(&self, host: &str) -> u32 {
        CONNECTIONS_PER_HOST_MAX
            .saturating_sub(self.taken_by(host))
            .min(self.connection_slots.free())
    }

    /// Puts a namespace in, or gives one that is here its device.
    pub(crate) fn put(
        &self,
        export: &Export,
        mut served: Option<Arc<Served>>,
    ) -> Result<(), ExportError> {
        let refuse = |kind, why: &str| {
            let what =
                format!("cannot export {:?}: namespace {} {why}", self.nqn, export.namespace);
            Err(ExportError::new(kind, what))
        };
        let mut namespaces = self.lock();
        if export.hosts != self.hosts {
            return refuse(ExportErrorKind::BadExport, "has other hosts than the others");
        }
        if export.secure != self.secure {
            return refuse(ExportErrorKind::BadExport, "is not secure as the others are, or alone");
        }
        if let Some(known) = namespaces.there.get(&export.namespace) {
            if known.uuid != export.uuid || known.online().is_some() {
                return refuse(ExportErrorKind::Duplicate, "is there already");
            }
            // Its reservations are those of the device that it had, until it has another one.
            served = served.or_else(|| known.served.clone());
        } else if namespaces.there.values().any(|other| other.uuid == export.uuid) {
            return refuse(ExportErrorKind::Duplicate, "is there under another number");
        }
        namespaces.changes += 1;
        let now = namespaces.changes;
        let (next, is_paused) = (None, false);
        let namespace = Namespace { uuid: export.uuid, served, reached: now, next, is_paused };
        namespaces.there.insert(export.namespace, namespace);
        namespaces.listed.insert(export.namespace, now);
        self.note(now);
        Ok(())
    }

    /// Release: a thread that sees the number sees what changed.
    fn note(&self, now: u64) {
        self.note_reach(now);
        self.listed.store(now, Ordering::Release);
    }

    fn note_reach(&self, now: u64) {
        self.reached.store(now, Ordering::Release);
        self.moved.store(now, Ordering::Release);
    }

    /// Serves the device of a namespace no more; returns it, because it may be in use yet.
    pub(crate) fn close(&self, namespace: u32) -> Option<Arc<Served>> {
        let mut namespaces = self.lock();
        namespaces.changes += 1;
        let now = namespaces.changes;
        let known = namespaces.there.get_mut(&namespace)?;
        known.reached = now;
        known.is_paused = false;
        if let Some(served) = &known.served {
            served.connection_slots.close();
        }
        self.note_reach(now);
        known.served.clone()
    }

    /// The same, but has commands wait for the next device of the namespace. To hosts it looks as before.
    pub(crate) fn pause(&self, namespace: u32) -> Option<Arc<Served>> {
        let mut namespaces = self.lock();
        namespaces.changes += 1;
        let now = namespaces.changes;
        let known = namespaces.there.get_mut(&namespace)?;
        let served = known.served.clone();
        if let Some(online) = known.online() {
            online.connection_slots.close();
            known.is_paused = true;
            self.moved.store(now, Ordering::Release);
        }
        served
    }

    /// Has commands wait no longer for the next device of a namespace, if any do: from now on it cannot be reached.
    /// True when that is new.
    pub(crate) fn end_pause(&self, namespace: u32) -> bool {
        let mut namespaces = self.lock();
        let now = namespaces.changes + 1;
        let known = namespaces.there.get_mut(&namespace);
        let Some(known) = known.filter(|known| known.paused().is_some()) else { return false };
        known.is_paused = false;
        known.reached = now;
        namespaces.changes = now;
        self.note_reach(now);
        true
    }

    /// Devices whose commands wait for the next ones.
    pub(crate) fn paused(&self) -> Vec<Arc<Served>> {
        self.lock().there.values().filter_map(Namespace::paused).cloned().collect()
    }

    /// What orders the writes of a namespace whose commands wait: its next device continues with it, because range
    /// locks may stand around blocks of what waits.
    pub(crate) fn paused_gate(&self, namespace: u32) -> Option<Arc<Gate>> {
        let namespaces = self.lock();
        Some(Arc::clone(&namespaces.there.get(&namespace)?.paused()?.gate))
    }

    /// Has the next device of a namespace be the same instance as the one that is served no more.
    pub(crate) fn keep_instance(&self, namespace: u32) {
        if let Some(known) = self.lock().there.get_mut(&namespace)
            && let Some(served) =
                known.served.as_ref().filter(|served| !served.connection_slots.is_open())
        {
            known.next = Some(served.facts.page.instance);
        }
    }

    /// Has the next device of a namespace be another instance, whatever was said before: no command waits for it.
    pub(crate) fn forget_instance(&self, namespace: u32) {
        if let Some(known) = self.lock().there.get_mut(&namespace) {
            known.next = None;
        }
        self.end_pause(namespace);
    }

    /// The instance that a device is which comes next to a namespace, if it is one that was there before. One that is
    /// smaller does not have everything, whatever was said; and blocks of another size are not where hosts that go on
    /// look for them.
    pub(crate) fn next_instance(&self, namespace: u32, info: &DeviceInfo) -> Option<[u8; 16]> {
        let namespaces = self.lock();
        let known = namespaces.there.get(&namespace)?;
        let before = &known.served.as_ref()?.facts.terms;
        let has_all = info.block_size == before.block && info.blocks >= before.blocks;
        known.next.filter(|_| has_all)
    }

    /// Takes a namespace out, and has its reservations end; returns them, if it ever had a device.
    pub(crate) fn take(&self, namespace: u32) -> Option<Arc<Kept>> {
        let mut namespaces = self.lock();
        namespaces.changes += 1;
        let now = namespaces.changes;
        let taken = namespaces.there.remove(&namespace);
        namespaces.listed.insert(namespace, now);
        self.note(now);
        let kept = Arc::clone(&taken?.served?.kept);
        kept.end();
        Some(kept)
    }

    /// When a namespace last came, went or got another size.
    pub(crate) fn listed(&self) -> u64 {
        self.listed.load(Ordering::Acquire)
    }

    /// When a device last came or went, as reported to hosts.
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// When a device last came or went, for good or for a pause.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Acquire)
    }

    /// Namespaces that were added, removed or resized after `then`.
    pub(crate) fn listed_after(&self, then: u64) -> Vec<u32> {
        let namespaces = self.lock();
        namespaces
            .listed
            .iter()
            .filter(|&(_, &when)| when > then)
            .map(|(&number, _)| number)
            .collect()
    }

    /// Numbers of its namespaces in ascending order.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.lock().there.keys().copied().collect()
    }

    /// Devices that are served.
    pub(crate) fn online(&self) -> Vec<Arc<Served>> {
        self.lock().there.values().filter_map(Namespace::online).cloned().collect()
    }

    /// What was done to the devices that are served.
    pub(crate) fn stats(&self) -> Vec<ExportStats> {
        let connections = self.connection_slots.taken();
        let stats = |served: &Arc<Served>| {
            ExportStats::of(&self.nqn, served.namespace, connections, &served.counters)
        };
        self.online().iter().map(stats).collect()
    }

    /// What the queues of its hosts have done, by the numbers of their controllers.
    pub(crate) fn controller_stats(&self) -> Vec<ControllerStats> {
        let controllers: Vec<_> = self.controllers().iter().collect();
        let mut all: Vec<_> = controllers.iter().map(|controller| controller.stats()).collect();
        all.sort_by_key(|controller| controller.id);
        all
    }

    pub(crate) fn view(&self, namespace: u32) -> View {
        match self.lock().there.get(&namespace) {
            None => View::Absent,
            Some(known) => {
                known.seen().map_or(View::Inaccessible, |served| View::Online(served.facts))
            }
        }
    }

    pub(crate) fn uuid(&self, namespace: u32) -> Option<[u8; 16]> {
        self.lock().there.get(&namespace).map(|known| known.uuid)
    }

    /// The reservations of a namespace that has or had a device: they are in force again with the device that takes the
    /// place of one that went.
    ///
    /// # Errors
    /// With the status to answer when there is no such namespace, or it never had a device.
    pub(crate) fn kept(&self, namespace: u32) -> Result<Arc<Kept>, Status> {
        let namespaces = self.lock();
        let known = namespaces.there.get(&namespace).ok_or(Status::INVALID_NAMESPACE)?;
        let served = known.served.as_ref().ok_or(Status::INACCESSIBLE)?;
        Ok(Arc::clone(&served.kept))
    }

    /// Adds notices about the reservations of a namespace to the controllers of the hosts concerned.
    pub(crate) fn notify(&self, namespace: u32, kept: &Kept, reported: &[(HostId, NoticeKind)]) {
        if reported.is_empty() {
            return;
        }
        for controller in self.controllers().iter() {
            let of_it = reported.iter().filter(|(host, _)| *host == controller.host.id);
            for &(_, kind) in of_it.filter(|(_, kind)| kept.tells(*kind)) {
                controller.notify(kind, namespace);
            }
        }
    }

    /// How each namespace is reached: every one is a group of its own.
    pub(crate) fn groups(&self) -> Vec<AccessGroup> {
        let group = |(&number, known): (&u32, &Namespace)| AccessGroup {
            number,
            changes: known.reached,
            access: if known.seen().is_some() { Access::Optimized } else { Access::Inaccessible },
            namespace: number,
        };
        self.lock().there.iter().map(group).collect()
    }

    /// Its serial number: one that its name always gives.
    pub(crate) fn serial(&self) -> String {
        // FNV-1a: offset basis and prime of 64 bits.
        let hash = self.nqn.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}")
    }
}

/// Whether a number can be one of a namespace.
pub(crate) const fn is_number(namespace: u32) -> bool {
    namespace >= 1 && namespace <= NAMESPACES_MAX
}

#[cfg(test)]
mod tests {
    use super::Subsystem;
    use crate::controller::{CONTROLLER_MAX, Controller, Host};
    use crate::namespace::Export;
    use std::sync::Arc;

    fn export() -> Export {
        let (nqn, hosts) = (String::new(), Vec::new());
        let (device, ledger, read_only, secure) = (None, None, false, false);
        Export { nqn, namespace: 1, uuid: [1; 16], device, read_only, ledger, hosts, secure }
    }

    #[test]
    fn no_number_is_given_twice_while_its_controller_is_there() {
        let subsystem = Subsystem::of(&export(), 4);
        let controller = |id| {
            let host = Host { nqn: String::new(), id: [0; 16] };
            Arc::new(Controller::new(id, host, None, Vec::new()))
        };
        let lasting = controller(subsystem.next_number());
        assert!(subsystem.add_controller(&lasting));
        assert!(!subsystem.add_controller(&controller(lasting.id)), "it is taken");
        let given: Vec<u16> = (0..CONTROLLER_MAX).map(|_| subsystem.next_number()).collect();
        assert!(!given.contains(&lasting.id), "it was given again");
        assert_eq!(given.iter().max(), Some(&CONTROLLER_MAX));
        assert_eq!(given.iter().min(), Some(&(lasting.id + 1)), "none is left out but that");
        drop(lasting);
        let free = controller(1);
        assert!(subsystem.add_controller(&free), "it is free again");
    }
}
