//! `strake daemon ...`.

use crate::again::Former;
use crate::args::parse::word;
use crate::args::{DaemonStop, DaemonVerb};
use crate::connect::Connection;
use crate::error::{CliError, ErrorKind};
use crate::exit::Exit;
use crate::fold::tell_person;
use crate::limits::CALL_TIMEOUT;
use crate::output::Output;
use crate::{daemon, service, tables};
use std::path::Path;
use strake_api::v1::{Daemon, GetDaemonRequest, StopDaemonRequest, StopDaemonResponse};

/// Executes `verb`.
///
/// # Errors
/// When the daemon cannot be reached, does not start, or does not stop.
pub async fn run(verb: DaemonVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    match verb {
        DaemonVerb::Start(arguments) if arguments.foreground => {
            Err(daemon::become_daemon(&daemon::Launch::new(&arguments, socket)?))
        }
        DaemonVerb::Start(arguments) => {
            if arguments.state_dir.is_none() && service::is_installed_for(socket) {
                return Err(of_service(socket).await);
            }
            daemon::start_detached(&daemon::Launch::new(&arguments, socket)?).await?;
            started(socket, out).await
        }
        DaemonVerb::Restart(arguments) => {
            let former = Former::trusted(socket)?;
            let launch = daemon::Launch::again(&former, socket)?;
            match Connection::open(socket).await {
                Ok(connection) => drop(stop(connection, &arguments).await?),
                Err(error) if error.kind == ErrorKind::NoDaemon => {}
                Err(error) => return Err(error),
            }
            daemon::start_detached(&launch).await?;
            started(socket, out).await
        }
        DaemonVerb::Stop(arguments) => {
            let answer = stop(Connection::open(socket).await?, &arguments).await?;
            out.print(&answer, |a, _| format!("straked (process {}) has stopped\n", a.pid))?;
            Ok(Exit::Fine)
        }
        DaemonVerb::Status => status(socket, out).await,
    }
}

/// Stops the daemon, and waits until its process has ended.
async fn stop(
    connection: Connection,
    arguments: &DaemonStop,
) -> Result<StopDaemonResponse, CliError> {
    let drives = daemon::drives_in_use(&connection).await;
    let mut client = connection.daemon();
    let request = StopDaemonRequest { accept: arguments.accept.iter().map(word).collect() };
    let asked = tokio::time::timeout(CALL_TIMEOUT, client.stop_daemon(request));
    let answer = asked.await.map_err(|_| no_answer(&drives))??.into_inner();
    daemon::gone(answer.pid, &drives).await?;
    Ok(answer)
}

/// Waits for the arrays of a daemon that was started, and shows its state.
async fn started(socket: &Path, out: &Output) -> Result<Exit, CliError> {
    for array in daemon::settled(socket).await? {
        tell_person(&format!("strake: still starting: {array}"));
    }
    status(socket, out).await
}

/// The error of a start beside the service, whose state directory a daemon of another user would make unusable.
async fn of_service(socket: &Path) -> CliError {
    let start = service::START;
    CliError::usage(match Connection::try_open(socket).await {
        Ok(_) => format!("a daemon already answers at {}: nothing to start", socket.display()),
        Err(_) => format!(
            "the service straked is installed and does not run, so nothing was started; start the service: {start}\n  \
             for a separate daemon, give its socket and state directory: strake daemon start --socket PATH --state-dir \
             DIR"
        ),
    })
}

fn no_answer(drives: &[String]) -> CliError {
    let seconds = CALL_TIMEOUT.as_secs();
    let why = daemon::hangs(drives);
    let text = format!(
        "straked did not answer within {seconds} s and was not stopped: {why}. Find out why the drive does not \
            answer, or remove the drive, and try again"
    );
    CliError { kind: ErrorKind::NoDaemon, text }
}

async fn status(socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let mut client = Connection::open(socket).await?.daemon();
    let answer: Daemon = client.get_daemon(GetDaemonRequest {}).await?.into_inner();
    out.print(&answer, tables::daemon::show)?;
    Ok(Exit::Fine)
}
