//! Drives that are open, each once, whatever paths they are known by.

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
use crate::drives::probe::Probes;
use crate::error::{ControlError, ControlErrorKind};
use crate::limits::PCI_RETRY;

pub use anchor::{Anchor, AtPath};

pub(crate) mod address;
mod anchor;
pub(crate) mod health;
pub(crate) mod label;
pub(crate) mod listed;
pub(crate) mod occupied;
pub(crate) mod pci;
pub(crate) mod probe;
mod remotes;
pub(crate) mod undo;

/// Largest drive in memory: a typing error must not become an endless allocation.
const MEMORY_BYTES_MAX: u64 = 1 << 40;

/// Longest path or specification.
const SPEC_BYTES_MAX: usize = 4096;

/// What kind of thing a drive is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveKind {
    /// A kernel block device.
    Block,
    /// A regular file.
    File,
    /// Bytes in this process.
    Ram,
    /// Nothing at all.
    Null,
    /// A namespace of another machine.
    Remote,
    /// An NVMe controller that this process drives.
    Pci,
}

impl DriveKind {
    /// The word for it.
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

/// What tells two things at paths apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Block(u64),
    File(u64, u64),
    Memory(u32),
    Remote(u32),
    Pci(u64),
}

impl Key {
    /// Whether the drive is known by its name alone, not by what the file system has there.
    const fn is_named(self) -> bool {
        matches!(self, Self::Memory(_) | Self::Remote(_) | Self::Pci(_))
    }
}

/// A medium, as the kernel tells it from others: its identity, and its bytes, because some makers give all their
/// drives one number.
pub type Medium = (String, u64);

/// A drive that is open.
pub struct OpenDrive {
    key: Key,
    /// What identifies the medium of a kernel device: two paths to one drive agree about it.
    pub medium: Option<Medium>,
    /// Under the path it was first opened by.
    pub drive: Drive,
    /// What it is.
    pub kind: DriveKind,
    /// The same device when it is of another machine.
    pub remote: Option<Arc<FabricsDevice>>,
    /// The same device when this process drives it.
    pub pci: Option<Arc<NvmeDevice>>,
    /// What answers for the state of the drive when this process drives it.
    pub(crate) health: Option<Arc<dyn HealthSource>>,
    /// What works less well than asked for.
    pub notices: Vec<String>,
}

/// All open drives.
#[derive(Default)]
pub struct Drives {
    machine: Machine,
    probes: Probes,
    open: Vec<OpenDrive>,
    /// Drives that are no longer used, and not closed yet.
    closed: Vec<OpenDrive>,
    memory_made: u32,
    /// When PCI devices could not be opened: every attempt resets them.
    refused: BTreeMap<String, Instant>,
}

/// What a specification means.
pub(crate) enum Lookup {
    /// A drive that is there.
    Open(Drive),
    /// Whatever is at this path.
    At(String),
}

/// What the file system and the kernel say of a path.
#[derive(Clone, Debug)]
pub(crate) struct Sighting {
    key: Option<(Key, DriveKind)>,
    medium: Option<Medium>,
}

impl Sighting {
    /// Asks what is at `path`.
    ///
    /// # Errors
    /// When that is not said within `limit`.
    pub(crate) fn within(path: &str, machine: &Machine, limit: Duration) -> Result<Self, Silent> {
        let (at, machine) = (path.to_owned(), machine.clone());
        bounded::ask(path, limit, move || Self {
            key: key_of(&at),
            medium: machine.at_node(&at).map(medium),
        })
    }

    /// What reserves the opening of it: the same by whatever path.
    pub(crate) fn opening_key(&self, path: &str) -> String {
        match self.key {
            Some((key, _)) => format!("opening {key:?}"),
            None => format!("opening {path}"),
        }
    }
}

