//! `strake snapshot ...`.

use super::volume::{changed, destroy, list, named, one, steps};
use crate::args::volume::{CreateSnapshots, DestroySnapshot, Rollback, SnapshotVerb};
use crate::commands::confirm::{self, Question};
use crate::commands::warn;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::tables;
use std::path::Path;
use strake_api::v1::volume_service_client::VolumeServiceClient;
use strake_api::v1::{
    ByteRange, CompareVolumesRequest, CompareVolumesResponse, CreateSnapshotsRequest, NewSnapshot,
    RollbackVolumeRequest, Volume, VolumeChange,
};
use tonic::transport::Channel;

/// Executes `verb`.
///
/// # Errors
/// When the daemon is unreachable or refuses the request, or the operator does not confirm.
pub async fn run(verb: SnapshotVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    match verb {
        SnapshotVerb::Create(CreateSnapshots { pairs, dry_run }) => {
            let request = CreateSnapshotsRequest { snapshots: new(&pairs)?, dry_run };
            let mut volumes = Connection::open(socket).await?.volumes();
            let change = volumes.create_snapshots(request).await?.into_inner();
            warn(&change.warnings);
            out.print(&change, tables::volume::snapshots_change)?;
        }
        SnapshotVerb::List(arguments) => return list(arguments, "snapshot", socket, out).await,
        SnapshotVerb::Show { name } => {
            let mut volumes = Connection::open(socket).await?.volumes();
            out.print(&snapshot(&mut volumes, named(name)?).await?, tables::volume::show)?;
        }
        SnapshotVerb::Destroy(DestroySnapshot { name, yes, dry_run }) => {
            let mut volumes = Connection::open(socket).await?.volumes();
            let name = snapshot(&mut volumes, named(name)?).await?.name;
            changed(&destroy(&mut volumes, name, yes, dry_run).await?, out)?;
        }
        SnapshotVerb::Rollback(arguments) => {
            changed(&rollback(arguments, socket).await?, out)?;
        }
        SnapshotVerb::Diff { from, to } => {
            let mut volumes = Connection::open(socket).await?.volumes();
            let answer = diff(&mut volumes, &named(from)?, &named(to)?).await?;
            out.print(&answer, tables::volume::diff)?;
        }
    }
    Ok(Exit::Fine)
}

/// The snapshots that the words of a command name: pairs of a volume and a name. VOLUME@NAME, the habit of another
/// program, is also a pair.
fn new(words: &[String]) -> Result<Vec<NewSnapshot>, CliError> {
    let mut all = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (volume, name) = match word.split_once('@') {
            Some(pair) => pair,
            None => (word.as_str(), words.next().map_or("", String::as_str)),
        };
        let volume = named(volume.to_owned())?;
        if name.is_empty() {
            return Err(CliError::usage(format!("the snapshot of {volume} has no name: {FORM}")));
        }
        if name.contains('/') {
            return Err(CliError::usage(format!(
                "{name} is no name for the snapshot of {volume}: {FORM}"
            )));
        }
        all.push(NewSnapshot { volume, name: name.to_owned() });
    }
    Ok(all)
}

/// How the command is typed.
const FORM: &str = "write pairs of a volume and a name without a pool, such as strake snapshot create tank/vm1 now";

/// Asks for a snapshot.
///
/// # Errors
/// Also if `name` is a volume.
async fn snapshot(
    volumes: &mut VolumeServiceClient<Channel>,
    name: String,
) -> Result<Volume, CliError> {
    let found = one(volumes, name).await?;
    match found.kind.as_str() {
        "volume" => Err(CliError::usage(format!(
            "{} is a volume, not a snapshot; for volumes, use strake volume",
            found.name
        ))),
        _ => Ok(found),
    }
}

async fn rollback(arguments: Rollback, socket: &Path) -> Result<VolumeChange, CliError> {
    let Rollback { name, snapshot, yes, dry_run } = arguments;
    let (name, snapshot) = (named(name)?, named(snapshot)?);
    let request = RollbackVolumeRequest { name, snapshot, dry_run };
    let mut volumes = Connection::open(socket).await?.volumes();
    if !yes && !dry_run {
        let RollbackVolumeRequest { name, snapshot, .. } = &request;
        confirm::possible(&format!("roll {name} back to {snapshot}"))?;
        let plan = RollbackVolumeRequest { dry_run: true, ..request.clone() };
        let plan = steps(volumes.rollback_volume(plan).await?.into_inner());
        let what = format!("roll {name} back to {snapshot}; all later writes to {name} are lost");
        confirm::ask(&Question { what: &what, plan: &plan, answer: name })?;
    }
    Ok(volumes.rollback_volume(request).await?.into_inner())
}

/// Asks for all ranges that may differ. Adjacent ranges are merged.
async fn diff(
    volumes: &mut VolumeServiceClient<Channel>,
    from: &str,
    to: &str,
) -> Result<CompareVolumesResponse, CliError> {
    let mut all = Vec::new();
    let mut first_byte = 0;
    loop {
        let request =
            CompareVolumesRequest { from: from.to_owned(), to: to.to_owned(), first_byte };
        let answer = volumes.compare_volumes(request).await?.into_inner();
        answer.ranges.into_iter().for_each(|range| append(&mut all, range));
        match answer.next_byte {
            None => return Ok(CompareVolumesResponse { ranges: all, next_byte: None }),
            Some(next) if next > first_byte => first_byte = next,
            Some(next) => {
                let why =
                    format!("the daemon compared nothing: it answered {first_byte} with {next}");
                return Err(CliError::mismatch(why));
            }
        }
    }
}

/// Adds `range` to ordered ranges.
fn append(all: &mut Vec<ByteRange>, range: ByteRange) {
    match all.last_mut() {
        Some(last)
            if last.offset_bytes.checked_add(last.length_bytes) == Some(range.offset_bytes) =>
        {
            last.length_bytes += range.length_bytes;
        }
        _ => all.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::new;

    #[test]
    fn snapshots_are_pairs_of_a_volume_and_a_name() {
        let typed = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            new(&words).map(|all| all.into_iter().map(|n| (n.volume, n.name)).collect::<Vec<_>>())
        };
        let pair = |volume: &str, name: &str| (volume.to_owned(), name.to_owned());
        let both = vec![pair("tank/db", "db-1"), pair("tank/log", "log-1")];
        assert_eq!(typed("tank/db db-1 tank/log log-1").ok(), Some(both.clone()));
        assert_eq!(typed("tank/db@db-1 tank/log@log-1").ok(), Some(both));
        let why = |line: &str| typed(line).expect_err(line).text;
        assert!(why("tank/db").contains("has no name"));
        assert!(why("tank/db tank/db-1").contains("tank/db-1 is no name"));
        assert!(why("tank/db db-1 log log-1").contains("\"log\" is no name of a volume"));
    }
}
