//! `strake volume ...`.

use crate::args::parse::NewSize;
use crate::args::volume::{CloneSnapshot, Create, Destroy, List, Rename, Resize, Set, VolumeVerb};
use crate::commands::confirm::{self, Question};
use crate::commands::warn;
use crate::connect::Connection;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::{tables, watch};
use std::path::Path;
use strake_api::v1::volume_service_client::VolumeServiceClient;
use strake_api::v1::{
    CloneSnapshotRequest, CreateVolumeRequest, DestroyVolumeRequest, GetVolumeRequest,
    ListVolumesRequest, RenameVolumeRequest, ResizeVolumeRequest, SetVolumeRequest, Volume,
    VolumeChange,
};
use strake_units::ByteSize;
use tonic::transport::Channel;

/// Executes `verb`.
///
/// # Errors
/// When the daemon is unreachable or refuses the request, or the operator does not confirm.
pub async fn run(verb: VolumeVerb, socket: &Path, out: &Output) -> Result<Exit, CliError> {
    let change = match verb {
        VolumeVerb::List(arguments) => return list(arguments, "volume", socket, out).await,
        VolumeVerb::Show { name } => {
            let mut volumes = Connection::open(socket).await?.volumes();
            out.print(&one(&mut volumes, named(name)?).await?, tables::volume::show)?;
            return Ok(Exit::Fine);
        }
        VolumeVerb::Create(arguments) => create(arguments, socket).await?,
        VolumeVerb::Resize(arguments) => resize(arguments, socket).await?,
        VolumeVerb::Set(arguments) => set(arguments, socket).await?,
        VolumeVerb::Rename(Rename { name, new_name, dry_run }) => {
            let request = RenameVolumeRequest { name: named(name)?, new_name, dry_run };
            let mut volumes = Connection::open(socket).await?.volumes();
            volumes.rename_volume(request).await?.into_inner()
        }
        VolumeVerb::Destroy(Destroy { name, yes, dry_run }) => {
            let mut volumes = Connection::open(socket).await?.volumes();
            destroy(&mut volumes, named(name)?, yes, dry_run).await?
        }
        VolumeVerb::Clone(CloneSnapshot { snapshot, name, dry_run }) => {
            let (snapshot, name) = (named(snapshot)?, named(name)?);
            let request = CloneSnapshotRequest { snapshot, name, dry_run };
            let mut volumes = Connection::open(socket).await?.volumes();
            volumes.clone_snapshot(request).await?.into_inner()
        }
    };
    changed(&change, out)
}

/// Prints what a command did to a volume.
pub(super) fn changed(change: &VolumeChange, out: &Output) -> Result<Exit, CliError> {
    warn(&change.warnings);
    out.print(change, tables::volume::change)?;
    Ok(Exit::Fine)
}

/// Returns `name` if it has the form POOL/NAME. The daemon checks the parts.
///
/// # Errors
/// Explains the form. For VOLUME@SNAPSHOT, the habit of another program, the error has the name that is meant.
pub(super) fn named(name: String) -> Result<String, CliError> {
    if let Some((volume, snapshot)) = name.split_once('@') {
        let pool = volume.split('/').next().unwrap_or_default();
        return Err(CliError::usage(format!(
            "{name} is no name of a volume or snapshot: volumes and snapshots are named POOL/NAME, such as \
             {pool}/{snapshot}"
        )));
    }
    match name.split_once('/') {
        Some((pool, rest)) if !pool.is_empty() && !rest.is_empty() => Ok(name),
        _ => Err(CliError::usage(format!(
            "{name:?} is no name of a volume or snapshot: they are named POOL/NAME, such as tank/vm1"
        ))),
    }
}

/// Prints the volumes or the snapshots, as `kind` says.
pub(super) async fn list(
    arguments: List,
    kind: &str,
    socket: &Path,
    out: &Output,
) -> Result<Exit, CliError> {
    let List { pool, watch } = arguments;
    let pool = pool.unwrap_or_default();
    let connection = Connection::open(socket).await?;
    let look = async || {
        let request = ListVolumesRequest { pool: pool.clone(), kind: kind.to_owned() };
        Ok(connection.volumes().list_volumes(request).await?.into_inner())
    };
    let table = match kind {
        "snapshot" => tables::volume::snapshots,
        _ => tables::volume::list,
    };
    watch::answer(watch, out, look, table, |_| {}, |_| Exit::Fine).await
}

/// Asks for one volume or snapshot.
pub(super) async fn one(
    volumes: &mut VolumeServiceClient<Channel>,
    name: String,
) -> Result<Volume, CliError> {
    Ok(volumes.get_volume(GetVolumeRequest { name }).await?.into_inner())
}

