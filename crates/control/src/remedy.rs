//! Requests that are remedies of several faults, and the conversion of the engine's remedies.

use std::fmt::Display;

use strake_api::v1 as api;
use strake_api::v1::text_part::Part;
use strake_engine::{ArrayRemedy, AssemblePolicy};
use strake_wording::{ApiCommand, Text, import, replace, say};

use crate::error::ControlError;

/// The policy that accepts a start with fewer members than before.
pub(crate) const DEGRADED: AssemblePolicy =
    AssemblePolicy { allow_degraded: true, accept_loss: false };

/// The policy that also accepts a loss.
pub(crate) const LOSSY: AssemblePolicy = AssemblePolicy { allow_degraded: true, accept_loss: true };

/// Placeholder for a file with a secret or key that the operator chooses.
pub(crate) const FILE: &str = "FILE";

/// Returns the request that starts array `name` with `policy`.
pub(crate) fn start(name: impl Display, policy: AssemblePolicy) -> api::ImportArraysRequest {
    let AssemblePolicy { allow_degraded, accept_loss } = policy;
    api::ImportArraysRequest { allow_degraded, accept_loss, ..import(name) }
}

/// Names `drives` in the imports of a text, which are for an array that is not recorded.
pub(crate) fn on_drives(text: Text, drives: &[String]) -> Text {
    text.amended(|part| {
        if let Part::ImportArrays(request) = part
            && request.drives.is_empty()
        {
            request.drives = drives.to_vec();
        }
    })
}

/// Returns a text of the engine with its remedy.
pub(crate) fn text_of(what: String, remedy: Option<&ArrayRemedy>) -> Text {
    let what = say(what);
    match remedy {
        None => what,
        Some(ArrayRemedy::StartWithout(name)) => {
            what.say(", or start without it: ").run(start(name, DEGRADED))
        }
        Some(ArrayRemedy::Start(name, policy)) => what.say(": ").run(start(name, *policy)),
        Some(ArrayRemedy::Replace(name, member)) => {
            what.say(": ").run(replace(name, Some(member.0.into()), ""))
        }
    }
}

/// Returns the request that starts array `name`, or every array if the name is empty, from drives that the operator
/// names.
pub(crate) fn import_drives(name: &str) -> api::ImportArraysRequest {
    api::ImportArraysRequest { drives: vec!["...".to_owned()], ..import(name) }
}

/// Returns an error that `what` does not exist, with the existing names, or with the request that creates the first
/// object.
pub(crate) fn not_among(what: String, known: &[&str], first: impl ApiCommand) -> ControlError {
    let hint = match known {
        [] => say("none exists yet: ").run(first),
        known => say(format!("existing names: {}", known.join(", "))),
    };
    ControlError::not_found(say(what + "; ").then(hint))
}

/// Returns the request that applies `action` to the job `id`.
pub(crate) fn job(action: &str, id: impl Into<String>) -> api::ChangeJobRequest {
    api::ChangeJobRequest { id: id.into(), action: action.to_owned(), priority: None }
}

/// The request that removes the export `name`.
pub(crate) fn remove_export(name: impl Display) -> api::RemoveExportRequest {
    api::RemoveExportRequest { name: name.to_string(), force: false }
}

/// The request that connects the remote drive at `address`.
pub(crate) fn connect(address: &str) -> api::ConnectDriveRequest {
    api::ConnectDriveRequest { address: address.to_owned(), ..Default::default() }
}

/// The request that disconnects the remote drive at `address`.
pub(crate) fn disconnect(address: &str) -> api::DisconnectDriveRequest {
    api::DisconnectDriveRequest { address: address.to_owned() }
}

/// What to do if the configuration was lost.
pub(crate) fn state_remedy() -> Text {
    say("restore a backup, or import the arrays: ").run(api::ListImportableRequest::default())
}

/// The request that removes the spare at `path`.
pub(crate) fn remove_spare(path: &str) -> api::RemoveSpareRequest {
    api::RemoveSpareRequest { drive: path.to_owned() }
}

/// Splits a remedy into the two fields of a message.
pub(crate) fn split(next: impl Into<Text>) -> (String, Vec<api::TextPart>) {
    let Text { words, parts } = next.into();
    (words, parts)
}

/// Builds a problem of `object` with a remedy.
pub(crate) fn problem(
    object: impl Into<String>,
    severity: &str,
    what: impl Into<String>,
    next: impl Into<Text>,
) -> api::Problem {
    let (next_action, remedy) = split(next);
    let (object, severity, what) = (object.into(), severity.to_owned(), what.into());
    api::Problem { object, severity, what, next_action, remedy }
}

#[cfg(test)]
mod tests {
    use super::{DEGRADED, LOSSY};
    use crate::error::{ControlError, OfflineReason};
    use crate::record::store::ArrayRecord;
    use crate::state::offline::Offline;
    use strake_engine::{ArrayError, ArrayErrorKind, ArrayRemedy};
    use strake_units::MemberIndex;

    fn refused(remedy: ArrayRemedy) -> ControlError {
        let error = ArrayError::new(ArrayErrorKind::Refused, "it waits");
        ArrayError { remedy: Some(Box::new(remedy)), ..error }.into()
    }

    /// The history of the bug: the advice for a stopped array was chosen by words of the error.
    #[test]
    fn what_the_engine_advises_is_spelled_and_decides_here() {
        let check = |remedy, what: &str, offline| {
            let error = refused(remedy);
            assert_eq!((error.what.as_str(), error.offline), (what, offline));
        };
        let tank = || "tank".parse().expect("a name");
        let waits = OfflineReason::Missing("it waits".to_owned());
        let start = "it waits, or start without it: strake array import tank --degraded";
        check(ArrayRemedy::StartWithout(tank()), start, waits);
        let lossy = "it waits: strake array import tank --degraded --accept-loss";
        check(ArrayRemedy::Start(tank(), LOSSY), lossy, OfflineReason::Consent);
        let degraded = "it waits: strake array import tank --degraded";
        check(ArrayRemedy::Start(tank(), DEGRADED), degraded, OfflineReason::Other);
        let replace = "it waits: strake array replace tank --member 2 --with DRIVE";
        check(ArrayRemedy::Replace(tank(), MemberIndex(2)), replace, OfflineReason::Other);
    }

    #[test]
    fn an_array_whose_drives_settle_waits_and_no_other() {
        let record = serde_json::json!({ "uuid": "", "name": "tank", "drives": [] });
        let record: ArrayRecord = serde_json::from_value(record).expect("a record");
        let is_waiting = |offline| {
            let error = ControlError::state("waiting until it is time").because(offline);
            Offline::new(&record, &error, &[]).is_waiting
        };
        assert!(is_waiting(OfflineReason::Settling));
        assert!(!is_waiting(OfflineReason::Consent) && !is_waiting(OfflineReason::Other));
    }
}
