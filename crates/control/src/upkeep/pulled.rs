//! Members whose drive was pulled, or whose file was truncated.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use strake_dev_uring::Machine;
use strake_engine::Pending;
use strake_units::MemberIndex;

use crate::actions::Pace;
use crate::bounded::{self, Silent};
use crate::commands::members::close_absent;
use crate::control::Control;
use crate::drives::address::pci_address;
use crate::drives::pci::is_gone;
use crate::drives::{Anchor, AtPath, DriveKind, OpenDrive};
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::policy::advice::keep_open;
use crate::state::running::Running;
use crate::upkeep::replacement::begin_cancel;

/// The drive of a member in use, and the path where it should be.
struct Post {
    array: String,
    slot: usize,
    path: String,
    /// The drive that is open at the path; `None` if only the array still holds the drive.
    anchor: Option<Anchor>,
    identity: String,
    /// The size of a file in bytes when it became a member; `None` for any other drive.
    file_bytes: Option<u64>,
    /// Whether the drive is a PCI device that was pulled, or that its driver has abandoned.
    gone: bool,
}

/// Whether the end of a file of `bytes`, which contained the partition table of Strake, is absent or zero. In this case
/// the file was truncated, and may have been extended again afterwards. `None` if this cannot be determined. A file
/// that was only extended still has the table at the same place.
fn is_cut(path: &str, bytes: u64) -> Option<bool> {
    let file = File::open(path).ok()?;
    if file.metadata().ok()?.len() < bytes {
        return Some(true);
    }
    let mut end = [0; 4096];
    let at = bytes.checked_sub(end.len() as u64)?;
    file.read_exact_at(&mut end, at).ok()?;
    Some(end.iter().all(|byte| *byte == 0))
}

/// Reports a member as missing if its path does not exist or leads to another drive, because the drive was pulled. The
/// drive may still answer, but it would not be found at the path after a restart.
pub(crate) fn notice_pulled(control: &Control, pace: Pace) -> Result<(), ControlError> {
    let posts = control.with(|m| {
        close_gone(m);
        posts(m)
    })?;
    for (array, posts) in posts {
        control.act(pace, format!("pulled drives of {array}"), move |control| {
            cancel_gone(control, &array)?;
            notice_pulled_of(control, &array, posts)
        })?;
    }
    Ok(())
}

/// Cancels the replacement of a member by a PCI device that was removed. Without writes, the engine does not notice the
/// removal.
fn cancel_gone(control: &Control, array: &str) -> Result<(), ControlError> {
    let pending = control.with(|m| {
        let at = m.position_of(array)?;
        let next = m.running[at].replacement.as_ref().filter(|next| is_gone(&next.drive))?;
        let slot = next.slot.at() as u32;
        begin_cancel(m, at, slot).ok()
    })?;
    // A replacement that became the member in the meantime is handled as a pulled member.
    pending.map(Pending::wait);
    Ok(())
}

/// Closes PCI devices that were removed, if no member in use needs them. The kernel completes the removal of a device
/// only after the device is closed, and a device that is plugged in again can be opened only after that removal.
fn close_gone(manager: &mut Manager) {
    let has_gone = |running: &&Running| running.all_drives().any(is_gone);
    let arrays: Vec<String> = manager.running.iter().filter(has_gone).map(Running::uuid).collect();
    arrays.iter().for_each(|array| close_absent(manager, array));
    if manager.drives.all().iter().any(|open| is_gone(&open.drive)) {
        manager.close_unused_drives();
    }
}

fn notice_pulled_of(control: &Control, array: &str, posts: Vec<Post>) -> Result<(), ControlError> {
    let machine = control.with(|m| m.drives.machine().clone())?;
    let mut unreachable = BTreeMap::new();
    // The paths are inspected without the lock, because a path may be on an unresponsive device.
    for post in posts {
        let Ok((at_path, cut)) = post.look(&machine) else { continue };
        let cut = at_path == AtPath::Itself && has_been_cut(control, &post, cut)?;
        if at_path == AtPath::Itself && !cut {
            continue;
        }
        let Some(pending) = control.with(|m| begin_vanish(m, &post))? else { continue };
        // The array keeps a drive that the data depends on for as long as the drive answers.
        let vanished = pending.wait().is_ok();
        if !vanished {
            let what = match at_path {
                AtPath::Another => "another drive is at its path",
                AtPath::Nothing => "no drive is at its path",
                AtPath::Itself => "its file was truncated, and the content behind its end is lost",
            };
            unreachable.insert(post.slot, format!("{what} ({})", post.path));
        } else {
            control.with(|m| {
                match at_path {
                    AtPath::Another => note_swapped(m, &post),
                    AtPath::Itself => note_cut(m, &post),
                    AtPath::Nothing => {}
                }
                m.observe();
                close_absent(m, &post.array);
            })?;
        }
    }
    control.with(|m| note_unreachable(m, array, unreachable))
}

