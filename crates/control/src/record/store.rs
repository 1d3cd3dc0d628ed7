//! The recorded configuration: `state.json` in the state directory, changed in two steps.
//!
//! [`Store::prepare`] writes the next configuration to a temporary file and makes it durable. Only then is a command
//! executed. [`Prepared::commit`] renames the file. Therefore a full or read-only directory refuses a command before it
//! accesses a drive, and a crash leaves the old or the new file, never a mixture.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use strake_alerts::HookSpec;
use strake_api::v1::{CreateArrayRequest, StartDaemon};
use strake_wording::say;

use crate::error::{ControlError, ControlErrorKind};
use crate::names::callable;
use crate::record::access::{self, Before, Exposure};
use crate::record::files::{Next, StateFolder, open, open_to_read};
use crate::remedy::{import_drives, not_among};

mod arrays;
mod exported;
mod limits;
mod peers;
mod settings;
mod taken;

pub use arrays::{ArrayRecord, CopyRecord, ScrubAim, ScrubRecord, SilentRecord, UnderWay};
pub use exported::VolumeRef;
pub use limits::{Limited, LimitsRecord};
pub use peers::{Covered, HostRecord, OldSecrets, OldTlsKey, RemoteRecord};
pub use settings::{PausedJobs, Settings};
pub(crate) use taken::{Aim, TakenRecord};

/// Version of the file written here.
pub const VERSION: u32 = 1;

/// Name of the file.
const FILE: &str = "state.json";

/// File that exists while a daemon runs, and after an unclean end.
const RUNNING: &str = "running";

/// Maximum size of a file. It is far larger than all arrays and exports of one daemon need.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The fields in every version of the file.
#[derive(Deserialize)]
struct Written {
    version: u32,
}

/// The persistent configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `VERSION`.
    pub version: u32,
    /// Arrays to start automatically.
    pub arrays: Vec<ArrayRecord>,
    /// Exports.
    pub exports: Vec<ExportRecord>,
    /// Spares.
    #[serde(default)]
    pub spares: Vec<SpareRecord>,
    /// Notification hooks with their credentials. Output for others must use [`HookSpec::masked`].
    #[serde(default)]
    pub hooks: Vec<HookSpec>,
    /// Remote drives to connect automatically, with their secrets. Output for others must mask the secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remotes: Vec<RemoteRecord>,
    /// The host identifier of this daemon for remote controllers; empty before its first use.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The arrays that were destroyed last, for an undelete.
    #[serde(default)]
    pub destroyed: Vec<DestroyedRecord>,
    /// Hosts that must authenticate, with their secrets. Output for others must mask the secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostRecord>,
    /// Referrals to other discovery controllers, by address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub referrals: Vec<String>,
    /// Arrays, by identity, whose export was removed and whose reservations may still exist. The next start removes the
    /// reservations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended_reservations: Vec<String>,
    /// Drives that are taken from the kernel, or are being taken or released.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) taken: Vec<TakenRecord>,
    /// Limits of I/O.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitsRecord>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            version: VERSION,
            arrays: Vec::new(),
            exports: Vec::new(),
            spares: Vec::new(),
            remotes: Vec::new(),
            host: String::new(),
            destroyed: Vec::new(),
            hooks: Vec::new(),
            hosts: Vec::new(),
            referrals: Vec::new(),
            ended_reservations: Vec::new(),
            taken: Vec::new(),
            limits: Vec::new(),
        }
    }
}

impl Config {
    /// Returns the error that there is no array of this name, with the known names.
    pub(crate) fn no_such_array(&self, name: &str) -> ControlError {
        let known: Vec<&str> = self.arrays.iter().map(|a| callable(&a.name, &a.uuid)).collect();
        let create = CreateArrayRequest { name: "...".to_owned(), ..Default::default() };
        not_among(format!("there is no array {name:?}"), &known, create)
    }
}

/// The record of an array before its destruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestroyedRecord {
    /// Identity of the array.
    pub uuid: String,
    /// Name of the array.
    pub name: String,
    /// Paths of the drives.
    pub drives: Vec<String>,
    /// Settings of the array.
    #[serde(default)]
    pub settings: Settings,
    /// Exports of the array.
    #[serde(default)]
    pub exports: Vec<ExportRecord>,
}

/// A spare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpareRecord {
    /// The last known path.
    pub path: String,
    /// Identity of the medium.
    pub identity: String,
    /// Size of the spare.
    pub bytes: u64,
    /// Identity of the array of a dedicated spare; empty for a spare for all arrays.
    pub array: String,
}

