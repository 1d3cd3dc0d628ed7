//! `strake export ...`.

use crate::args::export::{Create, ExportVerb, ReferralAddress, ReferralVerb, Set};
use crate::args::parse::word;
use crate::commands::confirm::{self, Question};
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::{paths, tables};
use std::path::Path;
use strake_api::v1::{
    AddReferralRequest, CreateExportRequest, Export, GetExportRequest, ListExportsRequest,
    ListReferralsRequest, ReleaseExportRequest, RemoveExportRequest, RemoveReferralRequest,
    SetExportRequest,
};

/// Executes `verb`.
///
/// # Errors
/// When the daemon is unreachable or refuses the request.
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
        ExportVerb::Show { name } => {
            out.print(&one(&name, socket).await?, tables::export::show)?;
        }
        ExportVerb::Set(Set { name, allow_host, deny_host, insecure, dry_run }) => {
            let (allow_hosts, deny_hosts) = (allow_host, deny_host);
            let request = SetExportRequest { name, allow_hosts, deny_hosts, dry_run, insecure };
            let mut exports = Connection::open(socket).await?.exports();
            let change = exports.set_export(request).await?.into_inner();
            out.print(&change, tables::export::change)?;
        }
        ExportVerb::Release { name, yes } => {
            let mut exports = Connection::open(socket).await?.exports();
            if !yes {
                confirm::possible(&format!("release the reservations of {name}"))?;
                let known = one(&name, socket).await?;
                let what = format!(
                    "release the reservations of export {name}; afterwards, every allowed host may write"
                );
                let plan = tables::export::registrants(&known);
                confirm::ask(&Question { what: &what, plan: &plan, answer: &name })?;
            }
            let change = exports.release_export(ReleaseExportRequest { name }).await?.into_inner();
            out.print(&change, tables::export::change)?;
        }
        ExportVerb::Remove { name, force } => {
            let mut exports = Connection::open(socket).await?.exports();
            let change =
                exports.remove_export(RemoveExportRequest { name, force }).await?.into_inner();
            out.print(&change, tables::export::change)?;
        }
        ExportVerb::Referral(verb) => referral(verb, socket, out).await?,
    }
    Ok(Exit::Fine)
}

async fn referral(verb: ReferralVerb, socket: &Path, out: &Output) -> Result<(), CliError> {
    let mut exports = Connection::open(socket).await?.exports();
    let change = match verb {
        ReferralVerb::List => {
            let answer = exports.list_referrals(ListReferralsRequest {}).await?.into_inner();
            return Ok(out.print(&answer, tables::export::referrals)?);
        }
        ReferralVerb::Add(ReferralAddress { address }) => {
            exports.add_referral(AddReferralRequest { address }).await?
        }
        ReferralVerb::Remove(ReferralAddress { address }) => {
            exports.remove_referral(RemoveReferralRequest { address }).await?
        }
    };
    Ok(out.print(&change.into_inner(), tables::export::referral_change)?)
}

async fn one(name: &str, socket: &Path) -> Result<Export, CliError> {
    let mut exports = Connection::open(socket).await?.exports();
    Ok(exports.get_export(GetExportRequest { name: name.to_owned() }).await?.into_inner())
}

fn create_request(arguments: Create) -> Result<CreateExportRequest, CliError> {
    Ok(CreateExportRequest {
        array: arguments.array,
        name: arguments.name.unwrap_or_default(),
        via: word(&arguments.via),
        listen: paths::listen(&arguments.listen, arguments.via.port())?,
        read_only: arguments.read_only,
        nqn: arguments.nqn.unwrap_or_default(),
        allow_hosts: arguments.allow_host,
        namespace: arguments.namespace.unwrap_or_default(),
        secure: arguments.secure,
        insecure: arguments.insecure,
    })
}
