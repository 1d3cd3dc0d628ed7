//! What the daemon does by itself, twice a second: starts what waits, notices drives that went and came back, uses
//! spares, and tells what changed.

use strake_engine::Pending;
use strake_units::MemberIndex;

use crate::control::Control;
use crate::error::ControlError;
use crate::manager::Manager;

/// The drive of a member in use, and where it should be.
struct Post {
    array: String,
    slot: usize,
    path: String,
}

impl Control {
    /// One round of upkeep.
    ///
    /// # Errors
    /// When an earlier command panicked; whatever else goes wrong is told by an event.
    pub fn tick(&self) -> Result<(), ControlError> {
        if self.run(|m| Ok(m.has_offline()))? {
            self.start_recorded()?;
        }
        self.run(|m| {
            m.observe();
            Ok(())
        })?;
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
        self.record_on_members()?;
        self.note_newest()?;
        self.run(|m| {
            m.observe();
            m.watch_state_dir();
            m.watch_hooks();
            Ok(())
        })
    }

    /// Calls members missing whose path is gone: their drive was pulled, though it may still answer.
    fn notice_pulled(&self) -> Result<(), ControlError> {
        let posts = self.run(|m| Ok(m.posts()))?;
        // Looked for outside of the lock: a path may lie on something that does not answer.
        let gone = posts.into_iter().filter(|post| {
            std::fs::symlink_metadata(&post.path)
                .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        });
        for post in gone {
            let pending = self.run(|m| Ok(m.begin_vanish(&post)))?;
            // A drive that the data depends on is kept for as long as it answers; the refusal needs no telling.
            let vanished = pending.is_some_and(|pending| pending.wait().is_ok());
            if vanished {
                self.run(|m| {
                    m.observe();
                    m.close_absent(&post.array);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}

impl Manager {
    fn has_offline(&self) -> bool {
        !self.stopping && !self.offline.is_empty()
    }

    fn posts(&self) -> Vec<Post> {
        let mut posts = Vec::new();
        for running in &self.running {
            let status = running.array.status();
            for (slot, (drive, member)) in running.drives.iter().zip(&status.members).enumerate() {
                let Some(drive) = drive else { continue };
                if drive.path.starts_with('/') && !crate::members::is_out(member) {
                    posts.push(Post { array: running.uuid(), slot, path: drive.path.clone() });
                }
            }
        }
        posts
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
