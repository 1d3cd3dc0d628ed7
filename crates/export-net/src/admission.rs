//! What clients may do with an export, and what becomes of them.

use std::sync::atomic::{AtomicU8, Ordering};

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

/// What a client may do with the blocks of a device that hosts can reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Everything.
    All,
    /// Nothing that is in the group of writes (NVM Express Base Specification 2.0, section 8.19.3).
    Read,
    /// Neither read nor write.
    Nothing,
}

/// The rights of clients that cannot register, shared by the exports of one device: the export whose hosts reserve the
/// device sets them, and the others obey.
#[derive(Debug, Default)]
pub struct SharedRights(AtomicU8);

impl SharedRights {
    /// Sets the rights for what is submitted from now on. Release: a client that learns of the reservation from its
    /// holder is refused.
    pub fn set(&self, rights: Rights) {
        let number = match rights {
            Rights::All => 0,
            Rights::Read => 1,
            Rights::Nothing => 2,
        };
        self.0.store(number, Ordering::Release);
    }

    /// The rights now; at first, all.
    #[must_use]
    pub fn get(&self) -> Rights {
        match self.0.load(Ordering::Acquire) {
            0 => Rights::All,
            1 => Rights::Read,
            _ => Rights::Nothing,
        }
    }
}

/// What to do about clients of an export that is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Refuse to remove it while there are any.
    IfUnused,
    /// Let what they have begun end, then disconnect them.
    Force,
}
