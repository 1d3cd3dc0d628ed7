//! Access of clients to an export.

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether clients may change an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Clients may read and write.
    ReadWrite,
    /// Clients may only read.
    ReadOnly,
}

/// Whether the device supports an operation, or supports it cheaply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// The operation is supported.
    Present,
    /// The operation is not supported.
    Absent,
}

/// The access rights of a client to the blocks of a reservable device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Reads and writes.
    All,
    /// Only commands outside the write group (NVM Express Base Specification 2.0, section 8.19.3).
    Read,
    /// Neither read nor write.
    Nothing,
}

/// The rights of clients that cannot register, shared by the exports of one device: the export whose hosts reserve the
/// device sets them, and the others apply them.
#[derive(Debug, Default)]
pub struct SharedRights(AtomicU8);

impl SharedRights {
    /// Sets the rights for requests that are submitted from now on. Release: after the holder of the reservation
    /// informs a client, requests of that client fail.
    pub fn set(&self, rights: Rights) {
        let number = match rights {
            Rights::All => 0,
            Rights::Read => 1,
            Rights::Nothing => 2,
        };
        self.0.store(number, Ordering::Release);
    }

    /// The current rights; initially all.
    #[must_use]
    pub fn get(&self) -> Rights {
        match self.0.load(Ordering::Acquire) {
            0 => Rights::All,
            1 => Rights::Read,
            _ => Rights::Nothing,
        }
    }
}

/// The handling of the clients of an export that is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Fail if there are connected clients.
    IfUnused,
    /// Complete the requests in flight, then disconnect the clients.
    Force,
}