/// An export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportRecord {
    /// Name of the export for clients.
    pub name: String,
    /// Identity of the array.
    pub array: String,
    /// The volume on the array; absent for an export of the array itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeRef>,
    /// Listening address, as `unix:/path` or `address:port`.
    pub listen: String,
    /// True if writes are refused.
    pub read_only: bool,
    /// Additional fields for NVMe/TCP; absent for NBD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvme: Option<SubsystemRecord>,
}

/// Additional fields of an NVMe/TCP export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubsystemRecord {
    /// NQN of the subsystem.
    pub nqn: String,
    /// NQNs of the allowed hosts.
    pub hosts: Vec<String>,
    /// Namespace identifier in the subsystem.
    #[serde(default = "first_namespace", skip_serializing_if = "is_first_namespace")]
    pub namespace: u32,
    /// True if every host must use TLS.
    #[serde(default, skip_serializing_if = "is_false")]
    pub secure: bool,
    /// True if the operator accepts hosts that authenticate and do not use TLS on a network.
    #[serde(default, skip_serializing_if = "is_false")]
    pub insecure: bool,
}

const fn first_namespace() -> u32 {
    1
}

// Serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_first_namespace(namespace: &u32) -> bool {
    *namespace == first_namespace()
}

/// The state directory, locked by this process.
#[derive(Debug)]
pub struct Store {
    folder: StateFolder,
    unclean: bool,
    /// Whether the directory contained no configuration at this start.
    is_new: bool,
    trouble: Option<ControlError>,
    /// A change could not be recorded since the last test.
    refused: AtomicBool,
    /// The rights of other users before this start.
    before: Before,
    // Files that hold the lock. Their close releases the directory.
    locks: Vec<File>,
    /// True after the directory was released. Another daemon may use it, so this process must not write to it.
    given_up: bool,
}

/// A configuration on disk that is not yet effective. The drop removes it.
#[derive(Debug)]
#[must_use = "a prepared configuration takes effect when it is committed"]
pub struct Prepared {
    folder: StateFolder,
    next: Next,
    config: Config,
}

impl Store {
    /// Opens (and creates, mode 0700) the state directory, locks it, and reads the configuration. Other users lose the
    /// rights to change the directory and to use the configuration. A directory that is full or read-only is no reason
    /// not to serve what the drives hold: that is its [`trouble`](Self::trouble).
    ///
    /// # Errors
    /// When another daemon uses the directory (named by its process ID), it is not there and cannot be made, or the
    /// file in it cannot be read.
    pub fn open(dir: &Path) -> Result<(Self, Config), ControlError> {
        Self::open_in(StateFolder::of(dir))
    }

