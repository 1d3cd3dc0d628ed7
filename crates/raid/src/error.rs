//! Errors of geometries.

use std::fmt;

use crate::level::Level;
use crate::{MEMBERS_MAX, STRIP_BYTES_MAX, STRIP_BYTES_MIN};
use strake_units::ByteSize;

/// The error of a [`GeometrySpec`](crate::GeometrySpec). Its text contains the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeometryError {
    /// The level needs more members than there are.
    TooFewMembers {
        /// The level asked for.
        level: Level,
        /// Members given.
        members: usize,
        /// Fewest members of that level.
        min: usize,
    },
    /// The level, or any array, cannot have this many members.
    TooManyMembers {
        /// The level asked for.
        level: Level,
        /// Members given.
        members: usize,
        /// Most members of that level.
        max: usize,
    },
    /// RAID 10 stores pairs, and one member has no partner.
    OddMembers {
        /// Members given.
        members: usize,
    },
    /// A level of groups requires a group size.
    GroupSizeMissing {
        /// The level asked for.
        level: Level,
        /// Members given.
        members: usize,
    },
    /// A group size was given for a level that has no groups.
    GroupSizeUnwanted {
        /// The level asked for.
        level: Level,
    },
    /// The group is too small to hold the level's parity and two data strips.
    GroupTooSmall {
        /// The level asked for.
        level: Level,
        /// Members in a group.
        group_size: u8,
        /// Fewest members in a group of that level.
        min: usize,
    },
    /// The members do not divide into groups of this size.
    GroupsUneven {
        /// Members given.
        members: usize,
        /// Members in a group.
        group_size: u8,
    },
    /// All members form one group, so a level without groups applies.
    OneGroup {
        /// The level asked for.
        level: Level,
        /// Members given.
        members: usize,
    },
    /// The number of parity strips is outside 4..=32.
    ParityOutOfRange {
        /// Parity strips asked for.
        parity: u8,
    },
    /// The request was `N+M`, but the members give another number of data strips.
    DataStripsMismatch {
        /// The N asked for.
        wanted: u8,
        /// The N that the members make.
        data_strips: u8,
        /// The M.
        parity_strips: u8,
    },
    /// The strip size is not a power of two between 4 KiB and 1 MiB.
    StripSize {
        /// Strip size given, in bytes.
        strip_bytes: u32,
    },
    /// A member does not have space for one strip.
    MemberTooSmall {
        /// Data area of a member, in blocks.
        member_blocks: u64,
        /// Blocks of one strip.
        strip_blocks: u32,
    },
    /// The array would have more bytes than a 63-bit number counts.
    TooLarge {
        /// Data area of a member, in blocks.
        member_blocks: u64,
    },
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewMembers { level, members, min } => write!(
                f,
                "RAID {level} needs at least {min} members and {members} were given: add members or choose \
                 another level"
            ),
            Self::TooManyMembers { level, members, max } => write!(
                f,
                "RAID {level} has at most {max} members and {members} were given: \
                 use fewer, or make several arrays (no array has more than {MEMBERS_MAX})"
            ),
            Self::OddMembers { members } => {
                write!(f, "RAID 10 stores pairs and {members} is odd: add or leave out one member")
            }
            Self::GroupSizeMissing { level, members } => write!(
                f,
                "RAID {level} is made of groups: say how many of the {members} members make one group"
            ),
            Self::GroupSizeUnwanted { level } => write!(
                f,
                "RAID {level} has no groups: leave the group size out, or choose 50, 60 or 70"
            ),
            Self::GroupTooSmall { level, group_size, min } => write!(
                f,
                "a group of RAID {level} needs at least {min} members, not {group_size}: choose a larger group size"
            ),
            Self::GroupsUneven { members, group_size } => write!(
                f,
                "{members} members do not divide into groups of {group_size}: \
                 choose a group size that divides {members}, or change the number of members"
            ),
            Self::OneGroup { level, members } => write!(
                f,
                "RAID {level} needs at least two groups and {members} members make only one: \
                 choose a smaller group size, or the level without groups"
            ),
            Self::ParityOutOfRange { parity } => write!(
                f,
                "n+{parity} is not possible: n+M takes 4 to 32 parity strips, and 1, 2, 3 are RAID 5, 6, 7.3"
            ),
            Self::DataStripsMismatch { wanted, data_strips, parity_strips } => write!(
                f,
                "{wanted}+{parity_strips} needs {} members and the members given make {data_strips}+{parity_strips}: \
                 change the number of members, or write n+{parity_strips}",
                u32::from(*wanted) + u32::from(*parity_strips)
            ),
            Self::StripSize { strip_bytes } => {
                let size = |bytes: u32| ByteSize(u64::from(bytes));
                let given = match strip_bytes % 1024 {
                    0 => size(*strip_bytes).to_string(),
                    // A rounded size might look valid.
                    _ => format!("{strip_bytes} bytes"),
                };
                let (min, max) = (size(STRIP_BYTES_MIN), size(STRIP_BYTES_MAX));
                write!(
                    f,
                    "a strip of {given} is not possible: choose a power of two from {min} to {max}"
                )
            }
            Self::MemberTooSmall { member_blocks, strip_blocks } => write!(
                f,
                "a member has room for {member_blocks} blocks of data and one strip needs {strip_blocks}: \
                 use larger members or a smaller strip"
            ),
            Self::TooLarge { member_blocks } => write!(
                f,
                "members of {member_blocks} blocks make an array of more than 2^63 bytes: use fewer or smaller members"
            ),
        }
    }
}

impl std::error::Error for GeometryError {}
