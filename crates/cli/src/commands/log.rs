//! `strake log ...`.

use crate::args::log::{LogVerb, Verify};
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::tables::{self, clock::Clock};
use std::path::Path;
use strake_api::v1::{ListAuditRequest, VerifyAuditRequest};

/// Executes `verb`.
///
/// # Errors
/// When the daemon is unreachable, or cannot read the log.
pub async fn run(verb: LogVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let mut audit = Connection::open(socket).await?.audit();
    match verb {
        LogVerb::List { last, before, uid, object, utc } => {
            let clock = Clock::new(utc);
            let (before, object) = (before.unwrap_or(0), object.unwrap_or_default());
            let request = ListAuditRequest { last, before, uid, object };
            let answer = audit.list_audit(request).await?.into_inner();
            out.print(&answer, |a, width| tables::log::list(a, &clock, width))?;
            Ok(Exit::Fine)
        }
        LogVerb::Verify(Verify { entry }) => {
            let (number, hash) = entry.unwrap_or_default();
            let report =
                audit.verify_audit(VerifyAuditRequest { number, hash }).await?.into_inner();
            out.print(&report, tables::log::report)?;
            Ok(if report.faults.is_empty() { Exit::Fine } else { Exit::Failed })
        }
    }
}
