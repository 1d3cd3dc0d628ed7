//! The measures that contain this process, for the diagnosis.

use strake_api::v1::DoctorCheck;

use crate::finding::{Finding, check, fine};

/// A measure that limits the damage by a fault of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The subject, such as `core dumps`.
    pub name: &'static str,
    /// The state of the measure.
    pub what: String,
    /// The remedy, if the measure is not in force.
    pub remedy: Option<String>,
}

impl Measure {
    /// Creates a measure that is in force.
    pub fn in_force(name: &'static str, what: impl Into<String>) -> Self {
        Self { name, what: what.into(), remedy: None }
    }

    /// Creates a measure that is not in force, for the reason `what`.
    pub fn absent(name: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, what: what.into(), remedy: Some(remedy.into()) }
    }

    /// Returns the check of the diagnosis.
    pub(crate) fn checked(&self) -> (Finding, DoctorCheck) {
        let name = format!("daemon {}", self.name);
        match &self.remedy {
            None => fine(name, self.what.clone()),
            Some(remedy) => check(name, Finding::Warning, self.what.clone(), remedy.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Finding, Measure};

    #[test]
    fn a_measure_that_is_not_in_force_is_a_warning_with_a_remedy() {
        let (found, check) = Measure::in_force("core dumps", "never written").checked();
        assert_eq!((found, check.next_action.as_str()), (Finding::Ok, ""));
        let absent = Measure::absent("core dumps", "permitted", "remove the option");
        let (found, check) = absent.checked();
        assert_eq!((found, check.next_action.as_str()), (Finding::Warning, "remove the option"));
        assert_eq!(check.name, "daemon core dumps");
    }
}
