//! The callers of commands, and what they may do.

use std::fmt;

/// What a caller may do. Each role includes the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// May see everything except secrets, and change nothing.
    Viewer,
    /// May keep arrays healthy: replace and rebuild members, add spares, scrub. None of this overwrites content that
    /// Strake recognizes.
    Operator,
    /// May do everything.
    Admin,
}

impl Role {
    /// Every role, the weakest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// Returns the name of the role.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The caller of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    /// User and process of the peer of the socket, if the kernel reports them.
    pub peer: Option<(u32, i32)>,
    /// The role of the caller, if it is known.
    pub role: Option<Role>,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some((uid, pid)) => write!(f, "uid {uid} pid {pid}"),
            None => f.write_str("unknown"),
        }
    }
}
