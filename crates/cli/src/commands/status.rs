//! `strake status` and `strake doctor`.

use crate::args::Watch;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::{tables, watch};
use std::path::Path;
use strake_api::v1::{GetStatusRequest, RunDoctorRequest};

/// Prints the health of everything, and ends with it.
///
/// # Errors
/// When the daemon cannot be reached or asked.
pub async fn run(watched: Watch, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let connection = Connection::open(socket).await?;
    let look = async || Ok(connection.daemon().get_status(GetStatusRequest {}).await?.into_inner());
    watch::answer(watched, out, look, tables::status::show, |s| Exit::of_health(&s.health)).await
}

/// Prints what the doctor found, and ends with it.
///
/// # Errors
/// When the daemon cannot be reached or asked.
pub async fn doctor(socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let mut daemon = Connection::open(socket).await?.daemon();
    let report = daemon.run_doctor(RunDoctorRequest {}).await?.into_inner();
    out.print(&report, tables::doctor::show)?;
    Ok(Exit::of_health(&report.health))
}
