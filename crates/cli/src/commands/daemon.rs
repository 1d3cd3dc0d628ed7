//! `strake daemon ...`.

use crate::args::DaemonVerb;
use crate::connect::Connection;
use crate::daemon;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::tables;
use std::path::Path;
use strake_api::v1::{Daemon, GetDaemonRequest, StopDaemonRequest};

/// Carries out `verb`.
///
/// # Errors
/// When the daemon cannot be reached, does not start, or does not stop.
pub async fn run(verb: DaemonVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    match verb {
        DaemonVerb::Start(arguments) if arguments.foreground => {
            Err(daemon::become_daemon(&daemon::Launch::new(&arguments, socket)?))
        }
        DaemonVerb::Start(arguments) => {
            daemon::start_detached(&daemon::Launch::new(&arguments, socket)?).await?;
            status(socket, out).await
        }
        DaemonVerb::Stop => {
            let mut client = Connection::open(socket).await?.daemon();
            let answer = client.stop_daemon(StopDaemonRequest {}).await?.into_inner();
            daemon::gone(answer.pid).await?;
            out.print(&answer, |a, _| format!("straked (process {}) has stopped\n", a.pid))?;
            Ok(Exit::Fine)
        }
        DaemonVerb::Status => status(socket, out).await,
    }
}

async fn status(socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let mut client = Connection::open(socket).await?.daemon();
    let answer: Daemon = client.get_daemon(GetDaemonRequest {}).await?.into_inner();
    out.print(&answer, tables::daemon::show)?;
    Ok(Exit::Fine)
}
