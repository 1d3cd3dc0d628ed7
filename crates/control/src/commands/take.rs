//! Commands that detach NVMe drives from the driver of the kernel, so that this process drives them.
//!
//! The intent is recorded before the first write to sysfs. Every write is idempotent, so a start or a repeated command
//! completes what a crash interrupted. A controller is identified by its serial number.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strake_api::v1::{
    Drive as DriveMessage, DriverChange, DriverChanges, TakeDrivesRequest, UnloadArrayRequest,
};
use strake_block::DeviceError;
use strake_dev_nvme::host::{SCHEME, address_of};
use strake_dev_nvme::{Binder, Claims, Host, Identity, Picture, Untaken};
use strake_dev_uring::{KernelDrive, Machine};
use strake_wording::say;

use crate::bounded::within;
use crate::commands::release::give_back;
use crate::control::{Control, Reserved};
use crate::drives::pci::opening_key;
use crate::drives::{DriveKind, OpenDrive};
use crate::error::{ControlError, ControlErrorKind};
use crate::limits::{BIND_LIMIT, LOOK_LIMIT, TAKEN_MAX};
use crate::manager::Manager;
use crate::names::drive_key;
use crate::record::store::{Aim, Config, SpareRecord, TakenRecord};
use crate::remedy::{job, remove_spare};

/// A controller of this host, and its namespaces.
pub(crate) struct Target {
    pub(crate) address: String,
    pub(crate) identity: Identity,
    pub(crate) picture: Picture,
    /// Namespaces of the controller, while the kernel drives it.
    pub(crate) namespaces: Vec<KernelDrive>,
}

impl Control {
    /// Detaches NVMe drives from the kernel. All drives are checked before the first change. For a taken drive, the
    /// result is "unchanged".
    ///
    /// If a drive is in use or cannot be driven from user space; then nothing was changed. Also if a drive does not
    /// become ready or has another serial number; then this drive was returned to the kernel, and the drives before it
    /// stay taken.
    pub fn take_drives(&self, request: &TakeDrivesRequest) -> Result<DriverChanges, ControlError> {
        let (addresses, reserved) = reserve_controllers(self, &request.drives)?;
        let reserved = Arc::new(reserved);
        let mut wanted = Vec::new();
        for Named { address, .. } in &addresses {
            wanted.push(Wanted::check(self, address)?);
        }
        let new = wanted.iter().filter(|wanted| !wanted.is_taken).count();
        self.run(|m| check_room(m.records.taken.len() + new))?;
        let mut drives = Vec::new();
        for wanted in wanted {
            let change = if request.dry_run {
                Ok(wanted.change("planned"))
            } else {
                take(self, wanted, &reserved)
            };
            drives.push(change.map_err(|error| with_done(error, "taken", &drives))?);
        }
        Ok(changes(drives))
    }
}

/// A drive to take.
struct Wanted {
    target: Target,
    is_taken: bool,
    claims: Claims,
}

impl Wanted {
    /// Checks the drive at `address`, and prevents other uses.
    fn check(control: &Control, address: &str) -> Result<Self, ControlError> {
        let target = Target::look(control, address)?;
        if control.with(|m| is_taken(&m.records, &target))? {
            return Ok(Self { target, is_taken: true, claims: Claims::default() });
        }
        target.refuse_obstacles()?;
        control.run(|m| target.refuse_same_serial(m).and_then(|()| target.refuse_members(m)))?;
        let claims = target.claim(&binder_of(control)?)?;
        Ok(Self { target, is_taken: false, claims })
    }

    fn change(&self, done: &str) -> DriverChange {
        let result = if self.is_taken { "unchanged" } else { done };
        let mut plan = Vec::new();
        if !self.is_taken {
            plan.push(format!("record that the drive {} is taken", self.target.identity.serial));
            plan.extend(self.target.picture.to_take().iter().map(ToString::to_string));
            let namespaces = self.target.picture.namespaces.len();
            if namespaces > 1 {
                plan.push(format!("use only the first of its {namespaces} namespaces"));
            }
        }
        let (path, serial) = (self.target.path(), self.target.identity.serial.clone());
        DriverChange { result: result.to_owned(), path, serial, plan }
    }
}

fn check_room(taken: usize) -> Result<(), ControlError> {
    if taken <= TAKEN_MAX {
        return Ok(());
    }
    Err(ControlError::state(format!(
        "{taken} drives would be taken, and {TAKEN_MAX} is the limit of one daemon; release some first"
    )))
}

