//! `strake drive ...`.

use crate::args::drive::{Clean, Connect, Discover, DriveVerb, Driver, Identity};
use crate::commands::confirm::{self, Question};
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::{paths, secret, tables, watch};
use std::path::Path;
use strake_api::v1::{
    CleanDriveRequest, ConnectDriveRequest, DisconnectDriveRequest, DiscoverDrivesRequest, Drive,
    GetDriveHealthRequest, GetDriveRequest, ListDrivesRequest, ListDrivesResponse,
    LocateDriveRequest, ReleaseDrivesRequest, TakeDrivesRequest,
};

mod erase;
mod firmware;
mod telemetry;

/// Executes `verb`.
///
/// # Errors
/// When the daemon is unreachable or refuses the request, or the operator does not confirm.
pub async fn run(verb: DriveVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    match verb {
        DriveVerb::List(watched) => {
            let connection = Connection::open(socket).await?;
            let look = async || all(&connection).await;
            watch::answer(watched, out, look, tables::drive::list, |_| {}, |_| Exit::Fine).await
        }
        DriveVerb::Show { name } => {
            out.print(&one(&name, socket).await?, tables::drive::show)?;
            Ok(Exit::Fine)
        }
        DriveVerb::Smart { name } => {
            let request = GetDriveHealthRequest { path: paths::drive(&name)? };
            let mut drives = Connection::open(socket).await?.drives();
            let health = drives.get_drive_health(request).await?.into_inner();
            out.print(&health, tables::health::show)?;
            Ok(if health.prediction.is_empty() { Exit::Fine } else { Exit::Degraded })
        }
        DriveVerb::Telemetry(arguments) => telemetry::run(arguments, socket, out).await,
        DriveVerb::Locate { name, off } => {
            let request = LocateDriveRequest { path: paths::drive(&name)?, off };
            let mut drives = Connection::open(socket).await?.drives();
            let change = drives.locate_drive(request).await?.into_inner();
            out.print(&change, tables::drive::change)?;
            Ok(Exit::Fine)
        }
        DriveVerb::Discover(arguments) => discover(arguments, socket, out).await,
        DriveVerb::Connect(arguments) => connect(arguments, socket, out).await,
        DriveVerb::Disconnect { address } => {
            let request = DisconnectDriveRequest { address };
            let mut drives = Connection::open(socket).await?.drives();
            let change = drives.disconnect_drive(request).await?.into_inner();
            out.print(&change, tables::drive::change)?;
            Ok(Exit::Fine)
        }
        DriveVerb::Format(arguments) => erase::format(arguments, socket, out).await,
        DriveVerb::Sanitize(arguments) => erase::sanitize(arguments, socket, out).await,
        DriveVerb::Firmware(arguments) => firmware::run(arguments, socket, out).await,
        DriveVerb::Clean(arguments) => clean(arguments, socket, out).await,
        DriveVerb::Take(Driver { drives, dry_run }) => {
            let request = TakeDrivesRequest { drives: named(&drives)?, dry_run };
            let mut drives = Connection::open(socket).await?.drives();
            let changes = drives.take_drives(request).await?.into_inner();
            out.print(&changes, tables::drive::drivers)?;
            Ok(Exit::Fine)
        }
        DriveVerb::Release(Driver { drives, dry_run }) => {
            let request = ReleaseDrivesRequest { drives: named(&drives)?, dry_run };
            let mut drives = Connection::open(socket).await?.drives();
            let changes = drives.release_drives(request).await?.into_inner();
            out.print(&changes, tables::drive::drivers)?;
            Ok(Exit::Fine)
        }
        DriveVerb::Errors { name: None } => {
            let answer = all(&Connection::open(socket).await?).await?;
            out.print(&answer, tables::errors::list)?;
            Ok(Exit::Fine)
        }
        DriveVerb::Errors { name: Some(name) } => {
            out.print(&one(&name, socket).await?, tables::errors::show)?;
            Ok(Exit::Fine)
        }
    }
}

/// Drives as the daemon knows them.
fn named(drives: &[String]) -> Result<Vec<String>, CliError> {
    drives.iter().map(|name| paths::drive(name)).collect()
}

async fn all(connection: &Connection) -> Result<ListDrivesResponse, CliError> {
    Ok(connection.drives().list_drives(ListDrivesRequest {}).await?.into_inner())
}

async fn one(name: &str, socket: &Path) -> Result<Drive, CliError> {
    let path = paths::drive(name)?;
    let mut drives = Connection::open(socket).await?.drives();
    Ok(drives.get_drive(GetDriveRequest { path }).await?.into_inner())
}

/// The identity of this host in a request. A text that is not given is empty.
struct Who {
    host_nqn: String,
    secret: String,
    controller_secret: String,
    tls_key: String,
}

fn identity(arguments: Identity) -> Result<Who, CliError> {
    let Identity { host_nqn, secret_file, controller_secret_file, tls_key_file } = arguments;
    Ok(Who {
        host_nqn: host_nqn.unwrap_or_default(),
        secret: secret::key_or_none(secret_file)?,
        controller_secret: secret::key_or_none(controller_secret_file)?,
        tls_key: secret::key_or_none(tls_key_file)?,
    })
}

async fn discover(arguments: Discover, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let Discover { address, identity: who } = arguments;
    let Who { host_nqn, secret, controller_secret, tls_key } = identity(who)?;
    let request = DiscoverDrivesRequest { address, host_nqn, secret, controller_secret, tls_key };
    let mut drives = Connection::open(socket).await?.drives();
    let answer = drives.discover_drives(request).await?.into_inner();
    out.print(&answer, tables::drive::offers)?;
    Ok(Exit::Fine)
}

async fn connect(arguments: Connect, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let Connect { address, identity: who, hold, take_over } = arguments;
    let Who { host_nqn, secret, controller_secret, tls_key } = identity(who)?;
    let hold_s = hold.unwrap_or_default();
    let request = ConnectDriveRequest {
        address,
        host_nqn,
        hold_s,
        secret,
        controller_secret,
        tls_key,
        take_over,
    };
    let mut drives = Connection::open(socket).await?.drives();
    let change = drives.connect_drive(request).await?.into_inner();
    out.print(&change, tables::drive::change)?;
    Ok(Exit::Fine)
}

async fn clean(arguments: Clean, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let Clean { name, accept_loss, yes, dry_run } = arguments;
    let request = CleanDriveRequest { path: paths::drive(&name)?, dry_run, accept_loss };
    let mut drives = Connection::open(socket).await?.drives();
    if !dry_run && !yes {
        confirm::possible(&format!("clean {name}"))?;
        let plan = CleanDriveRequest { dry_run: true, ..request.clone() };
        let plan = drives.clean_drive(plan).await?.into_inner().plan;
        let what = format!("remove every Strake label from {name}");
        confirm::ask(&Question { what: &what, plan: &plan, answer: &name })?;
    }
    let change = drives.clean_drive(request).await?.into_inner();
    out.print(&change, tables::drive::change)?;
    Ok(Exit::Fine)
}
