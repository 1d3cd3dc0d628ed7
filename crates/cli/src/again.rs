//! The command that the last daemon on a socket recorded beside the socket, with which it can be started again.

use crate::error::CliError;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use strake_api::limits::{AGAIN_BYTES_MAX, AGAIN_SUFFIX};

/// How the daemon starts the unit that started it.
const UNIT_START: &str = "systemctl start ";

/// The recorded command, in the syntax of a shell (POSIX.1-2017, section 2).
#[derive(Clone, Debug)]
pub struct Former {
    path: PathBuf,
    line: String,
    metadata: Metadata,
}

impl Former {
    /// Reads the record of the last daemon on `socket`; `None` if there is none, or if it is not one line of text.
    #[must_use]
    pub fn find(socket: &Path) -> Option<Self> {
        let mut path = socket.to_owned();
        path.as_mut_os_string().push(AGAIN_SUFFIX);
        let mut text = String::new();
        // A link could show the content of another file as a command.
        let no_link = OFlags::NOFOLLOW.bits().cast_signed();
        let file = File::options().read(true).custom_flags(no_link).open(&path).ok()?;
        let metadata = file.metadata().ok().filter(Metadata::is_file)?;
        file.take(AGAIN_BYTES_MAX).read_to_string(&mut text).ok()?;
        // Without its line feed, the line is not complete.
        let (line, _) = text.split_once('\n')?;
        let line = line.trim();
        let is_shown = !line.is_empty() && !line.chars().any(char::is_control);
        is_shown.then(|| Self { path, line: line.to_owned(), metadata })
    }

    /// Reads the record in order to execute it.
    ///
    /// # Errors
    /// If there is no record, if systemd started the daemon, or if another user than the caller could have written or
    /// replaced the record.
    pub fn trusted(socket: &Path) -> Result<Self, CliError> {
        let Some(former) = Self::find(socket) else {
            return Err(CliError::usage(format!(
                "the options of the daemon at {} are not known; stop the daemon, and start it with the options that it \
                 needs",
                socket.display()
            )));
        };
        if let Some(unit) = former.line.strip_prefix(UNIT_START) {
            let text = format!("the daemon is a service: systemctl restart {unit}");
            return Err(CliError::usage(text));
        }
        if let Some(why) = former.distrust() {
            return Err(CliError::usage(format!(
                "{}: {why}. Only a record that no other user can write is executed: stop the daemon, and start it with \
                 the options that it needs: {}",
                former.path.display(),
                former.line
            )));
        }
        Ok(former)
    }

    /// The reason why another user than the caller may have written the record; `None` if none can.
    fn distrust(&self) -> Option<String> {
        let me = geteuid().as_raw();
        let (user, mode) = (self.metadata.uid(), self.metadata.mode());
        if user != me || mode & 0o022 != 0 {
            return Some(format!("it belongs to user {user} with mode {:04o}", mode & 0o7777));
        }
        let folder = match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            Some(_) | None => Path::new("."),
        };
        let Ok(about) = std::fs::metadata(folder) else {
            return Some(format!("{} cannot be examined", folder.display()));
        };
        // In a sticky folder such as /tmp, a file can be replaced only by its owner.
        let is_private = about.mode() & 0o022 == 0 || about.mode() & 0o1000 != 0;
        let is_own = about.uid() == me || about.uid() == 0;
        let why = || format!("{} can be changed by another user", folder.display());
        (!is_private || !is_own).then(why)
    }

    /// The command.
    #[must_use]
    pub fn line(&self) -> &str {
        &self.line
    }
}

#[cfg(test)]
mod tests {
    use super::Former;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;
    use strake_testkit::Folder;

    #[test]
    fn only_a_record_that_no_other_user_can_write_is_executed() {
        let folder = Folder::new("strake-cli-again");
        let socket = folder.join("straked.sock");
        let refused = Former::trusted(&socket).expect_err("there is no record").text;
        assert!(refused.contains("are not known"), "{refused}");
        let record = folder.join("straked.sock.again");
        fs::write(&record, "systemctl start strake.service\n").expect("it can be written");
        let refused = Former::trusted(&socket).expect_err("it is a service").text;
        assert!(refused.ends_with("systemctl restart strake.service"), "{refused}");
        fs::write(&record, "straked --socket s\n").expect("it can be written");
        let trusted = Former::trusted(&socket).expect("only its owner can write it");
        assert_eq!(trusted.line(), "straked --socket s");

        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
        };
        mode(&record, 0o664);
        let refused = Former::trusted(&socket).expect_err("its group can write it").text;
        assert!(refused.contains("mode 0664"), "{refused}");
        assert!(Former::find(&socket).is_some(), "it is shown nevertheless");
        mode(&record, 0o644);
        mode(&folder, 0o770);
        let refused = Former::trusted(&socket).expect_err("its group can replace it").text;
        assert!(refused.contains("can be changed by another user"), "{refused}");
        mode(&folder, 0o1777);
        assert!(Former::trusted(&socket).is_ok(), "only its owner can replace it");
        mode(&folder, 0o700);

        let real = folder.join("real");
        fs::rename(&record, &real).expect("it can be moved");
        symlink(&real, &record).expect("it can be made");
        assert!(Former::find(&socket).is_none(), "a link is not followed");
        fs::remove_file(&record).expect("it is there");
        fs::write(&record, "straked --so").expect("it can be written");
        assert!(Former::find(&socket).is_none(), "the line was cut");
    }
}
