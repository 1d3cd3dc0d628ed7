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
use crate::watch::Signals;
use report::Report;
use sandbox::Sandbox;
use scenario::Scenario;

/// Runs the demo. Whatever happens, Ctrl-C included, the daemon is stopped and the files are removed, unless
/// they are to be kept.
///
/// # Errors
/// When it cannot even begin: no space, no folder.
pub async fn run(arguments: &DemoArgs, format: Format) -> Result<Exit, CliError> {
    let mut report = Report::new(format);
    // Before there is anything to clean up.
    let mut signals = Signals::heard()?;
    let mut sandbox = match Sandbox::new(arguments.dir.as_deref()) {
        Ok(sandbox) => sandbox,
        Err(error) => return Ok(finish(report, Err(error))),
    };
    let reported = tokio::select! {
        reported = Scenario::new(&mut sandbox, &mut report).play() => reported,
        () = signals.ended() => Err(CliError {
            kind: ErrorKind::Interrupted,
            text: "interrupted".to_owned(),
        }),
    };
    let cleaned = if arguments.keep {
        kept(&report, &sandbox);
        Ok(())
    } else {
        sandbox.clean_up().await
    };
    Ok(finish(report, reported.and(cleaned)))
}

fn kept(report: &Report, sandbox: &Sandbox) {
    let dir = sandbox.dir().display();
    let socket = sandbox.socket().display();
    report.say(&format!("\nKept in {dir}. Look at it with: strake --socket {socket} status"));
    report.say(&format!("End it with: strake --socket {socket} daemon stop && rm -r {dir}"));
}

fn finish(mut report: Report, reported: Result<(), CliError>) -> Exit {
    let summary = report.summary();
    let exit = match &reported {
        Err(error) => error.exit(),
        Ok(()) if summary.errors > 0 => Exit::Failed,
        Ok(()) => Exit::Fine,
    };
    summary.ok = exit == Exit::Fine;
    summary.error = reported.as_ref().err().map(ToString::to_string);
    if let Err(error) = &reported {
        crate::output::tell(format_args!("strake: demo: {error}"));
    }
    report.end();
    exit
}
