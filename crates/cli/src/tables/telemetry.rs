//! Saved telemetry logs.

use super::sentence;
use strake_api::v1::TelemetryPart;
use strake_units::ByteSize;

/// What was saved, and where.
#[must_use]
pub fn saved(first: &TelemetryPart, file: &str, width: usize) -> String {
    let TelemetryPart { path, model, serial, firmware, area, total_bytes, .. } = first;
    let what = format!(
        "{} of telemetry (areas 1 to {area}) of {path} ({model}, serial number {serial}, firmware {firmware}) are in \
         {file}",
        ByteSize(*total_bytes)
    );
    sentence(&what, width)
}
