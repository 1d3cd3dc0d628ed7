//! `strake array ...`.

mod risky;
mod scrub;

use crate::args::Watch;
use crate::args::array::{ArrayVerb, Consistency, Import, Readd, Set, Switch, Undelete};
use crate::args::parse::{MemberChoice, word};
use crate::commands::warn;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::limits::WATCH_INTERVAL;
use crate::output::Output;
use crate::tables::clock::Clock;
use crate::{paths, tables, watch};
use std::path::Path;
use strake_api::v1::array_service_client::ArrayServiceClient;
use strake_api::v1::{
    Array, ArrayChange, GetArrayRequest, GetArrayStatsRequest, GrowArrayRequest,
    ImportArraysRequest, ListArraysRequest, ListImportableRequest, Member, ReaddMemberRequest,
    RebuildArrayRequest, RenameArrayRequest, SetArrayRequest, UndeleteArrayRequest,
    UpgradeFormatRequest, WatchArrayRequest,
};
use tonic::transport::Channel;

/// Executes `verb`.
///
/// # Errors
/// When the daemon is unreachable or refuses the request, or the operator does not confirm.
pub async fn run(verb: ArrayVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    match verb {
        ArrayVerb::Create(arguments) => risky::create(arguments, socket, out).await,
        ArrayVerb::List(watched) => list(watched, socket, out).await,
        ArrayVerb::Show { name, watch } => show(name, watch, socket, out).await,
        ArrayVerb::Stats { name, watch } => stats(name, watch, socket, out).await,
        ArrayVerb::Fail(arguments) => risky::fail(arguments, socket, out).await,
        ArrayVerb::Replace(arguments) => risky::replace(arguments, socket, out).await,
        ArrayVerb::Add(arguments) => risky::add(arguments, socket, out).await,
        ArrayVerb::Readd(arguments) => readd(arguments, socket, out).await,
        ArrayVerb::Rebuild { name, dry_run } => {
            let request = RebuildArrayRequest { name, dry_run };
            let mut arrays = Connection::open(socket).await?.arrays();
            changed(&arrays.rebuild_array(request).await?.into_inner(), out)
        }
        ArrayVerb::Rename { name, new_name, dry_run } => {
            let request = RenameArrayRequest { name, new_name, dry_run };
            let mut arrays = Connection::open(socket).await?.arrays();
            changed(&arrays.rename_array(request).await?.into_inner(), out)
        }
        ArrayVerb::Grow { name, force, dry_run } => {
            let request = GrowArrayRequest { name, dry_run, force };
            let mut arrays = Connection::open(socket).await?.arrays();
            changed(&arrays.grow_array(request).await?.into_inner(), out)
        }
        ArrayVerb::UpgradeFormat { name, force, dry_run } => {
            let request = UpgradeFormatRequest { name, dry_run, force };
            let mut arrays = Connection::open(socket).await?.arrays();
            changed(&arrays.upgrade_format(request).await?.into_inner(), out)
        }
        ArrayVerb::Set(arguments) => set(arguments, socket, out).await,
        ArrayVerb::Scrub(verb) => scrub::run(verb, socket, out).await,
        ArrayVerb::Importable { drives } => {
            let request = ListImportableRequest { drives: paths::drives(&drives)? };
            let mut arrays = Connection::open(socket).await?.arrays();
            let answer = arrays.list_importable(request).await?.into_inner();
            warn(&answer.warnings);
            out.print(&answer, tables::array::importable)?;
            Ok(Exit::Fine)
        }
        ArrayVerb::Import(arguments) => import(arguments, socket, out).await,
        ArrayVerb::Unload(arguments) => risky::unload(arguments, socket, out).await,
        ArrayVerb::Destroy(arguments) => risky::destroy(arguments, socket, out).await,
        ArrayVerb::Undelete(arguments) => undelete(arguments, socket, out).await,
    }
}

fn changed(change: &ArrayChange, out: &Output) -> Result<Exit, CliError> {
    warn(&change.warnings);
    out.print(change, |c, width| tables::array::change(c, None, width))?;
    Ok(Exit::Fine)
}

/// As [`changed`], for an array that no longer exists.
fn gone(change: &ArrayChange, how: &str, out: &Output) -> Result<Exit, CliError> {
    warn(&change.warnings);
    out.print(change, |c, width| tables::array::change(c, Some(how), width))?;
    Ok(Exit::Fine)
}

async fn list(watched: Watch, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let connection = Connection::open(socket).await?;
    let look =
        async || Ok(connection.arrays().list_arrays(ListArraysRequest {}).await?.into_inner());
    watch::answer(watched, out, look, tables::array::list, |_| {}, |_| Exit::Fine).await
}

