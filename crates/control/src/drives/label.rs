//! Reads of labels outside of a running array. Each read has a time limit, and runs on a thread that can be abandoned.

use std::time::Duration;

use strake_api::v1::ReplaceMemberRequest;
use strake_dev_uring::{control_wait, control_wait_for};
use strake_engine::{
    ArrayError, Drive, Inspection, MemberIo, OnDrive, Superblock, mark_destroyed, understood,
};
use strake_ondisk::Copy;
use strake_raid::Geometry;
use strake_units::Nanos;
use strake_wording::{Text, replace, say};

use crate::bounded;
use crate::error::ControlError;
use crate::limits::LOOK_LIMIT;
use crate::remedy::{LOSSY, start};

/// Runs `look` on `drive` with the time limit `limit`.
fn within<T: Send + 'static>(
    drive: &Drive,
    limit: Duration,
    look: impl FnOnce(&mut MemberIo<'_>) -> Result<T, ArrayError> + Send + 'static,
) -> Result<T, ControlError> {
    let theirs = drive.clone();
    let read = move || {
        let mut wait = control_wait_for(Nanos(limit.as_nanos() as u64));
        MemberIo::open(&theirs, &mut wait).and_then(|mut io| look(&mut io))
    };
    Ok(bounded::ask(&drive.path, limit, read)??)
}

/// Returns the contents of `drive`.
pub(crate) fn inspect(drive: &Drive) -> Result<Inspection, ControlError> {
    within(drive, LOOK_LIMIT, |io| io.inspect())
}

/// The newest label of a drive, and its damage.
pub(crate) struct Reading {
    /// The newest label.
    pub(crate) label: Superblock,
    /// Foreign content that was written since, by its usual name.
    pub(crate) written_over: Option<&'static str>,
    /// The end at which its labels were overwritten.
    pub(crate) overwritten: Option<Copy>,
}

/// Reads the newest valid label on `drive` within `limit`. Without a label, reads nothing else.
pub(crate) fn read_label(drive: &Drive, limit: Duration) -> Result<Option<Reading>, ControlError> {
    within(drive, limit, |io| {
        let Some(label) = io.newest_label()?.filter(|label| !label.destroyed) else {
            return Ok(None);
        };
        let (written_over, overwritten) = (io.written_over()?, io.overwritten()?);
        Ok(Some(Reading { label, written_over, overwritten }))
    })
}

/// Returns foreign content that was written to a labelled `drive`, by its usual name.
pub(crate) fn written_over(drive: &Drive) -> Result<Option<&'static str>, ControlError> {
    within(drive, LOOK_LIMIT, |io| io.written_over())
}

/// Returns the end of a labelled `drive` at which its labels were overwritten.
pub(crate) fn overwritten(drive: &Drive) -> Result<Option<Copy>, ControlError> {
    within(drive, LOOK_LIMIT, |io| io.overwritten())
}

/// Marks the label of `drive` as destroyed if it belongs to `array`.
pub(crate) fn retire(drive: &Drive, array: &str) -> Result<(), ControlError> {
    let ours = inspect(drive)?.label.is_some_and(|l| l.array.to_string() == array && !l.destroyed);
    if ours {
        mark_destroyed(std::slice::from_ref(drive), &mut control_wait())?;
    }
    Ok(())
}

/// A drive with the label of an array.
#[derive(Clone)]
pub(crate) struct Labelled {
    pub(crate) drive: Drive,
    pub(crate) label: Superblock,
    /// Foreign content that was written since, by its usual name. The data of the member are then invalid, although its
    /// labels in two rings are intact.
    pub(crate) written_over: Option<&'static str>,
    /// The end at which its labels were overwritten, while the labels at the other end are intact.
    pub(crate) overwritten: Option<Copy>,
}

impl Labelled {
    /// Returns the identity of the medium.
    pub(crate) fn identity(&self) -> String {
        self.drive.device.identity()
    }

    /// True if the drive can contain the data of the member in its label.
    pub(crate) fn is_usable(&self) -> bool {
        self.written_over.is_none() && self.overwritten.is_none()
    }

    /// Returns the damage that makes the drive unusable as the member in its label; `None` without damage.
    pub(crate) fn damage(&self) -> Option<String> {
        let path = &self.drive.path;
        if let Some(found) = self.written_over {
            return Some(format!("{path} now contains {found}, so the drive is not used"));
        }
        let end = match self.overwritten? {
            Copy::Head => "at its start",
            Copy::Tail => "at its end",
        };
        Some(format!(
            "{path} was overwritten or truncated: its labels {end} are missing, and other content may be missing too, \
                so the drive is not used"
        ))
    }

    /// Returns the reason why the drive is not used as the member in its label, with the remedy; `None` if it is used.
    pub(crate) fn objection(&self) -> Option<Text> {
        let damage = self.damage()?;
        let (path, name, slot) = (&self.drive.path, &self.label.name, self.label.slot);
        let text = say(format!(
            "{damage}, although it was member {slot} of array {name}; once the array runs, "
        ));
        let again = replace(name, Some(slot.0.into()), path);
        Some(if self.written_over.is_some() {
            text.say("replace the member by another drive, or by this drive if its content is not needed: ")
                .run(ReplaceMemberRequest { overwrite: true, ..again })
        } else {
            text.say("rebuild the member: ")
                .run(again)
                .say(". If the array cannot start without this drive: ")
                .run(start(name, LOSSY))
        })
    }
}

pub(crate) fn labelled(drive: Drive, limit: Duration) -> Result<Option<Labelled>, ControlError> {
    let Some(read) = read_label(&drive, limit)? else { return Ok(None) };
    let Reading { label, written_over, overwritten } = read;
    Ok(Some(Labelled { drive, label, written_over, overwritten }))
}

/// Returns all known contents of a drive.
pub(crate) fn look(drive: &Drive) -> Result<OnDrive, ControlError> {
    let mut wait = control_wait();
    Ok(MemberIo::open(drive, &mut wait)?.look()?)
}

/// Removes all content of Strake.
pub(crate) fn wipe(drive: &Drive) -> Result<(), ControlError> {
    let mut wait = control_wait();
    Ok(MemberIo::open(drive, &mut wait)?.disown()?)
}

/// Returns the geometry of a label, if this version supports it.
pub(crate) fn geometry_of(label: &Superblock) -> Option<Geometry> {
    understood(label).ok()
}
