//! Files that this process may write and programs that it may execute (landlock(7)).
//!
//! An operator names drives and sockets at any time, and rules are fixed at the start. Therefore the rules are about
//! folders: system folders have programs and are never written, and all other folders are written and have no programs.
//! Two options change this. Reads are not restricted.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, fs, io};

use landlock::{
    ABI, AccessFs, BitFlags, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError,
    RulesetStatus, path_beneath_rules,
};
use strake_control::Measure;

/// The name of the measure.
const NAME: &str = "file access";

/// The folders with the programs and the configuration of a system (hier(7)): those of distributions, of Nix, of Guix
/// and of snaps.
const SYSTEM: [&str; 13] = [
    "/bin", "/boot", "/efi", "/etc", "/gnu", "/lib", "/lib32", "/lib64", "/nix", "/opt", "/sbin",
    "/snap", "/usr",
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

/// The rules.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rules {
    written: Vec<PathBuf>,
    executed: Vec<PathBuf>,
}

impl Places {
    /// Returns the folders with programs that a hook may start.
    pub fn programs(&self) -> Vec<PathBuf> {
        SYSTEM.iter().map(PathBuf::from).chain(self.hooks.0.iter().cloned()).collect()
    }

    /// Returns the rules on a host with the folders `top` in its root folder.
    fn rules(&self, top: &[PathBuf]) -> Rules {
        let mut written = self.own.clone();
        match &self.writes {
            Writes::Any => {
                let is_data = |path: &&PathBuf| {
                    !SYSTEM
                        .iter()
                        .chain(&NEVER_WRITTEN)
                        .any(|kept| path.as_path() == Path::new(kept))
                };
                written.extend(top.iter().filter(is_data).cloned());
            }
            Writes::Only(folders) => {
                written.extend(ALWAYS_WRITTEN.map(PathBuf::from));
                written.extend(folders.0.iter().cloned());
            }
        }
        let mut executed = self.programs();
        // The daemon starts its own program in order to start a hook.
        executed.push(PathBuf::from("/proc/self/exe"));
        Rules { written, executed }
    }

    /// Describes the rules for the operator.
    fn what(&self) -> String {
        let writes = match &self.writes {
            Writes::Any => "no writes to system folders".to_owned(),
            Writes::Only(_) => {
                format!("writes only below {}", list(&self.rules(&[]).written, ", "))
            }
        };
        let more = match self.hooks.0.as_slice() {
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
pub fn enter(places: &Places) -> Measure {
    let entered = top_level()
        .map_err(|error| error.to_string())
        .and_then(|top| restrict(&places.rules(&top)).map_err(|error| error.to_string()));
    judge(places, entered)
}

fn judge(places: &Places, entered: Result<RulesetStatus, String>) -> Measure {
    let kernel = "use a kernel with CONFIG_SECURITY_LANDLOCK from Linux 6.2, with landlock in the kernel parameter \
                  lsm=, and permit the calls landlock_* in the container";
    match entered {
        Ok(RulesetStatus::FullyEnforced) => Measure::in_force(NAME, places.what()),
        Ok(RulesetStatus::PartiallyEnforced) => {
            let what = format!("{}; this kernel does not restrict truncation", places.what());
            Measure::absent(NAME, what, kernel)
        }
        Ok(RulesetStatus::NotEnforced) => {
            Measure::absent(NAME, "not restricted: the kernel has no Landlock", kernel)
        }
        Err(why) => Measure::absent(NAME, format!("not restricted: {why}"), kernel),
    }
}

fn restrict(rules: &Rules) -> Result<RulesetStatus, RulesetError> {
    let Rules { written, executed } = rules;
    // A folder that does not exist yet is created in the nearest one that exists.
    let written = written.iter().filter_map(|path| path.ancestors().find(|at| at.exists()));
    let ruleset = Ruleset::default().handle_access(changes() | AccessFs::Execute)?.create()?;
    let ruleset = ruleset
        .add_rules(path_beneath_rules(written, permitted_changes()))?
        .add_rules(path_beneath_rules(executed, AccessFs::Execute))?;
    Ok(ruleset.restrict_self()?.ruleset)
}

/// Returns the folders in the root folder.
fn top_level() -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir("/")? {
        let path = entry?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use landlock::RulesetStatus;

    use super::{Folders, Places, SYSTEM, Writes, judge};

    fn places(writes: &str, hooks: &str) -> Places {
        Places {
            own: vec!["/var/lib/strake".into(), "/run/strake".into()],
            writes: writes.parse().expect("it is valid"),
            hooks: hooks.parse().expect("it is valid"),
        }
    }

    fn top() -> Vec<PathBuf> {
        let data = ["/dev", "/home", "/mnt", "/proc", "/srv", "/var"];
        data.iter().chain(&SYSTEM).map(PathBuf::from).collect()
    }

    #[test]
    fn folders_are_absolute_paths() {
        let folders = |text: &str| text.parse::<Folders>().map(|folders| folders.0);
        assert_eq!(folders("none"), Ok(vec![]));
        assert_eq!(folders("/srv,/mnt/a b"), Ok(vec!["/srv".into(), "/mnt/a b".into()]));
        for wrong in ["", "srv", "/srv,", "/srv, /mnt", "any"] {
            assert!(folders(wrong).is_err_and(|why| why.contains("no absolute path")), "{wrong:?}");
        }
        for text in ["any", "none", "/srv,/mnt"] {
            assert_eq!(
                text.parse::<Writes>().map(|writes| writes.to_string()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn no_system_folder_is_written_and_only_these_have_programs() {
        let rules = places("any", "none").rules(&top());
        let is_written = |path: &str| rules.written.iter().any(|at| at == Path::new(path));
        for path in ["/dev", "/home", "/mnt", "/srv", "/var", "/var/lib/strake", "/run/strake"] {
            assert!(is_written(path), "{path}");
        }
        for path in SYSTEM.iter().chain(&["/proc"]) {
            assert!(!is_written(path), "{path}");
        }
        assert!(rules.executed.iter().all(|path| !is_written(&path.display().to_string())));
        assert!(rules.executed.contains(&"/usr".into()));
    }

    #[test]
    fn an_operator_can_limit_writes_and_name_folders_of_hooks() {
        let places = places("/srv/drives", "/srv/hooks");
        let rules = places.rules(&top());
        let expected = ["/var/lib/strake", "/run/strake", "/dev", "/sys", "/tmp", "/srv/drives"];
        assert_eq!(rules.written, expected.map(PathBuf::from));
        assert!(rules.executed.contains(&"/srv/hooks".into()));
        let what = judge(&places, Ok(RulesetStatus::FullyEnforced)).what;
        assert!(what.contains("/srv/drives") && what.contains("/srv/hooks"), "{what}");
    }

    #[test]
    fn a_kernel_without_the_rules_is_reported() {
        let places = places("any", "none");
        for entered in [
            Ok(RulesetStatus::NotEnforced),
            Ok(RulesetStatus::PartiallyEnforced),
            Err("denied".to_owned()),
        ] {
            assert!(judge(&places, entered).remedy.is_some_and(|text| text.contains("landlock")));
        }
        assert_eq!(judge(&places, Ok(RulesetStatus::FullyEnforced)).remedy, None);
    }
}
