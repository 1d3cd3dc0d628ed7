//! `strake status` and `strake doctor`.

use crate::args::Watch;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::{tables, watch};
use std::path::Path;
use strake_api::v1::{GetStatusRequest, RunDoctorRequest, SystemStatus};

/// Prints the health of all objects, and returns the health as exit code.
///
/// # Errors
/// When the daemon cannot be reached or does not answer.
pub async fn run(watched: Watch, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let connection = Connection::open(socket).await?;
    let look = async || Ok(connection.daemon().get_status(GetStatusRequest {}).await?.into_inner());
    let exit = |s: &SystemStatus| Exit::of_health(&s.health);
    watch::answer(watched, out, look, tables::status::show, without_uptime, exit).await
}

/// Removes the uptime of the daemon, which changes with every answer.
fn without_uptime(status: &mut SystemStatus) {
    if let Some(daemon) = &mut status.daemon {
        daemon.uptime_us = 0;
    }
}

/// Prints the findings of the doctor, and returns the result as exit code.
///
/// # Errors
/// When the daemon cannot be reached or does not answer.
pub async fn doctor(socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let mut daemon = Connection::open(socket).await?.daemon();
    let report = daemon.run_doctor(RunDoctorRequest {}).await?.into_inner();
    out.print(&report, tables::doctor::show)?;
    Ok(Exit::of_health(&report.health))
}
