//! The firmware of a drive.

use super::grid::{Column, Grid};
use super::sentence;
use strake_api::v1::Firmware;

/// The slots of a drive, one a line.
#[must_use]
pub fn show(firmware: &Firmware, width: usize) -> String {
    let Firmware { path, model, serial, slots, activates_now } = firmware;
    let mut out = sentence(&format!("{path} ({model}, serial number {serial})"), width);
    let mut grid =
        Grid::new(&[Column::Number("slot"), Column::Word("revision"), Column::Text("state")]);
    for slot in slots {
        let states = [
            (slot.running, "running"),
            (slot.next, "runs after the next reset"),
            (slot.read_only, "read-only"),
            (slot.revision.is_empty(), "empty"),
        ];
        let states: Vec<&str> =
            states.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
        grid.row([slot.number.to_string(), slot.revision.clone(), states.join(", ")]);
    }
    out.push_str(&grid.render(width));
    let how = if *activates_now { "now or at a reset" } else { "only at a reset" };
    out.push_str(&sentence(&format!("An image can be activated {how}."), width));
    out
}
