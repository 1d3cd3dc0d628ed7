//! Open drives. Each drive is open once, regardless of its paths.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strake_api::v1::ListDrivesRequest;
use strake_block::{BlockDevice, DeviceError, IoErrorKind};
use strake_dev_fabrics::FabricsDevice;
use strake_dev_mem::{NullDevice, RamDevice};
use strake_dev_nvme::NvmeDevice;
use strake_dev_uring::{KernelDrive, Machine, Named, OpenOptions, UringDevice};
use strake_engine::Drive;
use strake_units::{BlockSize, ByteSize};
use strake_wording::say;

use crate::bounded::{self, Silent};
use crate::drives::address::{address_of, is_remote, pci_address, pci_path};
use crate::drives::health::HealthSource;
use crate::drives::maintenance::AdminSource;
use crate::drives::probe::Probes;
use crate::error::{ControlError, ControlErrorKind};
use crate::limits::PCI_RETRY;

pub use anchor::{Anchor, AtPath};

pub(crate) mod address;
mod anchor;
pub(crate) mod health;
pub(crate) mod label;
pub(crate) mod listed;
pub(crate) mod maintenance;
pub(crate) mod occupied;
pub(crate) mod pci;
pub(crate) mod probe;
mod remotes;
pub(crate) mod telemetry;
pub(crate) mod undo;

/// Maximum size of a drive in memory. It prevents huge allocations after a typing error.
const MEMORY_BYTES_MAX: u64 = 1 << 40;

/// Maximum length of a path or specification.
const SPEC_BYTES_MAX: usize = 4096;

/// Kinds of drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveKind {
    /// A kernel block device.
    Block,
    /// A regular file.
    File,
    /// Memory of this process.
    Ram,
    /// A null drive without data.
    Null,
    /// A remote namespace.
    Remote,
    /// An NVMe controller that this process drives.
    Pci,
}

impl DriveKind {
    /// Returns the name of the kind.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::File => "file",
            Self::Ram => "ram",
            Self::Null => "null",
            Self::Remote => "nvme-tcp",
            Self::Pci => "nvme-pci",
        }
    }
}

/// The key that identifies the object at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Block(u64),
    File(u64, u64),
    Memory(u32),
    Remote(u32),
    Pci(u64),
}

impl Key {
    /// True if the name alone identifies the drive, without the file system.
    const fn is_named(self) -> bool {
        matches!(self, Self::Memory(_) | Self::Remote(_) | Self::Pci(_))
    }
}

/// The kernel's identification of a medium: its identity, and its size in bytes, because some vendors give all drives
/// the same number.
pub type Medium = (String, u64);

/// A drive that is open.
pub struct OpenDrive {
    key: Key,
    /// The medium of a kernel device, which is the same for two paths to one drive.
    pub medium: Option<Medium>,
    /// The drive, with the path of its first open.
    pub drive: Drive,
    /// The kind of the drive.
    pub kind: DriveKind,
    /// The same device, if it is remote.
    pub remote: Option<Arc<FabricsDevice>>,
    /// The same device, if the kernel drives it.
    pub local: Option<Arc<UringDevice>>,
    /// The same device, if this process drives it.
    pub pci: Option<Arc<NvmeDevice>>,
    /// The source of health reports, if this process drives the drive.
    pub(crate) health: Option<Arc<dyn HealthSource>>,
    /// The source of maintenance commands, if this process drives the drive.
    pub(crate) admin: Option<Arc<dyn AdminSource>>,
    /// Notices about reduced functions.
    pub notices: Vec<String>,
}

/// All open drives.
#[derive(Default)]
pub struct Drives {
    machine: Machine,
    probes: Probes,
    open: Vec<OpenDrive>,
    /// Unused drives that are not closed yet.
    closed: Vec<OpenDrive>,
    memory_made: u32,
    /// Times of failed opens of PCI devices. Every attempt resets the device.
    refused: BTreeMap<String, Instant>,
}

/// The meaning of a specification.
pub(crate) enum Lookup {
    /// An available drive.
    Open(Drive),
    /// The object at this path.
    At(String),
}

/// The results of the file system and the kernel about a path.
#[derive(Clone, Debug)]
pub(crate) struct Sighting {
    key: Option<(Key, DriveKind)>,
    medium: Option<Medium>,
}

impl Sighting {
    /// Queries the object at `path`.
    ///
    /// # Errors
    /// If there is no answer within `limit`.
    pub(crate) fn within(path: &str, machine: &Machine, limit: Duration) -> Result<Self, Silent> {
        let (at, machine) = (path.to_owned(), machine.clone());
        bounded::ask(path, limit, move || Self {
            key: key_of(&at),
            medium: machine.at_node(&at).map(medium),
        })
    }

