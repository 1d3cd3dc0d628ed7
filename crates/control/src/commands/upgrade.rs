//! Conversion of an array to format 2 (`strake array upgrade-format`).
//!
//! The conversion works like growing without additional space: the array is stopped, gets a new label, and is started
//! from its drives. No block moves, so a crash at any time leaves an array of the old or the new format.

use strake_api::v1::{ArrayChange, GrowArrayRequest, UpgradeFormatRequest};
use strake_engine::Change;
use strake_units::ByteSize;

use crate::commands::grow::{Intended, check_ends, plan_growth, switch};
use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Note};

impl Control {
    /// Converts an array to the newest format. If it already has this format, the result is "unchanged".
    ///
    /// # Errors
    /// If a member has no space for the records of this format or is not in sync, another operation on the array is in
    /// progress, clients would be disconnected without acceptance, or a drive fails. The array then keeps its format.
    pub fn upgrade_format(
        &self,
        request: &UpgradeFormatRequest,
    ) -> Result<ArrayChange, ControlError> {
        let UpgradeFormatRequest { name, dry_run, force } = request.clone();
        let stop = GrowArrayRequest { name, dry_run, force };
        let change = Change::UpgradeFormat;
        let (mut intended, mut reserved) = self.reserve(|m| plan_growth(m, &stop, change))?;
        if intended.plan.is_nothing() {
            let Intended { name, view, .. } = intended;
            return Ok(ArrayChange {
                result: "unchanged".into(),
                warnings: vec![format!("array {name} already has format {}", view.format)],
                array: Some(view),
                ..ArrayChange::default()
            });
        }
        check_ends(&intended)?;
        let plan = describe(&intended);
        if dry_run {
            let Intended { warnings, view, .. } = intended;
            let result = "planned".into();
            return Ok(ArrayChange {
                result,
                array: Some(view),
                plan,
                warnings,
                ..Default::default()
            });
        }
        let mut warnings = std::mem::take(&mut intended.warnings);
        warnings.extend(switch(self, &mut intended, &stop, &mut reserved)?);
        let view = self.run(|m| {
            let what = format!("array {} was converted {}", intended.name, intended.plan);
            m.record(Note::of_array(EventKind::ArrayFormatUpgraded, &intended.name, what));
            m.array(&intended.uuid)
        })?;
        let (result, array) = ("changed".into(), Some(view));
        Ok(ArrayChange { result, array, plan, warnings, ..Default::default() })
    }
}

/// Returns the steps of the conversion.
fn describe(intended: &Intended) -> Vec<String> {
    let Intended { name, plan, view, .. } = intended;
    let (before, after) = plan.least_drive_bytes();
    let mut steps =
        vec![format!("stop array {name} briefly; I/O of NVMe/TCP hosts waits during this time")];
    let disconnect =
        |e: &String| format!("disconnect the clients of export {e} if it is an NBD export");
    steps.extend(view.exports.iter().map(disconnect));
    steps.push(format!(
        "label its members {plan}: constants that recovery depends on are recorded, and space is reserved behind the \
            data. Versions that support only format 1 then refuse the array"
    ));
    steps.push(if before == after {
        format!("the least size of a drive that can replace a member stays {}", ByteSize(after))
    } else {
        format!(
            "the least size of a drive that can replace a member rises from {before} bytes to {after} ({})",
            ByteSize(after)
        )
    });
    steps.push("start the array again".to_owned());
    steps
}
