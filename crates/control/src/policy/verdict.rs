//! The effect of an import, determined without writes.

use strake_api::v1 as api;
use strake_engine::{ArrayError, AssemblePolicy, too_few, waiting};
use strake_ondisk::{Assembled, Found, Policy, RecordedState, Verdict};
use strake_units::MemberSet;
use strake_wording::{Text, import, say};

use crate::drives::label::{Labelled, geometry_of};
use crate::error::ControlError;
use crate::policy::candidates::{objections, usable};
use crate::record::store::ArrayRecord;
use crate::state::offline::Offline;

/// Returns the array that an import of `here` would start, or the reason why it would not start.
pub(crate) fn planned(
    record: &ArrayRecord,
    here: &[Labelled],
    policy: AssemblePolicy,
) -> Result<api::Array, ControlError> {
    let usable: Vec<&Labelled> = usable(here, policy);
    let usable = usable.into_iter();
    let found = usable.enumerate().map(|(at, labelled)| Found {
        drive: at,
        device_bytes: labelled.drive.device.info().bytes(),
        label: labelled.label.clone(),
        // The start of the array detects an older snapshot of a member.
        confirmed: false,
        before: None,
    });
    let policy = Policy { allow_degraded: policy.allow_degraded };
    let verdicts = strake_ondisk::assemble(found.collect(), policy);
    let name = &record.name;
    let mut why = say(format!("array {name} would not be started: no valid label was found"));
    let refused =
        |error: ArrayError| say("it would not be started: ").then(ControlError::from(error).text());
    for verdict in verdicts {
        match verdict {
            Verdict::Assembled(assembled) => {
                if let Some(too_few) = too_few_of(&assembled) {
                    why = refused(too_few);
                    continue;
                }
                let none = ControlError::state(String::new());
                return Ok(Offline::new(record, &none, here).view(record, Vec::new()));
            }
            Verdict::Waiting { superblock, missing, rebuilding, present } => {
                why = refused(waiting(&superblock, &missing, &rebuilding, &present));
            }
            Verdict::Refused { .. } => {
                why = say(format!(
                    "array {name} would be refused: one member is on several drives, or its members were started \
                     apart from each other; "
                ))
                .run(import(name))
                .say(" shows which, and changes nothing");
            }
            Verdict::Ignored { .. } => {}
        }
    }
    let all = std::iter::once(why).chain(objections(here));
    Err(ControlError::refused(Text::join(all, "; ")))
}

/// Returns the error of an array with too few members, if applicable.
fn too_few_of(assembled: &Assembled) -> Option<ArrayError> {
    let geometry = geometry_of(&assembled.superblock)?;
    let members = assembled.members.iter().enumerate();
    let absent = members.filter(|(_, m)| m.drive.is_none() || m.state != RecordedState::InSync);
    let absent: MemberSet = absent.map(|(slot, _)| slot).collect();
    let tolerated = geometry.tolerates(absent);
    (!tolerated).then(|| too_few(&assembled.superblock, &geometry, absent))
}