    /// Returns the key that reserves its opening. The key does not depend on the path.
    pub(crate) fn opening_key(&self, path: &str) -> String {
        match self.key {
            Some((key, _)) => format!("opening {key:?}"),
            None => format!("opening {path}"),
        }
    }
}

/// Opens the object at `path` with the query result `seen`. Accesses the file system, which may be slow.
pub(crate) fn open_at(path: &str, seen: Sighting) -> Result<OpenDrive, ControlError> {
    if let Some(address) = pci_address(path) {
        return pci::open(path, address);
    }
    let (device, notices) = UringDevice::open(Path::new(path), OpenOptions::default())
        .map_err(|error| not_opened(&error))?;
    // The open has just succeeded, so the object exists. The key is the key of the present object.
    let Some((key, kind)) = key_of(path) else {
        return Err(ControlError::state(format!(
            "{path} vanished while it was being opened; try again"
        )));
    };
    let device = Arc::new(device);
    let local = Some(Arc::clone(&device));
    let drive = Drive { device, path: path.to_owned() };
    let notices = notices.iter().map(ToString::to_string).collect();
    Ok(OpenDrive {
        key,
        medium: seen.medium,
        drive,
        kind,
        remote: None,
        local,
        pci: None,
        health: None,
        admin: None,
        notices,
    })
}

fn not_opened(error: &DeviceError) -> ControlError {
    let kind = match error.kind {
        IoErrorKind::Timeout => ControlErrorKind::Silent,
        _ => ControlErrorKind::State,
    };
    ControlError::new(kind, format!("{error}; check the path, or use another drive"))
}

impl Drives {
    /// Returns every open drive.
    #[must_use]
    pub fn all(&self) -> &[OpenDrive] {
        &self.open
    }

    /// Gives an open file the health reports of a drive.
    #[cfg(test)]
    pub(crate) fn give_health(&mut self, path: &str, health: Arc<dyn HealthSource>) {
        let open = self.open.iter_mut().find(|open| open.drive.path == path);
        open.expect("it is open").health = Some(health);
    }

    /// Gives an open file the maintenance commands of a drive.
    #[cfg(test)]
    pub(crate) fn give_admin(&mut self, path: &str, admin: Arc<dyn AdminSource>) {
        let open = self.open.iter_mut().find(|open| open.drive.path == path);
        open.expect("it is open").admin = Some(admin);
    }

    /// Creates an empty set of drives of the host `machine`.
    #[must_use]
    pub fn of(machine: Machine) -> Self {
        Self { machine, ..Self::default() }
    }

    /// Returns the host of the drives.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Returns the scans of drives in progress.
    #[must_use]
    pub fn probes(&self) -> &Probes {
        &self.probes
    }

    /// Returns the path of `spec`, which may be a path, the kernel's name of a drive, its serial number, its worldwide
    /// name, its PCI address, or a name in /dev/disk.
    ///
    /// # Errors
    /// If it matches no drive, or several drives.
    pub fn path_of(&self, spec: &str) -> Result<String, ControlError> {
        check_spec(spec)?;
        if is_remote(spec) {
            return Ok(self.name_of(address_of(spec)?));
        }
        if let Some(address) = pci_address(spec) {
            return pci_path(address);
        }
        let is_memory = |d: &&OpenDrive| matches!(d.key, Key::Memory(_)) && d.drive.path == spec;
        let new_memory = ["ram:", "null:"].iter().any(|scheme| spec.starts_with(scheme));
        if spec.starts_with('/') || new_memory || self.open.iter().any(|d| is_memory(&d)) {
            return Ok(spec.to_owned());
        }
        match self.machine.find(spec) {
            Named::One(drive) => Ok(drive.path),
            Named::Several(paths) => Err(ControlError::usage(format!(
                "{spec:?} matches several drives: {}; name one of them",
                paths.join(", ")
            ))),
            Named::Nothing => {
                let what = format!(
                    "{spec:?} is not the absolute path of a file, and no drive of this host has that name, serial \
                     number or address; "
                );
                let listed = say(what).run(ListDrivesRequest {}).say(" lists the drives");
                Err(ControlError::usage(listed))
            }
        }
    }

    /// True if `name` matches several drives of the host.
    #[must_use]
    pub fn is_shared(&self, name: &str) -> bool {
        matches!(self.machine.find(name), Named::Several(_))
    }

