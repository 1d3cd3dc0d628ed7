//! The names that the daemon knows, for the arguments of a command.

use crate::connect::{Connection, default_socket};
use crate::limits::COMPLETION_TIMEOUT;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter as _};
use std::ffi::OsStr;
use std::mem;
use std::path::PathBuf;
use strake_api::v1::{
    Array, Drive, ListArraysRequest, ListDrivesRequest, ListExportsRequest, ListHooksRequest,
    ListHostsRequest, ListJobsRequest, ListPoolsRequest, ListReferralsRequest, ListSparesRequest,
    ListVolumesRequest, Volume,
};
use strake_wording::escaped;
use tonic::Status;

/// The folder of devices, which a command does not need to name.
const DEV: &str = "/dev/";

/// The words of the line that is completed.
pub(super) struct Line {
    words: Vec<String>,
}

impl Line {
    pub(super) fn new(words: Vec<String>) -> Self {
        Self { words }
    }

    /// Returns the socket that the line or the environment names, or the default.
    fn socket(&self) -> Option<PathBuf> {
        let pair = self.words.windows(2).find(|pair| pair[0] == "--socket");
        let given = self.words.iter().find_map(|word| word.strip_prefix("--socket="));
        let given = pair.map(|pair| pair[1].as_str()).or(given).map(PathBuf::from);
        let named = || std::env::var_os("STRAKE_SOCKET").filter(|path| !path.is_empty());
        given.or_else(|| named().map(PathBuf::from)).or_else(|| default_socket().ok())
    }

    /// True if the word to complete is still empty.
    pub(super) fn is_open(&self) -> bool {
        let at = std::env::var("_CLAP_COMPLETE_INDEX").ok().and_then(|at| at.parse::<usize>().ok());
        let last = self.words.len().saturating_sub(1);
        self.words.get(at.unwrap_or(last)).is_none_or(String::is_empty)
    }

    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|known| known == word)
    }
}

/// The kind of names that an argument accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Arrays.
    Arrays,
    /// All drives.
    Drives,
    /// Drives without an owner.
    FreeDrives,
    /// Remote drives.
    RemoteDrives,
    /// Members of the array in the line.
    Members,
    /// Spares.
    Spares,
    /// Exports.
    Exports,
    /// Hosts with a secret or key, and hosts that exports allow.
    Hosts,
    /// Jobs.
    Jobs,
    /// Pools.
    Pools,
    /// Volumes.
    Volumes,
    /// Snapshots.
    Snapshots,
    /// Volumes and snapshots.
    VolumesAndSnapshots,
    /// Volumes, exports and pools.
    Limitable,
    /// Arrays, volumes and snapshots.
    Exportable,
    /// Notification hooks.
    Hooks,
    /// Referrals.
    Referrals,
}

/// A name, and a remark for shells that show one.
struct Name {
    name: String,
    remark: String,
}

fn name(name: impl Into<String>, remark: impl Into<String>) -> Name {
    Name { name: name.into(), remark: remark.into() }
}

/// Returns where the last name of a list begins. A backslash precedes a comma in a name.
fn start_of_last(list: &str) -> usize {
    let mut start = 0;
    let mut is_escaped = false;
    for (at, byte) in list.bytes().enumerate() {
        if byte == b',' && !is_escaped {
            start = at + 1;
        }
        is_escaped = byte == b'\\' && !is_escaped;
    }
    start
}

impl Names {
    /// Returns the kind of names for the argument `id` of the command `path`, whose value is shown as `value`. Returns
    /// `None` for other values, and for the names of new objects.
    pub(super) fn of(path: &str, id: &str, value: &str) -> Option<Self> {
        match (path, id, value) {
            ("qos set" | "qos show" | "qos clear", "name", _) => Some(Self::Limitable),
            ("array create" | "array undelete", _, "ARRAY") | ("hook add", ..) => None,
            ("export create", "nqn", _) | (_, "host_nqn", _) => None,
            ("pool create", _, "POOL") | ("volume create" | "volume clone", _, "VOLUME") => None,
            (_, _, "ARRAY|VOLUME") => Some(Self::Exportable),
            (_, _, "POOL") => Some(Self::Pools),
            ("volume show" | "volume destroy", _, "VOLUME") => Some(Self::VolumesAndSnapshots),
            (_, _, "VOLUME") => Some(Self::Volumes),
            (_, _, "SNAPSHOT" | "FROM") => Some(Self::Snapshots),
            (_, _, "TO") => Some(Self::VolumesAndSnapshots),
            (_, _, "ARRAY" | "ARRAY|INTERVAL|COUNT") => Some(Self::Arrays),
            ("spare remove", _, "DRIVE") => Some(Self::Spares),
            (
                "array create" | "array replace" | "array add" | "spare add",
                _,
                "DRIVE" | "DRIVES",
            ) => Some(Self::FreeDrives),
            (_, _, "DRIVE" | "DRIVES") => Some(Self::Drives),
            (_, _, "POSITION|DRIVE") => Some(Self::Members),
            (_, _, "EXPORT") => Some(Self::Exports),
            (_, _, "NQN") => Some(Self::Hosts),
            (_, _, "JOB") => Some(Self::Jobs),
            (_, _, "HOOK") => Some(Self::Hooks),
            ("drive disconnect", _, "ADDRESS") => Some(Self::RemoteDrives),
            ("export referral remove", _, "ADDRESS") => Some(Self::Referrals),
            _ => None,
        }
    }