/// True if a drive is taken, recorded, and not being released.
fn is_taken(config: &Config, target: &Target) -> bool {
    let known = config.taken_of(&target.identity.serial);
    let is_recorded =
        |known: &TakenRecord| known.aim == Aim::Taken && known.address == target.address;
    known.is_some_and(is_recorded) && target.picture.to_take().is_empty()
}

fn take(
    control: &Control,
    wanted: Wanted,
    reserved: &Arc<Reserved>,
) -> Result<DriverChange, ControlError> {
    let change = wanted.change("changed");
    let Wanted { target, is_taken, claims } = wanted;
    if is_taken {
        return Ok(change);
    }
    let Target { address, identity, picture, .. } = target;
    let binder = binder_of(control)?;
    let record = TakenRecord::new(identity, address, Aim::Take, binder.host().boot());
    let former = control.with(|m| m.records.taken_of(&record.serial).cloned())?;
    control.run(|m| m.records.change(|config| config.put_taken(record.clone())))?;
    let (own, own_record) = (control.clone(), record.clone());
    let reserved = Arc::clone(reserved);
    let job = move || {
        let taken = match binder.take(&picture, &own_record.identity(), claims) {
            Err(Untaken::Changed(error)) => {
                return Err(not_begun(&own, &own_record, former, &error));
            }
            Err(Untaken::Failed(error)) => Err(ControlError::device(error.to_string())),
            Ok(()) => note_taken(&own, &own_record),
        };
        taken.map_err(|error| undone(&own, &own_record, &reserved, &error.what))
    };
    let next = "the command is completed when the drive answers, at the next start of the daemon, or by another take";
    let limit = control.with(|m| m.options.bind_limit)?;
    let taken = within("drive take", limit, job);
    taken.unwrap_or_else(|| Err(silent(&record.address, limit, next))).map(|()| change)
}

/// Restores the earlier record of an unchanged drive.
fn not_begun(
    control: &Control,
    record: &TakenRecord,
    former: Option<TakenRecord>,
    why: &DeviceError,
) -> ControlError {
    let restore = |config: &mut Config| match former {
        Some(former) => config.put_taken(former),
        None => config.drop_taken(&record.serial),
    };
    let restored = control.run(|m| m.records.change(restore));
    restored.err().unwrap_or_else(|| ControlError::state(why.to_string()))
}

/// Records that the drive is taken.
pub(crate) fn note_taken(control: &Control, record: &TakenRecord) -> Result<(), ControlError> {
    let record = TakenRecord { aim: Aim::Taken, ..record.clone() };
    tracing::info!(address = %record.address, serial = %record.serial, "drive taken");
    control.run(|m| m.records.change(|config| config.put_taken(record)))
}

/// Returns a drive that could not be taken to the kernel, and reports this.
fn undone(
    control: &Control,
    record: &TakenRecord,
    reserved: &Arc<Reserved>,
    why: &str,
) -> ControlError {
    let state = match give_back(control, record, reserved) {
        Ok(()) => "the drive was given back to the kernel".to_owned(),
        Err(error) => format!(
            "the drive could not be given back to the kernel yet ({error}); the next start of the daemon tries again"
        ),
    };
    ControlError::device(format!("{why}; {state}"))
}

/// Returns the error of an unresponsive kernel or controller.
pub(crate) fn silent(address: &str, limit: Duration, next: &str) -> ControlError {
    let what = format!(
        "{SCHEME}{address} has not answered for {} s; {next}. The kernel log (dmesg) may say why",
        limit.as_secs()
    );
    ControlError::new(ControlErrorKind::Silent, what)
}

/// Adds the drives that were completed before the error.
pub(crate) fn with_done(error: ControlError, verb: &str, drives: &[DriverChange]) -> ControlError {
    let done: Vec<&str> =
        drives.iter().filter(|d| d.result == "changed").map(|d| d.path.as_str()).collect();
    if done.is_empty() {
        return error;
    }
    let what = format!("{}; {verb} before: {}", error.what, done.join(", "));
    ControlError::new(error.kind, what)
}

/// Returns the answer about `drives`.
pub(crate) fn changes(drives: Vec<DriverChange>) -> DriverChanges {
    let first =
        drives.iter().map(|drive| drive.result.as_str()).find(|result| *result != "unchanged");
    DriverChanges { result: first.unwrap_or("unchanged").to_owned(), drives }
}

