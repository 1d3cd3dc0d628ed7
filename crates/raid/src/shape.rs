//! The shape that follows from level, number of members and group size, and the check of their combination.

use crate::error::GeometryError;
use crate::geometry::GeometrySpec;
use crate::level::{Level, PARITY_MAX, PARITY_NAMED_MIN};
use crate::{COPIES_MAX, MEMBERS_MAX};

/// The part of a geometry that level, members and group size determine.
pub(crate) struct Shape {
    /// Positions in one group.
    pub(crate) width: u8,
    pub(crate) groups: u8,
    /// Parity strips per stripe.
    pub(crate) parity: u8,
    /// The number of copies of each data strip.
    pub(crate) copies: u8,
}

impl Shape {
    /// Checks level, members and group size of `spec`.
    pub(crate) fn new(spec: &GeometrySpec) -> Result<Self, GeometryError> {
        let (level, members) = (spec.level, spec.members);
        if let Level::Parity(parity) = level
            && !(PARITY_NAMED_MIN..=PARITY_MAX).contains(&parity)
        {
            return Err(GeometryError::ParityOutOfRange { parity });
        }
        let (min, max) = member_limits(level);
        if members < min {
            return Err(GeometryError::TooFewMembers { level, members, min });
        }
        if members > max {
            return Err(GeometryError::TooManyMembers { level, members, max });
        }
        let parity = level.parity_strips();
        if level.is_grouped() {
            let width = group_width(spec)?;
            return Ok(Self { width, groups: members as u8 / width, parity, copies: 1 });
        }
        if spec.group_size.is_some() {
            return Err(GeometryError::GroupSizeUnwanted { level });
        }
        let copies = match level {
            Level::Raid1 => members as u8,
            Level::Raid10 if !members.is_multiple_of(2) => {
                return Err(GeometryError::OddMembers { members });
            }
            Level::Raid10 => 2,
            Level::Raid0
            | Level::Raid5
            | Level::Raid6
            | Level::Raid73
            | Level::Parity(_)
            | Level::Raid50
            | Level::Raid60
            | Level::Raid70 => 1,
        };
        Ok(Self { width: members as u8, groups: 1, parity, copies })
    }
}

/// Returns the minimum and the maximum number of members of a level. A parity group has at least two data strips. With
/// one data strip it would be a mirror with the cost of parity, which RAID 1 avoids.
const fn member_limits(level: Level) -> (usize, usize) {
    match level {
        Level::Raid0 => (1, MEMBERS_MAX),
        Level::Raid1 => (2, COPIES_MAX),
        Level::Raid10 => (4, MEMBERS_MAX),
        Level::Raid5 | Level::Raid6 | Level::Raid73 | Level::Parity(_) => {
            (level.parity_strips() as usize + 2, MEMBERS_MAX)
        }
        Level::Raid50 | Level::Raid60 | Level::Raid70 => {
            (2 * (level.parity_strips() as usize + 2), MEMBERS_MAX)
        }
    }
}

/// Returns the number of members of one group of a level with groups.
fn group_width(spec: &GeometrySpec) -> Result<u8, GeometryError> {
    let (level, members) = (spec.level, spec.members);
    let group_size = spec.group_size.ok_or(GeometryError::GroupSizeMissing { level, members })?;
    let min = level.parity_strips() as usize + 2;
    if (group_size as usize) < min {
        return Err(GeometryError::GroupTooSmall { level, group_size, min });
    }
    if !members.is_multiple_of(group_size as usize) {
        return Err(GeometryError::GroupsUneven { members, group_size });
    }
    if members == group_size as usize {
        return Err(GeometryError::OneGroup { level, members });
    }
    Ok(group_size)
}