    /// Returns the names that begin with `current`; none if the daemon does not answer in time.
    pub(super) fn matching(self, current: &OsStr, line: &Line) -> Vec<CompletionCandidate> {
        let Some(text) = current.to_str() else { return Vec::new() };
        // The last of several drives is completed.
        let at = if self.is_list() { start_of_last(text) } else { 0 };
        let (before, last) = text.split_at(at);
        let mut found = self.fetch(line);
        if self.is_list() {
            found.iter_mut().for_each(|found| found.name = escaped(&[mem::take(&mut found.name)]));
        }
        let is_named = |name: &str| format!(",{before}").contains(&format!(",{name},"));
        found.retain(|found| found.name.starts_with(last) && !is_named(&found.name));
        if found.is_empty() && self.is_drive() && last.contains('/') {
            let paths = PathCompleter::any().complete(OsStr::new(last));
            return paths.into_iter().map(|path| path.add_prefix(before)).collect();
        }
        let candidate = |found: Name| {
            let help = (!found.remark.is_empty()).then(|| found.remark.into());
            CompletionCandidate::new(format!("{before}{}", found.name)).help(help)
        };
        found.into_iter().map(candidate).collect()
    }

    const fn is_drive(self) -> bool {
        matches!(self, Self::Drives | Self::FreeDrives | Self::Members)
    }

    const fn is_list(self) -> bool {
        matches!(self, Self::Drives | Self::FreeDrives)
    }

    /// Asks the daemon.
    fn fetch(self, line: &Line) -> Vec<Name> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (Ok(runtime), Some(socket)) = (runtime, line.socket()) else { return Vec::new() };
        let asking = async {
            let daemon = Connection::try_open(&socket).await.ok()?;
            self.ask(&daemon, line).await.ok()
        };
        let limited = async { tokio::time::timeout(COMPLETION_TIMEOUT, asking).await };
        runtime.block_on(limited).ok().flatten().unwrap_or_default()
    }

    async fn ask(self, daemon: &Connection, line: &Line) -> Result<Vec<Name>, Status> {
        Ok(match self {
            Self::Arrays => {
                arrays(daemon).await?.iter().map(|a| name(&a.name, a.states.join(", "))).collect()
            }
            Self::Members => members(&arrays(daemon).await?, line),
            Self::Drives => drives(daemon, |_| true).await?,
            Self::FreeDrives => {
                drives(daemon, |drive| drive.state == "free" && drive.spare_of.is_empty()).await?
            }
            Self::RemoteDrives => drives(daemon, |drive| drive.kind == "nvme-tcp").await?,
            Self::Spares => {
                let answer = daemon.spares().list_spares(ListSparesRequest {}).await?.into_inner();
                answer.spares.iter().flat_map(|s| of_path(&s.path, &s.state)).collect()
            }
            Self::Exports => {
                let answer = daemon.exports().list_exports(ListExportsRequest {}).await?;
                let exports = answer.into_inner().exports;
                exports.iter().map(|e| name(&e.name, format!("array {}", e.array))).collect()
            }
            Self::Pools => {
                let answer = daemon.pools().list_pools(ListPoolsRequest {}).await?.into_inner();
                answer.pools.iter().map(|pool| name(&pool.name, &pool.state)).collect()
            }
            Self::Volumes => volumes(daemon, "volume").await?,
            Self::Snapshots => volumes(daemon, "snapshot").await?,
            Self::VolumesAndSnapshots => volumes(daemon, "").await?,
            Self::Exportable => {
                let arrays = arrays(daemon).await?;
                let arrays = arrays.iter().map(|a| name(&a.name, a.states.join(", ")));
                // An older daemon has no volumes.
                let volumes = volumes(daemon, "").await.unwrap_or_default();
                arrays.chain(volumes).collect()
            }
            Self::Limitable => {
                let exports = daemon.exports().list_exports(ListExportsRequest {}).await?;
                let exports = exports.into_inner().exports;
                let pools =
                    daemon.pools().list_pools(ListPoolsRequest {}).await?.into_inner().pools;
                let mut names = volumes(daemon, "volume").await?;
                names.extend(exports.iter().map(|export| name(&export.name, "export")));
                names.extend(pools.iter().map(|pool| name(&pool.name, "pool")));
                names
            }
            Self::Hosts => hosts(daemon).await?,
            Self::Jobs => {
                let answer = daemon.jobs().list_jobs(ListJobsRequest::default()).await?;
                answer.into_inner().jobs.iter().map(|j| name(&j.id, &j.state)).collect()
            }
            Self::Hooks => {
                let answer = daemon.events().list_hooks(ListHooksRequest {}).await?.into_inner();
                answer.hooks.iter().map(|h| name(&h.name, &h.kind)).collect()
            }
            Self::Referrals => {
                let answer = daemon.exports().list_referrals(ListReferralsRequest {}).await?;
                answer.into_inner().referrals.iter().map(|r| name(&r.address, "")).collect()
            }
        })
    }
}

