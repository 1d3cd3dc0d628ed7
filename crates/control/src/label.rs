//! Reading labels outside of a running array.

use strake_dev_uring::control_wait;
use strake_engine::{Drive, Inspection, MemberIo, Superblock, mark_destroyed};
use strake_ondisk::Copy;

use crate::error::ControlError;

/// What is on `drive`.
pub(crate) fn inspect(drive: &Drive) -> Result<Inspection, ControlError> {
    let mut wait = control_wait();
    Ok(MemberIo::open(drive, &mut wait)?.inspect()?)
}

/// The newest label on `drive`. Reads nothing else of it.
pub(crate) fn newest_label(drive: &Drive) -> Result<Option<Superblock>, ControlError> {
    let mut wait = control_wait();
    Ok(MemberIo::open(drive, &mut wait)?.newest_label()?)
}

/// What somebody else has put on a labelled `drive` since, by its usual name.
pub(crate) fn written_over(drive: &Drive) -> Result<Option<&'static str>, ControlError> {
    let mut wait = control_wait();
    Ok(MemberIo::open(drive, &mut wait)?.written_over()?)
}

/// The end of a labelled `drive` at which somebody has written over its labels.
pub(crate) fn overwritten(drive: &Drive) -> Result<Option<Copy>, ControlError> {
    let mut wait = control_wait();
    Ok(MemberIo::open(drive, &mut wait)?.overwritten()?)
}

/// Marks `drive`'s label as destroyed if it is one of `array`.
pub(crate) fn retire(drive: &Drive, array: &str) -> Result<(), ControlError> {
    let ours = inspect(drive)?.label.is_some_and(|l| l.array.to_string() == array && !l.destroyed);
    if ours {
        mark_destroyed(std::slice::from_ref(drive), &mut control_wait())?;
    }
    Ok(())
}
