//! The recorded configuration: `state.json` in the state directory, changed in two steps.
//!
//! [`Store::prepare`] writes the next configuration beside the present one and makes it durable; only then is a
//! command carried out; [`Prepared::commit`] renames it into place. A full or read-only directory therefore
//! refuses a command before it has touched a drive, and a crash leaves the old or the new file, never a mix.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use strake_alerts::HookSpec;
use strake_api::v1::{CreateArrayRequest, StartDaemon};
use strake_wording::say;

use crate::error::{ControlError, ControlErrorKind};
use crate::names::callable;
use crate::record::access::{self, Before, Exposure};
use crate::record::files::{Next, StateFolder};
use crate::remedy::{import_drives, not_among};

mod arrays;
mod peers;
mod settings;
mod taken;

pub use arrays::{ArrayRecord, CopyRecord, ScrubAim, ScrubRecord, SilentRecord, UnderWay};
pub use peers::{Covered, HostRecord, RemoteRecord};
pub use settings::{PausedJobs, Settings};
pub(crate) use taken::{Aim, TakenRecord};

/// Version of the file written here.
pub const VERSION: u32 = 1;

/// The file.
const FILE: &str = "state.json";

/// File that is there while a daemon runs, and after one that did not stop in order.
const RUNNING: &str = "running";

/// Largest file that is read: far more than all arrays and exports of one daemon need.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What every version of the file has.
#[derive(Deserialize)]
struct Written {
    version: u32,
}

/// What outlasts a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `VERSION`.
    pub version: u32,
    /// Arrays to start by themselves.
    pub arrays: Vec<ArrayRecord>,
    /// Exports to offer again.
    pub exports: Vec<ExportRecord>,
    /// Drives that wait to replace failed members.
    #[serde(default)]
    pub spares: Vec<SpareRecord>,
    /// Recipients of events. Holds their credentials: for anything that others may read, take [`HookSpec::masked`].
    #[serde(default)]
    pub hooks: Vec<HookSpec>,
    /// Drives of other machines to connect to by themselves. Holds secrets: for anything that others may read, mask
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remotes: Vec<RemoteRecord>,
    /// The UUID that this daemon is known by to other machines; empty before it was needed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Arrays that were destroyed last, in case that was a mistake.
    #[serde(default)]
    pub destroyed: Vec<DestroyedRecord>,
    /// Hosts that have to prove who they are. Holds their secrets: for anything that others may read, mask them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostRecord>,
    /// Other discovery services that hosts of our exports are referred to, by their addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub referrals: Vec<String>,
    /// Arrays, by their identities, whose export was removed and whose reservations may not be gone yet. The next start
    /// removes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended_reservations: Vec<String>,
    /// Drives that are taken from the kernel, or on their way there or back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) taken: Vec<TakenRecord>,
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
        }
    }
}

impl Config {
    /// That there is no array of this name, and which there are.
    pub(crate) fn no_such_array(&self, name: &str) -> ControlError {
        let known: Vec<&str> = self.arrays.iter().map(|a| callable(&a.name, &a.uuid)).collect();
        let create = CreateArrayRequest { name: "...".to_owned(), ..Default::default() };
        not_among(format!("there is no array {name:?}"), &known, create)
    }
}

/// What an array was before it was destroyed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestroyedRecord {
    /// Its identity.
    pub uuid: String,
    /// Its name.
    pub name: String,
    /// Paths of its drives.
    pub drives: Vec<String>,
    /// How it behaved.
    #[serde(default)]
    pub settings: Settings,
    /// Its exports.
    #[serde(default)]
    pub exports: Vec<ExportRecord>,
}

/// A spare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpareRecord {
    /// Where it was last seen.
    pub path: String,
    /// What identifies the medium.
    pub identity: String,
    /// Its size.
    pub bytes: u64,
    /// Identity of the array it is for; empty for any (the pool).
    pub array: String,
}

