//! Files that this process may write and programs that it may execute (landlock(7)).
//!
//! An operator names drives and sockets at any time, and rules are fixed at the start. Therefore the rules are about
//! folders: system folders have programs and are never written, and all other folders are written and have no programs.
//! Two options change this. Reads are not restricted.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, fs, io};

use landlock::{
    ABI, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus,
};
use strake_control::Measure;

/// The name of the measure.
const NAME: &str = "file access";

/// The folders with the programs and the configuration of a system (hier(7)): those of distributions, of Nix, of Guix
/// and of snaps. Some distributions keep `/opt` and `/usr/local` below `/var`.
const SYSTEM: [&str; 15] = [
    "/bin",
    "/boot",
    "/efi",
    "/etc",
    "/gnu",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix",
    "/opt",
    "/sbin",
    "/snap",
    "/usr",
    "/usr/local",
];

/// Folders whose files change the kernel and not data. The daemon only reads them.
const NEVER_WRITTEN: [&str; 1] = ["/proc"];

/// Folders that the daemon writes also if the operator limits its writes: devices, LEDs and drivers, and temporary
/// files of hooks.
const ALWAYS_WRITTEN: [&str; 3] = ["/dev", "/sys", "/tmp"];

/// Folders that an option names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folders(pub Vec<PathBuf>);

impl FromStr for Folders {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::default());
        }
        let folder = |path: &str| match Path::new(path) {
            path if path.is_absolute() => Ok(path.to_owned()),
            _ => Err(format!("{path:?} is no absolute path; write /FOLDER,/FOLDER or none")),
        };
        text.split(',').map(folder).collect::<Result<_, _>>().map(Self)
    }
}

/// The folders that may be written, besides those that the daemon needs itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Writes {
    /// All except system folders.
    Any,
    /// Only these.
    Only(Folders),
}

impl FromStr for Writes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "any" { Ok(Self::Any) } else { text.parse().map(Self::Only) }
    }
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Only(Folders(folders)) if folders.is_empty() => f.write_str("none"),
            Self::Only(Folders(folders)) => f.write_str(&list(folders, ",")),
        }
    }
}

fn list(folders: &[PathBuf], between: &str) -> String {
    let shown: Vec<String> = folders.iter().map(|path| path.display().to_string()).collect();
    shown.join(between)
}

/// The folders of this process and of its operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The state directory and the folders of sockets.
    pub own: Vec<PathBuf>,
    /// Further folders that may be written.
    pub writes: Writes,
    /// Folders with programs of hooks, besides system folders.
    pub hooks: Folders,
}

/// The folders of a host, without links in their paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Host {
    /// The system folders.
    system: Vec<PathBuf>,
    /// The folders in the root folder, and the folders to which links in the root folder lead.
    top: Vec<PathBuf>,
    /// The folders of [`ALWAYS_WRITTEN`].
    always: Vec<PathBuf>,
}

impl Host {
    /// Looks at the host. A folder that does not exist is left out.
    fn look() -> Result<Self, String> {
        let cannot = |error: io::Error| format!("cannot read the folder /: {error}");
        let mut top = Vec::new();
        for entry in fs::read_dir("/").map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            match resolved(&path) {
                Ok(path) => top.push(path),
                Err(error) if is_absent(&error) => {}
                Err(error) => {
                    let path = path.display();
                    tracing::warn!(%path, %error, "this folder cannot be written until the daemon restarts");
                }
            }
        }
        let all = |paths: &[&str]| {
            let mut found: Vec<PathBuf> =
                paths.iter().filter_map(|path| resolved(Path::new(path)).ok()).collect();
            found.sort();
            found.dedup();
            found
        };
        top.sort();
        top.dedup();
        Ok(Self { system: all(&SYSTEM), top, always: all(&ALWAYS_WRITTEN) })
    }

    /// Returns whether `path` is a system folder, or is in one, or is one whose files change the kernel.
    fn keeps(&self, path: &Path) -> bool {
        let never = NEVER_WRITTEN.iter().map(Path::new);
        let mut kept = self.system.iter().map(PathBuf::as_path).chain(never);
        path == Path::new("/") || kept.any(|kept| path.starts_with(kept))
    }

    /// Returns the system folder that would be written with `path`.
    fn within(&self, path: &Path) -> Option<&Path> {
        let never = NEVER_WRITTEN.iter().map(Path::new);
        let mut kept = self.system.iter().map(PathBuf::as_path).chain(never);
        kept.find(|kept| kept.starts_with(path))
    }
}