/// Opens what is at `path`, where `seen` was seen. Asks the file system, which may take its time.
pub(crate) fn open_at(path: &str, seen: Sighting) -> Result<OpenDrive, ControlError> {
    if let Some(address) = pci_address(path) {
        return pci::open(path, address);
    }
    let (device, notices) = UringDevice::open(Path::new(path), OpenOptions::default())
        .map_err(|error| not_opened(&error))?;
    // Opening has just succeeded, so it is there; the key is taken of what is there now.
    let Some((key, kind)) = key_of(path) else {
        return Err(ControlError::state(format!(
            "{path} vanished while it was being opened; try again"
        )));
    };
    let drive = Drive { device: Arc::new(device), path: path.to_owned() };
    let notices = notices.iter().map(ToString::to_string).collect();
    Ok(OpenDrive {
        key,
        medium: seen.medium,
        drive,
        kind,
        remote: None,
        pci: None,
        health: None,
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
    /// Every open drive.
    #[must_use]
    pub fn all(&self) -> &[OpenDrive] {
        &self.open
    }

    /// No open drive yet, of `machine`.
    #[must_use]
    pub fn of(machine: Machine) -> Self {
        Self { machine, ..Self::default() }
    }

    /// The machine whose drives these are.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Looks at drives that are under way.
    #[must_use]
    pub fn probes(&self) -> &Probes {
        &self.probes
    }

    /// The path that `spec` means, which may also be the kernel's name of a drive, its serial number, its worldwide
    /// name, its PCI address or a name in /dev/disk.
    ///
    /// # Errors
    /// When it means nothing here, or several drives.
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
                    "{spec:?} is not the absolute path of a file, and no drive of this machine has that name, serial \
                     number or address; "
                );
                let listed = say(what).run(ListDrivesRequest {}).say(" shows what there is");
                Err(ControlError::usage(listed))
            }
        }
    }

    /// Whether `name` means several drives of the machine.
    #[must_use]
    pub fn is_shared(&self, name: &str) -> bool {
        matches!(self.machine.find(name), Named::Several(_))
    }

    /// What `spec` names: a drive in memory or of another machine, which is there at once, or a path at which the file
    /// system is to be asked, without any lock.
    ///
    /// # Errors
    /// When `spec` is no path or specification, or there is nothing usable at it.
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

    /// The drive seen at `path` when it is open already. It is given under the path asked for, so that two paths to one
    /// drive show as the same device.
    pub(crate) fn seen_as(&self, path: &str, seen: &Sighting) -> Option<Drive> {
        let known = self.known(path, seen.key.map(|(key, _)| key), seen.medium.as_ref())?;
        let path = if known.key.is_named() { &known.drive.path } else { path };
        Some(Drive { device: Arc::clone(&known.drive.device), path: path.to_owned() })
    }

    /// Takes note of a drive that was opened.
    pub(crate) fn add(&mut self, opened: OpenDrive) {
        self.refused.remove(&opened.drive.path);
        self.open.push(opened);
    }

    /// Takes note of what could not be opened at `path`.
    pub(crate) fn note_refused(&mut self, path: &str) {
        if pci_address(path).is_some() {
            self.refused.insert(path.to_owned(), Instant::now());
        }
    }

    /// Whether upkeep is to leave what is at `path` alone for now.
    pub(crate) fn is_left_alone(&self, path: &str) -> bool {
        self.refused.get(path).is_some_and(|at| at.elapsed() < PCI_RETRY)
    }

    /// The open drive at `path`, where `key` is, or of the same medium.
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
            ControlError::usage(format!("{spec}: {e}; write it like {}:1GiB", kind.word()))
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
            pci: None,
            health: None,
            notices: Vec::new(),
        });
        Ok(drive)
    }

    /// The open drive that was opened as `path`.
    pub(crate) fn named(&self, path: &str) -> Option<Drive> {
        let named = |d: &&OpenDrive| d.drive.path == path && !d.is_gone();
        self.open.iter().find(named).map(|d| d.drive.clone())
    }

    /// Closes every drive that `keep` does not ask for by its identity, and every one that is gone: the device that
    /// comes back has the same identity. Closing may wait for the drive (close(2) flushes a file on FUSE), so the
    /// caller drops them without any lock (`take_closed`).
    pub fn close_unless(&mut self, keep: impl Fn(&str) -> bool) {
        let is_unused = |d: &mut OpenDrive| !keep(&d.drive.device.identity()) || d.is_gone();
        let unused = self.open.extract_if(.., is_unused);
        self.closed.extend(unused);
    }

    /// What answers for the state of each drive that this process drives, by path.
    pub(crate) fn health_sources(&self) -> Vec<(String, Arc<dyn HealthSource>)> {
        let of = |open: &OpenDrive| Some((open.drive.path.clone(), open.health.clone()?));
        self.open.iter().filter_map(of).collect()
    }

    /// Drives that are no longer used, to be dropped without any lock.
    pub(crate) fn take_closed(&mut self) -> Vec<OpenDrive> {
        std::mem::take(&mut self.closed)
    }
}

impl OpenDrive {
    /// Whether it is a PCI device that was pulled or given up.
    fn is_gone(&self) -> bool {
        pci::is_gone(&self.drive)
    }

    /// What was seen of it when it was opened.
    pub(crate) fn sighting(&self) -> Sighting {
        Sighting { key: Some((self.key, self.kind)), medium: self.medium.clone() }
    }
}

/// What tells the medium of `drive` from others.
pub fn medium(drive: KernelDrive) -> Medium {
    (drive.identity, drive.size_bytes)
}

fn check_spec(spec: &str) -> Result<(), ControlError> {
    if spec.is_empty() {
        return Err(ControlError::usage("the path of a drive must not be empty"));
    }
    if spec.len() > SPEC_BYTES_MAX {
        let what = format!(
            "a drive's path has at most {SPEC_BYTES_MAX} bytes, this one has {}",
            spec.len()
        );
        return Err(ControlError::usage(what));
    }
    if spec.contains('\0') {
        return Err(ControlError::usage(format!(
            "{spec:?} holds a zero byte, which a path cannot have"
        )));
    }
    Ok(())
}

/// What is at `path`, if it is something we could open.
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

/// Whether something is at `path` that can be opened. Asks the file system, which may take its time.
pub(crate) fn is_there(path: &str) -> bool {
    match pci_address(path) {
        Some(address) => pci::key_at(address).is_some(),
        None => fs::metadata(path).is_ok(),
    }
}

/// What tells one thing at a path from another that came there later.
pub(crate) type PathKey = (u64, u64, u64);

/// Paths of the machine's drives.
#[must_use]
pub(crate) fn block_paths(machine: &Machine) -> Vec<String> {
    machine.drives().into_iter().map(|drive| drive.path).collect()
}

#[cfg(test)]
impl OpenDrive {
    /// `device` as what was opened at `path`.
    pub(crate) fn of_device(path: &str, device: Arc<dyn BlockDevice>) -> Self {
        let drive = Drive { device, path: path.to_owned() };
        let (key, kind) = (Key::File(1, 2), DriveKind::File);
        Self {
            key,
            medium: None,
            drive,
            kind,
            remote: None,
            pci: None,
            health: None,
            notices: Vec::new(),
        }
    }

    /// `device` as the controller that was opened at the PCI address `path`.
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

    /// An array whose start was tried again while its drive still owed answers of the first attempt waited for that
    /// drive until the assemble timeout: it had answered, if only with a refusal.
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