/// An export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportRecord {
    /// What clients ask for.
    pub name: String,
    /// Identity of the array.
    pub array: String,
    /// Where it is offered, as `unix:/path` or `address:port`.
    pub listen: String,
    /// Writes are refused.
    pub read_only: bool,
    /// What NVMe/TCP needs to know besides; absent for NBD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvme: Option<SubsystemRecord>,
}

/// What an export over NVMe/TCP needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubsystemRecord {
    /// The subsystem's name.
    pub nqn: String,
    /// Names of the hosts that may connect.
    pub hosts: Vec<String>,
    /// The number of the namespace in it.
    #[serde(default = "first_namespace", skip_serializing_if = "is_first_namespace")]
    pub namespace: u32,
    /// No host connects without TLS.
    #[serde(default, skip_serializing_if = "is_false")]
    pub secure: bool,
}

const fn first_namespace() -> u32 {
    1
}

// Serde hands over a reference.
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
    trouble: Option<ControlError>,
    /// What other users could do before this start.
    before: Before,
    // They hold the lock; closing them gives the directory free.
    locks: Vec<File>,
    /// The directory may be another daemon's by now: nothing may be written there.
    given_up: bool,
}

/// A configuration that is on disk but not yet the one in force. Dropping it forgets it.
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

    pub(crate) fn open_in(folder: StateFolder) -> Result<(Self, Config), ControlError> {
        let dir = folder.path();
        folder.make().map_err(|e| failed(dir, "create it", &e))?;
        if let Err(error) = folder.sync_name() {
            // Most likely it has been durable for long; what is recorded in it is made durable with each change.
            tracing::warn!(path = %dir.display(), %error, "the name of the state directory is not made durable");
        }
        let about = fs::metadata(dir).map_err(|e| failed(dir, "look at it", &e))?;
        let before = Before::close_folder(dir, &about)?;
        let locks = lock(dir)?;
        let unclean = folder.file(RUNNING).exists();
        let mut store = Self { folder, unclean, trouble: None, before, locks, given_up: false };
        let config = store.read()?;
        store.test(&config);
        Ok((store, config))
    }

    /// Finds out whether the directory can be written before a command depends on it; `config` is in force.
    pub fn test(&mut self, config: &Config) {
        if self.given_up {
            return;
        }
        // What is prepared is dropped at once.
        let tested = self.prepare(config).map(drop).and_then(|()| {
            let marked = self.folder.mark(RUNNING);
            marked.map_err(|e| failed(&self.folder.file(RUNNING), "write to it", &e))
        });
        self.trouble = tested.err();
    }

    /// Why the directory could not be written when that was last [tested](Self::test).
    #[must_use]
    pub fn trouble(&self) -> Option<&ControlError> {
        self.trouble.as_ref()
    }

    /// Whether the daemon that used the directory before did not [stop in order](Self::mark_clean).
    #[must_use]
    pub fn was_unclean(&self) -> bool {
        self.unclean
    }

    /// Gives the directory free for another daemon. This one may still be there for long, held in the kernel by a drive
    /// that does not answer, so nothing is written from here on.
    pub fn give_up(&mut self) {
        self.given_up = true;
        // Closing the files gives up their locks.
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

    /// Records that the daemon stopped in order.
    ///
    /// # Errors
    /// When the directory cannot be written, or was [given up](Self::give_up).
    pub fn mark_clean(&self) -> Result<(), ControlError> {
        self.check_held()?;
        let removed = self.folder.remove(RUNNING);
        removed.map_err(|e| failed(&self.folder.file(RUNNING), "remove it", &e))
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    /// The same, to be written to.
    pub(crate) const fn folder(&self) -> &StateFolder {
        &self.folder
    }

    /// What other users could do before this start.
    pub(crate) const fn before(&self) -> Before {
        self.before
    }

    /// How the directory, or the configuration in it, is exposed to other users now.
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
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Config::default()),
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                let path = path.display();
                let what = format!("{path} is a symbolic link; put the file in its place");
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
        // First: other versions may have other fields.
        let written: Written = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
        if written.version != VERSION {
            let what = format!(
                "{} has version {}, this program reads {VERSION}; use the version of Strake that wrote the file",
                path.display(),
                written.version
            );
            return Err(ControlError::new(ControlErrorKind::Store, what));
        }
        serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))
    }

    /// Writes `config` beside the one in force and makes it durable.
    ///
    /// # Errors
    /// When the directory is full or read-only, or was [given up](Self::give_up); nothing has changed then.
    pub fn prepare(&self, config: &Config) -> Result<Prepared, ControlError> {
        self.check_held()?;
        let text = serde_json::to_vec_pretty(config).map_err(|e| {
            ControlError::new(ControlErrorKind::Store, format!("cannot encode the state: {e}"))
        })?;
        let next = self
            .folder
            .prepare(FILE, &text)
            .map_err(|e| failed(&self.folder.file("state.json.next"), "record the change", &e))?;
        Ok(Prepared { folder: self.folder.clone(), next, config: config.clone() })
    }
}

