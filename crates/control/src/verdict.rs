//! What an import would do, told without writing anything.

use strake_api::v1 as api;
use strake_engine::AssemblePolicy;
use strake_ondisk::{Found, Policy, Verdict};
use strake_units::MemberIndex;

use crate::error::ControlError;
use crate::offline::{Labelled, Offline};
use crate::store::ArrayRecord;

/// The array that importing `here` would start, or why it would not be.
pub(crate) fn planned(
    record: &ArrayRecord,
    here: &[Labelled],
    policy: AssemblePolicy,
) -> Result<api::Array, ControlError> {
    let usable = here.iter().filter(|l| l.written_over.is_none());
    let found = usable.enumerate().map(|(at, labelled)| Found {
        drive: at,
        device_bytes: labelled.drive.device.info().bytes(),
        label: labelled.label.clone(),
    });
    let policy = Policy { allow_degraded: policy.allow_degraded };
    let verdicts = strake_ondisk::assemble(found.collect(), policy);
    let name = &record.name;
    let mut why = format!("array {name} would not be started: no valid label was found");
    for verdict in verdicts {
        match verdict {
            Verdict::Assembled(_) => {
                let none = ControlError::state(String::new());
                return Ok(Offline::new(record, &none, here).view(record, Vec::new()));
            }
            Verdict::Waiting { missing, .. } => {
                let missing: Vec<String> = missing.iter().map(MemberIndex::to_string).collect();
                why = format!(
                    "array {name} would wait for member {}, last seen in sync; bring it back, or start without it: \
                     strake array import {name} --degraded",
                    missing.join(", ")
                );
            }
            Verdict::Refused { .. } => {
                why = format!(
                    "array {name} would be refused: one member is on several drives, or its members were started \
                     apart from each other; strake array import {name} says which, and changes nothing either"
                );
            }
            Verdict::Ignored { .. } => {}
        }
    }
    Err(ControlError::refused(why))
}
