//! `strake spare ...`.

use crate::args::spare::{Add, SpareVerb};
use crate::commands::confirm::{self, Question};
use crate::commands::warn;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::{paths, tables};
use std::path::Path;
use strake_api::v1::{AddSpareRequest, ListSparesRequest, RemoveSpareRequest, SpareChange};

/// Executes `verb`.
///
/// # Errors
/// When the daemon is unreachable or refuses the request, or the operator does not confirm.
pub async fn run(verb: SpareVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    match verb {
        SpareVerb::Add(arguments) => {
            let change = add(arguments, socket).await?;
            warn(&change.warnings);
            out.print(&change, tables::spare::change)?;
        }
        SpareVerb::List => {
            let mut spares = Connection::open(socket).await?.spares();
            let answer = spares.list_spares(ListSparesRequest {}).await?.into_inner();
            out.print(&answer, tables::spare::list)?;
        }
        SpareVerb::Remove { name } => {
            let drive = paths::drive(&name)?;
            let mut spares = Connection::open(socket).await?.spares();
            let change = spares.remove_spare(RemoveSpareRequest { drive }).await?.into_inner();
            warn(&change.warnings);
            out.print(&change, tables::spare::change)?;
        }
    }
    Ok(Exit::Fine)
}

async fn add(arguments: Add, socket: &Path) -> Result<SpareChange, CliError> {
    let Add { drive: name, array, dry_run, overwrite, yes } = arguments;
    let request = AddSpareRequest {
        drive: paths::drive(&name)?,
        array: array.unwrap_or_default(),
        dry_run,
        overwrite,
    };
    let mut spares = Connection::open(socket).await?.spares();
    if overwrite && !yes && !dry_run {
        confirm::possible(&format!("overwrite {name}"))?;
        let plan = AddSpareRequest { dry_run: true, ..request.clone() };
        let plan = spares.add_spare(plan).await?.into_inner();
        let what = format!("make {name} a spare; its content is lost");
        let plan = [plan.plan, plan.warnings].concat();
        confirm::ask(&Question { what: &what, plan: &plan, answer: &name })?;
    }
    Ok(spares.add_spare(request).await?.into_inner())
}