/// Returns taken drives that are not open. Neither the kernel nor this process lists them otherwise.
pub(crate) fn closed_taken(manager: &Manager) -> Vec<DriveMessage> {
    let message = |record: &TakenRecord| {
        let picture = manager.options.binder.host().picture(&record.address);
        let (state, note) = match picture {
            Some(picture) if picture.is_bound() => ("taken", ""),
            Some(_) | None => ("failed", "is recorded as taken, and is not bound to vfio-pci"),
        };
        DriveMessage {
            path: format!("{SCHEME}{}", record.address),
            kind: DriveKind::Pci.word().to_owned(),
            serial: record.serial.clone(),
            state: state.to_owned(),
            note: note.to_owned(),
            slot: record.address.clone(),
            ..DriveMessage::default()
        }
    };
    let all = manager.records.taken.iter().map(message);
    all.filter(|message| manager.drives.named(&message.path).is_none()).collect()
}

/// Returns the binder of the drives of this host.
pub(crate) fn binder_of(control: &Control) -> Result<Binder, ControlError> {
    control.with(|m| m.options.binder.clone())
}

/// A controller that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) address: String,
    /// The recorded serial number, if the request names the controller by serial number.
    pub(crate) serial: Option<String>,
}

/// Returns the controllers that `specs` name, without duplicates, and reserves them. No other command can then open
/// them.
pub(crate) fn reserve_controllers(
    control: &Control,
    specs: &[String],
) -> Result<(Vec<Named>, Reserved), ControlError> {
    if specs.is_empty() {
        return Err(ControlError::usage("name at least one drive"));
    }
    control.reserve(|m| {
        m.check_open()?;
        let mut all: Vec<Named> = Vec::new();
        for spec in specs {
            let address = address_in(m, spec)?;
            if all.iter().all(|named| named.address != address) {
                let serial = m.records.taken_of(spec).map(|record| record.serial.clone());
                all.push(Named { address, serial });
            }
        }
        let mut keys = Vec::new();
        for Named { address, .. } in &all {
            let drives = drive_keys_at(m, address);
            if drives.iter().any(|key| m.reserved.contains(key)) {
                return Err(ControlError::state(format!(
                    "{SCHEME}{address} is in use by another command; try again when that command has ended"
                )));
            }
            keys.extend(drives);
            keys.push(opening_key(address));
        }
        Ok((all, keys))
    })
}

/// Returns the keys of open drives of the controller at `address`.
fn drive_keys_at(manager: &Manager, address: &str) -> BTreeSet<String> {
    let open = manager.drives.named(&format!("{SCHEME}{address}"));
    let mut keys: BTreeSet<String> =
        open.map(|drive| drive_key(&drive.device.identity())).into_iter().collect();
    for drive in namespaces_at(manager.drives.machine(), address) {
        keys.insert(drive_key(&drive.identity));
        let open = open_of(manager, &drive);
        keys.extend(open.map(|open| drive_key(&open.drive.device.identity())));
    }
    keys
}

/// Returns the keys of the controller at `address` and of its open drives.
pub(crate) fn reserved_at(manager: &Manager, address: &str) -> Vec<String> {
    let drives = drive_keys_at(manager, address).into_iter();
    drives.chain([opening_key(address)]).collect()
}

/// Returns the open drive of a drive of the kernel, if any.
fn open_of<'a>(manager: &'a Manager, drive: &KernelDrive) -> Option<&'a OpenDrive> {
    let is_it = |open: &&OpenDrive| {
        let medium = open.medium.as_ref().map(|(identity, _)| identity);
        open.drive.path == drive.path || medium == Some(&drive.identity)
    };
    manager.drives.all().iter().find(is_it)
}

/// True if the drive of the kernel at `address` is the recorded drive. While VFIO has the device at the recorded
/// address, no other drive is the recorded one.
pub(crate) fn is_it(host: &Host, record: &TakenRecord, address: &str) -> bool {
    let is_bound = || host.picture(&record.address).is_some_and(|picture| picture.is_bound());
    let identity = host.picture(address).and_then(|picture| picture.identity);
    identity.is_some_and(|identity| record.identity().matches(&identity))
        && (record.address == address || !is_bound())
}

