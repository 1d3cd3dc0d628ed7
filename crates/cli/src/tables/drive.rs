//! Drives.

use super::{columns, head, or_dash, render, right, size, tail, widest, wrapped};
use std::fmt::Write as _;
use strake_api::v1::{Drive, ListDrivesResponse};

/// Every drive, one a line.
#[must_use]
pub fn list(answer: &ListDrivesResponse, width: usize) -> String {
    if answer.drives.is_empty() {
        return "No drives. Files and ram:SIZE can stand in for them: see strake array create --help.\n"
            .to_owned();
    }
    let mut table = columns(&["state", "drive", "kind", "size", "array", "note"]);
    let owners: Vec<String> = answer.drives.iter().map(|d| head(&owner(d), 12)).collect();
    let owner_width = widest(owners.iter().map(String::as_str), 5, 12);
    let path_width = widest(answer.drives.iter().map(|d| d.path.as_str()), 5, 28);
    // State, kind and size at their widest, with the space after each.
    let note_width = width.saturating_sub(10 + path_width + 2 + 7 + 10 + owner_width + 2).max(8);
    for (drive, owner) in answer.drives.iter().zip(owners) {
        table.add_row([
            drive.state.clone(),
            tail(&drive.path, path_width),
            drive.kind.clone(),
            size(drive.size_bytes),
            owner,
            head(or_dash(note(drive)), note_width),
        ]);
    }
    right(&mut table, 3);
    render(table)
}

/// One drive in full.
#[must_use]
pub fn show(drive: &Drive, width: usize) -> String {
    let mut out = format!("{}: {}\n", drive.path, drive.state);
    let mut field = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(out, "{name:<10} {}", wrapped(value, width, 11));
        }
    };
    field("note", &drive.note);
    field("array", drive.member.map_or(drive.array.as_str().to_owned(), |_| owner(drive)).as_str());
    field("kind", &drive.kind);
    field("size", &format!("{} ({} bytes)", size(drive.size_bytes), drive.size_bytes));
    field("block", &size(u64::from(drive.block_bytes)));
    field("model", &drive.model);
    field("serial", &drive.serial);
    field("identity", &drive.identity);
    out
}

/// The array that a drive is in, with its position there as `tank:3`.
fn owner(drive: &Drive) -> String {
    match drive.member {
        Some(position) => format!("{}:{position}", drive.array),
        None => or_dash(&drive.array).to_owned(),
    }
}

/// The most useful remark: what was found, or else the model.
fn note(drive: &Drive) -> &str {
    if drive.note.is_empty() { &drive.model } else { &drive.note }
}
