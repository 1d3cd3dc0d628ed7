//! Drives that are open, each once, whatever paths they are known by.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use strake_block::BlockDevice;
use strake_dev_mem::{NullDevice, RamDevice};
use strake_dev_uring::{OpenOptions, UringDevice};
use strake_engine::Drive;
use strake_units::{BlockSize, ByteSize};

use crate::error::ControlError;

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
        }
    }
}

/// What tells two things at paths apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Block(u64),
    File(u64, u64),
    Memory(u32),
}

/// A drive that is open.
pub struct OpenDrive {
    key: Key,
    /// Under the path it was first opened by.
    pub drive: Drive,
    /// What it is.
    pub kind: DriveKind,
    /// What works less well than asked for.
    pub notices: Vec<String>,
}

/// All open drives.
#[derive(Default)]
pub struct Drives {
    open: Vec<OpenDrive>,
    memory_made: u32,
}

impl Drives {
    /// Every open drive.
    #[must_use]
    pub fn all(&self) -> &[OpenDrive] {
        &self.open
    }

    /// Opens what `spec` names; a drive that is open already is given again under the path asked for, so that
    /// two paths to one drive show as the same device.
    ///
    /// # Errors
    /// When `spec` is no path or specification, or there is nothing usable at it.
    pub fn open(&mut self, spec: &str) -> Result<Drive, ControlError> {
        check_spec(spec)?;
        if let Some(size) = spec.strip_prefix("ram:") {
            return self.open_memory(spec, size, DriveKind::Ram);
        }
        if let Some(size) = spec.strip_prefix("null:") {
            return self.open_memory(spec, size, DriveKind::Null);
        }
        let known = key_of(spec).and_then(|(key, _)| self.open.iter().find(|d| d.key == key));
        if let Some(known) = known {
            return Ok(Drive { device: Arc::clone(&known.drive.device), path: spec.to_owned() });
        }
        if let Some(memory) = self.by_path(spec) {
            return Ok(memory.drive.clone());
        }
        if !spec.starts_with('/') {
            let what = format!(
                "{spec:?} is not an absolute path; name a drive by its path, such as /dev/nvme0n1"
            );
            return Err(ControlError::usage(what));
        }
        let (device, notices) = UringDevice::open(Path::new(spec), OpenOptions::default())
            .map_err(|e| {
                ControlError::state(format!("{e}; check the path, or use another drive"))
            })?;
        // Opening has just succeeded, so it is there; the key is taken of what is there now.
        let Some((key, kind)) = key_of(spec) else {
            return Err(ControlError::state(format!(
                "{spec} vanished while it was being opened; try again"
            )));
        };
        let drive = Drive { device: Arc::new(device), path: spec.to_owned() };
        let notices = notices.iter().map(ToString::to_string).collect();
        self.open.push(OpenDrive { key, drive: drive.clone(), kind, notices });
        Ok(drive)
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
            drive: drive.clone(),
            kind,
            notices: Vec::new(),
        });
        Ok(drive)
    }

    /// The open drive that `path` names, by whatever path it was opened.
    #[must_use]
    pub fn by_path(&self, path: &str) -> Option<&OpenDrive> {
        let same = |d: &&OpenDrive| d.drive.path == path;
        self.open.iter().find(same).or_else(|| {
            let (key, _) = key_of(path)?;
            self.open.iter().find(|d| d.key == key)
        })
    }

    /// Closes every drive that `keep` does not ask for by its identity.
    pub fn close_unless(&mut self, keep: impl Fn(&str) -> bool) {
        self.open.retain(|d| keep(&d.drive.device.info().identity));
    }
}

fn check_spec(spec: &str) -> Result<(), ControlError> {
    if spec.is_empty() {
        return Err(ControlError::usage("a drive is named by its path, not by nothing"));
    }
    if spec.len() > SPEC_BYTES_MAX {
        let what = format!(
            "a drive's path has at most {SPEC_BYTES_MAX} bytes, this one has {}",
            spec.len()
        );
        return Err(ControlError::usage(what));
    }
    if spec.contains('\0') {
        return Err(ControlError::usage(format!("{spec:?} holds a zero byte, which no path does")));
    }
    Ok(())
}

/// What is at `path`, if it is something we could open.
fn key_of(path: &str) -> Option<(Key, DriveKind)> {
    let meta = fs::metadata(path).ok()?;
    let kind = meta.file_type();
    if kind.is_block_device() {
        return Some((Key::Block(meta.rdev()), DriveKind::Block));
    }
    kind.is_file().then(|| (Key::File(meta.dev(), meta.ino()), DriveKind::File))
}
