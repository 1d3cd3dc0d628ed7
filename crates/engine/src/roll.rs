//! The properties of the array that every record contains.

use strake_ondisk::{Consistency, Superblock};
use strake_units::{MemberIndex, Uuid};

/// The properties of the array in records: its members and its consistency mode.
#[derive(Clone, Debug)]
pub(crate) struct Roll {
    pub(crate) array: Uuid,
    pub(crate) epoch: Uuid,
    /// Generation of a label that every live member has.
    pub(crate) generation: u64,
    pub(crate) consistency: Consistency,
    /// Members by slot.
    pub(crate) members: Vec<Uuid>,
    /// A replacement that is written together with its member.
    pub(crate) replacement: Option<(MemberIndex, Uuid)>,
}

impl Roll {
    /// Returns the properties in a label.
    pub(crate) fn of(label: &Superblock) -> Self {
        Self {
            array: label.array,
            epoch: label.epoch,
            generation: label.generation,
            consistency: label.consistency,
            members: label.members.iter().map(|row| row.uuid).collect(),
            replacement: None,
        }
    }
}
