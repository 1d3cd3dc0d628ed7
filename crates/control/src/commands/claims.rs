//! Drives in use: members, waiting copies, and spares.

use strake_engine::Drive;
use strake_wording::say;

use crate::error::ControlError;
use crate::manager::Manager;
use crate::remedy::{job, remove_spare};

/// Refuses drives of running arrays, and spares.
pub(crate) fn refuse_members(manager: &Manager, drives: &[Drive]) -> Result<(), ControlError> {
    refuse_members_but(manager, drives, None)
}

/// Refuses drives like [`refuse_members`], except a drive that is reserved for `own`: an array and a slot.
pub(crate) fn refuse_members_but(
    manager: &Manager,
    drives: &[Drive],
    own: Option<(&str, usize)>,
) -> Result<(), ControlError> {
    for drive in drives {
        let identity = drive.device.identity();
        manager.maintenance.refuse(&identity)?;
        if let Some((name, slot)) = manager.records.promised(&identity, own) {
            let what = format!(
                "{} is the replacement of member {slot} of array {name}; use another drive, or cancel the replace \
                 first: ",
                drive.path
            );
            let cancel = job("cancel", format!("{name}/replace"));
            return Err(ControlError::refused(say(what).run(cancel)));
        }
        if let Some((slot, name)) = manager.place_of(&identity) {
            return Err(ControlError::refused(format!(
                "{} is member {slot} of array {name}; use another drive",
                drive.path
            )));
        }
        if let Some(spare) = manager.records.spares.iter().find(|s| s.identity == identity) {
            let what = format!(
                "{} is a spare; use another drive, or remove the spare first: ",
                drive.path
            );
            return Err(ControlError::refused(say(what).run(remove_spare(&spare.path))));
        }
    }
    Ok(())
}
