//! The check before a stop of the daemon.

use strake_api::v1::StopDaemonRequest;
use strake_wording::say;

use crate::control::Control;
use crate::error::ControlError;
use crate::history::Outcome;
use crate::manager::Manager;
use crate::policy::advice::keep_open;

/// Name of the loss that a stop may cause.
const DATA: &str = "data";

/// Permission to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayStop;

impl Outcome for MayStop {
    fn word(&self) -> &'static str {
        "accepted"
    }
}

impl Control {
    /// Checks that the daemon may stop. Stops nothing.
    ///
    /// # Errors
    /// If the data of an array depend on a drive that is accessible only because it is open, unless the request accepts
    /// the loss.
    pub fn check_stop(&self, request: &StopDaemonRequest) -> Result<MayStop, ControlError> {
        if let Some(other) = request.accept.iter().find(|loss| *loss != DATA) {
            let what = format!(
                "{other:?} is not a loss that a stop can cause; the only valid loss is {DATA}"
            );
            return Err(ControlError::usage(what));
        }
        self.with(|m| m.check_stop(request))??;
        Ok(MayStop)
    }
}

impl Manager {
    fn check_stop(&self, request: &StopDaemonRequest) -> Result<(), ControlError> {
        if !request.accept.is_empty() {
            return Ok(());
        }
        for running in &self.running {
            let entry = self.entries.get(&running.uuid());
            let members = 0..running.drives.len();
            let member = members.into_iter().find(|slot| entry.slot(*slot).unreachable.is_some());
            if let Some(member) = member {
                let name = running.array.name();
                let what = format!(
                    "array {name} depends on member {member}, which no longer has a path: after a stop, the array \
                     cannot start, and its data are lost. {}. To stop anyway: ",
                    keep_open(&name.to_string())
                );
                let anyway = StopDaemonRequest { accept: vec![DATA.to_owned()] };
                return Err(ControlError::refused(say(what).run(anyway)));
            }
        }
        Ok(())
    }
}
