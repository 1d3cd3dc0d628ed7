//! The command that the last daemon on a socket recorded beside the socket, with which it can be started again.

use crate::error::CliError;
use rustix::process::geteuid;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
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
        let file = File::open(&path).ok()?;
        let metadata = file.metadata().ok()?;
        file.take(AGAIN_BYTES_MAX).read_to_string(&mut text).ok()?;
        let line = text.lines().next()?.trim();
        let is_shown = !line.is_empty() && !line.chars().any(char::is_control);
        is_shown.then(|| Self { path, line: line.to_owned(), metadata })
    }

    /// Reads the record in order to execute it.
    ///
    /// # Errors
    /// If there is no record, or if another user than the caller could have written it.
    pub fn trusted(socket: &Path) -> Result<Self, CliError> {
        let Some(former) = Self::find(socket) else {
            return Err(CliError::usage(format!(
                "the options of the daemon at {} are not known; stop the daemon, and start it with the options that it \
                 needs",
                socket.display()
            )));
        };
        let (user, mode) = (former.metadata.uid(), former.metadata.mode());
        if user != geteuid().as_raw() || mode & 0o022 != 0 {
            let how = match former.unit() {
                Some(unit) => format!("The daemon is a service: systemctl restart {unit}"),
                None => format!("Stop the daemon, and start it as user {user}: {}", former.line),
            };
            return Err(CliError::usage(format!(
                "{} belongs to user {user} with mode {:04o}: only a record that no other user can write is executed. \
                 {how}",
                former.path.display(),
                mode & 0o7777,
            )));
        }
        Ok(former)
    }

    /// The command.
    #[must_use]
    pub fn line(&self) -> &str {
        &self.line
    }

    /// The unit of systemd that started the daemon, if one did.
    #[must_use]
    pub fn unit(&self) -> Option<&str> {
        self.line.strip_prefix(UNIT_START)
    }
}

#[cfg(test)]
mod tests {
    use super::Former;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use strake_testkit::Folder;

    #[test]
    fn only_a_record_that_no_other_user_can_write_is_executed() {
        let folder = Folder::new("strake-cli-again");
        let socket = folder.join("straked.sock");
        let refused = Former::trusted(&socket).expect_err("there is no record").text;
        assert!(refused.contains("are not known"), "{refused}");
        let record = folder.join("straked.sock.again");
        fs::write(&record, "systemctl start strake.service\n").expect("it can be written");
        let trusted = Former::trusted(&socket).expect("only its owner can write it");
        assert_eq!(trusted.unit(), Some("strake.service"));
        fs::set_permissions(&record, fs::Permissions::from_mode(0o664)).expect("it is ours");
        let refused = Former::trusted(&socket).expect_err("its group can write it").text;
        assert!(refused.contains("mode 0664"), "{refused}");
        assert!(refused.ends_with("systemctl restart strake.service"), "{refused}");
        assert!(Former::find(&socket).is_some(), "it is shown nevertheless");
    }
}
