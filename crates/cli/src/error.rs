//! What can go wrong on this side of the socket, and what came back from the other.

use crate::exit::Exit;
use std::fmt;
use std::io;
use std::path::Path;
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
    /// The operating system refused something on this side.
    Io(io::ErrorKind),
    /// Data came back different from what was written, or not at all.
    Mismatch,
    /// A person ended the command.
    Interrupted,
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

    /// Nobody answers on `socket`.
    pub fn no_daemon(socket: &Path, why: impl fmt::Display) -> Self {
        Self {
            kind: ErrorKind::NoDaemon,
            text: format!(
                "cannot reach the daemon at {}: {why}\n  \
                 start it with `strake daemon start`, or name its socket with --socket or STRAKE_SOCKET",
                socket.display()
            ),
        }
    }

    /// What the process ends with because of this error.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        match self.kind {
            ErrorKind::Usage => Exit::Usage,
            ErrorKind::NoDaemon | ErrorKind::Io(_) | ErrorKind::Interrupted => Exit::Unknown,
            ErrorKind::Refused(code) => Exit::of_rpc(code),
            ErrorKind::Mismatch | ErrorKind::Ended => Exit::Failed,
        }
    }
}

impl From<tonic::Status> for CliError {
    fn from(status: tonic::Status) -> Self {
        let text = if status.message().is_empty() {
            match status.code() {
                Code::Unimplemented => {
                    "this daemon is another version and does not know this command; \
                                        see strake daemon status"
                        .to_owned()
                }
                code => {
                    let what = code.description().to_lowercase();
                    format!("the daemon gave no reason: {what}; its log may say more")
                }
            }
        } else {
            status.message().to_owned()
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
