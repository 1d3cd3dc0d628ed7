//! `strake drive ...`.

use crate::args::DriveVerb;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::{paths, tables};
use std::path::Path;
use strake_api::v1::{GetDriveRequest, ListDrivesRequest};

/// Carries out `verb`.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub async fn run(verb: DriveVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    match verb {
        DriveVerb::List => {
            let mut drives = Connection::open(socket).await?.drives();
            let answer = drives.list_drives(ListDrivesRequest {}).await?.into_inner();
            out.print(&answer, tables::drive::list)?;
        }
        DriveVerb::Show { name } => {
            let path = paths::drive(&name)?;
            let mut drives = Connection::open(socket).await?.drives();
            let drive = drives.get_drive(GetDriveRequest { path }).await?.into_inner();
            out.print(&drive, tables::drive::show)?;
        }
    }
    Ok(Exit::Fine)
}