/// Returns the volumes, the snapshots, or, for an empty `kind`, both.
async fn volumes(daemon: &Connection, kind: &str) -> Result<Vec<Name>, Status> {
    let request = ListVolumesRequest { kind: kind.to_owned(), ..Default::default() };
    let answer = daemon.volumes().list_volumes(request).await?.into_inner();
    let remark = |volume: &Volume| match volume.origin.as_str() {
        "" => volume.kind.clone(),
        origin => format!("{} of {origin}", volume.kind),
    };
    Ok(answer.volumes.iter().map(|volume| name(&volume.name, remark(volume))).collect())
}

async fn arrays(daemon: &Connection) -> Result<Vec<Array>, Status> {
    Ok(daemon.arrays().list_arrays(ListArraysRequest::default()).await?.into_inner().arrays)
}

/// Returns the names of a drive: its path, and its name without the folder.
fn of_path(path: &str, remark: &str) -> Vec<Name> {
    let short = path.strip_prefix(DEV).filter(|short| !short.contains('/'));
    short.into_iter().chain([path]).map(|known| name(known, remark)).collect()
}

async fn drives(
    daemon: &Connection,
    is_wanted: impl Fn(&Drive) -> bool,
) -> Result<Vec<Name>, Status> {
    let answer = daemon.drives().list_drives(ListDrivesRequest::default()).await?.into_inner();
    let remark = |drive: &Drive| match drive.array.as_str() {
        "" => drive.state.clone(),
        array => format!("{} of {array}", drive.state),
    };
    let wanted = answer.drives.iter().filter(|drive| is_wanted(drive));
    Ok(wanted.flat_map(|drive| of_path(&drive.path, &remark(drive))).collect())
}

/// Returns the members of the array that the line names; of all arrays if it names none.
fn members(arrays: &[Array], line: &Line) -> Vec<Name> {
    let named: Vec<&Array> = arrays.iter().filter(|array| line.has(&array.name)).collect();
    let of = |array: &Array| -> Vec<Name> {
        let numbers = array.members.iter().map(|member| {
            name(member.position.to_string(), format!("{}, {}", member.path, member.state))
        });
        let paths = array.members.iter().flat_map(|member| of_path(&member.path, &member.state));
        numbers.chain(paths).collect()
    };
    match named.as_slice() {
        [array] => of(array),
        _ => arrays.iter().flat_map(of).collect(),
    }
}

async fn hosts(daemon: &Connection) -> Result<Vec<Name>, Status> {
    let known = daemon.exports().list_hosts(ListHostsRequest {}).await?.into_inner().hosts;
    let exports = daemon.exports().list_exports(ListExportsRequest {}).await?.into_inner().exports;
    let mut all: Vec<Name> = known.iter().map(|host| name(&host.nqn, &host.state)).collect();
    for allowed in exports.iter().flat_map(|export| &export.allow_hosts) {
        if all.iter().all(|known| known.name != *allowed) {
            all.push(name(allowed, "no secret and no key"));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::start_of_last;

    #[test]
    fn the_last_name_of_a_list_begins_behind_a_comma_that_separates() {
        for (list, last) in
            [("", ""), ("a", "a"), ("a,b", "b"), (r"a\,b", r"a\,b"), (r"a\\,b", "b"), ("a,", "")]
        {
            assert_eq!(&list[start_of_last(list)..], last, "{list}");
        }
    }
}
