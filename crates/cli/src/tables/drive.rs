//! Drives.

use super::grid::{Column, Grid};
use super::queue::drive_queues;
use super::{count, field, or_dash, sentence, show::total, size, steps, wrapped};
use std::fmt::Write as _;
use strake_api::v1::{
    DiscoverDrivesResponse, Drive, DriveChange, DriveMaintenance, DrivePath, DriverChange,
    DriverChanges, ListDrivesResponse, Offer, SlotLight,
};

/// Every drive, one a line.
#[must_use]
pub fn list(answer: &ListDrivesResponse, width: usize) -> String {
    if answer.drives.is_empty() {
        return sentence(
            "No drives. Files and ram:SIZE can stand in for them: strake array create --help",
            width,
        );
    }
    let mut grid = Grid::new(&[
        Column::Word("state"),
        Column::Path("drive"),
        Column::Number("size"),
        Column::Number("errors"),
        Column::Name("used by"),
        Column::Text("about"),
    ]);
    for drive in &answer.drives {
        grid.row([
            drive.state.clone(),
            drive.path.clone(),
            size(drive.size_bytes),
            drive.errors.as_ref().map_or_else(String::new, total),
            owner(drive),
            about(drive),
        ]);
    }
    grid.render(width)
}

/// One drive in full.
#[must_use]
pub fn show(drive: &Drive, width: usize) -> String {
    let mut out = sentence(&format!("{}: {}", drive.path, drive.state), width);
    let mut say = |name: &str, value: &str| field(&mut out, name, value, width);
    say("note", &drive.note);
    say("used by", &owner(drive));
    say("kind", &drive.kind);
    say("size", &format!("{} ({} bytes)", size(drive.size_bytes), drive.size_bytes));
    say("block", &size(u64::from(drive.block_bytes)));
    say("model", &drive.model);
    say("serial", &drive.serial);
    say("slot", &drive.slot);
    say("LED", &drive.light.as_ref().map_or_else(String::new, light));
    say("identity", &drive.identity);
    say("also at", &drive.aliases.join(", "));
    for path in &drive.paths {
        say("path", &way(path));
    }
    if !drive.paths.is_empty() {
        say("connected", &connection(drive));
    }
    say("reservation", reservation(&drive.reservation));
    say("operation", &drive.maintenance.as_ref().map_or_else(String::new, maintenance));
    say(
        "wear",
        &drive.wear_percent.map_or_else(String::new, |p| format!("{p}% of its rated endurance")),
    );
    say("temp", &drive.temperature_c.map_or_else(String::new, |c| format!("{c} degrees Celsius")));
    if let Some(errors) = &drive.errors {
        let total = total(errors);
        let more = format!("{}; by reason: strake drive errors {}", total, drive.path);
        say("errors", if total.is_empty() { "none" } else { &more });
    }
    if !drive.queues.is_empty() {
        out.push('\n');
        out.push_str(&drive_queues(&drive.queues, width));
    }
    out
}

/// What the light of a slot shows.
fn light(light: &SlotLight) -> String {
    let SlotLight { pattern, seen, backend, note } = light;
    let dark = if pattern == seen { "" } else { ", for which the slot has no LED" };
    let note =
        if note.is_empty() { String::new() } else { format!("; cannot be switched: {note}") };
    format!("{pattern}{dark} ({backend}){note}")
}

/// A format or sanitize operation.
#[must_use]
pub fn maintenance(work: &DriveMaintenance) -> String {
    let DriveMaintenance { operation, state, percent, note } = work;
    let percent = percent.map_or_else(String::new, |percent| format!(", {percent} % done"));
    let note = if note.is_empty() { String::new() } else { format!(": {note}") };
    format!("{operation} {state}{percent}{note}")
}

/// How a drive of another machine is connected.
fn connection(drive: &Drive) -> String {
    let lost = format!("reconnected {}", count(drive.reconnects, "time"));
    match drive.association {
        0 => format!("over no path; {lost}"),
        number => format!("association {number}; {lost}"),
    }
}

/// What keeps other hosts from a drive of another machine.
fn reservation(word: &str) -> &str {
    match word {
        "reserved" => "reserved for this host; other hosts cannot write to it",
        "taken_over" => "no: taken over by another host",
        "none" => {
            "no: its target does not support reservations, so allow no other host on the target"
        }
        other => other,
    }
}