    /// Creates the state directory (mode 0700), unless it exists.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn make(dir: &Path) -> Result<(), ControlError> {
        StateFolder::of(dir).make().map_err(|e| failed(dir, "create it", &e))
    }

    pub(crate) fn open_in(folder: StateFolder) -> Result<(Self, Config), ControlError> {
        let dir = folder.path();
        folder.make().map_err(|e| failed(dir, "create it", &e))?;
        if let Err(error) = folder.sync_name() {
            // The name of the directory is probably durable already. Each change makes its own records durable.
            tracing::warn!(path = %dir.display(), %error, "the name of the state directory is not made durable");
        }
        let about = fs::metadata(dir).map_err(|e| failed(dir, "look at it", &e))?;
        let before = Before::close_folder(dir, &about)?;
        let locks = lock(dir)?;
        let unclean = folder.file(RUNNING).exists();
        let mut store = Self {
            folder,
            unclean,
            is_new: false,
            trouble: None,
            refused: AtomicBool::new(false),
            before,
            locks,
            given_up: false,
        };
        let config = store.read()?;
        store.test(&config);
        Ok((store, config))
    }

    /// Checks that the directory is writable before a command depends on it. `config` is the present configuration.
    pub fn test(&mut self, config: &Config) {
        if self.given_up {
            return;
        }
        // The prepared file is dropped immediately.
        let tested = self.prepare(config).map(drop).and_then(|()| {
            let marked = self.folder.mark(RUNNING);
            marked.map_err(|e| failed(&self.folder.file(RUNNING), "write to it", &e))
        });
        self.trouble = tested.err();
        self.refused.store(false, Ordering::Relaxed);
    }

    /// True if the directory must be tested: the last test failed, or a change could not be recorded since then.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.trouble.is_some() || self.refused.load(Ordering::Relaxed)
    }

    /// Returns the reason why the last [test](Self::test) could not write the directory.
    #[must_use]
    pub fn trouble(&self) -> Option<&ControlError> {
        self.trouble.as_ref()
    }

    /// True if the previous daemon did not [stop cleanly](Self::mark_clean).
    #[must_use]
    pub fn was_unclean(&self) -> bool {
        self.unclean
    }

    /// True if the directory contained no configuration at this start.
    pub(crate) const fn was_new(&self) -> bool {
        self.is_new
    }

    /// Releases the directory for another daemon. An unresponsive drive may keep this process in the kernel for a long
    /// time, so nothing is written from here on.
    pub fn give_up(&mut self) {
        self.given_up = true;
        // The close of the files releases their locks.
        self.locks.clear();
    }

    /// Whether nothing may be written because the directory was given up.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.given_up
    }

    fn check_held(&self) -> Result<(), ControlError> {
        if self.given_up {
            return Err(ControlError::new(
                ControlErrorKind::Stopped,
                "the daemon has stopped and no longer records anything",
            ));
        }
        Ok(())
    }

    /// Records a clean stop of the daemon.
    ///
    /// # Errors
    /// If the directory cannot be written, or was [released](Self::give_up).
    pub fn mark_clean(&self) -> Result<(), ControlError> {
        self.check_held()?;
        let removed = self.folder.remove(RUNNING);
        removed.map_err(|e| failed(&self.folder.file(RUNNING), "remove it", &e))
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of the file with the configuration.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.file(FILE)
    }

    /// Returns the directory for writes.
    pub(crate) const fn folder(&self) -> &StateFolder {
        &self.folder
    }

    /// Returns the rights of other users before this start.
    pub(crate) const fn before(&self) -> Before {
        self.before
    }

    /// Returns the present exposure of the directory or its configuration to other users.
    pub(crate) fn exposures(&self) -> Vec<Exposure> {
        let (dir, file) = (self.dir(), self.folder.file(FILE));
        let Ok(folder) = fs::metadata(dir) else { return Vec::new() };
        let about = fs::metadata(&file).ok();
        let of_file = about.and_then(|about| access::of_file(&file, &about, &folder));
        access::of_folder(dir, &folder).into_iter().chain(of_file).collect()
    }

    fn read(&mut self) -> Result<Config, ControlError> {
        let path = self.folder.file(FILE);
        let mut text = String::new();
        let no_link = OFlags::NOFOLLOW.bits().cast_signed();
        match File::options().read(true).custom_flags(no_link).open(&path) {
            Ok(file) => {
                let about = file.metadata().map_err(|e| failed(&path, "look at it", &e))?;
                self.before.close_file(&path, &file, &about)?;
                let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
                read.map_err(|e| failed(&path, "read it", &e))?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.is_new = true;
                return Ok(Config::default());
            }
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                let path = path.display();
                let what = format!("{path} is a symbolic link; replace the link by the file");
                return Err(ControlError::new(ControlErrorKind::Store, what));
            }
            Err(error) => return Err(failed(&path, "read it", &error)),
        };
        let damaged = |why: String| {
            let what = format!(
                "{} is invalid ({why}); move it away, start again, and import the arrays: ",
                path.display()
            );
            ControlError::new(ControlErrorKind::Store, say(what).run(import_drives("")))
        };
        // The version is parsed first, because other versions may have other fields.
        let written: Written = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
        if written.version != VERSION {
            let what = format!(
                "{} has version {}, this program reads version {VERSION}; use the version of Strake that wrote the \
                    file",
                path.display(),
                written.version
            );
            return Err(ControlError::new(ControlErrorKind::Store, what));
        }
        serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))
    }

    /// Writes `config` durably to a temporary file.
    ///
    /// # Errors
    /// If the directory is full or read-only, or was [released](Self::give_up). Nothing has changed then.
    pub fn prepare(&self, config: &Config) -> Result<Prepared, ControlError> {
        self.check_held()?;
        let config = config.clone().without_stale_limits();
        let text = serde_json::to_vec_pretty(&config).map_err(|e| {
            ControlError::new(ControlErrorKind::Store, format!("cannot encode the state: {e}"))
        })?;
        let next = self.folder.prepare(FILE, &text).map_err(|e| {
            self.refused.store(true, Ordering::Relaxed);
            failed(&self.folder.file("state.json.next"), "record the change", &e)
        })?;
        Ok(Prepared { folder: self.folder.clone(), next, config })
    }
}

