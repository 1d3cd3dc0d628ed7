//! `strake status`.

use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::tables;
use std::path::Path;
use strake_api::v1::GetStatusRequest;

/// Prints the health of everything, and ends with it.
///
/// # Errors
/// When the daemon cannot be reached or asked.
pub async fn run(socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let mut daemon = Connection::open(socket).await?.daemon();
    let status = daemon.get_status(GetStatusRequest {}).await?.into_inner();
    out.print(&status, tables::status::show)?;
    Ok(Exit::of_status(&status))
}
