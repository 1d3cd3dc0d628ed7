//! `strake array ...`.

use crate::args::array::{Add, ArrayVerb, Create, Fail, Import, Replace, Stop};
use crate::commands::confirm::{self, Danger};
use crate::commands::warn;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::limits::WATCH_INTERVAL;
use crate::output::Output;
use crate::{paths, tables};
use std::path::Path;
use strake_api::v1::{
    AddDriveRequest, ArrayChange, CreateArrayRequest, DestroyArrayRequest, FailMemberRequest,
    GetArrayRequest, ImportArraysRequest, ListArraysRequest, ReplaceMemberRequest,
    UnloadArrayRequest, WatchArrayRequest,
};

/// Carries out `verb`.
///
/// # Errors
/// When the daemon cannot be reached or refuses, or the person does not confirm.
pub async fn run(verb: ArrayVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    match verb {
        ArrayVerb::Create(arguments) => create(arguments, socket, out).await,
        ArrayVerb::List => list(socket, out).await,
        ArrayVerb::Show { name, watch: false } => show(name, socket, out).await,
        ArrayVerb::Show { name, watch: true } => watch(name, socket, out).await,
        ArrayVerb::Fail(arguments) => fail(arguments, socket, out).await,
        ArrayVerb::Replace(arguments) => replace(arguments, socket, out).await,
        ArrayVerb::Add(arguments) => add(arguments, socket, out).await,
        ArrayVerb::Import(arguments) => import(arguments, socket, out).await,
        ArrayVerb::Unload(arguments) => unload(arguments, socket, out).await,
        ArrayVerb::Destroy(arguments) => destroy(arguments, socket, out).await,
    }
}

fn changed(change: &ArrayChange, out: &Output) -> Result<Exit, CliError> {
    warn(&change.warnings);
    out.print(change, |c, width| tables::array::change(c, None, width))?;
    Ok(Exit::Fine)
}

/// As [`changed`], for an array that is not there any more.
fn gone(change: &ArrayChange, how: &str, out: &Output) -> Result<Exit, CliError> {
    warn(&change.warnings);
    out.print(change, |c, width| tables::array::change(c, Some(how), width))?;
    Ok(Exit::Fine)
}

async fn create(arguments: Create, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let request = CreateArrayRequest {
        name: arguments.name,
        level: arguments.level,
        drives: paths::drives(&arguments.drives)?,
        strip_bytes: strip(arguments.strip)?,
        group_size: arguments.group_size,
        block_bytes: arguments.block_size,
        dry_run: arguments.dry_run,
        overwrite: arguments.overwrite,
    };
    let mut arrays = Connection::open(socket).await?.arrays();
    changed(&arrays.create_array(request).await?.into_inner(), out)
}

/// The interface takes 0 for the default, which a person who types `--strip 0` does not mean.
fn strip(given: Option<u32>) -> Result<u32, CliError> {
    match given {
        Some(0) => Err(CliError::usage("--strip 0: a strip is a power of two from 4KiB to 1MiB")),
        other => Ok(other.unwrap_or(0)),
    }
}

async fn list(socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let mut arrays = Connection::open(socket).await?.arrays();
    let answer = arrays.list_arrays(ListArraysRequest {}).await?.into_inner();
    out.print(&answer, tables::array::list)?;
    Ok(Exit::Fine)
}

async fn show(name: String, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let mut arrays = Connection::open(socket).await?.arrays();
    let array = arrays.get_array(GetArrayRequest { name }).await?.into_inner();
    out.print(&array, tables::array::show)?;
    Ok(Exit::of_array(&array))
}

async fn watch(name: String, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let interval_us = u64::try_from(WATCH_INTERVAL.as_micros()).unwrap_or(u64::MAX);
    let mut arrays = Connection::open(socket).await?.arrays();
    let mut changes =
        arrays.watch_array(WatchArrayRequest { name, interval_us }).await?.into_inner();
    let mut exit = Exit::Unknown;
    while let Some(array) = changes.message().await? {
        exit = Exit::of_array(&array);
        out.print_one_of_many(&array, tables::array::show)?;
    }
    Ok(exit)
}

async fn fail(arguments: Fail, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let mut arrays = Connection::open(socket).await?.arrays();
    let request = FailMemberRequest {
        name: arguments.name,
        member: arguments.member,
        dry_run: arguments.dry_run,
        ..FailMemberRequest::default()
    };
    if !arguments.dry_run && !arguments.yes {
        let array =
            arrays.get_array(GetArrayRequest { name: request.name.clone() }).await?.into_inner();
        let what = format!("take member {} of {} out of use", arguments.member, array.name);
        confirm::ask(&what, &array.name, Danger::Redundancy)?;
    }
    changed(&arrays.fail_member(request).await?.into_inner(), out)
}

async fn replace(arguments: Replace, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let request = ReplaceMemberRequest {
        name: arguments.name,
        member: arguments.member,
        drive: paths::drive(&arguments.drive)?,
        dry_run: arguments.dry_run,
        overwrite: arguments.overwrite,
    };
    let mut arrays = Connection::open(socket).await?.arrays();
    changed(&arrays.replace_member(request).await?.into_inner(), out)
}

async fn add(arguments: Add, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let request = AddDriveRequest {
        name: arguments.name,
        drive: paths::drive(&arguments.drive)?,
        dry_run: arguments.dry_run,
        overwrite: arguments.overwrite,
    };
    let mut arrays = Connection::open(socket).await?.arrays();
    changed(&arrays.add_drive(request).await?.into_inner(), out)
}

async fn import(arguments: Import, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let request = ImportArraysRequest {
        name: arguments.name.unwrap_or_default(),
        drives: paths::drives(&arguments.drives)?,
        allow_degraded: arguments.degraded,
        accept_loss: arguments.accept_loss,
        ..ImportArraysRequest::default()
    };
    let mut arrays = Connection::open(socket).await?.arrays();
    let answer = arrays.import_arrays(request).await?.into_inner();
    warn(&answer.warnings);
    out.print(&answer, tables::array::import)?;
    Ok(Exit::Fine)
}

async fn unload(arguments: Stop, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let mut arrays = Connection::open(socket).await?.arrays();
    let Stop { name, force, yes: _, dry_run } = arguments;
    let request = UnloadArrayRequest { name, dry_run, force };
    gone(
        &arrays.unload_array(request).await?.into_inner(),
        "unloaded, its data stays on its drives",
        out,
    )
}

async fn destroy(arguments: Stop, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let mut arrays = Connection::open(socket).await?.arrays();
    let Stop { name, force, yes, dry_run } = arguments;
    if !dry_run && !yes {
        let array = arrays.get_array(GetArrayRequest { name: name.clone() }).await?.into_inner();
        let what =
            format!("destroy {}: {} of data", array.name, strake_units::ByteSize(array.size_bytes));
        confirm::ask(&what, &array.name, Danger::Data)?;
    }
    let request = DestroyArrayRequest { name, dry_run, force };
    gone(&arrays.destroy_array(request).await?.into_inner(), "destroyed", out)
}
