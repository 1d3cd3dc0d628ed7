//! What the daemon does by itself, twice a second: starts what waits, notices drives that went and came back, uses
//! spares, and tells what changed.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use strake_engine::Pending;
use strake_reactor::monotonic;
use strake_units::MemberIndex;

use crate::control::Control;
use crate::drives::{Anchor, AtPath, DriveKind, OpenDrive};
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;

/// The drive of a member in use, and where it should be.
struct Post {
    array: String,
    slot: usize,
    path: String,
    /// What is open there; `None` when only the array still holds it.
    anchor: Option<Anchor>,
    identity: String,
    /// Bytes that a file had when it became a member; `None` for anything else.
    file_bytes: Option<u64>,
}

/// Whether the end of a file of `bytes`, where Strake's own partition table was, is gone or empty: somebody has cut the
/// file short, and perhaps made it as long as before, or longer. `None` when that cannot be told. One that was only
/// made longer has the table where it was.
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

impl Control {
    /// One round of upkeep.
    ///
    /// # Errors
    /// When an earlier command panicked; whatever else goes wrong is told by an event.
    pub fn tick(&self) -> Result<(), ControlError> {
        self.tend_remotes()?;
        if self.run(|m| Ok(m.has_offline()))? {
            self.start_recorded()?;
        }
        self.run(|m| {
            m.observe();
            Ok(())
        })?;
        self.set_aside_lost()?;
        self.ask_drives()?;
        self.run(|m| {
            m.notice_sick();
            if let Err(error) = m.settle_successors() {
                tracing::warn!(reason = %error, "the drive that took a member's place is not recorded");
            }
            Ok(())
        })?;
        self.notice_pulled()?;
        // At once: what is written from here on is missing on whoever is out.
        self.note_newest()?;
        self.readd_returned()?;
        self.tend_spares()?;
        self.use_spares()?;
        self.tend_scrubs()?;
        // After spares: a drive that is out may take long to answer.
        self.look_at_prospects()?;
        self.record_on_members()?;
        self.note_newest()?;
        self.run(|m| {
            m.observe();
            m.tell_rejections(monotonic());
            m.tell_unrecorded();
            m.watch_crowds();
            m.watch_state_dir();
            m.watch_hooks();
            Ok(())
        })
    }

    /// Calls members missing whose path is gone or leads to another drive: theirs was pulled, though it may still
    /// answer, and nobody would find it there after a restart.
    fn notice_pulled(&self) -> Result<(), ControlError> {
        let (posts, machine) = self.run(|m| Ok((m.posts(), m.drives.machine().clone())))?;
        let mut unreachable = BTreeMap::new();
        // Looked for outside of the lock: a path may lie on something that does not answer.
        for post in posts {
            let at_path = match &post.anchor {
                Some(anchor) => anchor.look(&machine),
                None => AtPath::of(&post.path),
            };
            let cut = at_path == AtPath::Itself && self.has_been_cut(&post)?;
            if at_path == AtPath::Itself && !cut {
                continue;
            }
            let Some(pending) = self.run(|m| Ok(m.begin_vanish(&post)))? else { continue };
            // A drive that the data depends on is kept for as long as it answers.
            let vanished = pending.wait().is_ok();
            if !vanished {
                let what = match at_path {
                    AtPath::Another => "another drive is at its path",
                    AtPath::Nothing => "nothing is at its path any more",
                    AtPath::Itself => "its file was cut short, and what was cut off is lost",
                };
                unreachable.insert((post.array, post.slot), format!("{what} ({})", post.path));
            } else {
                self.run(|m| {
                    match at_path {
                        AtPath::Another => m.note_swapped(&post),
                        AtPath::Itself => m.note_cut(&post),
                        AtPath::Nothing => {}
                    }
                    m.observe();
                    m.close_absent(&post.array);
                    Ok(())
                })?;
            }
        }
        self.run(|m| {
            m.note_unreachable(unreachable);
            Ok(())
        })
    }

    /// Whether the file of a member was whole at an earlier look and is not any more.
    fn has_been_cut(&self, post: &Post) -> Result<bool, ControlError> {
        match post.file_bytes.and_then(|bytes| is_cut(&post.path, bytes)) {
            None => Ok(false),
            Some(true) => self.run(|m| Ok(m.whole_files.remove(&post.identity))),
            Some(false) => self.run(|m| {
                m.whole_files.insert(post.identity.clone());
                Ok(false)
            }),
        }
    }
}

impl Manager {
    fn has_offline(&self) -> bool {
        !self.stopping && !self.offline.is_empty()
    }

    fn posts(&self) -> Vec<Post> {
        let mut posts = Vec::new();
        let open: BTreeMap<String, &OpenDrive> =
            self.drives.all().iter().map(|o| (o.drive.device.info().identity, o)).collect();
        for running in &self.running {
            let status = running.array.status();
            let label = running.array.newest_label();
            for (slot, (drive, member)) in running.drives.iter().zip(&status.members).enumerate() {
                let Some(drive) = drive else { continue };
                if drive.path.starts_with('/') && !crate::members::is_out(member) {
                    let identity = drive.device.info().identity;
                    let open = open.get(&identity).copied();
                    let is_file = open.is_some_and(|open| open.kind == DriveKind::File);
                    posts.push(Post {
                        array: running.uuid(),
                        slot,
                        path: drive.path.clone(),
                        anchor: open.map(|open| open.anchor(&drive.path)),
                        identity,
                        file_bytes: label
                            .members
                            .get(slot)
                            .filter(|_| is_file)
                            .map(|row| row.bytes),
                    });
                }
            }
        }
        posts
    }

    /// Tells of members that are in use only because they are open, once each.
    fn note_unreachable(&mut self, now: BTreeMap<(String, usize), String>) {
        for (place, why) in now.iter().filter(|(place, _)| !self.unreachable.contains_key(*place)) {
            let Some(at) = self.find(&place.0) else { continue };
            let (name, slot) = (self.running[at].array.name().to_string(), place.1);
            let what =
                format!("array {name} depends on member {slot}, which nobody can find any more");
            let note = Note::new(EventKind::MemberUnreachable, format!("array/{name}"), what);
            self.record(note.member(slot).cause(why.clone()).next(crate::view::keep_open(&name)));
        }
        self.unreachable = now;
    }

    /// Remembers that another drive is at the path of a member: it is not taken for the member, whatever it says.
    fn note_swapped(&mut self, post: &Post) {
        let place = (post.array.clone(), post.slot);
        let what = format!("another drive is at its path {}", post.path);
        self.objections.insert(place.clone(), what);
        self.swapped.insert(place, post.identity.clone());
    }

    /// Remembers that what a member holds is lost in part, which no label says.
    fn note_cut(&mut self, post: &Post) {
        let what = format!("its file {} was cut short while it served", post.path);
        self.objections.insert((post.array.clone(), post.slot), what);
    }

    fn begin_vanish(&self, post: &Post) -> Option<Pending> {
        let running = self.running.iter().find(|r| r.uuid() == post.array)?;
        let here = running.drives.get(post.slot)?.as_ref()?;
        if here.path != post.path {
            return None;
        }
        running.array.begin_vanish(MemberIndex(post.slot as u8)).ok()
    }
}
