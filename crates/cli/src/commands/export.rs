//! `strake export ...`.

use crate::args::export::{Create, ExportVerb};
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::{paths, tables};
use std::path::Path;
use strake_api::v1::{CreateExportRequest, ListExportsRequest, RemoveExportRequest};

/// Carries out `verb`.
///
/// # Errors
/// When the daemon cannot be reached or refuses.
pub async fn run(verb: ExportVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    match verb {
        ExportVerb::Create(arguments) => {
            let request = create_request(arguments)?;
            let mut exports = Connection::open(socket).await?.exports();
            let change = exports.create_export(request).await?.into_inner();
            out.print(&change, tables::export::change)?;
        }
        ExportVerb::List => {
            let mut exports = Connection::open(socket).await?.exports();
            let answer = exports.list_exports(ListExportsRequest {}).await?.into_inner();
            out.print(&answer, tables::export::list)?;
        }
        ExportVerb::Remove { name, force } => {
            let mut exports = Connection::open(socket).await?.exports();
            let change =
                exports.remove_export(RemoveExportRequest { name, force }).await?.into_inner();
            out.print(&change, tables::export::change)?;
        }
    }
    Ok(Exit::Fine)
}

fn create_request(arguments: Create) -> Result<CreateExportRequest, CliError> {
    Ok(CreateExportRequest {
        array: arguments.array,
        name: arguments.name.unwrap_or_default(),
        via: arguments.via.word().to_owned(),
        listen: paths::listen(&arguments.listen)?,
        read_only: arguments.read_only,
        nqn: arguments.nqn.unwrap_or_default(),
        allow_hosts: arguments.allow_host,
        namespace: arguments.namespace.unwrap_or_default(),
    })
}
