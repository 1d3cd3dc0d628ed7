//! The programs that a hook may start.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::FileType;
use rustix::process::geteuid;

use crate::error::Failure;

/// Known programs that execute their standard input, or start a shell that does, if they have no arguments. The names
/// are without versions. An event would be their commands. Programs that need arguments, such as `env`, `sed`, `sudo`
/// and `xargs`, execute nothing of an event. The list cannot be complete: it prevents errors, and stops no attack.
const INTERPRETERS: &str = "\
    ash at bash batch bc bun busybox crontab csh dash dc deno ed elvish erl ex expect fakechroot fakeroot fish gdb \
    ghci guile irb julia ksh lftp lldb lua luajit m4 mariadb mksh mysql newgrp node nsenter nvim ocaml octave oksh \
    parallel perl php pkexec posh proot psql pwsh pypy python rbash rksh ruby runuser rvim sash script setarch sh \
    sqlite su swipl tclsh tcsh toybox unshare vi vim wish xonsh yash zsh";

/// The path of a program, without arguments.
#[derive(Debug)]
pub(crate) struct Program {
    pub path: PathBuf,
}

impl Program {
    /// Checks the text. [`Programs::may_run`] checks the file at every run, because files change.
    pub(crate) fn parse(target: &str) -> Result<Self, String> {
        let path = Path::new(target);
        if !path.is_absolute() || target.chars().any(char::is_control) {
            return Err("the target of an exec hook is the absolute path of a program, without arguments; put \
                        arguments into a script"
                .into());
        }
        Ok(Self { path: path.to_owned() })
    }
}

/// The programs that hooks may start, and the way to start them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programs {
    /// The folders of these programs; `None` for every folder. The operating system refuses programs elsewhere.
    pub folders: Option<Vec<PathBuf>>,
    /// A program that starts the program of a hook in a session of its own, with the limits of hooks: its path, and the
    /// option before the path of the program. Without it, the program starts directly, in a process group of its own.
    pub launcher: Option<(PathBuf, String)>,
}

impl Programs {
    /// Returns the file to run, if only root and the user of the daemon could have replaced it, if it is in a permitted
    /// folder, and if it is no interpreter.
    ///
    /// The name is resolved once. Neither the result nor its folders are links, and other users can change none of
    /// them. Therefore the file that is executed later is the file that was checked.
    pub(crate) fn may_run(&self, program: &Program) -> Result<PathBuf, Failure> {
        let shown = program.path.display();
        let path = fs::canonicalize(&program.path)
            .map_err(|e| Failure::lasting(format!("cannot find the program {shown}: {e}")))?;
        let meta = look(&path)?;
        if !meta.is_file() || meta.mode() & 0o111 == 0 {
            let what =
                format!("{shown} is not an executable file; make it one with: chmod 755 {shown}");
            return Err(Failure::lasting(what));
        }
        for part in path.ancestors() {
            let meta = look(part)?;
            let owner = Owner { uid: meta.uid(), mode: meta.mode() };
            if !owner.keeps_out_others(geteuid().as_raw()) {
                return Err(Failure::lasting(format!(
                    "other users can change {shown}, because {part} is writable by users other than root and the \
                     user of straked; correct it with: chown root {part} && chmod go-w {part}",
                    part = part.display()
                )));
            }
        }
        if let Some(name) = [&program.path, &path].into_iter().find_map(|path| interpreter(path)) {
            return Err(Failure::lasting(format!(
                "{shown} is the interpreter {name}, which would execute the event as commands; write a script that \
                 starts with #! and the path of the interpreter, and name the script"
            )));
        }
        self.check_folder(&program.path, &path)?;
        Ok(path)
    }

    fn check_folder(&self, named: &Path, path: &Path) -> Result<(), Failure> {
        let Some(folders) = &self.folders else { return Ok(()) };
        let below =
            |folder: &PathBuf| fs::canonicalize(folder).is_ok_and(|at| path.starts_with(at));
        if folders.iter().any(below) {
            return Ok(());
        }
        let listed: Vec<String> = folders.iter().map(|at| at.display().to_string()).collect();
        Err(Failure::lasting(format!(
            "{} is in no folder with programs of hooks; move it to /usr/local/bin, or name its folder in the option \
             hook-dirs of straked; the folders are {}",
            named.display(),
            listed.join(", ")
        )))
    }

    /// Returns the command that starts the program at `path`.
    pub(crate) fn launched(&self, path: &Path) -> Command {
        match &self.launcher {
            Some((launcher, option)) => {
                let mut command = Command::new(launcher);
                command.arg(option).arg(path);
                command
            }
            None => {
                let mut command = Command::new(path);
                command.process_group(0);
                command
            }
        }
    }
}

/// Returns the name of the interpreter at `path`, if the name is one.
fn interpreter(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_str()?;
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || ".-".contains(c));
    INTERPRETERS.split_whitespace().find(|known| *known == name)
}

/// The owner of a file or a directory, and its mode.
pub(crate) struct Owner {
    pub uid: u32,
    pub mode: u32,
}

impl Owner {
    /// Returns whether only root and the user `me` can change the file.
    pub(crate) fn keeps_out_others(&self, me: u32) -> bool {
        // In a directory with the sticky bit, such as /tmp, only the owner of a file can replace it.
        let kind = FileType::from_raw_mode(self.mode);
        let sticky = kind == FileType::Directory && self.mode & 0o1000 != 0;
        (self.uid == 0 || self.uid == me) && (self.mode & 0o022 == 0 || sticky)
    }
}

/// Examines a file or a folder. A link that replaced it meanwhile is examined itself, so its owner counts.
fn look(path: &Path) -> Result<Metadata, Failure> {
    let meta = fs::symlink_metadata(path)
        .map_err(|e| Failure::lasting(format!("cannot look at {}: {e}", path.display())))?;
    if meta.is_symlink() {
        let what = format!("{} was replaced by a link meanwhile", path.display());
        return Err(Failure::lasting(what));
    }
    Ok(meta)
}

#[cfg(test)]
mod tests {
    use super::interpreter;
    use std::path::Path;

    #[test]
    fn interpreters_are_recognized_in_every_version() {
        for name in [
            "sh",
            "bash",
            "python3",
            "python3.11",
            "perl5.36.0",
            "lua5.4",
            "sqlite3",
            "nsenter",
            "newgrp",
            "fakeroot",
            "script",
            "busybox",
            "runuser",
            "gdb",
            "crontab",
            "ex",
        ] {
            assert!(interpreter(&Path::new("/usr/bin").join(name)).is_some(), "{name}");
        }
        for name in
            ["true", "alert.sh", "my-bash", "curl", "logger", "show", "python-alert", "scripts"]
        {
            assert_eq!(interpreter(&Path::new("/usr/bin").join(name)), None, "{name}");
        }
    }
}
