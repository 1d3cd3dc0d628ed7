//! `strake drive format` and `strake drive sanitize`.

use crate::args::drive::{Consent, Format, Sanitize};
use crate::commands::confirm::{self, Question};
use crate::commands::warn;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::limits::LOOK_INTERVAL;
use crate::output::{Output, tell};
use crate::{paths, tables};
use std::path::Path;
use strake_api::v1::{DriveChange, FormatDriveRequest, GetDriveRequest, SanitizeDriveRequest};

/// Formats a drive.
///
/// # Errors
/// When the daemon is unreachable or refuses the request, or the operator does not confirm.
pub async fn format(arguments: Format, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let Format { name, lbaf, block_size, erase, consent } = arguments;
    let Consent { serial, force, yes, dry_run } = consent;
    let block_bytes = block_size.and_then(|bytes| bytes.parse().ok()).unwrap_or_default();
    let (path, serial) = (paths::drive(&name)?, serial.unwrap_or_default());
    let mut request = FormatDriveRequest { path, dry_run, force, serial, lbaf, block_bytes, erase };
    let mut drives = Connection::open(socket).await?.drives();
    if !dry_run && !yes {
        confirm::possible(&format!("format {name}"))?;
        let plan = FormatDriveRequest { dry_run: true, ..request.clone() };
        let planned = drives.format_drive(plan).await?.into_inner();
        request.serial = confirmed(&format!("erase {name} with a format"), planned)?;
    }
    let change = drives.format_drive(request).await?.into_inner();
    warn(&change.warnings);
    out.print(&change, tables::drive::change)?;
    Ok(Exit::Fine)
}

/// Starts a sanitize operation, and waits for its end if the operator asks for it.
///
/// # Errors
/// When the daemon is unreachable or refuses the request, or the operator does not confirm.
pub async fn sanitize(arguments: Sanitize, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let Sanitize { name, action, wait, consent } = arguments;
    let Consent { serial, force, yes, dry_run } = consent;
    let (path, serial) = (paths::drive(&name)?, serial.unwrap_or_default());
    let mut request = SanitizeDriveRequest { path, dry_run, force, serial, action };
    let connection = Connection::open(socket).await?;
    let mut drives = connection.drives();
    if !dry_run && !yes {
        confirm::possible(&format!("sanitize {name}"))?;
        let plan = SanitizeDriveRequest { dry_run: true, ..request.clone() };
        let planned = drives.sanitize_drive(plan).await?.into_inner();
        request.serial = confirmed(&format!("sanitize {name}"), planned)?;
    }
    let path = request.path.clone();
    let change = drives.sanitize_drive(request).await?.into_inner();
    warn(&change.warnings);
    out.print(&change, tables::drive::change)?;
    if wait && !dry_run { follow(&connection, &path).await } else { Ok(Exit::Fine) }
}

/// Asks the operator to type the serial number of the drive, and returns it.
fn confirmed(what: &str, planned: DriveChange) -> Result<String, CliError> {
    let serial = planned.drive.map(|drive| drive.serial).unwrap_or_default();
    if serial.is_empty() {
        let what = "the serial number of the drive is unknown, so it cannot confirm the command; add --yes";
        return Err(CliError::usage(what));
    }
    confirm::ask(&Question { what, plan: &planned.plan, answer: &serial })?;
    Ok(serial)
}

/// Waits until a sanitize operation has ended, and prints each change of its progress.
async fn follow(connection: &Connection, path: &str) -> Result<Exit, CliError> {
    let mut shown = None;
    loop {
        let request = GetDriveRequest { path: path.to_owned() };
        let drive = connection.drives().get_drive(request).await?.into_inner();
        match drive.maintenance {
            Some(work) if work.state == "running" => {
                if shown != Some(work.percent) {
                    shown = Some(work.percent);
                    tell(format_args!("{path}: {}", tables::drive::maintenance(&work)));
                }
            }
            Some(work) => {
                tell(format_args!("{path}: {}", tables::drive::maintenance(&work)));
                return Ok(Exit::Failed);
            }
            None => {
                tell(format_args!("{path}: sanitized"));
                return Ok(Exit::Fine);
            }
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
