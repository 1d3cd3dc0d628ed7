//! What the daemon does by itself, twice a second: starts what waits, notices drives that went and came back, uses
//! spares, and tells what changed.
//!
//! What waits for drives is done by actions beside a round, so that one drive that hangs holds up none of the others.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use strake_dev_uring::Machine;
use strake_engine::Pending;
use strake_reactor::monotonic;
use strake_units::MemberIndex;

use crate::actions::Pace;
use crate::bounded::{self, Silent};
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
    /// One round of upkeep, which waits for no drive: what does so goes on beside it.
    ///
    /// # Errors
    /// When an earlier command panicked; whatever else goes wrong is told by an event.
    pub fn round(&self) -> Result<(), ControlError> {
        self.tend(Pace::Beside)
    }

    /// One round of upkeep with all that it does, one piece after the other.
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub fn tick(&self) -> Result<(), ControlError> {
        self.tend(Pace::InTurn)
    }

    fn tend(&self, pace: Pace) -> Result<(), ControlError> {
        self.tend_remotes()?;
        self.launch_starts()?;
        if pace == Pace::InTurn {
            while !self.starts_are_over(Duration::MAX)? {}
        }
        self.run(|m| {
            m.observe();
            m.end_pauses();
            Ok(())
        })?;
        self.set_aside_lost()?;
        self.act(pace, "ask drives".to_owned(), Self::ask_drives)?;
        self.run(|m| {
            m.notice_sick();
            if let Err(error) = m.settle_replacements() {
                tracing::warn!(reason = %error, "the drive that took a member's place is not recorded");
            }
            Ok(())
        })?;
        self.notice_pulled(pace)?;
        // Before spares: the drive of a copy may be recorded as one.
        self.resume_copies(pace)?;
        // At once: what is written from here on is missing on whoever is out.
        self.note_newest()?;
        self.readd_returned(pace)?;
        self.tend_spares(pace)?;
        self.use_spares(pace)?;
        self.tend_scrubs()?;
        // After spares: a drive that is out may take long to answer.
        self.look_at_prospects(pace)?;
        self.record_on_members(pace)?;
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
    fn notice_pulled(&self, pace: Pace) -> Result<(), ControlError> {
        for (array, posts) in self.run(|m| Ok(m.posts()))? {
            self.act(pace, format!("pulled drives of {array}"), move |control| {
                control.notice_pulled_of(&array, posts)
            })?;
        }
        Ok(())
    }

    fn notice_pulled_of(&self, array: &str, posts: Vec<Post>) -> Result<(), ControlError> {
        let machine = self.run(|m| Ok(m.drives.machine().clone()))?;
        let mut unreachable = BTreeMap::new();
        // Looked for outside of the lock: a path may lie on something that does not answer.
        for post in posts {
            let Ok((at_path, cut)) = post.look(&machine) else { continue };
            let cut = at_path == AtPath::Itself && self.has_been_cut(&post, cut)?;
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
            m.note_unreachable(array, unreachable);
            Ok(())
        })
    }

    /// Whether the file of a member was whole at an earlier look and is not any more; `cut` is what a look has shown.
    fn has_been_cut(&self, post: &Post, cut: Option<bool>) -> Result<bool, ControlError> {
        match cut {
            None => Ok(false),
            Some(true) => self.run(|m| Ok(m.whole_files.remove(&post.identity))),
            Some(false) => self.run(|m| {
                m.whole_files.insert(post.identity.clone());
                Ok(false)
            }),
        }
    }
}

impl Post {
    /// What is at its path, and whether the file there is cut short.
    fn look(&self, machine: &Machine) -> Result<(AtPath, Option<bool>), Silent> {
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

impl Manager {
    /// The drives of members in use, by array.
    fn posts(&self) -> BTreeMap<String, Vec<Post>> {
        let mut posts: BTreeMap<String, Vec<Post>> = BTreeMap::new();
        if self.stopping {
            return posts;
        }
        let open: BTreeMap<String, &OpenDrive> =
            self.drives.all().iter().map(|o| (o.drive.device.identity(), o)).collect();
        for running in &self.running {
            let status = running.array.status();
            let label = running.array.newest_label();
            let posts = posts.entry(running.uuid()).or_default();
            for (slot, (drive, member)) in running.drives.iter().zip(&status.members).enumerate() {
                let Some(drive) = drive else { continue };
                if drive.path.starts_with('/') && !crate::members::is_out(member) {
                    let identity = drive.device.identity();
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
    fn note_unreachable(&mut self, array: &str, now: BTreeMap<(String, usize), String>) {
        for (place, why) in now.iter().filter(|(place, _)| !self.unreachable.contains_key(*place)) {
            let Some(at) = self.find(&place.0) else { continue };
            let (name, slot) = (self.running[at].array.name().to_string(), place.1);
            let what = format!("array {name} depends on member {slot}, which no longer has a path");
            let note = Note::new(EventKind::MemberUnreachable, format!("array/{name}"), what);
            self.record(note.member(slot).cause(why.clone()).next(crate::view::keep_open(&name)));
        }
        self.unreachable.retain(|(of, _), _| of != array);
        self.unreachable.extend(now);
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
