//! What clients may do with an export, and what becomes of them.

/// Whether clients may change an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// They may.
    ReadWrite,
    /// They may not.
    ReadOnly,
}

/// Whether the device has an operation, or has it cheaply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// It has.
    Present,
    /// It has not.
    Absent,
}

/// What to do about clients of an export that is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Refuse to remove it while there are any.
    IfUnused,
    /// Let what they have begun end, then disconnect them.
    Force,
}