    /// Looks up `spec`: a drive in memory or a remote drive, which is immediately available, or a path for which the
    /// caller must query the file system without any lock.
    ///
    /// # Errors
    /// If `spec` is not a path or specification, or the object is unusable.
    pub(crate) fn look_up(&mut self, spec: &str) -> Result<Lookup, ControlError> {
        check_spec(spec)?;
        if let Some(size) = spec.strip_prefix("ram:") {
            return self.open_memory(spec, size, DriveKind::Ram).map(Lookup::Open);
        }
        if let Some(size) = spec.strip_prefix("null:") {
            return self.open_memory(spec, size, DriveKind::Null).map(Lookup::Open);
        }
        let path = self.path_of(spec)?;
        if is_remote(&path) {
            return self.open_remote(path).map(Lookup::Open);
        }
        let named = |d: &&OpenDrive| d.key.is_named() && d.drive.path == path && !d.is_gone();
        let named = self.open.iter().find(named);
        Ok(named.map_or(Lookup::At(path), |named| Lookup::Open(named.drive.clone())))
    }

    /// Returns the drive at `path` if it is already open. The result has the requested path, so that two paths to one
    /// drive give the same device.
    pub(crate) fn seen_as(&self, path: &str, seen: &Sighting) -> Option<Drive> {
        let known = self.known(path, seen.key.map(|(key, _)| key), seen.medium.as_ref())?;
        let path = if known.key.is_named() { &known.drive.path } else { path };
        Some(Drive { device: Arc::clone(&known.drive.device), path: path.to_owned() })
    }

    /// Adds an opened drive.
    pub(crate) fn add(&mut self, opened: OpenDrive) {
        self.refused.remove(&opened.drive.path);
        self.open.push(opened);
    }

    /// Records a failed open of `path`.
    pub(crate) fn note_refused(&mut self, path: &str) {
        if pci_address(path).is_some() {
            self.refused.insert(path.to_owned(), Instant::now());
        }
    }

    /// True if upkeep must not open `path` now.
    pub(crate) fn is_left_alone(&self, path: &str) -> bool {
        self.refused.get(path).is_some_and(|at| at.elapsed() < PCI_RETRY)
    }

    /// Returns the open drive at `path` with the key `key`, or with the same medium.
    fn known(&self, path: &str, key: Option<Key>, medium: Option<&Medium>) -> Option<&OpenDrive> {
        self.open.iter().filter(|d| !d.is_gone()).find(|d| {
            Some(d.key) == key
                || (medium.is_some() && d.medium.as_ref() == medium)
                || (d.key.is_named() && d.drive.path == path)
        })
    }

    fn open_memory(
        &mut self,
        spec: &str,
        size: &str,
        kind: DriveKind,
    ) -> Result<Drive, ControlError> {
        let bytes: ByteSize = size.parse().map_err(|e| {
            ControlError::usage(format!("{spec}: {e}; write the drive as {}:1GiB", kind.word()))
        })?;
        if bytes.0 > MEMORY_BYTES_MAX {
            let what =
                format!("{spec}: a drive in memory has at most {}", ByteSize(MEMORY_BYTES_MAX));
            return Err(ControlError::usage(what));
        }
        let blocks = bytes.0 >> BlockSize::B4096.shift();
        if blocks == 0 {
            return Err(ControlError::usage(format!(
                "{spec}: a drive has at least one block of 4096 bytes"
            )));
        }
        let device: Arc<dyn BlockDevice> = if kind == DriveKind::Ram {
            Arc::new(RamDevice::new(blocks, BlockSize::B4096))
        } else {
            Arc::new(NullDevice::new(blocks, BlockSize::B4096))
        };
        let number = self.memory_made;
        self.memory_made += 1;
        let drive = Drive { device, path: format!("{}{number}", kind.word()) };
        self.open.push(OpenDrive {
            key: Key::Memory(number),
            medium: None,
            drive: drive.clone(),
            kind,
            remote: None,
            local: None,
            pci: None,
            health: None,
            admin: None,
            notices: Vec::new(),
        });
        Ok(drive)
    }

    /// Returns the drive that was opened as `path`.
    pub(crate) fn named(&self, path: &str) -> Option<Drive> {
        let named = |d: &&OpenDrive| d.drive.path == path && !d.is_gone();
        self.open.iter().find(named).map(|d| d.drive.clone())
    }

    /// Closes every drive whose identity `keep` does not accept, and every removed drive, because a returning device
    /// has the same identity. A close may wait for the drive (close(2) flushes a file on FUSE), so the caller drops the
    /// drives without any lock (`take_closed`).
    pub fn close_unless(&mut self, keep: impl Fn(&str) -> bool) {
        let is_unused = |d: &mut OpenDrive| !keep(&d.drive.device.identity()) || d.is_gone();
        let unused = self.open.extract_if(.., is_unused);
        self.closed.extend(unused);
    }