/// Whether the error means that a path is no folder, as links without a target are.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Returns the path of a folder without links.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let found = fs::canonicalize(path)?;
    match found.is_dir() {
        true => Ok(found),
        false => Err(io::ErrorKind::NotADirectory.into()),
    }
}

/// The rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rules {
    written: Vec<PathBuf>,
    executed: Vec<PathBuf>,
}

impl Rules {
    /// Returns the folders that are written and have programs. Rules permit and never deny, so a rule for a folder
    /// cannot take away what a rule for its parent gives.
    fn both(&self) -> Vec<PathBuf> {
        let pairs = self.written.iter().flat_map(|w| self.executed.iter().map(move |e| (w, e)));
        let mut both: Vec<PathBuf> = pairs
            .filter_map(|(written, executed)| match written.starts_with(executed) {
                true => Some(written),
                false => executed.starts_with(written).then_some(executed),
            })
            .cloned()
            .collect();
        both.sort();
        both.dedup();
        both
    }
}

impl Places {
    /// Returns the folders with programs that a hook may start.
    pub fn programs(&self) -> Vec<PathBuf> {
        SYSTEM.iter().map(PathBuf::from).chain(self.hooks.0.iter().cloned()).collect()
    }

    /// Returns the rules on `host`. `resolve` returns the path of a folder without links.
    ///
    /// # Errors
    /// A named folder does not exist. A rule for its parent would permit more than the operator named, and without a
    /// rule, its drives and hooks would fail later. Or a folder to write contains a system folder.
    fn rules(
        &self,
        host: &Host,
        resolve: impl Fn(&Path) -> io::Result<PathBuf>,
    ) -> Result<Rules, String> {
        let named = |option: &str, path: &PathBuf| {
            resolve(path).map_err(|error| {
                let path = path.display();
                format!(
                    "cannot use the folder {path} of {option}: {error}; create the folder, or mount its file system, \
                     before the daemon starts, or remove it from {option}"
                )
            })
        };
        let to_write = |option: &str, path: &PathBuf| {
            let found = named(option, path)?;
            match host.within(&found) {
                None => Ok(found),
                Some(kept) if kept == found => Err(format!(
                    "the folder {} of {option} is a system folder, which is never written; choose another folder",
                    path.display()
                )),
                Some(kept) => Err(format!(
                    "the folder {} of {option} contains the system folder {}, which is never written; choose a folder \
                     without system folders",
                    path.display(),
                    kept.display()
                )),
            }
        };
        let mut written: Vec<PathBuf> = self
            .own
            .iter()
            .map(|path| to_write("the state directory or of a socket", path))
            .collect::<Result<_, _>>()?;
        match &self.writes {
            Writes::Any => written.extend(host.top.iter().filter(|at| !host.keeps(at)).cloned()),
            Writes::Only(folders) => {
                written.extend(host.always.iter().filter(|at| !host.keeps(at)).cloned());
                for path in &folders.0 {
                    written.push(to_write("write-dirs", path)?);
                }
            }
        }
        let mut executed = host.system.clone();
        executed.retain(|path| path != Path::new("/"));
        for path in &self.hooks.0 {
            executed.push(named("hook-dirs", path)?);
        }
        Ok(Rules { written, executed })
    }

    /// Describes `rules` for the operator.
    fn what(&self, rules: &Rules, host: &Host) -> String {
        let writes = match &self.writes {
            Writes::Any => "no writes to system folders".to_owned(),
            Writes::Only(_) => format!("writes only below {}", list(&rules.written, ", ")),
        };
        let hooks: Vec<PathBuf> =
            rules.executed.iter().filter(|path| !host.system.contains(path)).cloned().collect();
        let more = match hooks.as_slice() {
            [] => String::new(),
            folders => format!(" and {}", list(folders, ", ")),
        };
        format!("{writes}; programs only from system folders{more}")
    }
}

