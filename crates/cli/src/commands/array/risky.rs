//! Commands that may lose redundancy, data or connections, and therefore need a confirmation.

use super::{changed, gone, position};
use crate::args::array::{Add, Consistency, Create, Fail, Loss, Replace, Stop};
use crate::args::parse::word;
use crate::commands::confirm::{self, Question};
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::paths;
use std::path::Path;
use strake_api::v1::{
    AddDriveRequest, Array, ArrayChange, CreateArrayRequest, DestroyArrayRequest,
    FailMemberRequest, GetArrayRequest, ReplaceMemberRequest, UnloadArrayRequest,
};
use strake_units::ByteSize;

/// The plan of a dry run, with its warnings.
fn steps(change: &ArrayChange) -> Vec<String> {
    [change.plan.as_slice(), change.warnings.as_slice()].concat()
}

/// Asks before drives are overwritten: shows the plan of a dry run, and requests the name of the array.
fn ask_overwrite(plan: &ArrayChange, drives: &str, name: &str) -> Result<(), CliError> {
    let what = format!("use {drives}; their content is lost");
    confirm::ask(&Question { what: &what, plan: &steps(plan), answer: name })
}

/// Asks before crash protection is turned off: requests the name of the array.
pub(super) fn ask_careless(name: &str, plan: &[String]) -> Result<(), CliError> {
    confirm::possible("disable crash protection")?;
    let what = "disable crash protection: the contents are undefined after a crash";
    confirm::ask(&Question { what, plan, answer: name })
}

pub(super) async fn create(
    arguments: Create,
    socket: &Path,
    out: &Output,
) -> Result<Exit, CliError> {
    let asks = arguments.overwrite && !arguments.yes && !arguments.dry_run;
    let careless = arguments.consistency == Some(Consistency::None);
    if careless && !arguments.yes && !arguments.dry_run {
        ask_careless(&arguments.name, &[])?;
    }
    let request = CreateArrayRequest {
        name: arguments.name,
        level: arguments.level,
        drives: paths::drives(&arguments.drives)?,
        strip_bytes: arguments.strip.unwrap_or_default(),
        group_size: arguments.group_size,
        block_bytes: arguments.block_size,
        dry_run: arguments.dry_run,
        overwrite: arguments.overwrite,
        consistency: arguments.consistency.as_ref().map(word).unwrap_or_default(),
    };
    let mut arrays = Connection::open(socket).await?.arrays();
    if asks {
        confirm::possible("overwrite drives")?;
        let plan = CreateArrayRequest { dry_run: true, ..request.clone() };
        let plan = arrays.create_array(plan).await?.into_inner();
        ask_overwrite(&plan, &request.drives.join(", "), &request.name)?;
    }
    changed(&arrays.create_array(request).await?.into_inner(), out)
}

pub(super) async fn fail(arguments: Fail, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let mut arrays = Connection::open(socket).await?.arrays();
    let member = position(&mut arrays, &arguments.name, arguments.member).await?;
    let mut accepted = arguments.accept;
    // Without a person to ask, the daemon's refusal says which loss has to be accepted.
    if !arguments.dry_run && !arguments.yes && confirm::person() {
        let request = GetArrayRequest { name: arguments.name.clone() };
        let array = arrays.get_array(request).await?.into_inner();
        let plan = FailMemberRequest {
            name: arguments.name.clone(),
            member,
            dry_run: true,
            accept: words(losses(&array)),
        };
        let plan = arrays.fail_member(plan).await?.into_inner();
        let what =
            format!("take member {member} of {} out of use{}", array.name, cost(&array, member));
        confirm::ask(&Question { what: &what, plan: &steps(&plan), answer: &array.name })?;
        accepted.extend(losses(&array));
    }
    let request = FailMemberRequest {
        name: arguments.name,
        member,
        dry_run: arguments.dry_run,
        accept: words(&accepted),
    };
    changed(&arrays.fail_member(request).await?.into_inner(), out)
}

/// What failing a member of `array` may cost. The plan of the daemon states whether it does.
const fn losses(array: &Array) -> &'static [Loss] {
    if array.corrupt_bytes > 0 || array.unverified_us.is_some() {
        &[Loss::Redundancy, Loss::Data]
    } else {
        &[Loss::Redundancy]
    }
}

fn words(losses: &[Loss]) -> Vec<String> {
    let mut words: Vec<String> = losses.iter().map(word).collect();
    words.dedup();
    words
}

/// The end of a sentence that states what is lost if `member` of `array` is failed. The plan of the daemon states how
/// many member failures the array tolerates before and after the command.
fn cost(array: &Array, member: u32) -> &'static str {
    let in_sync = array.members.iter().any(|m| m.position == member && m.state == "in_sync");
    if in_sync { ", which is in sync: the array loses redundancy" } else { "" }
}