/// The steps and warnings of a dry run.
pub(super) fn steps(plan: VolumeChange) -> Vec<String> {
    [plan.plan, plan.warnings].concat()
}

async fn create(arguments: Create, socket: &Path) -> Result<VolumeChange, CliError> {
    let Create { name, size, thick, quota, dry_run } = arguments;
    let request = CreateVolumeRequest {
        name: named(name)?,
        size_bytes: size.0,
        thick,
        quota_bytes: match quota {
            // The interface uses 0 for no quota.
            Some(ByteSize(0)) => return Err(CliError::usage("a quota is at least 1 byte")),
            quota => quota.unwrap_or_default().0,
        },
        dry_run,
    };
    let mut volumes = Connection::open(socket).await?.volumes();
    Ok(volumes.create_volume(request).await?.into_inner())
}

/// The new size in bytes of a volume that has `now` bytes.
fn sized(now: u64, change: NewSize) -> Result<u64, CliError> {
    let size = match change {
        NewSize::To(ByteSize(bytes)) => Some(bytes),
        NewSize::Plus(ByteSize(bytes)) => now.checked_add(bytes),
        NewSize::Minus(ByteSize(bytes)) => now.checked_sub(bytes).filter(|rest| *rest > 0),
    };
    size.ok_or_else(|| {
        let now = ByteSize(now);
        CliError::usage(format!("the volume has {now} and cannot be resized by {change}"))
    })
}

async fn resize(arguments: Resize, socket: &Path) -> Result<VolumeChange, CliError> {
    let Resize { name, size, discard_tail, yes, dry_run } = arguments;
    let name = named(name)?;
    let mut volumes = Connection::open(socket).await?.volumes();
    let now = match size {
        NewSize::To(_) => 0,
        _ => one(&mut volumes, name.clone()).await?.size_bytes,
    };
    let size_bytes = sized(now, size)?;
    let request = ResizeVolumeRequest { name, size_bytes, discard_tail, dry_run };
    if discard_tail && !yes && !dry_run {
        confirm::possible(&format!("discard data of {}", request.name))?;
        let plan = ResizeVolumeRequest { dry_run: true, ..request.clone() };
        let plan = steps(volumes.resize_volume(plan).await?.into_inner());
        let to = ByteSize(size_bytes);
        let what = format!("resize {} to {to}; the data beyond this size are lost", request.name);
        confirm::ask(&Question { what: &what, plan: &plan, answer: &request.name })?;
    }
    Ok(volumes.resize_volume(request).await?.into_inner())
}

async fn set(arguments: Set, socket: &Path) -> Result<VolumeChange, CliError> {
    let Set { name, thick, thin, quota } = arguments;
    let request = SetVolumeRequest {
        name: named(name)?,
        thick: (thick || thin).then_some(thick),
        quota_bytes: quota.map(|quota| quota.0),
    };
    let mut volumes = Connection::open(socket).await?.volumes();
    Ok(volumes.set_volume(request).await?.into_inner())
}

/// Destroys a volume or snapshot.
pub(super) async fn destroy(
    volumes: &mut VolumeServiceClient<Channel>,
    name: String,
    yes: bool,
    dry_run: bool,
) -> Result<VolumeChange, CliError> {
    let request = DestroyVolumeRequest { name, dry_run };
    if !yes && !dry_run {
        confirm::possible(&format!("destroy {}", request.name))?;
        let plan = DestroyVolumeRequest { dry_run: true, ..request.clone() };
        let plan = volumes.destroy_volume(plan).await?.into_inner();
        let what = tables::volume::loss(plan.volume.as_ref());
        let what = format!("destroy {}{what}", request.name);
        confirm::ask(&Question { what: &what, plan: &steps(plan), answer: &request.name })?;
    }
    Ok(volumes.destroy_volume(request).await?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::{named, sized};

    #[test]
    fn a_name_has_a_pool_and_a_name() {
        assert_eq!(named("tank/vm1".into()).ok().as_deref(), Some("tank/vm1"));
        let why = |name: &str| named(name.into()).expect_err(name).text;
        for wrong in ["", "tank", "/vm1", "tank/"] {
            assert!(why(wrong).contains("POOL/NAME"), "{wrong}");
        }
        assert!(why("tank/vm1@before").ends_with("such as tank/before"));
    }

    #[test]
    fn a_size_is_absolute_or_a_change() {
        let check = |text: &str, want: Option<u64>| {
            assert_eq!(sized(4096, text.parse().expect(text)).ok(), want, "{text}");
        };
        check("1k", Some(1024));
        check("+1k", Some(5120));
        check("-1k", Some(3072));
        check("-4k", None);
        check("-5k", None);
        check("+18446744073709551615", None);
    }
}
