//! What the process ends with. Scripts act on these, so they are part of the interface.

use strake_api::v1::{Array, Pool};
use tonic::Code;

/// Exit codes, the same for every command. `status`, `array show`, `pool show`, `drive smart` and `wait` report
/// health; commands that change an object report success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Success, or healthy.
    Fine,
    /// Data is served, but redundancy is missing; or a wait ended before its goal.
    Degraded,
    /// Data is not served, or was lost.
    Failed,
    /// The command cannot be executed as given.
    Usage,
    /// Unknown: the daemon cannot be reached, or did not answer.
    Unknown,
}

impl Exit {
    /// The number handed to the shell.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Degraded => 1,
            Self::Failed => 2,
            Self::Usage => 3,
            Self::Unknown => 4,
        }
    }

    /// The exit code for an error answer of the daemon: [`Exit::Usage`] if the caller can correct the command,
    /// [`Exit::Failed`] for failures of drives or data, and [`Exit::Unknown`] if the outcome is unknown.
    #[must_use]
    pub const fn of_rpc(code: Code) -> Self {
        match code {
            Code::Ok => Self::Fine,
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unauthenticated => Self::Usage,
            Code::Aborted | Code::DataLoss => Self::Failed,
            Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable => Self::Unknown,
        }
    }

    /// The health of one array.
    #[must_use]
    pub fn of_array(array: &Array) -> Self {
        let is = |state: &str| array.states.iter().any(|s| s == state);
        if is("lost") || is("offline") || !is("online") {
            Self::Failed
        } else if is("degraded")
            || is("no_redundancy")
            || is("rebuild_halted")
            || is("corrupt")
            || is("in_doubt")
            || is("suspect")
            || is("unverified")
            || array.bad_blocks > 0
        {
            Self::Degraded
        } else {
            Self::Fine
        }
    }

    /// The health of one pool.
    #[must_use]
    pub fn of_pool(pool: &Pool) -> Self {
        match pool.state.as_str() {
            "online" => Self::Fine,
            "read-only" => Self::Degraded,
            _ => Self::Failed,
        }
    }

    /// A health as the daemon judged it.
    #[must_use]
    pub fn of_health(word: &str) -> Self {
        match word {
            "ok" => Self::Fine,
            "degraded" => Self::Degraded,
            "failed" => Self::Failed,
            _ => Self::Unknown,
        }
    }

    /// The word that opens a table.
    #[must_use]
    pub const fn health(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
            Self::Usage | Self::Unknown => "unknown",
        }
    }
}