/// Returns the PCI address of the controller that `spec` names.
fn address_in(manager: &Manager, spec: &str) -> Result<String, ControlError> {
    if let Some(record) = manager.records.taken_of(spec) {
        // The kernel may drive the controller again, at another address.
        let host = manager.options.binder.host();
        let mut now = host.addresses_of(spec);
        now.retain(|address| is_it(host, record, address));
        return Ok(if now.len() == 1 { now[0].clone() } else { record.address.clone() });
    }
    let text = spec.strip_prefix(SCHEME).unwrap_or(spec);
    if let Some(address) = address_of(text) {
        return Ok(address);
    }
    let path = manager.drives.path_of(spec)?;
    let machine = manager.drives.machine();
    let named = || machine.drives().into_iter().find(|drive| drive.path == path);
    let drive = machine.at_node(&path).or_else(named);
    match drive.as_ref().map(|drive| drive.pci.as_slice()) {
        Some([address]) => Ok(address.clone()),
        Some([_, _, ..]) => Err(several_controllers(&path)),
        Some([]) | None => Err(ControlError::usage(format!(
            "{path} is not on the PCI bus of this host; only NVMe drives on it can be taken"
        ))),
    }
}

fn several_controllers(path: &str) -> ControlError {
    ControlError::refused(format!(
        "{path} is reached through several controllers, and the kernel would keep the other controllers; use the \
            drive through its kernel driver"
    ))
}

/// Returns the kernel's namespaces of the controller at `address`.
pub(crate) fn namespaces_at(machine: &Machine, address: &str) -> Vec<KernelDrive> {
    let drives = machine.drives().into_iter();
    drives.filter(|drive| drive.pci.iter().any(|pci| pci == address)).collect()
}

impl Target {
    /// Returns the controller at `address`.
    ///
    /// # Errors
    /// If there is no controller, or its serial number is unknown.
    pub(crate) fn look(control: &Control, address: &str) -> Result<Self, ControlError> {
        let (binder, machine, recorded) = control.with(|m| {
            let recorded = m.records.taken_at(address);
            let machine = m.drives.machine().clone();
            (m.options.binder.clone(), machine, recorded.map(TakenRecord::identity))
        })?;
        let Some(picture) = binder.host().picture(address) else {
            let what = format!("there is no PCI device at {address}; check the address with lspci");
            return Err(ControlError::not_found(what));
        };
        let namespaces = namespaces_at(&machine, address);
        let (address, identity) = (address.to_owned(), Identity::default());
        let target = Self { address, identity, picture, namespaces };
        let identity = match target.picture.identity.clone().or(recorded) {
            Some(identity) => identity,
            None => target.identify(&binder)?,
        };
        if identity.serial.is_empty() {
            return Err(ControlError::refused(format!(
                "{} has no serial number, so the daemon could not find the drive again; use the drive through its \
                    kernel driver",
                target.path()
            )));
        }
        Ok(Self { identity, ..target })
    }

    /// Returns the identity of a controller that the kernel does not drive.
    fn identify(&self, binder: &Binder) -> Result<Identity, ControlError> {
        // A controller that cannot be driven is not opened.
        self.refuse_obstacles()?;
        if !self.picture.is_bound() {
            return Err(ControlError::state(format!(
                "{} has no known serial number: {}; bind the drive to its kernel driver first: echo {} > \
                 /sys/bus/pci/drivers_probe",
                self.path(),
                self.picture.driver.as_ref().map_or_else(
                    || "it has no driver".to_owned(),
                    |driver| format!("it is bound to the driver {driver}")
                ),
                self.address
            )));
        }
        let (binder, address) = (binder.clone(), self.address.clone());
        let read = within("drive serial", BIND_LIMIT, move || binder.identify(&address));
        let read = read.ok_or_else(|| silent(&self.address, BIND_LIMIT, "try again"))?;
        read.map_err(|error| ControlError::device(error.to_string()))
    }

    /// Returns the name of the taken drive.
    pub(crate) fn path(&self) -> String {
        format!("{SCHEME}{}", self.address)
    }

    /// True if the kernel drives the controller but has found no namespace. A namespace may still appear and be
    /// mounted.
    pub(crate) fn is_still_scanned(&self) -> bool {
        self.picture.identity.is_some() && self.picture.namespaces.is_empty()
    }

