//! Errors of commands.

use std::fmt;

use crate::remedy::on_drives;
use strake_api::v1::TextPart;
use strake_engine::{ArrayError, ArrayErrorKind, ArrayRemedy};
use strake_export_nvmet::{ExportError, ExportErrorKind};
use strake_units::Uuid;
use strake_wording::{Amendment, Command, Text};

use crate::remedy::text_of;

/// The kind of an error, which determines the gRPC status and the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlErrorKind {
    /// The request is invalid.
    Usage,
    /// There is no such array, drive or export.
    NotFound,
    /// Another object has the name.
    Exists,
    /// The state of the object does not allow the operation.
    State,
    /// The operation would lose data or affect an object in use, and the request does not accept this.
    Refused,
    /// A drive, a socket or another resource of the host failed.
    Device,
    /// A drive did not answer in time, or still has outstanding requests of an earlier use.
    Silent,
    /// The state directory cannot be written, so nothing was changed.
    Store,
    /// The daemon, a core or the array is stopping.
    Stopped,
    /// An internal error of the control plane.
    Internal,
}

/// The reason why an array is not started, as far as advice depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum OfflineReason {
    /// There is no problem. The array is started as soon as its drives have settled.
    Settling,
    /// The start would lose data, which the operator must accept.
    Consent,
    /// A label that this version does not support may be newer than the others.
    RefusedLabel,
    /// Members are missing, and the array could start without them. The text is the reason of the wait, without this
    /// offer.
    Missing(String),
    /// Any other reason.
    #[default]
    Other,
}

/// An error: a kind to match, and a text for the operator.
#[derive(Debug)]
pub struct ControlError {
    /// The kind of the error.
    pub kind: ControlErrorKind,
    /// The failed operation, the object, the reason and the remedy.
    pub what: String,
    /// The text in parts. Requests are parts with typed data.
    pub parts: Vec<TextPart>,
    /// The array of a label that this version does not support; `None` for other errors.
    pub array: Option<Uuid>,
    pub(crate) offline: OfflineReason,
    /// The amendment with which the request may succeed, and the text between `what` and the amended request.
    offer: Option<(Amendment, &'static str)>,
}

impl ControlError {
    /// Creates an error of `kind` with the text `what`.
    pub fn new(kind: ControlErrorKind, what: impl Into<Text>) -> Self {
        let Text { words: what, parts } = what.into();
        Self { kind, what, parts, array: None, offline: OfflineReason::Other, offer: None }
    }

    pub(crate) fn because(self, offline: OfflineReason) -> Self {
        Self { offline, ..self }
    }

    /// Adds a remedy: the same request with `amendment`, after the text `words`.
    pub(crate) fn unless(self, amendment: Amendment, words: &'static str) -> Self {
        Self { offer: Some((amendment, words)), ..self }
    }

    /// Adds `command` with the amendment as the remedy.
    pub(crate) fn of_command(self, command: &impl Command) -> Self {
        let Some((amendment, words)) = self.offer else { return self };
        let Some(request) = command.amended(amendment) else { return self };
        let (what, parts) = (self.what, self.parts);
        let Text { words: what, parts } = Text { words: what, parts }.say(words).run(request);
        Self { what, parts, offer: None, ..self }
    }

    /// Names `drives` in the imports of the remedy, for an array that is not recorded.
    pub(crate) fn on_drives(self, drives: &[String]) -> Self {
        let (what, parts) = (self.what, self.parts);
        let Text { words: what, parts } = on_drives(Text { words: what, parts }, drives);
        Self { what, parts, ..self }
    }

    /// Returns the text with its requests.
    pub(crate) fn text(self) -> Text {
        Text { words: self.what, parts: self.parts }
    }

    pub(crate) fn exists(what: impl Into<Text>) -> Self {
        Self::new(ControlErrorKind::Exists, what)
    }

    pub(crate) fn usage(what: impl Into<Text>) -> Self {
        Self::new(ControlErrorKind::Usage, what)
    }

    pub(crate) fn not_found(what: impl Into<Text>) -> Self {
        Self::new(ControlErrorKind::NotFound, what)
    }

