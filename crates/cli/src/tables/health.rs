//! What a drive reports about its own state.

use super::grid::{Column, Grid};
use super::{count, field, sentence, size};
use strake_api::v1::{DriveHealth, OcpHealth};

/// The state of one drive, by its own account.
#[must_use]
pub fn show(health: &DriveHealth, width: usize) -> String {
    let verdict = match (health.prediction.as_str(), health.warnings.as_slice()) {
        ("", []) => "no warnings",
        ("", _) => "the drive warns, but does not expect to fail",
        (prediction, _) => prediction,
    };
    let mut out = sentence(&format!("{}: {verdict}", health.path), width);
    let mut say = |name: &str, value: &str| field(&mut out, name, value, width);
    say("warnings", &health.warnings.join(", ").replace('_', " "));
    say("note", &health.note);
    say("model", &health.model);
    say("serial", &health.serial);
    let (spare, limit) = (health.spare_percent, health.spare_threshold_percent);
    say("spare", &format!("{spare}% of its spare blocks are left; it warns below {limit}%"));
    say("wear", &format!("{}% of its rated endurance", health.wear_percent));
    say("temp", &temperatures(health));
    say("too warm", &too_warm(health));
    let Traffic { bytes, commands } = Traffic::of(health.read_bytes, health.reads);
    say("read", &format!("{bytes} in {commands}"));
    let Traffic { bytes, commands } = Traffic::of(health.written_bytes, health.writes);
    say("written", &format!("{bytes} in {commands}"));
    let power = [
        count(health.power_on_hours, "hour"),
        count(health.power_cycles, "power cycle"),
        count(health.unsafe_shutdowns, "unsafe shutdown"),
    ];
    say("power", &power.join(", "));
    say("busy", &count(health.busy_minutes, "minute"));
    say("errors", &format!("{} of data", count(health.media_errors, "unrecoverable error")));
    say("log", &format!("{} in the life of the drive", count(health.log_entries, "error")));
    if let Some(ocp) = &health.ocp {
        extended(ocp, &mut say);
    }
    if !health.errors.is_empty() {
        out.push('\n');
        out.push_str(&log(health).render(width));
    }
    out
}

struct Traffic {
    bytes: String,
    commands: String,
}

impl Traffic {
    fn of(bytes: u64, commands: u64) -> Self {
        Self { bytes: size(bytes), commands: count(commands, "command") }
    }
}

fn temperatures(health: &DriveHealth) -> String {
    let sensors = health.sensors.iter();
    let mut parts: Vec<String> =
        health.temperature_c.iter().map(|c| format!("{c} degrees Celsius")).collect();
    parts.extend(sensors.map(|s| format!("sensor {}: {}", s.number, s.temperature_c)));
    parts.join(", ")
}

fn too_warm(health: &DriveHealth) -> String {
    match (health.warm_minutes, health.hot_minutes) {
        (0, 0) => String::new(),
        (warm, hot) => {
            let warm = count(warm.into(), "minute");
            let hot = count(hot.into(), "minute");
            format!("{warm} above the warning temperature, {hot} above the critical temperature")
        }
    }
}

/// What drives for data centres say in addition.
fn extended(ocp: &OcpHealth, say: &mut impl FnMut(&str, &str)) {
    let (written, read) = (size(ocp.physical_written_bytes), size(ocp.physical_read_bytes));
    say("media", &format!("{written} written, {read} read"));
    let bad =
        format!("{} user blocks, {} system blocks", ocp.bad_user_blocks, ocp.bad_system_blocks);
    say("bad blocks", &bad);
    let reads = [
        count(ocp.uncorrectable_reads, "uncorrectable read"),
        format!("{} reconstructed", ocp.xor_recoveries),
        count(ocp.soft_ecc_errors, "soft error"),
    ];
    say("ecc", &reads.join(", "));
    let (detected, corrected) = (ocp.end_to_end_detected, ocp.end_to_end_corrected);
    say(
        "end to end",
        &format!("{} detected, {corrected} corrected", count(detected.into(), "error")),
    );
    let (errors, trained) = (count(ocp.pcie_correctable, "corrected error"), ocp.link_retrainings);
    say("link", &format!("{errors}, trained again {}", count(trained, "time")));
    say("throttled", &count(ocp.throttlings.into(), "time"));
    let shutdowns = count(ocp.incomplete_shutdowns.into(), "incomplete shutdown");
    let capacitor =
        ocp.capacitor_percent.map_or_else(String::new, |p| format!(", capacitors at {p}%"));
    say("backup", &format!("{shutdowns}{capacitor}"));
    let (free, wear) = (ocp.free_percent, ocp.system_wear_percent);
    say(
        "blocks",
        &format!("{free}% are free; system blocks have used {wear}% of their rated endurance"),
    );
}

/// The newest entries of its error log.
fn log(health: &DriveHealth) -> Grid {
    let mut grid = Grid::new(&[
        Column::Number("error"),
        Column::Number("queue"),
        Column::Number("command"),
        Column::Word("status"),
        Column::Number("namespace"),
        Column::Number("block"),
    ]);
    for entry in &health.errors {
        grid.row([
            entry.number.to_string(),
            entry.queue.to_string(),
            entry.command.to_string(),
            format!("{:03x}h", entry.status),
            entry.namespace.to_string(),
            entry.block.to_string(),
        ]);
    }
    grid
}