impl Prepared {
    /// Puts it in force and returns it.
    ///
    /// # Errors
    /// When the directory stopped working in between; it is then unknown which of the two is in force after a
    /// restart.
    pub fn commit(self) -> Result<Config, ControlError> {
        let path = self.next.path().to_owned();
        self.next.place().map_err(|e| failed(&path, "record the change", &e))?;
        self.folder.sync().map_err(|e| failed(self.folder.path(), "record the change", &e))?;
        Ok(self.config)
    }
}

/// How often a lock that is held is tried before it counts as another daemon's.
const LOCK_TRIES: u32 = 20;

/// Time between two tries.
const LOCK_RETRY: std::time::Duration = std::time::Duration::from_millis(100);

/// Takes the lock, with patience for a daemon that was killed just now and is being cleared away.
fn flock_patiently(file: &File) -> Result<(), Errno> {
    for _ in 1..LOCK_TRIES {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_RETRY),
            answer => return answer,
        }
    }
    flock(file, FlockOperation::NonBlockingLockExclusive)
}

/// Takes the lock of the directory: of its file `lock`, and of the directory itself, which is what is left where no
/// file can be made.
fn lock(dir: &Path) -> Result<Vec<File>, ControlError> {
    let path = dir.join("lock");
    // Not every file system locks directories; the file's lock decides then.
    let folder = File::open(dir).map_err(|e| failed(dir, "open it", &e))?;
    let mut locks = Vec::new();
    match flock_patiently(&folder) {
        Ok(()) => locks.push(folder),
        Err(Errno::WOULDBLOCK) => return Err(in_use(dir)),
        Err(_) => {}
    }
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let (mut file, writable) = match options.open(&path) {
        Ok(file) => (file, true),
        Err(error) => match File::open(&path) {
            Ok(file) => (file, false),
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
            // It only names us to the next one, who is refused all the same.
            tracing::debug!(path = %path.display(), %error, "the lock does not name its owner");
        }
    }
    locks.push(file);
    Ok(locks)
}

/// Another process has the lock; the file says which, if it could be written.
fn in_use(dir: &Path) -> ControlError {
    let pid = fs::read_to_string(dir.join("lock")).unwrap_or_default();
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

/// The start of the daemon with another state directory.
fn elsewhere() -> StartDaemon {
    StartDaemon { state_dir: "DIR".to_owned(), ..StartDaemon::default() }
}

fn failed(path: &Path, doing: &str, error: &io::Error) -> ControlError {
    let or_elsewhere = |words: &str| say(format!("{words}another directory: ")).run(elsewhere());
    let remedy = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => say("free space there"),
        io::ErrorKind::ReadOnlyFilesystem => {
            or_elsewhere("it is on a read-only file system; start the daemon with ")
        }
        io::ErrorKind::PermissionDenied => {
            or_elsewhere("make it writable for this user, or start the daemon with ")
        }
        _ => or_elsewhere("check the directory, or start the daemon with "),
    };
    let what = format!(
        "state directory: cannot {doing} ({}): {error}, so nothing was done; ",
        path.display()
    );
    ControlError::new(ControlErrorKind::Store, say(what).then(remedy))
}