/// A path to a remote drive.
fn way(path: &DrivePath) -> String {
    let used = if path.used { "in use" } else { "" };
    let access = path.access.replace('_', " ");
    let parts = [path.state.as_str(), used, &access, &path.note];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let (time, times) = (path.seconds, count(path.reconnects, "time"));
    // Why it is lost is said already.
    let last = match path.last_loss.as_str() {
        "" => String::new(),
        why if why == path.note => String::new(),
        why => format!(", last because {why}"),
    };
    let state = parts.join(", ");
    format!("{}: {state}, for {time} s; reconnected {times}{last}", path.address)
}

/// Who uses a drive: the array with its position there as `tank:3`, or what it is a spare of.
fn owner(drive: &Drive) -> String {
    match (drive.member, drive.spare_of.as_str()) {
        (Some(position), _) => format!("{}:{position}", drive.array),
        (None, "") => drive.array.clone(),
        (None, "pool") => "spare".to_owned(),
        (None, array) => format!("spare:{array}"),
    }
}

/// The most useful remarks: what was found, then what it is.
fn about(drive: &Drive) -> String {
    let serial = match drive.serial.as_str() {
        "" => String::new(),
        serial => format!("serial {serial}"),
    };
    let slot = match drive.slot.as_str() {
        "" => String::new(),
        slot => format!("slot {slot}"),
    };
    let lit = drive.light.as_ref().filter(|light| !["off", "ok"].contains(&light.pattern.as_str()));
    let lit = lit.map_or_else(String::new, |light| format!("LED {}", light.pattern));
    let wear = drive.wear_percent.map_or_else(String::new, |p| format!("{p}% worn"));
    let heat = drive.temperature_c.map_or_else(String::new, |c| format!("{c} C"));
    let kind = if drive.model.is_empty() { &drive.kind } else { &drive.model };
    let work = drive.maintenance.as_ref().map_or_else(String::new, maintenance);
    let parts = [drive.note.as_str(), &work, kind, &serial, &slot, &lit, &wear, &heat];
    parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(", ")
}

/// What a command did to a drive.
#[must_use]
pub fn change(change: &DriveChange, width: usize) -> String {
    let path = change.drive.as_ref().map_or("-", |d| or_dash(&d.path));
    let what = match change.result.as_str() {
        "planned" => "Dry run. Would:",
        result => result,
    };
    let mut out = sentence(&format!("drive {path}: {what}"), width);
    steps(&mut out, &change.plan, width);
    for warning in &change.warnings {
        out.push_str(&sentence(&format!("warning: {warning}"), width));
    }
    out
}

/// What a command did to drives and their drivers.
#[must_use]
pub fn drivers(changes: &DriverChanges, width: usize) -> String {
    let mut out = String::new();
    for DriverChange { result, path, serial, plan } in &changes.drives {
        let what = match result.as_str() {
            "planned" => "Dry run. Would:",
            result => result,
        };
        let serial = if serial.is_empty() { String::new() } else { format!(" (serial {serial})") };
        out.push_str(&sentence(&format!("drive {}{serial}: {what}", or_dash(path)), width));
        steps(&mut out, plan, width);
    }
    out
}

/// What another machine offers: each with what a command is given to reach it.
#[must_use]
pub fn offers(answer: &DiscoverDrivesResponse, width: usize) -> String {
    if answer.offers.is_empty() {
        let what = format!("Nothing is offered to this host, {}.", answer.host_nqn);
        return sentence(&what, width);
    }
    let mut out = sentence(&format!("Offered to this host, {}:", answer.host_nqn), width);
    for offer in &answer.offers {
        let name = if offer.address.is_empty() { or_dash(&offer.nqn) } else { &offer.address };
        // Never shortened: it is there to be copied.
        let _ = writeln!(out, "\n{}\n  {name}", standing(offer));
        let known = offer.drives.iter().filter(|drive| **drive != offer.address);
        let note = (!offer.note.is_empty()).then(|| note_of(offer));
        let line = |drive: &String| {
            let how = if offer.connected.contains(drive) { "connected" } else { "recorded" };
            format!("{how} as {drive}")
        };
        for line in known.map(line).chain(note) {
            let _ = writeln!(out, "  {}", wrapped(&line, width, 4));
        }
    }
    out
}

/// The note of an offer. That of an offer which needs TLS says to connect with a key.
fn note_of(offer: &Offer) -> String {
    match offer.secure_channel.as_str() {
        "required" if !offer.address.is_empty() => format!("{} (--tls-key-file)", offer.note),
        _ => offer.note.clone(),
    }
}

/// How an offer and this host stand to each other.
fn standing(offer: &Offer) -> &str {
    match offer.kind.as_str() {
        "subsystem" if !offer.connected.is_empty() => "connected",
        "subsystem" if !offer.drives.is_empty() => "recorded, not connected",
        "subsystem" => "offered",
        kind => kind,
    }
}