/// Whether the file of a member was complete at an earlier inspection and is now truncated. `cut` is the result of this
/// inspection.
fn has_been_cut(control: &Control, post: &Post, cut: Option<bool>) -> Result<bool, ControlError> {
    match cut {
        None => Ok(false),
        Some(true) => control.with(|m| m.whole_files.remove(&post.identity)),
        Some(false) => control.run(|m| {
            m.whole_files.insert(post.identity.clone());
            Ok(false)
        }),
    }
}

impl Post {
    /// The drive at the path, and whether the file at the path is truncated.
    fn look(&self, machine: &Machine) -> Result<(AtPath, Option<bool>), Silent> {
        if pci_address(&self.path).is_some() {
            return Ok((if self.gone { AtPath::Nothing } else { AtPath::Itself }, None));
        }
        let (path, anchor, machine) = (self.path.clone(), self.anchor.clone(), machine.clone());
        let file_bytes = self.file_bytes;
        bounded::look(&self.path, move || {
            let at_path = match &anchor {
                Some(anchor) => anchor.look(&machine),
                None => AtPath::of(&path),
            };
            (at_path, file_bytes.and_then(|bytes| is_cut(&path, bytes)))
        })
    }
}

/// The drives of members in use, by array.
fn posts(manager: &Manager) -> BTreeMap<String, Vec<Post>> {
    let mut posts: BTreeMap<String, Vec<Post>> = BTreeMap::new();
    if manager.stopping {
        return posts;
    }
    let open: BTreeMap<String, &OpenDrive> =
        manager.drives.all().iter().map(|o| (o.drive.device.identity(), o)).collect();
    for running in &manager.running {
        let status = running.array.status();
        let label = running.array.newest_label();
        let posts = posts.entry(running.uuid()).or_default();
        for (slot, (drive, member)) in running.drives.iter().zip(&status.members).enumerate() {
            let Some(drive) = drive else { continue };
            let has_path = drive.path.starts_with('/') || pci_address(&drive.path).is_some();
            if has_path && !crate::policy::members::is_out(member) {
                let identity = drive.device.identity();
                let open = open.get(&identity).copied();
                let is_file = open.is_some_and(|open| open.kind == DriveKind::File);
                posts.push(Post {
                    array: running.uuid(),
                    slot,
                    path: drive.path.clone(),
                    anchor: open.map(|open| open.anchor(&drive.path)),
                    identity,
                    file_bytes: label.members.get(slot).filter(|_| is_file).map(|row| row.bytes),
                    gone: is_gone(drive),
                });
            }
        }
    }
    posts
}

/// Reports each member that is in use only because it is open, once.
fn note_unreachable(manager: &mut Manager, array: &str, now: BTreeMap<usize, String>) {
    let Some(entry) = manager.entries.get_mut(array) else { return };
    let new = entry.put_unreachable(now);
    let Some(at) = manager.position_of(array) else { return };
    let name = manager.running[at].array.name().to_string();
    for (slot, why) in new {
        let what = format!("array {name} depends on member {slot}, which no longer has a path");
        let note = Note::of_array(EventKind::MemberUnreachable, &name, what);
        manager.record(note.member(slot).cause(why).next(keep_open(&name)));
    }
}

/// Records that another drive is at the path of a member. This drive is not accepted as the member, whatever its label
/// states.
fn note_swapped(manager: &mut Manager, post: &Post) {
    let Some(entry) = manager.entries.get_mut(&post.array) else { return };
    let notes = entry.slot_mut(post.slot);
    notes.objection = Some(format!("another drive is at its path {}", post.path));
    notes.swapped = Some(post.identity.clone());
}

/// Records that a part of the content of a member is lost, because no label records this.
fn note_cut(manager: &mut Manager, post: &Post) {
    let what = format!("its file {} was truncated while it served", post.path);
    if let Some(entry) = manager.entries.get_mut(&post.array) {
        entry.slot_mut(post.slot).objection = Some(what);
    }
}

fn begin_vanish(manager: &Manager, post: &Post) -> Option<Pending> {
    let running = manager.running_of(&post.array)?;
    let here = running.drives.get(post.slot)?.as_ref()?;
    if here.path != post.path {
        return None;
    }
    running.array.begin_vanish(MemberIndex(post.slot as u8)).ok()
}
