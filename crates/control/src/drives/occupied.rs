//! Content of drives that prevents their use.

use strake_engine::Drive;
use strake_ondisk::Foreign;
use strake_wording::Amendment;

use crate::drives::label::inspect;
use crate::error::ControlError;

/// Text before a request that overwrites drives.
pub(crate) const NOT_NEEDED: &str = ", or, if its content is not needed: ";

/// Returns the content of a drive that prevents its use, by its usual name.
pub(crate) fn occupant(drive: &Drive) -> Result<Option<String>, ControlError> {
    let found = inspect(drive)?;
    let label = found
        .label
        .filter(|l| !l.destroyed)
        .map(|l| format!("a member of array {} ({})", l.name, l.array));
    let foreign = found.foreign.filter(Foreign::is_obstacle);
    Ok(label.or_else(|| foreign.map(|f| f.to_string())))
}

/// Returns the losses if drives are overwritten, as steps of a plan.
///
/// # Errors
/// If a drive cannot be read.
pub(crate) fn overwritten(drives: &[Drive]) -> Result<Vec<String>, ControlError> {
    let mut steps = Vec::new();
    for drive in drives {
        let held = occupant(drive)?;
        steps.extend(held.map(|what| format!("overwrite {}, which holds {what}", drive.path)));
    }
    Ok(steps)
}

/// Refuses drives that are not empty. The error names the content.
pub(crate) fn refuse_occupied(drives: &[Drive]) -> Result<(), ControlError> {
    for drive in drives {
        if let Some(what) = occupant(drive)? {
            let what = format!("{} holds {what}; use another drive", drive.path);
            return Err(ControlError::refused(what).unless(Amendment::Overwrite, NOT_NEEDED));
        }
    }
    Ok(())
}