impl Prepared {
    /// Makes the configuration effective and returns it.
    ///
    /// # Errors
    /// If the directory failed meanwhile. It is then unknown which configuration is effective after a restart.
    pub fn commit(self) -> Result<Config, ControlError> {
        let path = self.next.path().to_owned();
        self.next.place().map_err(|e| failed(&path, "record the change", &e))?;
        self.folder.sync().map_err(|e| failed(self.folder.path(), "record the change", &e))?;
        Ok(self.config)
    }
}

/// Number of attempts to take a lock before it counts as held by another daemon.
const LOCK_TRIES: u32 = 20;

/// Time between two attempts.
const LOCK_RETRY: std::time::Duration = std::time::Duration::from_millis(100);

/// Maximum number of bytes of a process ID in the file `lock`.
const PID_BYTES_MAX: u64 = 16;

/// Takes the lock. The attempts give the kernel time to end a daemon that was just killed.
fn flock_patiently(file: &File) -> Result<(), Errno> {
    for _ in 1..LOCK_TRIES {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_RETRY),
            answer => return answer,
        }
    }
    flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Takes the locks of the directory: the lock of its file `lock`, and the lock of the directory itself, which suffices
/// if no file can be created.
fn lock(dir: &Path) -> Result<Vec<File>, ControlError> {
    let path = dir.join("lock");
    // Some file systems cannot lock directories. Then the lock of the file decides.
    let folder = File::open(dir).map_err(|e| failed(dir, "open it", &e))?;
    let mut locks = Vec::new();
    match flock_patiently(&folder) {
        Ok(()) => locks.push(folder),
        Err(Errno::WOULDBLOCK) => return Err(in_use(dir)),
        Err(_) => {}
    }
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let (mut file, writable) = match open(&path, &mut options) {
        Ok(file) => (file, true),
        Err(error) => match open_to_read(&path) {
            Ok(file) => (file, false),
            // Its owner may be another daemon, whose lock this process would not see.
            Err(_) if path.is_symlink() => return Err(failed(&path, "open it", &error)),
            Err(_) if locks.is_empty() => return Err(failed(&path, "open it", &error)),
            Err(_) => return Ok(locks),
        },
    };
    match flock_patiently(&file) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(in_use(dir)),
        Err(errno) => return Err(failed(&path, "lock it", &errno.into())),
    }
    if writable {
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .and_then(|()| file.sync_all());
        if let Err(error) = written {
            // The file only names this daemon for a later daemon, which is refused in any case.
            tracing::debug!(path = %path.display(), %error, "the lock does not name its owner");
        }
    }
    locks.push(file);
    Ok(locks)
}

/// Returns the error that another process has the lock. The file contains its process ID, if it could be written.
fn in_use(dir: &Path) -> ControlError {
    let mut pid = String::new();
    // Without a readable file, the process is not named.
    let _ = open_to_read(&dir.join("lock"))
        .and_then(|file| file.take(PID_BYTES_MAX).read_to_string(&mut pid));
    let who = match pid.trim() {
        "" => "another straked".to_owned(),
        pid => format!("process {pid}"),
    };
    let what = format!(
        "the state directory {} is in use by {who}; stop that daemon (SIGTERM, if its socket is gone), or start this \
         one with another directory: ",
        dir.display()
    );
    ControlError::new(ControlErrorKind::State, say(what).run(elsewhere()))
}

/// Returns the command that starts the daemon with another state directory.
fn elsewhere() -> StartDaemon {
    StartDaemon { state_dir: "DIR".to_owned(), ..StartDaemon::default() }
}

fn failed(path: &Path, doing: &str, error: &io::Error) -> ControlError {
    let or_elsewhere = |words: &str| say(format!("{words}another directory: ")).run(elsewhere());
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => say("free space there"),
        io::ErrorKind::ReadOnlyFilesystem => {
            or_elsewhere("the directory is on a read-only file system; start the daemon with ")
        }
        io::ErrorKind::PermissionDenied => {
            or_elsewhere("make the directory writable for this user, or start the daemon with ")
        }
        _ => or_elsewhere("check the directory, or start the daemon with "),
    };
    let what = format!(
        "state directory: cannot {doing} ({}): {error}, so nothing was done; ",
        path.display()
    );
    ControlError::new(ControlErrorKind::Store, say(what).then(remedy))
}
