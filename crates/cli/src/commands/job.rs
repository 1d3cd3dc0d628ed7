//! `strake job ...`.

use crate::args::job::JobVerb;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::{tables, watch};
use std::path::Path;
use strake_api::v1::{ChangeJobRequest, ListJobsRequest};

/// Executes `verb`.
///
/// # Errors
/// When the daemon is unreachable or refuses the request.
pub async fn run(verb: JobVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let connection = Connection::open(socket).await?;
    let plain = |id, action: &str| ChangeJobRequest { id, action: action.into(), priority: None };
    let request = match verb {
        JobVerb::List(watched) => {
            let look =
                async || Ok(connection.jobs().list_jobs(ListJobsRequest {}).await?.into_inner());
            return watch::answer(watched, out, look, tables::job::list, |_| {}, |_| Exit::Fine)
                .await;
        }
        JobVerb::Pause(which) => plain(which.id, "pause"),
        JobVerb::Resume(which) => plain(which.id, "resume"),
        JobVerb::Cancel(which) => plain(which.id, "cancel"),
        JobVerb::Set { which, priority } => {
            ChangeJobRequest { priority: Some(priority), ..plain(which.id, "set") }
        }
    };
    let change = connection.jobs().change_job(request).await?.into_inner();
    out.print(&change, tables::job::change)?;
    Ok(Exit::Fine)
}
