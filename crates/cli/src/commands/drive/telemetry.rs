//! `strake drive telemetry`.

use crate::args::drive::Telemetry;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::keep::{self, Existing};
use crate::limits::TELEMETRY_BYTES_MAX;
use crate::output::Output;
use crate::{paths, tables};
use serde_json::json;
use std::path::{Path, PathBuf};
use strake_api::v1::{ReadTelemetryRequest, TelemetryPart};
use tonic::Streaming;

/// Saves the telemetry log of a drive.
///
/// # Errors
/// When the file exists, the daemon is unreachable or refuses the request, or the file cannot be written.
pub async fn run(arguments: Telemetry, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let Telemetry { name, file, controller, area, force } = arguments;
    let existing = if force { Existing::Replace } else { Existing::Refuse };
    // The drive captures its state only for a file that can be written.
    keep::check(Path::new(&file), existing)?;
    let request = ReadTelemetryRequest { path: paths::drive(&name)?, controller, area };
    let mut drives = Connection::open(socket).await?.drives();
    let parts = drives.read_telemetry(request).await?.into_inner();
    let (first, data) = collect(parts).await?;
    keep::write_as(Path::new(&file), &data, existing)?;
    let path = std::path::absolute(&file).unwrap_or_else(|_| PathBuf::from(&file));
    let saved = json!({
        "result": "written",
        "file": path.display().to_string(),
        "bytes": data.len(),
        "path": first.path,
        "model": first.model,
        "serial": first.serial,
        "firmware": first.firmware,
        "area": first.area,
        "generation": first.generation,
    });
    out.print(&saved, |_, width| tables::telemetry::saved(&first, &file, width))?;
    Ok(Exit::Fine)
}

/// Returns the description of a log, and its whole data.
async fn collect(
    mut parts: Streaming<TelemetryPart>,
) -> Result<(TelemetryPart, Vec<u8>), CliError> {
    let incomplete = || CliError::mismatch("the telemetry log is incomplete: try again");
    let mut first = parts.message().await?.ok_or_else(incomplete)?;
    let mut data = std::mem::take(&mut first.data);
    while let Some(part) = parts.message().await? {
        data.extend(part.data);
        if data.len() as u64 > TELEMETRY_BYTES_MAX {
            break;
        }
    }
    if data.len() as u64 != first.total_bytes || first.total_bytes > TELEMETRY_BYTES_MAX {
        return Err(incomplete());
    }
    Ok((first, data))
}