    pub(crate) fn state(what: impl Into<Text>) -> Self {
        Self::new(ControlErrorKind::State, what)
    }

    pub(crate) fn refused(what: impl Into<Text>) -> Self {
        Self::new(ControlErrorKind::Refused, what)
    }

    pub(crate) fn device(what: impl Into<Text>) -> Self {
        Self::new(ControlErrorKind::Device, what)
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for ControlError {}

impl From<ArrayError> for ControlError {
    fn from(error: ArrayError) -> Self {
        let kind = match error.kind {
            ArrayErrorKind::Usage => ControlErrorKind::Usage,
            ArrayErrorKind::State => ControlErrorKind::State,
            ArrayErrorKind::Refused => ControlErrorKind::Refused,
            ArrayErrorKind::Device => ControlErrorKind::Device,
            ArrayErrorKind::Silent => ControlErrorKind::Silent,
            ArrayErrorKind::Gone => ControlErrorKind::Stopped,
        };
        let remedy = error.remedy.as_deref();
        let offline = match remedy {
            Some(ArrayRemedy::StartWithout(_)) => OfflineReason::Missing(error.what.clone()),
            Some(remedy) if remedy.accepts_loss() => OfflineReason::Consent,
            Some(ArrayRemedy::Start(..) | ArrayRemedy::Replace(..)) | None => OfflineReason::Other,
        };
        let text = text_of(error.what, remedy);
        Self { array: error.array, ..Self::new(kind, text).because(offline) }
    }
}

impl From<ExportError> for ControlError {
    fn from(error: ExportError) -> Self {
        if error.kind == ExportErrorKind::Listen {
            // The caller chose the address, so the caller can change it.
            return Self::state(format!("{error}; choose another address"))
                .unless(Amendment::Address, ": ");
        }
        let kind = match error.kind {
            ExportErrorKind::BadAddress
            | ExportErrorKind::BadExport
            | ExportErrorKind::BadReferral => ControlErrorKind::Usage,
            ExportErrorKind::Duplicate => ControlErrorKind::Exists,
            ExportErrorKind::Unknown => ControlErrorKind::NotFound,
            ExportErrorKind::InUse => ControlErrorKind::Refused,
            ExportErrorKind::TooMany => ControlErrorKind::State,
            ExportErrorKind::BadReservations => ControlErrorKind::Store,
            ExportErrorKind::Listen | ExportErrorKind::DrainTimeout | ExportErrorKind::System => {
                ControlErrorKind::Device
            }
            ExportErrorKind::Stopped => ControlErrorKind::Stopped,
        };
        let unless = |new: Self| match error.kind {
            ExportErrorKind::InUse => new.unless(Amendment::Force, ": "),
            _ => new,
        };
        unless(Self::new(kind, error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::ControlError;
    use strake_api::v1::{CreateArrayRequest, CreateExportRequest};
    use strake_export_nvmet::{ExportError, ExportErrorKind};
    use strake_wording::Amendment;

    /// The history of the bug: a refused dry run advised the command that overwrites.
    #[test]
    fn a_refused_dry_run_advises_a_dry_run() {
        let advice = |dry_run| {
            let request = CreateArrayRequest { name: "tank".into(), dry_run, ..Default::default() };
            let refused = ControlError::refused("it is in use").unless(Amendment::Overwrite, ": ");
            refused.of_command(&request).what
        };
        assert_eq!(advice(true), format!("{} --dry-run", advice(false)));
        assert!(advice(false).ends_with("--overwrite"));
    }

    /// The history of the bug: the address was advised with a flag, also to clients without flags.
    #[test]
    fn an_address_in_use_is_amended_if_the_request_has_one() {
        let error = || {
            let source = std::io::ErrorKind::AddrInUse.into();
            let error = ExportError::system(ExportErrorKind::Listen, "it is in use", source);
            ControlError::from(error)
        };
        let export = CreateExportRequest { array: "tank".into(), ..Default::default() };
        let advice = "; choose another address: strake export create tank --listen ADDRESS";
        assert!(error().of_command(&export).what.ends_with(advice), "{}", error());
        let other = error().of_command(&CreateArrayRequest::default());
        assert!(other.what.ends_with("; choose another address"), "{other}");
    }
}