pub(super) async fn replace(
    arguments: Replace,
    socket: &Path,
    out: &Output,
) -> Result<Exit, CliError> {
    let asks = arguments.overwrite && !arguments.yes && !arguments.dry_run;
    let drive = paths::drive(&arguments.drive)?;
    let mut arrays = Connection::open(socket).await?.arrays();
    let request = ReplaceMemberRequest {
        member: position(&mut arrays, &arguments.name, arguments.member).await?,
        name: arguments.name,
        drive,
        dry_run: arguments.dry_run,
        overwrite: arguments.overwrite,
    };
    if asks {
        confirm::possible(&format!("overwrite {}", arguments.drive))?;
        let plan = ReplaceMemberRequest { dry_run: true, ..request.clone() };
        let plan = arrays.replace_member(plan).await?.into_inner();
        ask_overwrite(&plan, &request.drive, &request.name)?;
    }
    changed(&arrays.replace_member(request).await?.into_inner(), out)
}

pub(super) async fn add(arguments: Add, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let asks = arguments.overwrite && !arguments.yes && !arguments.dry_run;
    let request = AddDriveRequest {
        name: arguments.name,
        drive: paths::drive(&arguments.drive)?,
        dry_run: arguments.dry_run,
        overwrite: arguments.overwrite,
    };
    let mut arrays = Connection::open(socket).await?.arrays();
    if asks {
        confirm::possible(&format!("overwrite {}", arguments.drive))?;
        let plan = AddDriveRequest { dry_run: true, ..request.clone() };
        let plan = arrays.add_drive(plan).await?.into_inner();
        ask_overwrite(&plan, &request.drive, &request.name)?;
    }
    changed(&arrays.add_drive(request).await?.into_inner(), out)
}

pub(super) async fn unload(arguments: Stop, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let mut arrays = Connection::open(socket).await?.arrays();
    let Stop { name, force, yes, dry_run } = arguments;
    let request = UnloadArrayRequest { name, dry_run, force };
    if !dry_run && !yes {
        let plan = UnloadArrayRequest { dry_run: true, ..request.clone() };
        let plan = arrays.unload_array(plan).await?.into_inner();
        if plan.undo.is_empty() {
            let (name, bytes) = sized(&plan, &request.name);
            confirm::possible(&format!("unload {name}, whose data are in memory"))?;
            let what = format!("unload {name}: {} of data in memory are lost", ByteSize(bytes));
            confirm::ask(&Question { what: &what, plan: &steps(&plan), answer: name })?;
        }
    }
    let change = arrays.unload_array(request).await?.into_inner();
    gone(&change, how_unloaded(&change), out)
}

/// What became of an array that was unloaded.
fn how_unloaded(change: &ArrayChange) -> &'static str {
    let has_drives = |array: &Array| array.members.iter().any(|m| !m.path.is_empty());
    match (change.undo.is_empty(), change.array.as_ref().is_some_and(has_drives)) {
        (true, _) => "unloaded; its data were in memory and are lost",
        (false, true) => "unloaded, its data stay on its drives",
        (false, false) => "unloaded; its drives were not found",
    }
}

/// The name and the size of the array of a plan.
fn sized<'a>(plan: &'a ArrayChange, name: &'a str) -> (&'a str, u64) {
    plan.array.as_ref().map_or((name, 0), |array| (array.name.as_str(), array.size_bytes))
}

pub(super) async fn destroy(
    arguments: Stop,
    socket: &Path,
    out: &Output,
) -> Result<Exit, CliError> {
    let Stop { name, force, yes, dry_run } = arguments;
    let request = DestroyArrayRequest { name, dry_run, force };
    let asks = !dry_run && !yes;
    let mut arrays = Connection::open(socket).await?.arrays();
    if asks {
        confirm::possible(&format!("destroy {}", request.name))?;
        let plan = DestroyArrayRequest { dry_run: true, ..request.clone() };
        let plan = arrays.destroy_array(plan).await?.into_inner();
        let (name, bytes) = sized(&plan, &request.name);
        let what = format!("destroy {name}: {} of data", ByteSize(bytes));
        confirm::ask(&Question { what: &what, plan: &steps(&plan), answer: name })?;
    }
    let change = arrays.destroy_array(request).await?.into_inner();
    let how = match change.undo.as_str() {
        "" => "destroyed permanently".to_owned(),
        undo => format!("destroyed; to undo this before its drives are used again: {undo}"),
    };
    gone(&change, &how, out)
}

#[cfg(test)]
mod tests {
    use super::how_unloaded;
    use strake_api::v1::{Array, ArrayChange, Member};

    /// An array in memory was unloaded with the words that its data stay on its drives.
    #[test]
    fn an_unloaded_array_is_said_to_keep_only_what_it_keeps() {
        let check = |undo: &str, path: &str, words: &str| {
            let members = vec![Member { path: path.into(), ..Member::default() }];
            let array = Some(Array { members, ..Array::default() });
            let change = ArrayChange { undo: undo.into(), array, ..ArrayChange::default() };
            assert!(how_unloaded(&change).contains(words), "{}", how_unloaded(&change));
        };
        check("", "ram0", "are lost");
        check("strake array import tank", "/dev/a", "stay on its drives");
        check("strake array import tank", "", "not found");
    }
}
