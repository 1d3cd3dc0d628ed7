//! The results of a search at the recorded paths of an array, and their consequences for the start.

use strake_engine::AssemblePolicy;
use strake_wording::say;

use crate::drives::label::Labelled;
use crate::error::{ControlError, ControlErrorKind, OfflineReason};
use crate::policy::candidates::{push_once, suffice_without};

/// The reason why a drive at a recorded path is not used.
pub(crate) enum Unused {
    /// Its newest label is valid, but this version does not support it.
    Label(ControlError),
    /// The drive cannot be opened or read.
    Otherwise(ControlError),
}

impl Unused {
    /// True if the drive did not answer in time, or still has outstanding requests of an earlier use.
    pub(crate) fn is_silent(&self) -> bool {
        let (Self::Label(error) | Self::Otherwise(error)) = self;
        error.kind == ControlErrorKind::Silent
    }
}

impl From<ControlError> for Unused {
    fn from(error: ControlError) -> Self {
        Self::Otherwise(error)
    }
}

impl Unused {
    /// Returns `None` for a label of an array other than `uuid`, otherwise the reason itself.
    pub(crate) fn unless_of_another(self, uuid: &str) -> Result<Option<Labelled>, Self> {
        match self {
            Self::Label(error) if error.array.is_some_and(|array| array.to_string() != uuid) => {
                Ok(None)
            }
            unused => Err(unused),
        }
    }
}

/// Converts an error of a label read.
pub(crate) fn of_label(error: ControlError) -> Unused {
    match error.kind {
        ControlErrorKind::Refused => Unused::Label(error),
        ControlErrorKind::Usage
        | ControlErrorKind::NotFound
        | ControlErrorKind::Exists
        | ControlErrorKind::State
        | ControlErrorKind::Device
        | ControlErrorKind::Silent
        | ControlErrorKind::Store
        | ControlErrorKind::Stopped
        | ControlErrorKind::Internal => Unused::Otherwise(error),
    }
}

/// True if a refused label belongs to the array `uuid`.
pub(crate) fn is_of(refused: &ControlError, uuid: &str) -> bool {
    refused.array.is_some_and(|array| array.to_string() == uuid)
}

/// Returns the reason why an array is not started degraded because of the refused label `label`.
pub(crate) fn not_without(name: &str, label: &ControlError) -> ControlError {
    held_up(&label.what, name)
}

/// Returns an error with `why`: a refused label prevents a degraded start.
fn held_up(why: &str, name: &str) -> ControlError {
    ControlError::refused(format!(
        "{why}; array {name} is not started degraded while this drive is present: its label may be newer than those \
         of the other drives"
    ))
    .because(OfflineReason::RefusedLabel)
}

/// The results of a search for a recorded array.
#[derive(Default)]
pub(crate) struct Search {
    /// The drives of the array.
    pub(crate) here: Vec<Labelled>,
    /// Reasons why recorded drives are not used.
    pub(crate) trouble: Vec<String>,
    /// The reasons why recorded drives that are present cannot be opened.
    pub(crate) unusable: Vec<String>,
    /// Recorded paths that do not answer.
    silent: usize,
    /// Reasons why labels of the array are refused: another version wrote them, and may have a newer state of the
    /// array. At a recorded path, a label that may belong to another array counts too.
    refused: Vec<String>,
}

impl Search {
    /// Records the reason why a recorded drive is not used.
    pub(crate) fn note(&mut self, unused: Unused) {
        self.silent += usize::from(unused.is_silent());
        match unused {
            Unused::Label(error) => {
                self.refused.push(error.what.clone());
                self.trouble.push(error.what);
            }
            Unused::Otherwise(error) => self.trouble.push(error.what),
        }
    }

    /// Adds the result at an unrecorded path, to which a drive may have moved.
    pub(crate) fn add_other(&mut self, found: Result<Option<Labelled>, Unused>) {
        match found {
            Ok(Some(found)) => push_once(&mut self.here, found),
            Err(Unused::Label(error)) if error.array.is_some() => {
                self.note(Unused::Label(error));
            }
            Ok(None) | Err(_) => {}
        }
    }

    /// Returns `policy` without permission to start without members whose labels are refused, because these labels may
    /// be newer.
    pub(crate) fn within(&self, policy: AssemblePolicy) -> AssemblePolicy {
        let enough = policy.allow_degraded || suffice_without(&self.here, self.silent);
        AssemblePolicy { allow_degraded: enough && self.refused.is_empty(), ..policy }
    }

    /// Returns `error` with the refused labels, and with the drives that are present and cannot be opened.
    pub(crate) fn explained(&self, error: ControlError) -> ControlError {
        if self.here.is_empty() {
            return error;
        }
        if self.refused.is_empty() {
            let OfflineReason::Missing(waits) = &error.offline else { return error };
            if self.unusable.is_empty() {
                return error;
            }
            let unusable = self.unusable.join("; ");
            let offline = OfflineReason::Missing(format!("{unusable}; {waits}"));
            let kind = error.kind;
            return ControlError::new(kind, say(unusable + "; ").then(error.text()))
                .because(offline);
        }
        let refused = self.refused.join("; ");
        if let OfflineReason::Missing(waits) = &error.offline {
            // The array could start degraded without that drive, but not while the drive is present.
            let name = self.here[0].label.name.as_str();
            return held_up(&format!("{refused}; {waits}"), name);
        }
        let (kind, offline) = (error.kind, error.offline.clone());
        ControlError::new(kind, say(refused + "; ").then(error.text())).because(offline)
    }
}
