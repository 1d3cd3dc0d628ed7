//! Devices that get an index, and may have to wait until they have completed the I/Os of an earlier membership.
//!
//! A device may still execute outstanding I/Os of an earlier membership at any later time. If it were re-added before
//! it completed them, an old write could overwrite data that were copied to it since.

use strake_units::{MemberIndex, Nanos};

use super::Shard;
use crate::error::ArrayError;
use crate::limits::FORMER_PATIENCE;
use crate::message::{Answer, Reply, View};
use crate::shared_device::SharedDevice;

/// A device to open for `member` as soon as it has no outstanding requests.
pub(super) struct Install {
    pub(super) member: MemberIndex,
    pub(super) device: SharedDevice,
    pub(super) reply: Reply,
    /// End of the wait.
    pub(super) until: Nanos,
}

impl Install {
    pub(super) fn new(member: MemberIndex, device: SharedDevice, reply: Reply, now: Nanos) -> Self {
        Self { member, device, reply, until: now.plus(FORMER_PATIENCE) }
    }
}

impl Shard {
    /// Opens the devices that can be opened now, and refuses devices whose wait has expired. Returns the number of
    /// answers.
    pub(super) fn install_waiting(&self, waiting: &mut Vec<Install>) -> usize {
        let before = waiting.len();
        waiting.retain(|install| {
            let answer = self.install(install);
            let Some(answer) = answer else { return true };
            // The control plane may have stopped waiting.
            let _ = install.reply.send(answer);
            false
        });
        before - waiting.len()
    }

    /// Opens a device for its index, unless the present device came into use meanwhile. Returns `None` while the device
    /// must wait.
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
