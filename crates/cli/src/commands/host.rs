//! `strake host ...`.

use crate::args::host::{Add, HostKeys, HostVerb, Key};
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::tables::clock::Clock;
use crate::{secret, tables};
use std::path::Path;
use strake_api::v1::{AddHostRequest, DisconnectHostRequest, ListHostsRequest, RemoveHostRequest};

/// Executes `verb`.
///
/// # Errors
/// When a secret cannot be read, or the daemon is unreachable or refuses the request.
pub async fn run(verb: HostVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let request = match verb {
        HostVerb::Add(Add { nqn, keys, no_secret, no_controller_secret, no_tls }) => {
            AddHostRequest { nqn, no_secret, no_controller_secret, no_tls, ..with(keys)? }
        }
        HostVerb::Key(Key { nqn, keys }) => AddHostRequest { nqn, known: true, ..with(keys)? },
        HostVerb::List => {
            let mut exports = Connection::open(socket).await?.exports();
            let answer = exports.list_hosts(ListHostsRequest {}).await?.into_inner();
            let clock = Clock::new(false);
            out.print(&answer, |answer, width| tables::host::list(answer, &clock, width))?;
            return Ok(Exit::Fine);
        }
        HostVerb::Disconnect { nqn } => {
            let mut exports = Connection::open(socket).await?.exports();
            let change = exports.disconnect_host(DisconnectHostRequest { nqn }).await?.into_inner();
            out.print(&change, tables::host::change)?;
            return Ok(Exit::Fine);
        }
        HostVerb::Remove { nqn } => {
            let mut exports = Connection::open(socket).await?.exports();
            let change = exports.remove_host(RemoveHostRequest { nqn }).await?.into_inner();
            out.print(&change, tables::host::change)?;
            return Ok(Exit::Fine);
        }
    };
    if out.is_quiet()
        && (request.new_secret || request.new_controller_secret || request.new_tls_key)
    {
        return Err(CliError::usage("a new secret or key is printed only once: omit --quiet"));
    }
    let mut exports = Connection::open(socket).await?.exports();
    let change = exports.add_host(request).await?.into_inner();
    out.print(&change, tables::host::change)?;
    Ok(Exit::Fine)
}

/// A request with the new secrets and keys of a host.
fn with(keys: HostKeys) -> Result<AddHostRequest, CliError> {
    Ok(AddHostRequest {
        secret: secret::key_or_none(keys.secret_file)?,
        new_secret: keys.new_secret,
        controller_secret: secret::key_or_none(keys.controller_secret_file)?,
        new_controller_secret: keys.new_controller_secret,
        tls_key: secret::key_or_none(keys.tls_key_file)?,
        new_tls_key: keys.new_tls_key,
        keep_old_seconds: keys.keep_old.unwrap_or_default(),
        ..AddHostRequest::default()
    })
}
