//! `strake demo`: the first minute. A RAID 6 array on sparse files is created, exported, used by real clients,
//! broken under load, repaired, restarted and killed, and every byte is compared all along.
//!
//! [`scenario`] is the story; [`load`] and [`client`] do the I/O, [`area`] knows what must come back, [`sandbox`]
//! holds the folder and the daemon, [`tools`] other people's clients, [`report`] says what happened.

pub mod area;
pub mod client;
pub mod load;
pub mod report;
pub mod sandbox;
pub mod scenario;
pub mod tools;
pub mod work;

#[cfg(test)]
mod tests;

use crate::args::DemoArgs;
use crate::error::{CliError, ErrorKind};
use crate::exit::Exit;
use crate::output::Format;
use report::Report;
use sandbox::Sandbox;
use scenario::Scenario;
use tokio::signal::unix::{SignalKind, signal};

/// Runs the demo. Whatever happens, Ctrl-C included, the daemon is stopped and the files are removed, unless
/// they are to be kept.
///
/// # Errors
/// When it cannot even begin: no space, no folder.
pub async fn run(arguments: &DemoArgs, format: Format) -> Result<Exit, CliError> {
    let mut report = Report::new(format);
    let mut sandbox = match Sandbox::new(arguments.dir.as_deref()) {
        Ok(sandbox) => sandbox,
        Err(error) => return Ok(finish(report, Err(error))),
    };
    let told = tokio::select! {
        told = Scenario::new(&mut sandbox, &mut report).play() => told,
        interrupted = interrupted() => interrupted,
    };
    let cleaned = if arguments.keep {
        kept(&report, &sandbox);
        Ok(())
    } else {
        sandbox.clean_up().await
    };
    Ok(finish(report, told.and(cleaned)))
}

/// Ends when a person or the system wants the demo to end.
async fn interrupted() -> Result<(), CliError> {
    let fail = |e| CliError::io("cannot listen for signals", &e);
    let mut terminate = signal(SignalKind::terminate()).map_err(fail)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fail)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(fail)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = hangup.recv() => {}
    }
    Err(CliError {
        kind: ErrorKind::Interrupted,
        text: "interrupted; everything was cleaned up".to_owned(),
    })
}

fn kept(report: &Report, sandbox: &Sandbox) {
    let dir = sandbox.dir().display();
    let socket = sandbox.socket().display();
    report.say(&format!("\nKept in {dir}. Look at it with: strake --socket {socket} status"));
    report.say(&format!("End it with: strake --socket {socket} daemon stop && rm -r {dir}"));
}

fn finish(mut report: Report, told: Result<(), CliError>) -> Exit {
    let summary = report.summary();
    let exit = match &told {
        Err(error) => error.exit(),
        Ok(()) if summary.errors > 0 => Exit::Failed,
        Ok(()) => Exit::Fine,
    };
    summary.ok = exit == Exit::Fine;
    summary.error = told.as_ref().err().map(ToString::to_string);
    if let Err(error) = &told {
        eprintln!("strake: demo: {error}");
    }
    report.end();
    exit
}
