//! Findings: the results of checks of the doctor.

use strake_api::v1::DoctorCheck;
use strake_wording::Text;

use crate::remedy::split;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Finding {
    Ok,
    Warning,
    Failed,
}

impl Finding {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// Builds a check. `next` is the remedy, empty without one.
pub(crate) fn check(
    name: impl Into<String>,
    finding: Finding,
    what: impl Into<String>,
    next: impl Into<Text>,
) -> (Finding, DoctorCheck) {
    let (next_action, remedy) = split(next);
    let (state, name, what) = (finding.word().to_owned(), name.into(), what.into());
    (finding, DoctorCheck { name, state, what, next_action, remedy })
}

/// Builds a check without a problem.
pub(crate) fn fine(name: impl Into<String>, what: impl Into<String>) -> (Finding, DoctorCheck) {
    check(name, Finding::Ok, what, "")
}