    /// Returns the health sources of the drives that this process drives, by path.
    pub(crate) fn health_sources(&self) -> Vec<(String, Arc<dyn HealthSource>)> {
        let of = |open: &OpenDrive| Some((open.drive.path.clone(), open.health.clone()?));
        self.open.iter().filter_map(of).collect()
    }

    /// Returns the unused drives, which the caller must drop without any lock.
    pub(crate) fn take_closed(&mut self) -> Vec<OpenDrive> {
        std::mem::take(&mut self.closed)
    }
}

impl OpenDrive {
    /// True for a PCI device that was pulled or abandoned.
    fn is_gone(&self) -> bool {
        pci::is_gone(&self.drive)
    }

    /// Returns the query result from its open.
    pub(crate) fn sighting(&self) -> Sighting {
        Sighting { key: Some((self.key, self.kind)), medium: self.medium.clone() }
    }
}

/// Returns the medium of `drive`.
pub fn medium(drive: KernelDrive) -> Medium {
    (drive.identity, drive.size_bytes)
}

fn check_spec(spec: &str) -> Result<(), ControlError> {
    if spec.is_empty() {
        return Err(ControlError::usage("the path of a drive must not be empty"));
    }
    if spec.len() > SPEC_BYTES_MAX {
        let what = format!(
            "the path of a drive has at most {SPEC_BYTES_MAX} bytes, but this path has {}",
            spec.len()
        );
        return Err(ControlError::usage(what));
    }
    if spec.contains('\0') {
        return Err(ControlError::usage(format!(
            "{spec:?} contains a zero byte, which is not allowed in a path"
        )));
    }
    Ok(())
}

/// Returns the key and the kind of the object at `path`, if it can be opened.
fn key_of(path: &str) -> Option<(Key, DriveKind)> {
    if let Some(address) = pci_address(path) {
        return Some((pci::key(address), DriveKind::Pci));
    }
    let meta = fs::metadata(path).ok()?;
    let kind = meta.file_type();
    if kind.is_block_device() {
        return Some((Key::Block(meta.rdev()), DriveKind::Block));
    }
    kind.is_file().then(|| (Key::File(meta.dev(), meta.ino()), DriveKind::File))
}

/// True if an object at `path` can be opened. Accesses the file system, which may be slow.
pub(crate) fn is_there(path: &str) -> bool {
    match pci_address(path) {
        Some(address) => pci::key_at(address).is_some(),
        None => fs::metadata(path).is_ok(),
    }
}

/// Distinguishes the object at a path from later objects at the same path.
pub(crate) type PathKey = (u64, u64, u64);

/// Returns the paths of the host's drives.
#[must_use]
pub(crate) fn block_paths(machine: &Machine) -> Vec<String> {
    machine.drives().into_iter().map(|drive| drive.path).collect()
}

#[cfg(test)]
impl OpenDrive {
    /// Creates an open drive from `device` at `path`.
    pub(crate) fn of_device(path: &str, device: Arc<dyn BlockDevice>) -> Self {
        let drive = Drive { device, path: path.to_owned() };
        let (key, kind) = (Key::File(1, 2), DriveKind::File);
        Self {
            key,
            medium: None,
            drive,
            kind,
            remote: None,
            local: None,
            pci: None,
            health: None,
            admin: None,
            notices: Vec::new(),
        }
    }

    /// Creates an open drive from the controller `device` at the PCI address `path`.
    pub(crate) fn of_pci(path: &str, device: Arc<dyn BlockDevice>) -> Self {
        let key = pci::key(pci_address(path).unwrap_or_default());
        Self { key, kind: DriveKind::Pci, ..Self::of_device(path, device) }
    }
}

#[cfg(test)]
mod tests {
    use super::not_opened;
    use crate::error::{ControlError, ControlErrorKind};
    use strake_block::{DeviceError, IoErrorKind};
    use strake_engine::ArrayError;

    /// The history of the bug: the start of an array was repeated while its drive had outstanding requests of the first
    /// attempt. The start waited for this drive until the assemble timeout, because a refusal counted as an answer.
    #[test]
    fn a_drive_that_owes_answers_counts_as_silent_however_it_is_opened() {
        let check = |io, kind| {
            let refused = || DeviceError::new(io, "d", "owes answers");
            assert_eq!(not_opened(&refused()).kind, kind);
            assert_eq!(
                ControlError::from(ArrayError::from(refused())).kind == ControlErrorKind::Silent,
                kind == ControlErrorKind::Silent
            );
        };
        check(IoErrorKind::Timeout, ControlErrorKind::Silent);
        check(IoErrorKind::Gone, ControlErrorKind::State);
    }
}
