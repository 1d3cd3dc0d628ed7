//! Reading labels outside of a running array. Each look has a limit: the drive is asked by a thread that can be left
//! behind.

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

/// Looks at `drive` with `look`, which has `limit` to end.
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

/// What is on `drive`.
pub(crate) fn inspect(drive: &Drive) -> Result<Inspection, ControlError> {
    within(drive, LOOK_LIMIT, |io| io.inspect())
}

/// What the labels of a drive say, and what has become of them since.
pub(crate) struct Reading {
    /// The newest label.
    pub(crate) label: Superblock,
    /// What other software has put on the drive since, by its usual name.
    pub(crate) written_over: Option<&'static str>,
    /// The end at which its labels were overwritten.
    pub(crate) overwritten: Option<Copy>,
}

/// The newest label on `drive` that counts, read within `limit`. Reads nothing else of a drive without one.
pub(crate) fn read_label(drive: &Drive, limit: Duration) -> Result<Option<Reading>, ControlError> {
    within(drive, limit, |io| {
        let Some(label) = io.newest_label()?.filter(|label| !label.destroyed) else {
            return Ok(None);
        };
        let (written_over, overwritten) = (io.written_over()?, io.overwritten()?);
        Ok(Some(Reading { label, written_over, overwritten }))
    })
}

/// What other software has put on a labelled `drive` since, by its usual name.
pub(crate) fn written_over(drive: &Drive) -> Result<Option<&'static str>, ControlError> {
    within(drive, LOOK_LIMIT, |io| io.written_over())
}

/// The end of a labelled `drive` at which its labels were overwritten.
pub(crate) fn overwritten(drive: &Drive) -> Result<Option<Copy>, ControlError> {
    within(drive, LOOK_LIMIT, |io| io.overwritten())
}

/// Marks `drive`'s label as destroyed if it is one of `array`.
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
    /// What other software has put on the drive since, by its usual name: its contents are no longer the member's,
    /// though its labels, which lie in two rings, survived.
    pub(crate) written_over: Option<&'static str>,
    /// The end at which its labels were overwritten, while those at the other end survived.
    pub(crate) overwritten: Option<Copy>,
}

impl Labelled {
    /// What tells the drive's medium from others.
    pub(crate) fn identity(&self) -> String {
        self.drive.device.identity()
    }

    /// Whether its contents can be those of the member its label names.
    pub(crate) fn is_usable(&self) -> bool {
        self.written_over.is_none() && self.overwritten.is_none()
    }

    /// What makes the drive useless as the member its label names; `None` when it is not.
    pub(crate) fn damage(&self) -> Option<String> {
        let path = &self.drive.path;
        if let Some(found) = self.written_over {
            return Some(format!("{path} now holds {found}, so it is not used"));
        }
        let end = match self.overwritten? {
            Copy::Head => "at its start",
            Copy::Tail => "at its end",
        };
        Some(format!(
            "{path} was overwritten or truncated: its labels {end} are missing, and other content may be missing \
             too, so it is not used"
        ))
    }

    /// Why the drive is not used as the member its label names, and what to do; `None` when it is.
    pub(crate) fn objection(&self) -> Option<Text> {
        let damage = self.damage()?;
        let (path, name, slot) = (&self.drive.path, &self.label.name, self.label.slot);
        let text = say(format!(
            "{damage}, though it was member {slot} of array {name}; once the array runs, "
        ));
        let again = replace(name, Some(slot.0.into()), path);
        Some(if self.written_over.is_some() {
            text.say("replace the member by another drive, or by this one if its content is not needed: ")
                .run(ReplaceMemberRequest { overwrite: true, ..again })
        } else {
            text.say("let it be rebuilt: ")
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

/// Everything known that is on a drive.
pub(crate) fn look(drive: &Drive) -> Result<OnDrive, ControlError> {
    let mut wait = control_wait();
    Ok(MemberIo::open(drive, &mut wait)?.look()?)
}

/// Removes what is Strake's.
pub(crate) fn wipe(drive: &Drive) -> Result<(), ControlError> {
    let mut wait = control_wait();
    Ok(MemberIo::open(drive, &mut wait)?.disown()?)
}

/// The geometry that a label describes, when this version knows it.
pub(crate) fn geometry_of(label: &Superblock) -> Option<Geometry> {
    understood(label).ok()
}
