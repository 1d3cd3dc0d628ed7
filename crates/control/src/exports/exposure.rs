//! Exports that hosts reach over a network. On a network, every host needs a TLS key. If the operator accepts data
//! without encryption, a secret is sufficient. A host is never identified only by its name.

use std::net::SocketAddr;

use strake_api::v1::{AddHostRequest, CreateExportRequest, SetExportRequest};
use strake_wording::{ApiCommand, Text, say};

use crate::error::ControlError;
use crate::record::store::{Config, ExportRecord, SubsystemRecord};

/// What an export on a network lacks for one of its hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// The host has neither a TLS key nor a secret.
    Authentication,
    /// The host has a secret and no TLS key, and data without encryption are not accepted.
    Encryption,
}

/// Returns whether other hosts can reach a listening address.
fn is_on_network(listen: &str) -> bool {
    listen.parse::<SocketAddr>().is_ok_and(|address| !address.ip().to_canonical().is_loopback())
}

/// Returns the protection that an export requires for `host` and that the host lacks.
fn lack(export: &ExportRecord, host: &str, config: &Config) -> Option<Lack> {
    let nvme = export.nvme.as_ref().filter(|nvme| !nvme.secure)?;
    if !is_on_network(&export.listen) {
        return None;
    }
    match config.hosts.iter().find(|known| known.nqn == host) {
        Some(known) if known.needs_tls() || nvme.insecure => None,
        Some(_) => Some(Lack::Encryption),
        None => Some(Lack::Authentication),
    }
}

/// Returns the first of `hosts` that lacks a protection which the export requires.
fn first_lack<'a>(
    export: &ExportRecord,
    hosts: impl IntoIterator<Item = &'a String>,
    config: &Config,
) -> Option<(&'a String, Lack)> {
    hosts.into_iter().find_map(|host| Some((host, lack(export, host, config)?)))
}

/// Describes what `host` lacks.
fn words(export: &ExportRecord, host: &str, lack: Lack) -> String {
    let why = match lack {
        Lack::Authentication => "has no TLS key and no secret",
        Lack::Encryption => "has no TLS key, so data would not be encrypted",
    };
    format!("{} is not a loopback address, and host {host} {why}", export.listen)
}

/// Returns the ways to protect `host`. `accept` is the request that accepts data without encryption.
fn remedy(host: &str, lack: Lack, accept: impl ApiCommand) -> Text {
    let add = AddHostRequest { nqn: host.to_owned(), ..AddHostRequest::default() };
    let key = say("to give the host a TLS key: ")
        .run(AddHostRequest { new_tls_key: true, ..add.clone() })
        .say("; to accept data without encryption: ");
    match lack {
        Lack::Authentication => {
            key.run(AddHostRequest { new_secret: true, ..add }).say(", then ").run(accept)
        }
        Lack::Encryption => key.run(accept),
    }
}

fn refused(export: &ExportRecord, host: &str, lack: Lack, accept: impl ApiCommand) -> ControlError {
    let what = say(words(export, host, lack)).say("; ").then(remedy(host, lack, accept));
    ControlError::state(what.say("; or use a loopback address"))
}

/// Returns the request that accepts data without encryption for a recorded export.
fn accept(export: &ExportRecord) -> SetExportRequest {
    SetExportRequest { name: export.name.clone(), insecure: true, ..SetExportRequest::default() }
}

fn hosts_of(export: &ExportRecord) -> &[String] {
    export.nvme.as_ref().map_or(&[], |nvme: &SubsystemRecord| &nvme.hosts)
}

/// Refuses a new export on a network if one of its hosts lacks protection.
pub(crate) fn check_exposure(
    request: &CreateExportRequest,
    export: &ExportRecord,
    config: &Config,
) -> Result<(), ControlError> {
    let insecure = || CreateExportRequest { insecure: true, ..request.clone() };
    match first_lack(export, hosts_of(export), config) {
        None => Ok(()),
        Some((host, lack)) => Err(refused(export, host, lack, insecure())),
    }
}

/// Refuses `hosts` of a recorded export that lack protection with `config` in force.
pub(crate) fn check_hosts(
    export: &ExportRecord,
    hosts: &[&String],
    config: &Config,
) -> Result<(), ControlError> {
    match first_lack(export, hosts.iter().copied(), config) {
        None => Ok(()),
        Some((host, lack)) => Err(refused(export, host, lack, accept(export))),
    }
}

/// Refuses a change from `before` to `after` that removes protection of `host` which one of its exports requires.
pub(crate) fn check_change(
    host: &str,
    before: &Config,
    after: &Config,
) -> Result<(), ControlError> {
    for export in after.exports.iter().filter(|e| hosts_of(e).iter().any(|name| name == host)) {
        let (was, is) = (lack(export, host, before), lack(export, host, after));
        if let (None, Some(lack)) = (was, is) {
            let keep = format!(
                "; keep the key of the host, which may connect to export {}; ",
                export.name
            );
            let what = say(words(export, host, lack)).say(keep);
            return Err(ControlError::state(what.then(remedy(host, lack, accept(export)))));
        }
    }
    Ok(())
}

/// Returns the recorded exports that are less protected than a new export may be, each with the reason and the remedy.
/// An earlier version recorded them, and their hosts depend on them.
pub(crate) fn exposed(config: &Config) -> Vec<(String, String, Text)> {
    let first = |export: &ExportRecord| {
        let (host, lack) = first_lack(export, hosts_of(export), config)?;
        let next = remedy(host, lack, accept(export));
        Some((export.name.clone(), words(export, host, lack), next))
    };
    config.exports.iter().filter_map(first).collect()
}

#[cfg(test)]
mod tests {
    use super::is_on_network;

    #[test]
    fn only_loopback_addresses_and_sockets_are_unreachable_for_other_hosts() {
        for here in
            ["127.0.0.1:4420", "127.9.9.9:0", "[::1]:4420", "[::ffff:127.0.0.1]:1", "unix:/run/a"]
        {
            assert!(!is_on_network(here), "{here}");
        }
        for there in [
            "192.0.2.1:4420",
            "0.0.0.0:4420",
            "[::]:4420",
            "[2001:db8::1]:1",
            "[::ffff:192.0.2.1]:1",
        ] {
            assert!(is_on_network(there), "{there}");
        }
    }
}