/// One array, with the times of this host.
fn in_full(array: &Array, width: usize) -> String {
    tables::show::array(array, &Clock::new(false), width)
}

async fn show(name: String, watched: Watch, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let arrays = Connection::open(socket).await?.arrays();
    if watched.watch {
        let interval_us = u64::try_from(WATCH_INTERVAL.as_micros()).unwrap_or(u64::MAX);
        let open = async || {
            let request = WatchArrayRequest { name: name.clone(), interval_us };
            Ok(arrays.clone().watch_array(request).await?.into_inner())
        };
        return watch::stream(open, out, in_full, Exit::of_array).await;
    }
    let array: Array = arrays.clone().get_array(GetArrayRequest { name }).await?.into_inner();
    out.print(&array, in_full)?;
    Ok(Exit::of_array(&array))
}

async fn stats(
    name: String,
    watched: Watch,
    socket: &Path,
    out: &Output,
) -> Result<Exit, CliError> {
    let connection = Connection::open(socket).await?;
    let look = async || {
        let request = GetArrayStatsRequest { name: name.clone() };
        Ok(connection.arrays().get_array_stats(request).await?.into_inner())
    };
    watch::answer(watched, out, look, tables::stats::array, |_| {}, |_| Exit::Fine).await
}

/// The position of `member` in array `name`.
async fn position(
    arrays: &mut ArrayServiceClient<Channel>,
    name: &str,
    member: MemberChoice,
) -> Result<u32, CliError> {
    let text = match member {
        MemberChoice::Position(position) => return Ok(position),
        MemberChoice::Drive(text) => text,
    };
    let drive = paths::drive(&text)?;
    let array = arrays.get_array(GetArrayRequest { name: name.to_owned() }).await?.into_inner();
    let is_it = |member: &&Member| member.path == drive || member.uuid == text;
    let mut found = array.members.iter().filter(is_it);
    match (found.next(), found.next()) {
        (Some(member), None) => Ok(member.position),
        _ => {
            let members = array.members.iter();
            let all: Vec<String> = members
                .map(|member| format!("{} ({})", member.position, tables::or_dash(&member.path)))
                .collect();
            let what =
                format!("array {name} has no member on {drive}; members: {}", all.join(", "));
            Err(CliError::usage(what))
        }
    }
}

async fn readd(arguments: Readd, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let Readd { name, member, drive, dry_run } = arguments;
    let drive = drive.map_or(Ok(String::new()), |d| paths::drive(&d))?;
    let mut arrays = Connection::open(socket).await?.arrays();
    let member = match member {
        Some(member) => Some(position(&mut arrays, &name, member).await?),
        None => None,
    };
    let request = ReaddMemberRequest { name, member, drive, dry_run };
    changed(&arrays.readd_member(request).await?.into_inner(), out)
}

async fn set(arguments: Set, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    if arguments.consistency == Some(Consistency::None) && !arguments.yes {
        risky::ask_careless(&arguments.name, &[])?;
    }
    let request = SetArrayRequest {
        name: arguments.name,
        rebuild_priority: arguments.rebuild_priority,
        auto_replace: arguments.auto_replace.map(Switch::is_on),
        auto_readd: arguments.auto_readd.map(Switch::is_on),
        replace_after_errors: arguments.replace_after_errors,
        report_at_wear_percent: arguments.report_at_wear,
        consistency: arguments.consistency.as_ref().map(word),
        scrub_every_s: arguments.scrub_every,
        scrub_repair: arguments.scrub_repair.map(Switch::is_on),
    };
    let mut arrays = Connection::open(socket).await?.arrays();
    changed(&arrays.set_array(request).await?.into_inner(), out)
}

async fn undelete(arguments: Undelete, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let Undelete { name, drives, dry_run } = arguments;
    let request = UndeleteArrayRequest { name, drives: paths::drives(&drives)?, dry_run };
    let mut arrays = Connection::open(socket).await?.arrays();
    changed(&arrays.undelete_array(request).await?.into_inner(), out)
}

async fn import(arguments: Import, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let request = ImportArraysRequest {
        name: arguments.name.unwrap_or_default(),
        drives: paths::drives(&arguments.drives)?,
        allow_degraded: arguments.degraded,
        accept_loss: arguments.accept_loss,
        use_drives: paths::drives(&arguments.use_drives)?,
        dry_run: arguments.dry_run,
        exports: arguments.exports,
    };
    let mut arrays = Connection::open(socket).await?.arrays();
    let answer = arrays.import_arrays(request).await?.into_inner();
    warn(&answer.warnings);
    out.print(&answer, tables::array::import)?;
    Ok(Exit::Fine)
}
