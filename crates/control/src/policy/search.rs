//! What a start finds at the recorded paths of an array, and what follows for the start.

use strake_engine::AssemblePolicy;
use strake_wording::say;

use crate::drives::label::Labelled;
use crate::error::{ControlError, ControlErrorKind, OfflineReason};
use crate::policy::candidates::{push_once, suffice_without};

/// Why a drive at a recorded path is not used.
pub(crate) enum Unused {
    /// Its newest label is sound, and this version does not understand it.
    Label(ControlError),
    /// It cannot be opened or read.
    Otherwise(ControlError),
}

impl Unused {
    /// The drive did not answer in time, or still owes answers of an earlier use.
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
    /// Nothing when it is a label of another array than `uuid`, or else itself.
    pub(crate) fn unless_of_another(self, uuid: &str) -> Result<Option<Labelled>, Self> {
        match self {
            Self::Label(error) if error.array.is_some_and(|array| array.to_string() != uuid) => {
                Ok(None)
            }
            unused => Err(unused),
        }
    }
}

/// An error of reading the label of a drive that was opened.
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

/// Whether the array of a label that is refused is `uuid`.
pub(crate) fn is_of(refused: &ControlError, uuid: &str) -> bool {
    refused.array.is_some_and(|array| array.to_string() == uuid)
}

/// Why an array is not started degraded while `label`, which is refused, is one of its labels.
pub(crate) fn not_without(name: &str, label: &ControlError) -> ControlError {
    held_up(&label.what, name)
}

/// `why`, and that a refused label keeps the array from being started degraded.
fn held_up(why: &str, name: &str) -> ControlError {
    ControlError::refused(format!(
        "{why}; array {name} is not started degraded while this drive is present: its label may be newer than those \
         of the other drives"
    ))
    .because(OfflineReason::RefusedLabel)
}

/// What was found of a recorded array.
#[derive(Default)]
pub(crate) struct Search {
    /// Its drives.
    pub(crate) here: Vec<Labelled>,
    /// Why recorded drives are not used.
    pub(crate) trouble: Vec<String>,
    /// Why recorded drives that are there cannot be opened.
    pub(crate) unusable: Vec<String>,
    /// Recorded paths that do not answer.
    silent: usize,
    /// Why labels of it are refused: another version wrote them, and may know more of the array. A label that may be of
    /// another array counts at a recorded path.
    refused: Vec<String>,
}

impl Search {
    /// Notes why a recorded drive is not used.
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

    /// Adds what was found at a path that is not recorded. A drive may have moved there.
    pub(crate) fn add_other(&mut self, found: Result<Option<Labelled>, Unused>) {
        match found {
            Ok(Some(found)) => push_once(&mut self.here, found),
            Err(Unused::Label(error)) if error.array.is_some() => {
                self.note(Unused::Label(error));
            }
            Ok(None) | Err(_) => {}
        }
    }

    /// `policy`, but for starting without members whose labels are refused: what they say may be newer.
    pub(crate) fn within(&self, policy: AssemblePolicy) -> AssemblePolicy {
        let enough = policy.allow_degraded || suffice_without(&self.here, self.silent);
        AssemblePolicy { allow_degraded: enough && self.refused.is_empty(), ..policy }
    }

    /// `error`, with the labels that are refused, and the drives that are there and cannot be opened.
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
            // What the array could do without that drive, it cannot do beside it.
            let name = self.here[0].label.name.as_str();
            return held_up(&format!("{refused}; {waits}"), name);
        }
        let (kind, offline) = (error.kind, error.offline.clone());
        ControlError::new(kind, say(refused + "; ").then(error.text())).because(offline)
    }
}
