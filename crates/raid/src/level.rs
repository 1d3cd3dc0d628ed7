//! RAID levels by their usual names, and the two schemes that implement them.

use std::fmt;
use std::str::FromStr;

/// The scheme with which a group of members protects data. Every level is one of these two schemes, repeated over
/// groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Every data strip is stored this many times (1..=8). `Copies(1)` has no redundancy.
    Copies(u8),
    /// Every stripe has this number of parity strips (1..=32), and tolerates the same number of absent strips.
    Parity(u8),
}

/// A RAID level by its usual name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Striping without redundancy.
    Raid0,
    /// The same data on every member.
    Raid1,
    /// Striping over pairs of members.
    Raid10,
    /// One parity strip per stripe.
    Raid5,
    /// Two parity strips per stripe.
    Raid6,
    /// Three parity strips per stripe.
    Raid73,
    /// "N+M" with this number of parity strips per stripe, 4..=32. Levels with fewer parity strips have other names.
    Parity(u8),
    /// Groups of RAID 5.
    Raid50,
    /// Groups of RAID 6.
    Raid60,
    /// Groups of RAID 7.3.
    Raid70,
}

/// Maximum number of parity strips in a stripe.
pub const PARITY_MAX: u8 = 32;

/// Minimum number of parity strips of a level with the name "N+M".
pub const PARITY_NAMED_MIN: u8 = 4;

impl Level {
    /// Returns the number of this level in a label. Numbers are stable and never reused. For [`Level::Parity`] the
    /// label also records [`Level::parity_strips`].
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Raid0 => 0,
            Self::Raid1 => 1,
            Self::Raid10 => 10,
            Self::Raid5 => 5,
            Self::Raid6 => 6,
            Self::Raid73 => 73,
            Self::Parity(_) => 100,
            Self::Raid50 => 50,
            Self::Raid60 => 60,
            Self::Raid70 => 70,
        }
    }

    /// Returns the level of a recorded [`Level::code`] and [`Level::parity_strips`], or `None` if no level has this
    /// code, or the parity count does not match the level.
    #[must_use]
    pub const fn from_code(code: u8, parity_strips: u8) -> Option<Self> {
        let level = match code {
            0 => Self::Raid0,
            1 => Self::Raid1,
            10 => Self::Raid10,
            5 => Self::Raid5,
            6 => Self::Raid6,
            73 => Self::Raid73,
            100 => {
                if parity_strips < PARITY_NAMED_MIN || parity_strips > PARITY_MAX {
                    return None;
                }
                Self::Parity(parity_strips)
            }
            50 => Self::Raid50,
            60 => Self::Raid60,
            70 => Self::Raid70,
            _ => return None,
        };
        if level.parity_strips() == parity_strips { Some(level) } else { None }
    }

    /// Parity strips per stripe; 0 for levels that store copies.
    #[must_use]
    pub const fn parity_strips(self) -> u8 {
        match self {
            Self::Raid0 | Self::Raid1 | Self::Raid10 => 0,
            Self::Raid5 | Self::Raid50 => 1,
            Self::Raid6 | Self::Raid60 => 2,
            Self::Raid73 | Self::Raid70 => 3,
            Self::Parity(parity) => parity,
        }
    }

    /// True for levels with several groups, which require a group size.
    #[must_use]
    pub const fn is_grouped(self) -> bool {
        match self {
            Self::Raid50 | Self::Raid60 | Self::Raid70 => true,
            Self::Raid0
            | Self::Raid1
            | Self::Raid10
            | Self::Raid5
            | Self::Raid6
            | Self::Raid73
            | Self::Parity(_) => false,
        }
    }

    /// The level with `parity` parity strips in one group, 1..=32.
    const fn with_parity(parity: u8) -> Option<Self> {
        match parity {
            1 => Some(Self::Raid5),
            2 => Some(Self::Raid6),
            3 => Some(Self::Raid73),
            PARITY_NAMED_MIN..=PARITY_MAX => Some(Self::Parity(parity)),
            _ => None,
        }
    }
}

