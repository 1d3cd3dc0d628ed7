//! The machine's block devices, from sysfs, without opening them for use.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use strake_api::v1::Drive as DriveMessage;
use strake_ondisk::{FOREIGN_HEAD_BYTES, FOREIGN_TAIL_BYTES, Foreign};
use strake_raid::MemberState;
use strake_units::ByteSize;

use crate::drives::{DriveKind, OpenDrive};
use crate::error::ControlError;
use crate::manager::Manager;

/// Kernel devices that are never drives: memory, loops over files, and what others have built.
const NOT_DRIVES: [&str; 8] = ["ram", "loop", "zram", "dm-", "md", "nbd", "sr", "fd"];

fn device_names() -> Vec<String> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.retain(|name| !NOT_DRIVES.iter().any(|prefix| name.starts_with(prefix)));
    names.sort();
    names
}

/// Paths of the machine's drives.
#[must_use]
pub fn block_paths() -> Vec<String> {
    device_names().iter().map(|name| format!("/dev/{name}")).collect()
}

fn attribute(name: &str, file: &str) -> Option<String> {
    fs::read_to_string(Path::new("/sys/block").join(name).join(file))
        .ok()
        .map(|text| text.trim().to_owned())
}

/// Who uses a kernel device: something stacked on it, or a mount of it or of one of its partitions.
fn user(name: &str) -> Option<String> {
    let mut holders =
        fs::read_dir(format!("/sys/block/{name}/holders")).into_iter().flatten().flatten();
    if let Some(holder) = holders.next() {
        return Some(format!("in use by {}", holder.file_name().to_string_lossy()));
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let prefix = format!("/dev/{name}");
    let mounted = mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (source, target) = (words.next()?, words.next()?);
        source.starts_with(&prefix).then(|| target.to_owned())
    });
    mounted.map(|target| format!("mounted on {target}"))
}

/// What is on a device, read through the page cache: `Err` says why it cannot be told.
fn contents(path: &str, bytes: u64) -> Result<Option<Foreign>, String> {
    let read = || -> std::io::Result<(Vec<u8>, Vec<u8>)> {
        let mut file = File::open(path)?;
        let tail = FOREIGN_TAIL_BYTES.min(bytes);
        let mut head = vec![0; FOREIGN_HEAD_BYTES.min(bytes) as usize];
        file.read_exact(&mut head)?;
        file.seek(SeekFrom::Start(bytes - tail))?;
        let mut tail = vec![0; tail as usize];
        file.read_exact(&mut tail)?;
        Ok((head, tail))
    };
    let (head, tail) = read().map_err(|e| format!("cannot be read: {e}"))?;
    Ok(strake_ondisk::foreign_signature(&head, &tail))
}

fn of_kernel(name: &str) -> DriveMessage {
    let path = format!("/dev/{name}");
    // sysfs counts in units of 512 bytes whatever the block size (Documentation/ABI/stable/sysfs-block).
    let size_bytes = attribute(name, "size").and_then(|s| s.parse::<u64>().ok()).unwrap_or(0) * 512;
    let (state, note) = match user(name) {
        Some(who) => ("busy", who),
        None => match contents(&path, size_bytes) {
            Ok(None) => ("free", String::new()),
            Ok(Some(what)) if what.is_obstacle() => ("occupied", format!("holds {what}")),
            Ok(Some(given_up)) => ("free", format!("holds {given_up}")),
            Err(why) => ("failed", why),
        },
    };
    DriveMessage {
        path,
        kind: if name.starts_with("nvme") { "nvme" } else { "block" }.to_owned(),
        size_bytes,
        block_bytes: attribute(name, "queue/logical_block_size")
            .and_then(|s| s.parse().ok())
            .unwrap_or(0),
        model: attribute(name, "device/model").unwrap_or_default(),
        serial: attribute(name, "device/serial")
            .or_else(|| attribute(name, "serial"))
            .unwrap_or_default(),
        state: state.to_owned(),
        note,
        ..DriveMessage::default()
    }
}

impl Manager {
    /// The machine's drives and every drive that is open.
    #[must_use]
    pub fn list_drives(&self) -> Vec<DriveMessage> {
        let mut list: Vec<DriveMessage> =
            self.drives.all().iter().map(|d| self.of_open(d)).collect();
        for name in device_names() {
            let path = format!("/dev/{name}");
            match self.drives.by_path(&path) {
                Some(open) => {
                    // Known better: only what sysfs alone knows is added.
                    let here = list.iter_mut().find(|d| d.path == open.drive.path);
                    if let Some(here) = here {
                        here.model = attribute(&name, "device/model").unwrap_or_default();
                        here.serial = attribute(&name, "device/serial").unwrap_or_default();
                    }
                }
                None => list.push(of_kernel(&name)),
            }
        }
        list.retain(|d| d.size_bytes > 0 || d.state == "member");
        list.sort_by(|a, b| a.path.cmp(&b.path));
        list
    }

    /// One drive by path.
    ///
    /// # Errors
    /// When it is neither one of the machine's drives nor open.
    pub fn drive(&self, path: &str) -> Result<DriveMessage, ControlError> {
        if let Some(open) = self.drives.by_path(path) {
            return Ok(self.of_open(open));
        }
        let found = self.list_drives().into_iter().find(|d| d.path == path);
        found.ok_or_else(|| {
            ControlError::not_found(format!(
                "there is no drive {path:?}; strake drive list shows what there is"
            ))
        })
    }

    fn of_open(&self, open: &OpenDrive) -> DriveMessage {
        let info = open.drive.device.info();
        let place = self.running.iter().find_map(|r| {
            let same = |d: &Option<strake_engine::Drive>| {
                d.as_ref().is_some_and(|d| d.device.info().identity == info.identity)
            };
            let slot = r.drives.iter().position(same)?;
            Some((r.array.name().to_string(), slot, r.array.status().members[slot].clone()))
        });
        let (array, member, state, mut notes) = match place {
            Some((array, slot, status)) => {
                let faulty = status.state == MemberState::Faulty;
                let why = status.cause.map(|c| c.text().to_owned());
                (
                    array,
                    Some(slot as u32),
                    if faulty { "failed" } else { "member" },
                    why.into_iter().collect(),
                )
            }
            None => (String::new(), None, "free", Vec::new()),
        };
        notes.extend(open.notices.iter().cloned());
        if open.kind == DriveKind::Ram || open.kind == DriveKind::Null {
            notes.push(format!("{} in memory: gone when the daemon stops", ByteSize(info.bytes())));
        }
        let nvme = open.drive.path.starts_with("/dev/nvme");
        DriveMessage {
            path: open.drive.path.clone(),
            identity: info.identity.clone(),
            kind: if nvme { "nvme" } else { open.kind.word() }.to_owned(),
            size_bytes: info.bytes(),
            block_bytes: info.block_size.bytes(),
            state: state.to_owned(),
            array,
            member,
            note: notes.join("; "),
            ..DriveMessage::default()
        }
    }
}
