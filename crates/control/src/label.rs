//! Reading labels outside of a running array. Each look has a limit: the drive is asked by a thread that can be left
//! behind.

use std::time::Duration;

use strake_dev_uring::{control_wait, control_wait_for};
use strake_engine::{ArrayError, Drive, Inspection, MemberIo, Superblock, mark_destroyed};
use strake_ondisk::Copy;
use strake_units::Nanos;

use crate::bounded;
use crate::error::ControlError;
use crate::limits::LOOK_LIMIT;

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
    /// What somebody else has put on the drive since, by its usual name.
    pub(crate) written_over: Option<&'static str>,
    /// The end at which somebody has written over its labels.
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

/// What somebody else has put on a labelled `drive` since, by its usual name.
pub(crate) fn written_over(drive: &Drive) -> Result<Option<&'static str>, ControlError> {
    within(drive, LOOK_LIMIT, |io| io.written_over())
}

/// The end of a labelled `drive` at which somebody has written over its labels.
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
