//! Errors of drives, by reason.

use super::grid::{Column, Grid};
use super::{count, field, sentence};
use strake_api::v1::{Drive, DriveErrors, ListDrivesResponse};

/// Drives that were counted, one a line.
#[must_use]
pub fn list(answer: &ListDrivesResponse, width: usize) -> String {
    let mut grid = Grid::new(&[
        Column::Path("drive"),
        Column::Number("medium"),
        Column::Number("repaired"),
        Column::Number("slow"),
        Column::Number("timeout"),
        Column::Number("other"),
        Column::Number("p50"),
        Column::Number("p99"),
        Column::Number("out"),
    ]);
    let counted = answer.drives.iter().filter_map(|d| Some((d, d.errors.as_ref()?)));
    let mut any = false;
    for (drive, e) in counted {
        any = true;
        grid.row([
            drive.path.clone(),
            e.medium.to_string(),
            e.repaired.to_string(),
            e.slow.to_string(),
            e.timeouts.to_string(),
            e.device.to_string(),
            latency(e.read_p50_us),
            latency(e.read_p99_us),
            e.sit_outs.to_string(),
        ]);
    }
    if !any {
        return sentence("No drive is in use, so nothing was counted.", width);
    }
    let legend = "Since the daemon started. P50 and P99: reads of the last seconds. OUT: how often reads avoided the \
        drive because it was slow. For one drive, with explanations: strake drive errors DRIVE";
    format!("{}\n{}", grid.render(width), sentence(legend, width))
}

/// Errors of one drive, in words.
#[must_use]
pub fn show(drive: &Drive, width: usize) -> String {
    let Some(e) = &drive.errors else {
        let text = format!("{}: not in use, so nothing was counted", drive.path);
        return sentence(&text, width);
    };
    let mut out = sentence(&format!("{}: {}", drive.path, drive.state), width);
    let mut say = |name: &str, text: String| field(&mut out, name, &text, width);
    say("medium", format!("{} could not be read", count(e.medium, "block")));
    say("repaired", format!("{} rewritten from redundancy", count(e.repaired, "unreadable block")));
    say(
        "slow",
        format!(
            "{} answered from other members because the drive took too long",
            count(e.slow, "read")
        ),
    );
    say("timeout", format!("{} given up", count(e.timeouts, "I/O")));
    say("other", format!("{} of the device or its connection", count(e.device, "error")));
    say("latency", speeds(e));
    say(
        "left out",
        format!(
            "{} of reads, because the drive was much slower than its peers",
            count(e.sit_outs, "time")
        ),
    );
    out
}

fn speeds(e: &DriveErrors) -> String {
    match (e.read_p50_us, e.read_p99_us) {
        (0, 0) => "unknown: no reads in the last seconds".to_owned(),
        (p50, p99) => {
            format!("reads take {}, 1 in 100 takes {} or more", latency(p50), latency(p99))
        }
    }
}

/// A latency in at most six characters; nothing when it is not known.
fn latency(us: u64) -> String {
    match us {
        0 => String::new(),
        1..10_000 => format!("{us}us"),
        10_000..10_000_000 => format!("{}ms", us / 1000),
        _ => format!("{}s", us / 1_000_000),
    }
}
