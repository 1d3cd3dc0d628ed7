//! Spares.

use super::grid::{Column, Grid};
use super::{field, sentence, size, steps};
use strake_api::v1::{ListSparesResponse, Spare, SpareChange};

/// Every spare, one a line.
#[must_use]
pub fn list(answer: &ListSparesResponse, width: usize) -> String {
    if answer.spares.is_empty() {
        return sentence("No spares: failed members are not replaced automatically.", width)
            + &sentence("Add one: strake spare add DRIVE [--array ARRAY]", width);
    }
    let mut grid = Grid::new(&[
        Column::Word("state"),
        Column::Path("drive"),
        Column::Number("size"),
        Column::Name("for"),
        Column::Word("serial"),
        Column::Text("note"),
    ]);
    for spare in &answer.spares {
        grid.row([
            spare.state.clone(),
            spare.path.clone(),
            size(spare.size_bytes),
            purpose(spare).to_owned(),
            spare.serial.clone(),
            spare.note.clone(),
        ]);
    }
    grid.without_empty(4).render(width)
}

fn purpose(spare: &Spare) -> &str {
    if spare.array.is_empty() { "any array" } else { &spare.array }
}

/// What a command did to a spare.
#[must_use]
pub fn change(change: &SpareChange, width: usize) -> String {
    let Some(spare) = &change.spare else {
        return format!("spare: {}\n", change.result);
    };
    let what = match change.result.as_str() {
        "planned" => "Dry run. Would:",
        result => result,
    };
    let mut out = sentence(&format!("spare {}: {what}", spare.path), width);
    steps(&mut out, &change.plan, width);
    if change.result != "planned" && !spare.state.is_empty() {
        field(&mut out, "state", &spare.state, width);
        field(&mut out, "for", purpose(spare), width);
        field(&mut out, "size", &size(spare.size_bytes), width);
        field(&mut out, "note", &spare.note, width);
    }
    out
}
