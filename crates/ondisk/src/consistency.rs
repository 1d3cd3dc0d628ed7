//! The consistency mode of an array in its label.

/// The consistency mode of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Consistency {
    /// No protection, and no check after a crash.
    None,
    /// Regions with writes in progress are marked, and resynchronized after a crash. A crash while members are missing
    /// may damage neighbouring blocks in the same stripe.
    Resync,
    /// Like `Resync`, with a redo log of writes to stripes with an absent member.
    #[default]
    Safe,
    /// Every write is recorded first in a redo log, completely or as a partial write.
    Strict,
}

impl Consistency {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Safe => 0,
            Self::None => 1,
            Self::Resync => 2,
            Self::Strict => 3,
        }
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Safe),
            1 => Some(Self::None),
            2 => Some(Self::Resync),
            3 => Some(Self::Strict),
            _ => None,
        }
    }
}

impl std::fmt::Display for Consistency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Resync => "resync",
            Self::Safe => "safe",
            Self::Strict => "strict",
        })
    }
}

impl std::str::FromStr for Consistency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::None, Self::Resync, Self::Safe, Self::Strict];
        let named = all.into_iter().find(|mode| mode.to_string() == text);
        named.ok_or_else(|| {
            format!("{text} is not a consistency mode; there are none, resync, safe and strict")
        })
    }
}
