//! What can go wrong on this side of the socket, and what came back from the other.

use crate::again::Former;
use crate::exit::Exit;
use crate::limits::CALL_TIMEOUT;
use crate::service;
use prost::Message as _;
use std::fmt;
use std::io;
use std::path::Path;
use strake_api::limits::ERROR_DETAIL_KEY;
use strake_api::v1::ErrorDetail;
use strake_wording::shown;
use tonic::Code;

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The command line asks for something that cannot be done as given.
    Usage,
    /// The daemon cannot be reached.
    NoDaemon,
    /// The daemon was started and failed.
    Ended,
    /// The daemon answered with an error.
    Refused(Code),
    /// The operating system refused something on this side, and nothing was changed.
    Io(io::ErrorKind),
    /// Another program, such as a collector, refused something or does not answer.
    Remote,
    /// The answer could not be written to standard output.
    Output(io::ErrorKind),
    /// Data came back different from what was written, or not at all.
    Mismatch,
    /// A person ended the command.
    Interrupted,
    /// The reader of standard output has gone, for example `head`. It has read all that it wanted: no failure.
    ReaderGone,
}

/// An error with the sentence that is printed: what failed, on what, why, what to do.
#[derive(Debug)]
pub struct CliError {
    /// What to match on.
    pub kind: ErrorKind,
    /// What to print.
    pub text: String,
}

impl CliError {
    /// An error that the person at the keyboard can fix.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Usage, text: text.into() }
    }

    /// Data that is not what it should be.
    pub fn mismatch(text: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Mismatch, text: text.into() }
    }

    /// `what` could not be done for the reason the system gave.
    pub fn io(what: impl fmt::Display, error: &io::Error) -> Self {
        Self { kind: ErrorKind::Io(error.kind()), text: format!("{what}: {error}") }
    }

    /// Another program refused something, or does not answer.
    pub fn remote(text: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Remote, text: text.into() }
    }

    /// No daemon answers on `socket`.
    pub fn no_daemon(socket: &Path, why: impl fmt::Display) -> Self {
        // With another state directory it would know nothing of the arrays.
        let advice = match Former::find(socket) {
            Some(former) => {
                format!("start the daemon again as before, with its state directory: {}", former.line())
            }
            None if service::is_installed_for(socket) => {
                format!("start the service: {}", service::START)
            }
            None => "start the daemon with `strake daemon start` (with --state-dir if the daemon had its own state \
                directory), or name its socket with --socket or STRAKE_SOCKET"
                .to_owned(),
        };
        let text = format!("cannot reach the daemon at {}: {why}\n  {advice}", socket.display());
        Self { kind: ErrorKind::NoDaemon, text }
    }

    /// The daemon answered before, and stopped.
    #[must_use]
    pub fn lost() -> Self {
        let text = "the connection to the daemon was lost: the daemon stopped, or too many clients are connected; see \
            strake daemon status";
        Self { kind: ErrorKind::NoDaemon, text: text.to_owned() }
    }

    /// The daemon does not answer a call.
    #[must_use]
    pub fn silent() -> Self {
        let text = format!(
            "the daemon did not answer within {} s; see strake daemon status",
            CALL_TIMEOUT.as_secs()
        );
        Self { kind: ErrorKind::NoDaemon, text }
    }

    /// This user may not connect to `socket`.
    pub fn no_permission(socket: &Path) -> Self {
        let group = std::fs::metadata(socket).map_or_else(
            |_| "its group".to_owned(),
            |meta| format!("group {}", std::os::unix::fs::MetadataExt::gid(&meta)),
        );
        let text = format!(
            "cannot reach the daemon at {}: no permission to use the socket\n  run the command as root, or as a member \
             of {group}",
            socket.display()
        );
        Self { kind: ErrorKind::NoDaemon, text }
    }

    /// Whether the connection to the daemon was lost, and may be back.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.kind == ErrorKind::NoDaemon
    }

    /// What the process ends with because of this error.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        match self.kind {
            ErrorKind::Usage | ErrorKind::Io(_) => Exit::Usage,
            ErrorKind::NoDaemon | ErrorKind::Output(_) | ErrorKind::Interrupted => Exit::Unknown,
            ErrorKind::Refused(code) => Exit::of_rpc(code),
            ErrorKind::Mismatch | ErrorKind::Ended | ErrorKind::Remote => Exit::Failed,
            ErrorKind::ReaderGone => Exit::Fine,
        }
    }
}

impl From<strake_terminal::Error> for CliError {
    fn from(error: strake_terminal::Error) -> Self {
        let text = format!("{}: {}", error.what, error.source);
        let kind = match error.is_reader_gone() {
            true => ErrorKind::ReaderGone,
            false => ErrorKind::Output(error.source.kind()),
        };
        Self { kind, text }
    }
}

impl From<tonic::Status> for CliError {
    fn from(status: tonic::Status) -> Self {
        // An answer of the daemon has no source; an error of the transport has.
        if std::error::Error::source(&status).is_some() {
            return Self::lost();
        }
        let text = if status.message().is_empty() {
            match status.code() {
                Code::Unimplemented => {
                    "this daemon has another version, which does not support this command; see strake daemon status"
                        .to_owned()
                }
                code => {
                    let what = code.description().to_lowercase();
                    format!("the daemon gave no reason: {what}; its log may say more")
                }
            }
        } else {
            let detail = status.metadata().get_bin(ERROR_DETAIL_KEY);
            let detail = detail.and_then(|bytes| bytes.to_bytes().ok());
            let detail = detail.and_then(|bytes| ErrorDetail::decode(bytes).ok());
            shown(&detail.unwrap_or_default().parts, status.message())
        };
        Self { kind: ErrorKind::Refused(status.code()), text }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for CliError {}

#[cfg(test)]
mod tests {
    use super::{CliError, ERROR_DETAIL_KEY};
    use prost::Message as _;
    use strake_api::v1::ErrorDetail;
    use strake_wording::{replace, say};
    use tonic::metadata::MetadataValue;
    use tonic::{Code, Status};

    #[test]
    fn an_error_is_worded_here_when_its_parts_are_there() {
        let check = |details: Vec<u8>, printed: &str| {
            let mut status = Status::new(Code::NotFound, "other words");
            status.metadata_mut().insert_bin(ERROR_DETAIL_KEY, MetadataValue::from_bytes(&details));
            assert_eq!(CliError::from(status).to_string(), printed);
        };
        let parts = say("it is old; ").run(replace("tank", Some(1), "")).parts;
        let words = "it is old; strake array replace tank --member 1 --with DRIVE";
        check(ErrorDetail { parts }.encode_to_vec(), words);
        check(Vec::new(), "other words");
        check(vec![0xff; 9], "other words");
    }
}
