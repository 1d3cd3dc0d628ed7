//! `strake drive firmware`.

use crate::args::drive::Firmware;
use crate::commands::warn;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::{paths, tables};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use strake_api::limits::FIRMWARE_BYTES_MAX;
use strake_api::v1::{FirmwarePart, GetFirmwareRequest, UpdateFirmwareRequest};
use tonic::codegen::tokio_stream::iter;

/// Bytes of the image in one message.
const PART_BYTES: usize = 1 << 20;

/// Shows the firmware slots of a drive, or updates its firmware.
///
/// # Errors
/// When the daemon is unreachable or refuses the request, or the file cannot be read.
pub async fn run(arguments: Firmware, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let Firmware { name, file, slot, activate, dry_run } = arguments;
    let path = paths::drive(&name)?;
    let Some(file) = file else {
        let mut drives = Connection::open(socket).await?.drives();
        let firmware = drives.get_firmware(GetFirmwareRequest { path }).await?.into_inner();
        out.print(&firmware, tables::firmware::show)?;
        return Ok(Exit::Fine);
    };
    let image = read(&file)?;
    let slot = slot.unwrap_or_default();
    let request = UpdateFirmwareRequest { path, dry_run, slot, activate };
    let first = FirmwarePart { request: Some(request), data: Vec::new() };
    let pieces: Vec<FirmwarePart> = image
        .chunks(PART_BYTES)
        .map(|piece| FirmwarePart { request: None, data: piece.to_vec() })
        .collect();
    let parts = iter(std::iter::once(first).chain(pieces));
    let mut drives = Connection::open(socket).await?.drives();
    let change = drives.update_firmware(parts).await?.into_inner();
    warn(&change.warnings);
    out.print(&change, tables::drive::change)?;
    Ok(Exit::Fine)
}

/// The image in a file.
fn read(file: &str) -> Result<Vec<u8>, CliError> {
    let fail = |e: std::io::Error| CliError::io(format_args!("cannot read {file}"), &e);
    let mut image = Vec::new();
    let most = FIRMWARE_BYTES_MAX as u64 + 1;
    File::open(file).map_err(fail)?.take(most).read_to_end(&mut image).map_err(fail)?;
    if image.len() > FIRMWARE_BYTES_MAX {
        let limit = strake_units::ByteSize(FIRMWARE_BYTES_MAX as u64);
        return Err(CliError::usage(format!(
            "{file} is larger than {limit}: it is no image of firmware"
        )));
    }
    Ok(image)
}