    /// Refuses controllers that cannot be bound to vfio-pci, and drives that the kernel uses.
    pub(crate) fn refuse_obstacles(&self) -> Result<(), ControlError> {
        if let Some(what) = self.picture.obstacle() {
            return Err(ControlError::refused(format!("{} {what}", self.path())));
        }
        if self.is_still_scanned() {
            return Err(ControlError::refused(format!(
                "{} has no namespace that the kernel shows; wait until its device appears in /dev, and try again",
                self.path()
            )));
        }
        for drive in &self.namespaces {
            if drive.pci.len() > 1 {
                return Err(several_controllers(&drive.path));
            }
            if let Some(user) = &drive.user {
                return Err(ControlError::refused(format!(
                    "{} ({}) is in use: {user}; unmount the drive, disable its swap, or stop the devices that are \
                        built on the drive, and try again",
                    drive.path,
                    self.path()
                )));
            }
        }
        Ok(())
    }

    /// Refuses a drive with the serial number of another recorded drive, whose record would be lost.
    fn refuse_same_serial(&self, manager: &Manager) -> Result<(), ControlError> {
        let Some(known) = manager.records.taken_of(&self.identity.serial) else { return Ok(()) };
        let there = manager.options.binder.host().picture(&known.address);
        let is_there = there.is_some_and(|there| {
            there.is_bound() || there.identity.is_some_and(|it| known.identity().matches(&it))
        });
        let is_same = known.identity().matches(&self.identity);
        if is_same && (known.address == self.address || !is_there) {
            return Ok(());
        }
        Err(ControlError::refused(format!(
            "{} has the same serial number ({}) as the taken drive {SCHEME}{}; use one of these drives through its \
                kernel driver",
            self.path(),
            self.identity.serial,
            known.address
        )))
    }

    /// Refuses a drive that this daemon uses through the driver of the kernel.
    pub(crate) fn refuse_open(&self, manager: &Manager) -> Result<(), ControlError> {
        let is_open = |drive: &&KernelDrive| open_of(manager, drive).is_some();
        let Some(drive) = self.namespaces.iter().find(is_open) else { return Ok(()) };
        Err(ControlError::refused(format!("{} is in use by this daemon", drive.path)))
    }

    /// Refuses drives of serving arrays, and spares.
    fn refuse_members(&self, manager: &Manager) -> Result<(), ControlError> {
        for drive in &self.namespaces {
            let open = open_of(manager, drive);
            let identity = open.map_or(drive.identity.clone(), |open| open.drive.device.identity());
            refuse_member(manager, &drive.path, Some(&identity))?;
            manager.maintenance.refuse_reset(&identity)?;
        }
        let open = manager.drives.named(&self.path()).map(|drive| drive.device.identity());
        refuse_member(manager, &self.path(), open.as_deref())
    }

    /// Prevents the use of the namespaces until the result is dropped.
    pub(crate) fn claim(&self, binder: &Binder) -> Result<Claims, ControlError> {
        // A failed controller has no device node of a namespace.
        let alive = self
            .namespaces
            .iter()
            .filter(|drive| drive.namespace.is_some() || drive.size_bytes > 0);
        let nodes: Vec<PathBuf> = alive.map(|drive| PathBuf::from(&drive.path)).collect();
        let binder = binder.clone();
        let claimed = within("drive claim", LOOK_LIMIT, move || binder.claim(&nodes));
        let claimed =
            claimed.ok_or_else(|| silent(&self.address, LOOK_LIMIT, "check the drive"))?;
        claimed.map_err(|error| ControlError::refused(error.to_string()))
    }
}

/// Refuses the drive at `path`, with its identity if known, if it belongs to a serving array or is a spare.
pub(crate) fn refuse_member(
    manager: &Manager,
    path: &str,
    identity: Option<&str>,
) -> Result<(), ControlError> {
    let place = identity.and_then(|identity| manager.place_of(identity));
    if let Some((slot, name)) = place {
        let what = format!("{path} is member {slot} of array {name}; stop the array first: ");
        let unload = UnloadArrayRequest { name, ..UnloadArrayRequest::default() };
        return Err(ControlError::refused(say(what).run(unload)));
    }
    let promised = identity.and_then(|identity| manager.records.promised(identity, None));
    if let Some((name, slot)) = promised {
        let what = format!(
            "{path} is the replacement of member {slot} of array {name}; cancel the replace first: "
        );
        return Err(ControlError::refused(say(what).run(job("cancel", format!("{name}/replace")))));
    }
    let is_it =
        |spare: &&SpareRecord| spare.path == path || Some(spare.identity.as_str()) == identity;
    if let Some(spare) = manager.records.spares.iter().find(is_it) {
        let what = format!("{path} is a spare; remove the spare first: ");
        return Err(ControlError::refused(say(what).run(remove_spare(&spare.path))));
    }
    Ok(())
}
