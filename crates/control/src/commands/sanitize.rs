//! Sanitize operations of NVMe drives.

use strake_api::v1::{DriveChange, FormatDriveRequest, SanitizeDriveRequest};
use strake_nvme_wire::maintenance::format::Erase;
use strake_nvme_wire::maintenance::sanitize::{Action, start};
use strake_wording::say;

use crate::bounded;
use crate::commands::erase::{Erasable, Wanted};
use crate::control::Control;
use crate::drives::maintenance::Undone;
use crate::error::ControlError;
use crate::events::EventKind;
use crate::limits::SANITIZE_START_LIMIT;
use crate::state::maintenance::Operation;

/// Starts a sanitize operation of an NVMe drive. The drive executes the operation, and upkeep follows its progress.
///
/// # Errors
/// If the drive is in use or holds content whose loss the request does not accept, it does not support the action,
/// it has several namespaces, or it does not answer.
pub fn sanitize_drive(
    control: &Control,
    request: &SanitizeDriveRequest,
) -> Result<DriveChange, ControlError> {
    let action = Action::from_word(&request.action).ok_or_else(|| {
        let actions = Action::ALL.map(Action::word).join(", ");
        ControlError::usage(format!("there is no action {:?}; use: {actions}", request.action))
    })?;
    let SanitizeDriveRequest { path, serial, force, .. } = request;
    let erasable = Erasable::check(control, &Wanted { path, serial, force: *force })?;
    check_action(&erasable, action)?;
    let mut plan = erasable.plan.clone();
    plan.push(format!(
        "erase all data of {} with the sanitize action {}; the drive cannot stop this operation, and serves no \
         reads and writes until it has succeeded",
        erasable.title(),
        action.word()
    ));
    if request.dry_run {
        return Ok(erasable.answer(control, "planned", plan));
    }
    let maintained = erasable.maintained.clone();
    let name = format!("sanitize of {}", erasable.subject.path);
    let what = format!("a sanitize operation ({}) of {} started", action.word(), erasable.title());
    // The drive is refused for arrays before it starts to erase.
    let mut begun = erasable.begin(control, Operation::Sanitize, what)?;
    begun.sent();
    let job = move || maintained.execute(start(action));
    // Only a confirmed start is followed: otherwise the result of an earlier operation would count for this one.
    let unconfirmed = match bounded::ask(&name, SANITIZE_START_LIMIT, job) {
        Ok(Ok(())) => None,
        Ok(Err(Undone::Unchanged(why))) => {
            begun.restored(EventKind::DriveMaintenanceFailed, "was refused by the drive", &why);
            let path = &erasable.subject.path;
            return Err(ControlError::device(format!("{path} is not sanitized: {why}")));
        }
        Ok(Err(Undone::Unknown(why))) => Some(ControlError::device(why)),
        Err(error) => Some(error.into()),
    };
    if let Some(error) = unconfirmed {
        begun.failed(&format!(
            "the drive did not confirm the start of the sanitize operation ({}), and may execute it; sanitize the \
             drive again before it is used",
            error.what
        ));
        return Err(error);
    }
    begun.follow();
    Ok(erasable.answer(control, "started", plan))
}

/// Refuses an action that the drive does not support, or that erases other namespaces, too.
fn check_action(erasable: &Erasable, action: Action) -> Result<(), ControlError> {
    let (path, functions) = (&erasable.subject.path, &erasable.maintained.functions);
    let supported: Vec<&str> = functions.sanitize.actions().map(Action::word).collect();
    if supported.is_empty() {
        let what = say(format!("{path} does not support sanitize operations; "));
        let erase = if functions.format.crypto { Erase::Crypto } else { Erase::User };
        let format = FormatDriveRequest {
            path: path.clone(),
            erase: erase.word().to_owned(),
            ..FormatDriveRequest::default()
        };
        return Err(ControlError::state(what.say("to erase it with a format: ").run(format)));
    }
    if !functions.sanitize.has(action) {
        return Err(ControlError::state(format!(
            "{path} does not support the sanitize action {}; it supports: {}",
            action.word(),
            supported.join(", ")
        )));
    }
    erasable.refuse_others("a sanitize operation")
}
