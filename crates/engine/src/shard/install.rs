//! Devices that are to take a place, and may have to wait until they have answered for a former one.
//!
//! A device may still execute, at any later time, what it was given as a member and has not answered. Taken back
//! before it has answered, it would silently put an old write on top of what was copied to it since.

use strake_units::{MemberIndex, Nanos};

use super::{Shard, SharedDevice};
use crate::error::ArrayError;
use crate::limits::FORMER_PATIENCE;
use crate::message::{Answer, Reply, View};

/// A device that is to be opened for `member` as soon as it has no outstanding requests.
pub(super) struct Install {
    pub(super) member: MemberIndex,
    pub(super) device: SharedDevice,
    pub(super) reply: Reply,
    /// When it is waited for no longer.
    pub(super) until: Nanos,
}

impl Install {
    pub(super) fn new(member: MemberIndex, device: SharedDevice, reply: Reply, now: Nanos) -> Self {
        Self { member, device, reply, until: now.plus(FORMER_PATIENCE) }
    }
}

impl Shard {
    /// Opens the devices that can be opened now, and turns away those that were waited for long enough. Returns how
    /// many were answered.
    pub(super) fn install_waiting(&self, waiting: &mut Vec<Install>) -> usize {
        let before = waiting.len();
        waiting.retain(|install| {
            let answer = self.install(install);
            let Some(answer) = answer else { return true };
            // The control plane may have given up waiting.
            let _ = install.reply.send(answer);
            false
        });
        before - waiting.len()
    }

    /// Opens a device for its place, unless the one there came into use meanwhile. `None` while it has to wait.
    fn install(&self, install: &Install) -> Option<Answer> {
        let Install { member, device, until, .. } = install;
        let mut members = self.members.borrow_mut();
        if members.view(*member) != View::Absent {
            let what = format!("member {member} is in use; fail it before replacing it");
            return Some(Err(ArrayError::state(what)));
        }
        let owed = members.owed_by(&device.device.info().identity);
        if owed == 0 {
            let opened = members.install(*member, device, strake_ondisk::HEAD_BYTES);
            return Some(opened.map_err(ArrayError::from));
        }
        (self.now.get() >= *until).then(|| {
            Err(ArrayError::state(format!(
                "the drive for member {member} has not answered {owed} request(s) from before it was put out of use, \
                 and could execute them over newer data; try again when it has answered, or use another drive"
            )))
        })
    }
}
