//! Volumes and snapshots.

use super::grid::{Column, Grid};
use super::{count, field, sentence, size, steps};
use std::fmt::Write as _;
use strake_api::v1::{
    CompareVolumesResponse, ListVolumesResponse, SnapshotsChange, Volume, VolumeChange,
};

/// Every volume, one a line.
#[must_use]
pub fn list(answer: &ListVolumesResponse, width: usize) -> String {
    if answer.volumes.is_empty() {
        return sentence("No volumes. Create one: strake volume create POOL/NAME SIZE", width);
    }
    let mut grid = Grid::new(&[
        Column::Name("volume"),
        Column::Number("size"),
        Column::Number("used"),
        Column::Word("space"),
        Column::Number("quota"),
        Column::Name("origin"),
        Column::Name("exports"),
    ]);
    for volume in &answer.volumes {
        grid.row([
            volume.name.clone(),
            size(volume.size_bytes),
            size(volume.used_bytes),
            space(volume).to_owned(),
            quota(volume),
            volume.origin.clone(),
            volume.exports.join(", "),
        ]);
    }
    grid.without_empty(4).render(width)
}

fn space(volume: &Volume) -> &'static str {
    if volume.thick { "thick" } else { "thin" }
}

/// The quota; empty without one.
fn quota(volume: &Volume) -> String {
    match volume.quota_bytes {
        0 => String::new(),
        bytes => size(bytes),
    }
}

/// Every snapshot, one a line.
#[must_use]
pub fn snapshots(answer: &ListVolumesResponse, width: usize) -> String {
    if answer.volumes.is_empty() {
        return sentence("No snapshots. Take one: strake snapshot create POOL/VOLUME NAME", width);
    }
    rows(&answer.volumes, width)
}

/// The table of [`snapshots`].
fn rows(snapshots: &[Volume], width: usize) -> String {
    let mut grid = Grid::new(&[
        Column::Name("snapshot"),
        Column::Name("of"),
        Column::Number("size"),
        Column::Number("used"),
        Column::Name("exports"),
    ]);
    for snapshot in snapshots {
        grid.row([
            snapshot.name.clone(),
            snapshot.origin.clone(),
            size(snapshot.size_bytes),
            size(snapshot.used_bytes),
            snapshot.exports.join(", "),
        ]);
    }
    grid.without_empty(4).render(width)
}

/// One volume or snapshot.
#[must_use]
pub fn show(volume: &Volume, width: usize) -> String {
    let mut out = String::new();
    let is_snapshot = volume.kind == "snapshot";
    let mut add = |name: &str, value: &str| field(&mut out, name, value, width);
    add(if is_snapshot { "snapshot" } else { "volume" }, &volume.name);
    add(if is_snapshot { "of" } else { "clone of" }, &volume.origin);
    add("size", &size(volume.size_bytes));
    let shares = match (volume.exclusive_bytes, volume.shared_bytes) {
        (Some(own), Some(shared)) => {
            format!(", {} of it exclusive and {} shared", size(own), size(shared))
        }
        _ => String::new(),
    };
    add("used", &format!("{}{shares}", size(volume.used_bytes)));
    if !is_snapshot {
        let reserved = match volume.reserved_bytes {
            Some(bytes) if volume.thick => format!(", {} reserved for later writes", size(bytes)),
            _ => String::new(),
        };
        add("space", &format!("{}{reserved}", space(volume)));
        add("quota", &quota(volume));
    }
    add("exports", &volume.exports.join(", "));
    add("limits", &super::qos::line(&volume.limits));
    out
}

/// What is lost if the volume or snapshot is destroyed, as the end of a sentence.
#[must_use]
pub fn loss(volume: Option<&Volume>) -> String {
    match volume {
        Some(volume) => {
            let (kind, used) = (&volume.kind, size(volume.used_bytes));
            format!(": the {kind} with {used} of data is lost")
        }
        None => "; its data are lost".to_owned(),
    }
}

/// What a command did to a volume or snapshot.
#[must_use]
pub fn change(change: &VolumeChange, width: usize) -> String {
    let Some(volume) = &change.volume else {
        return format!("volume: {}\n", change.result);
    };
    let what = match change.result.as_str() {
        "planned" => "Dry run. Would:",
        "destroyed" => "destroyed; its space returns in the background",
        result => result,
    };
    let kind = if volume.kind == "snapshot" { "snapshot" } else { "volume" };
    let mut out = sentence(&format!("{kind} {}: {what}", volume.name), width);
    steps(&mut out, &change.plan, width);
    if ["created", "changed"].contains(&change.result.as_str()) {
        field(&mut out, "size", &size(volume.size_bytes), width);
        field(&mut out, "space", space(volume), width);
        field(&mut out, "quota", &quota(volume), width);
        field(&mut out, "clone of", &volume.origin, width);
    }
    if change.result == "created" {
        let via = "--via nbd --listen unix:/PATH";
        // Never folded: it is there to be copied.
        let _ = writeln!(out, "next       strake export create {} {via}", volume.name);
    }
    out
}

/// The snapshots that a command took.
#[must_use]
pub fn snapshots_change(change: &SnapshotsChange, width: usize) -> String {
    let what = match change.result.as_str() {
        "planned" => "Dry run. Would:".to_owned(),
        result => format!("{}: {result}", count(change.snapshots.len() as u64, "snapshot")),
    };
    let mut out = sentence(&what, width);
    steps(&mut out, &change.plan, width);
    if change.result != "planned" && !change.snapshots.is_empty() {
        out.push_str(&rows(&change.snapshots, width));
    }
    out
}

/// The ranges that may differ, in bytes, one a line.
#[must_use]
pub fn diff(answer: &CompareVolumesResponse, width: usize) -> String {
    if answer.ranges.is_empty() {
        return sentence("No differences.", width);
    }
    let mut grid = Grid::new(&[Column::Number("offset"), Column::Number("length")]);
    for range in &answer.ranges {
        grid.row([range.offset_bytes.to_string(), range.length_bytes.to_string()]);
    }
    let all = answer.ranges.iter().map(|range| range.length_bytes).sum();
    let ranges = count(answer.ranges.len() as u64, "range");
    format!("{}\n{}", grid.render(width), sentence(&format!("{ranges}, {}", size(all)), width))
}