/// Prints the form that [`FromStr`] parses: `0`, `10`, `7.3`, `n+4`.
impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Raid0 => "0",
            Self::Raid1 => "1",
            Self::Raid10 => "10",
            Self::Raid5 => "5",
            Self::Raid6 => "6",
            Self::Raid73 => "7.3",
            Self::Parity(parity) => return f.pad(&format!("n+{parity}")),
            Self::Raid50 => "50",
            Self::Raid60 => "60",
            Self::Raid70 => "70",
        };
        f.pad(name)
    }
}

impl FromStr for Level {
    type Err = LevelError;

    /// Parses a level without a count of data strips. `8+4` is refused here, because the 8 would be lost;
    /// [`LevelRequest`] parses it.
    fn from_str(text: &str) -> Result<Self, LevelError> {
        let request: LevelRequest = text.parse()?;
        match request.data_strips {
            None => Ok(request.level),
            Some(data_strips) => Err(LevelError::DataStripsGiven { data_strips }),
        }
    }
}

/// A level as typed, optionally with the number of data strips of a stripe: `6`, `n+4`, `8+4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelRequest {
    /// The level.
    pub level: Level,
    /// Data strips per stripe, if the text contains them. Compare with
    /// [`Geometry::data_strips`](crate::Geometry::data_strips) by
    /// [`Geometry::check_request`](crate::Geometry::check_request).
    pub data_strips: Option<u8>,
}

impl FromStr for LevelRequest {
    type Err = LevelError;

    /// Parses `0 1 10 5 6 7.3 50 60 70`, `n+M` and `N+M`; the first nine also with the prefix `raid`, in upper or lower
    /// case. `n+1`, `n+2`, `n+3` are RAID 5, 6, 7.3.
    fn from_str(text: &str) -> Result<Self, LevelError> {
        let lower = text.trim().to_ascii_lowercase();
        if let Some((data, parity)) = lower.split_once('+') {
            return parse_sum(data, parity);
        }
        let level = match lower.strip_prefix("raid").unwrap_or(&lower).trim_start() {
            "0" => Level::Raid0,
            "1" => Level::Raid1,
            "10" => Level::Raid10,
            "5" => Level::Raid5,
            "6" => Level::Raid6,
            "7.3" => Level::Raid73,
            "50" => Level::Raid50,
            "60" => Level::Raid60,
            "70" => Level::Raid70,
            _ => return Err(LevelError::Unknown),
        };
        Ok(Self { level, data_strips: None })
    }
}

/// Parses the two sides of `N+M`, where N may be the letter itself.
fn parse_sum(data: &str, parity: &str) -> Result<LevelRequest, LevelError> {
    let count = |text: &str| -> Result<u8, LevelError> {
        if text.is_empty() || !text.bytes().all(|c| c.is_ascii_digit()) {
            return Err(LevelError::Unknown);
        }
        // A number that does not fit in a u8 is too large for either side.
        Ok(text.parse().unwrap_or(u8::MAX))
    };
    let data_strips = if data.trim() == "n" { None } else { Some(count(data.trim())?) };
    let parity = count(parity.trim())?;
    let level = Level::with_parity(parity).ok_or(LevelError::ParityOutOfRange { parity })?;
    Ok(LevelRequest { level, data_strips })
}

/// Errors of the text of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelError {
    /// No level has this name.
    Unknown,
    /// The M of "N+M" is not between 1 and [`PARITY_MAX`].
    ParityOutOfRange {
        /// The requested M; 255 also means any greater number.
        parity: u8,
    },
    /// A count of data strips where only a level is expected.
    DataStripsGiven {
        /// The count.
        data_strips: u8,
    },
}

impl fmt::Display for LevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str(
                "not a RAID level: use 0, 1, 10, 5, 6, 7.3, 50, 60, 70, or n+M for M parity strips",
            ),
            Self::ParityOutOfRange { parity: u8::MAX } | Self::ParityOutOfRange { parity: 0 } => {
                write!(f, "the M of n+M must be between 1 and {PARITY_MAX}")
            }
            Self::ParityOutOfRange { parity } => {
                write!(f, "the M of n+M must be between 1 and {PARITY_MAX}, not {parity}")
            }
            Self::DataStripsGiven { data_strips } => write!(
                f,
                "only the level is wanted here: write n+M, the number of members decides that N is {data_strips}"
            ),
        }
    }
}

impl std::error::Error for LevelError {}
