//! `strake array scrub ...`.

use crate::args::Goal;
use crate::args::array::{ScrubStart, ScrubVerb, ScrubWhich};
use crate::commands::confirm::{self, Question};
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::limits::WATCH_INTERVAL;
use crate::output::Output;
use crate::tables::clock::Clock;
use crate::wait::{Shown, until};
use crate::{tables, watch};
use std::path::Path;
use strake_api::v1::{
    ChangeScrubRequest, GetScrubRequest, Scrub, StartScrubRequest, WatchArrayRequest,
};

/// Executes `verb`.
///
/// # Errors
/// When the daemon cannot be reached or refuses, or the operator does not confirm.
pub(super) async fn run(verb: ScrubVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    match verb {
        ScrubVerb::Start(arguments) => start(arguments, socket, out).await,
        ScrubVerb::Pause(which) => change(which, "pause", socket, out).await,
        ScrubVerb::Resume(which) => change(which, "resume", socket, out).await,
        ScrubVerb::Stop(which) => change(which, "stop", socket, out).await,
        ScrubVerb::Show { name, watch: watched } => {
            let connection = Connection::open(socket).await?;
            let look = async || {
                let request = GetScrubRequest { name: name.clone() };
                Ok(connection.arrays().get_scrub(request).await?.into_inner())
            };
            watch::answer(watched, out, look, in_full, |_| {}, exit).await
        }
    }
}

/// One scrub, with the times of this host.
fn in_full(scrub: &Scrub, width: usize) -> String {
    tables::scrub::scrub(scrub, &Clock::new(false), width)
}

/// Whether unrepaired errors are left, also of an earlier scrub, as exit code; and whether a part was not checked for
/// lack of redundancy.
fn exit(scrub: &Scrub) -> Exit {
    let is_clean = scrub.left_bytes == 0 && scrub.unchecked_bytes == 0;
    if is_clean && !tables::scrub::has_old_findings(scrub) { Exit::Fine } else { Exit::Degraded }
}

async fn start(arguments: ScrubStart, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let ScrubStart { name, repair, trust_data, wait, yes } = arguments;
    if trust_data && !yes {
        confirm::possible("trust data that may be wrong")?;
        let plan = [
            "strips that are known to be wrong are rewritten from the other strips".to_owned(),
            "where the wrong strip is unknown, parity or copies are written to match the data as read; wrong data \
                remain wrong, and later scrubs cannot detect them"
                .to_owned(),
        ];
        let what = format!("trust the data of {name} where the wrong strip is unknown");
        confirm::ask(&Question { what: &what, plan: &plan, answer: &name })?;
    }
    let mode = match (repair, trust_data) {
        (_, true) => "trust_data",
        (true, false) => "repair",
        (false, false) => "check",
    };
    let mut arrays = Connection::open(socket).await?.arrays();
    let request = StartScrubRequest { name: name.clone(), mode: mode.into() };
    let begun = arrays.start_scrub(request).await?.into_inner();
    if !wait {
        out.print(&begun, tables::scrub::change)?;
        return Ok(Exit::Fine);
    }
    let interval_us = u64::try_from(WATCH_INTERVAL.as_micros()).unwrap_or(u64::MAX);
    let request = WatchArrayRequest { name: name.clone(), interval_us };
    let mut changes = arrays.watch_array(request).await?.into_inner();
    let mut shown = Shown::of(out);
    let ended = until(&mut changes, Goal::Scrub, &mut shown, &mut None, |_| {}).await;
    shown.end();
    ended?;
    let scrub = arrays.get_scrub(GetScrubRequest { name }).await?.into_inner();
    out.print(&scrub, in_full)?;
    Ok(if scrub.state == "finished" { exit(&scrub) } else { Exit::Degraded })
}

async fn change(
    which: ScrubWhich,
    action: &str,
    socket: &Path,
    out: &Output,
) -> Result<Exit, CliError> {
    let request = ChangeScrubRequest { name: which.name, action: action.into() };
    let mut arrays = Connection::open(socket).await?.arrays();
    out.print(&arrays.change_scrub(request).await?.into_inner(), tables::scrub::change)?;
    Ok(Exit::Fine)
}
