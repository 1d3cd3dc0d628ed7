//! `strake host ...`.

use crate::args::host::{Add, HostVerb};
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::{secret, tables};
use std::path::Path;
use strake_api::v1::{AddHostRequest, ListHostsRequest, RemoveHostRequest};

/// Carries out `verb`.
///
/// # Errors
/// When a secret cannot be read, the daemon cannot be reached or refuses.
pub async fn run(verb: HostVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let request = match verb {
        HostVerb::Add(arguments) => add_request(arguments)?,
        HostVerb::List => {
            let mut exports = Connection::open(socket).await?.exports();
            let answer = exports.list_hosts(ListHostsRequest {}).await?.into_inner();
            out.print(&answer, tables::host::list)?;
            return Ok(Exit::Fine);
        }
        HostVerb::Remove { nqn } => {
            let mut exports = Connection::open(socket).await?.exports();
            let change = exports.remove_host(RemoveHostRequest { nqn }).await?.into_inner();
            out.print(&change, tables::host::change)?;
            return Ok(Exit::Fine);
        }
    };
    let mut exports = Connection::open(socket).await?.exports();
    let change = exports.add_host(request).await?.into_inner();
    out.print(&change, tables::host::change)?;
    Ok(Exit::Fine)
}

fn add_request(arguments: Add) -> Result<AddHostRequest, CliError> {
    let Add { nqn, secret_file, controller_secret_file, tls_key_file, new_tls_key, .. } = arguments;
    Ok(AddHostRequest {
        nqn,
        no_secret: arguments.no_secret,
        no_tls: arguments.no_tls,
        secret: secret::key_or_none(secret_file)?,
        controller_secret: secret::key_or_none(controller_secret_file)?,
        tls_key: secret::key_or_none(tls_key_file)?,
        new_tls_key,
    })
}