/// Everything that changes a file or a folder. The version is the newest that has such a right.
fn changes() -> BitFlags<AccessFs> {
    AccessFs::from_write(ABI::V3)
}

/// The changes that are permitted in folders: none creates a device node.
fn permitted_changes() -> BitFlags<AccessFs> {
    changes() & !(AccessFs::MakeChar | AccessFs::MakeBlock)
}

/// Restricts this thread and the threads and processes that it starts.
///
/// # Errors
/// A named folder cannot be used.
pub fn enter(places: &Places) -> Result<Vec<Measure>, String> {
    let host = Host::look()?;
    let rules = places.rules(&host, resolved)?;
    let entered = restrict(&rules);
    Ok(judge(&places.what(&rules, &host), &rules.both(), entered))
}

/// The state of the rules in the kernel.
#[derive(Debug)]
struct Entered {
    status: RulesetStatus,
    /// The folders that could not be opened, which have no rules.
    left_out: Vec<PathBuf>,
}

/// Judges the rules `what`, which permit to write and to execute below the folders `both`.
fn judge(what: &str, both: &[PathBuf], entered: Result<Entered, String>) -> Vec<Measure> {
    let kernel = "use a kernel with CONFIG_SECURITY_LANDLOCK from Linux 6.2, with landlock in the kernel parameter \
                  lsm=, and permit the calls landlock_* in the container";
    let Entered { status, left_out } = match entered {
        Ok(Entered { status: RulesetStatus::NotEnforced, .. }) => {
            let what = "not restricted: the kernel has no Landlock";
            return vec![Measure::absent(NAME, what, kernel)];
        }
        Ok(entered) => entered,
        Err(why) => return vec![Measure::absent(NAME, format!("not restricted: {why}"), kernel)],
    };
    let mut measures = vec![match (status, left_out.as_slice()) {
        (RulesetStatus::PartiallyEnforced, _) => {
            let what = format!("{what}; this kernel does not restrict truncation");
            Measure::absent(NAME, what, kernel)
        }
        (_, []) => Measure::in_force(NAME, what),
        (_, folders) => {
            let what = format!("{what}, but not {}, which cannot be opened", list(folders, ", "));
            Measure::absent(NAME, what, "make these folders accessible, and restart the daemon")
        }
    }];
    if !both.is_empty() {
        let what = format!(
            "the daemon may write below {} and execute programs there, so a fault of the daemon can replace a program",
            list(both, ", ")
        );
        let remedy = "move hooks to /usr/local/bin, name other folders in write-dirs or hook-dirs, or move the state \
                      directory and the sockets out of system folders";
        measures.push(Measure::absent("writable programs", what, remedy));
    }
    measures
}

fn restrict(rules: &Rules) -> Result<Entered, String> {
    let mut left_out = Vec::new();
    // The daemon starts its own program in order to start a hook.
    let own = PathBuf::from("/proc/self/exe");
    let written = rules.written.iter().map(|path| (path, permitted_changes()));
    let executed = rules.executed.iter().chain([&own]).map(|path| (path, AccessFs::Execute.into()));
    let restricted = || -> Result<RulesetStatus, RulesetError> {
        let ruleset = Ruleset::default().handle_access(changes() | AccessFs::Execute)?;
        let mut ruleset = ruleset.create()?;
        for (path, access) in written.chain(executed) {
            match PathFd::new(path) {
                Ok(open) => ruleset = ruleset.add_rule(PathBeneath::new(open, access))?,
                Err(_) => left_out.push(path.clone()),
            }
        }
        Ok(ruleset.restrict_self()?.ruleset)
    };
    let status = restricted().map_err(|error| error.to_string())?;
    Ok(Entered { status, left_out })
}

#[cfg(test)]
mod tests;
