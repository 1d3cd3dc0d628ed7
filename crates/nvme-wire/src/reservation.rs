//! Reservations: who of several hosts may use a namespace (Base, sections 7.2 to 7.5 and 8.19).

use crate::bytes::{array_at, put, u16_at, u32_at, u64_at};
use crate::command::{Sgl, Sqe};
use crate::log::Request;

/// Opcodes of I/O queues (Base, section 7).
pub mod opcode {
    /// Reservation Register.
    pub const REGISTER: u8 = 0x0d;
    /// Reservation Report.
    pub const REPORT: u8 = 0x0e;
    /// Reservation Acquire.
    pub const ACQUIRE: u8 = 0x11;
    /// Reservation Release.
    pub const RELEASE: u8 = 0x15;
}

/// What identifies a host: its 128-bit Host Identifier.
pub type HostId = [u8; 16];

/// Who is kept out of what (Base, section 8.19.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReservationType {
    /// The holder writes, everybody reads.
    WriteExclusive = 1,
    /// The holder alone reads and writes.
    ExclusiveAccess = 2,
    /// Registrants write, everybody reads.
    WriteExclusiveRegistrants = 3,
    /// Registrants alone read and write.
    ExclusiveAccessRegistrants = 4,
    /// As [`WriteExclusiveRegistrants`](Self::WriteExclusiveRegistrants), and every registrant is a holder.
    WriteExclusiveAll = 5,
    /// As [`ExclusiveAccessRegistrants`](Self::ExclusiveAccessRegistrants), and every registrant is a holder.
    ExclusiveAccessAll = 6,
}

impl ReservationType {
    /// Every type, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrants,
        Self::ExclusiveAccessRegistrants,
        Self::WriteExclusiveAll,
        Self::ExclusiveAccessAll,
    ];

    /// The type of a number, if it has one.
    #[must_use]
    pub fn parse(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&known| known as u8 == number)
    }

    /// Whether every registrant is a holder.
    #[must_use]
    pub const fn is_held_by_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    /// Whether registrants may do what the holder may.
    #[must_use]
    pub const fn favours_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Whether those that it keeps out may read.
    #[must_use]
    pub const fn lets_others_read(self) -> bool {
        matches!(
            self,
            Self::WriteExclusive | Self::WriteExclusiveRegistrants | Self::WriteExclusiveAll
        )
    }
}

/// Whether the key that a host has now must be the one that it says (IEKEY).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyCheck {
    /// It must.
    On,
    /// It may say any.
    Off,
}

/// The requested change of the persistence through a loss of power (CPTPL).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Persistence {
    /// It stays as it is.
    Unchanged,
    /// A loss of power ends reservation and registrations.
    Off,
    /// They outlast it.
    On,
}

/// How a reservation is acquired (RACQA).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Acquire {
    /// If no other host has it.
    Free,
    /// Taking it, or registrations, from those with a key.
    Preempt,
    /// The same, and their commands are aborted.
    PreemptAndAbort,
}

/// What a host wants of a reservation; the keys that go with it are the command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// To be a registrant with the new key.
    Register(Persistence),
    /// To be a registrant no longer.
    Unregister(KeyCheck, Persistence),
    /// To have the new key in place of the current one.
    Replace(KeyCheck, Persistence),
    /// To hold a reservation.
    Acquire(Acquire, ReservationType),
    /// To hold it no longer.
    Release(ReservationType),
    /// To end the reservation and all registrations.
    Clear,
}

/// IEKEY.
const IGNORE_KEY: u32 = 1 << 3;

impl Action {
    /// Reads dword 10 of a command that changes a reservation; `None` when it is none, or has a value that is
    /// reserved. Keys can be ignored by Register only (Base, sections 7.2 and 7.4, IEKEY).
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Option<Self> {
        let dword = sqe.dword(10);
        let check = if dword & IGNORE_KEY == 0 { KeyCheck::On } else { KeyCheck::Off };
        let kind = ReservationType::parse((dword >> 8) as u8);
        match (sqe.opcode(), dword & 0b111) {
            (opcode::REGISTER, action) => {
                let persistence = match dword >> 30 {
                    0b00 => Persistence::Unchanged,
                    0b10 => Persistence::Off,
                    0b11 => Persistence::On,
                    _ => return None,
                };
                match action {
                    0 => Some(Self::Register(persistence)),
                    1 => Some(Self::Unregister(check, persistence)),
                    2 => Some(Self::Replace(check, persistence)),
                    _ => None,
                }
            }
            _ if check == KeyCheck::Off => None,
            (opcode::ACQUIRE, 0) => Some(Self::Acquire(Acquire::Free, kind?)),
            (opcode::ACQUIRE, 1) => Some(Self::Acquire(Acquire::Preempt, kind?)),
            (opcode::ACQUIRE, 2) => Some(Self::Acquire(Acquire::PreemptAndAbort, kind?)),
            (opcode::RELEASE, 0) => Some(Self::Release(kind?)),
            (opcode::RELEASE, 1) => Some(Self::Clear),
            _ => None,
        }
    }

    /// As a command to namespace `nsid`, whose data `sgl` describes.
    #[must_use]
    pub fn command(&self, nsid: u32, sgl: Sgl) -> Sqe {
        let register = |action: u32, check: KeyCheck, persistence: Persistence| {
            let persistence = match persistence {
                Persistence::Unchanged => 0b00,
                Persistence::Off => 0b10,
                Persistence::On => 0b11,
            };
            let check = if check == KeyCheck::On { 0 } else { IGNORE_KEY };
            (opcode::REGISTER, action | check | persistence << 30)
        };
        let (opcode, dword) = match *self {
            Self::Register(persistence) => register(0, KeyCheck::On, persistence),
            Self::Unregister(check, persistence) => register(1, check, persistence),
            Self::Replace(check, persistence) => register(2, check, persistence),
            Self::Acquire(how, kind) => {
                let how = match how {
                    Acquire::Free => 0,
                    Acquire::Preempt => 1,
                    Acquire::PreemptAndAbort => 2,
                };
                (opcode::ACQUIRE, how | (kind as u32) << 8)
            }
            Self::Release(kind) => (opcode::RELEASE, (kind as u32) << 8),
            Self::Clear => (opcode::RELEASE, 1),
        };
        Sqe::new(opcode, nsid, sgl).with(10, dword)
    }

    /// Bytes of its data: both keys, or for a release the first of them.
    #[must_use]
    pub const fn data_bytes(&self) -> u32 {
        match self {
            Self::Register(_) | Self::Unregister(..) | Self::Replace(..) | Self::Acquire(..) => {
                KEYS_BYTES as u32
            }
            Self::Release(_) | Self::Clear => KEYS_BYTES as u32 / 2,
        }
    }
}

/// Bytes of two keys.
pub const KEYS_BYTES: usize = 16;

/// The keys of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// The one that the host has (CRKEY).
    pub current: u64,
    /// The one that it wants (NRKEY), or of those that it wants out (PRKEY); nothing in a release.
    pub other: u64,
}

impl Keys {
    /// Reads them.
    #[must_use]
    pub fn parse(bytes: &[u8; KEYS_BYTES]) -> Self {
        Self { current: u64_at(bytes, 0), other: u64_at(bytes, 8) }
    }

    /// As bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; KEYS_BYTES] {
        let mut out = [0; KEYS_BYTES];
        put(&mut out, 0, &self.current.to_le_bytes());
        put(&mut out, 8, &self.other.to_le_bytes());
        out
    }
}

/// Reservation Report (Base, section 7.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Bytes that the host has room for, at least four.
    pub length: u64,
    /// Whether it requests identifiers of 128 bits (EDS).
    pub is_extended: bool,
}

impl Report {
    /// Reads dwords 10 and 11.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        Self { length: (u64::from(sqe.dword(10)) + 1) * 4, is_extended: sqe.dword(11) & 1 != 0 }
    }

    /// As a command to namespace `nsid`. The length is one of whole dwords.
    #[must_use]
    pub fn command(&self, nsid: u32) -> Sqe {
        let length = self.length as u32;
        Sqe::new(opcode::REPORT, nsid, Sgl::Transport { length })
            .with(10, (length / 4).saturating_sub(1))
            .with(11, self.is_extended.into())
    }
}

/// Bytes of the head of a report with identifiers of 128 bits, and of each of its registrants.
pub const REPORT_BYTES: usize = 64;

/// The head of a report (Base, section 7.5, extended Reservation Status).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportHead {
    /// Changes of registrations there were.
    pub generation: u32,
    /// What is reserved.
    pub kind: Option<ReservationType>,
    /// Registrants behind it.
    pub registrants: u16,
    /// Whether all of it outlasts a loss of power.
    pub persists: bool,
}

impl ReportHead {
    /// Reads it.
    #[must_use]
    pub fn parse(bytes: &[u8; REPORT_BYTES]) -> Self {
        Self {
            generation: u32_at(bytes, 0),
            kind: ReservationType::parse(bytes[4]),
            registrants: u16_at(bytes, 5),
            persists: bytes[9] & 1 != 0,
        }
    }

    /// As bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; REPORT_BYTES] {
        let mut out = [0; REPORT_BYTES];
        put(&mut out, 0, &self.generation.to_le_bytes());
        out[4] = self.kind.map_or(0, |kind| kind as u8);
        put(&mut out, 5, &self.registrants.to_le_bytes());
        out[9] = u8::from(self.persists);
        out
    }
}

/// A registrant in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedRegistrant {
    /// Who it is.
    pub host: HostId,
    /// Its key.
    pub key: u64,
    /// Whether it holds the reservation.
    pub holds: bool,
}

impl ReportedRegistrant {
    /// Reads it.
    #[must_use]
    pub fn parse(bytes: &[u8; REPORT_BYTES]) -> Self {
        Self { host: array_at(bytes, 16), key: u64_at(bytes, 8), holds: bytes[2] & 1 != 0 }
    }

    /// As bytes. A controller is created for each host that connects, so none is named (CNTLID).
    #[must_use]
    pub fn bytes(&self) -> [u8; REPORT_BYTES] {
        let mut out = [0; REPORT_BYTES];
        put(&mut out, 0, &u16::MAX.to_le_bytes());
        out[2] = u8::from(self.holds);
        put(&mut out, 8, &self.key.to_le_bytes());
        put(&mut out, 16, &self.host);
        out
    }
}

/// What other hosts did, as a host is notified (Base, section 8.19.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoticeKind {
    /// It was a registrant, and no longer is.
    RegistrationPreempted = 1,
    /// A reservation that it profited from was released, or is of another type now.
    ReservationReleased = 2,
    /// Reservation and registrations were ended.
    ReservationPreempted = 3,
}

impl NoticeKind {
    /// Its bit in the mask of notices that are not to be sent (Base, section 5.27.1, feature 82h).
    #[must_use]
    pub const fn mask_bit(self) -> u32 {
        1 << self as u8
    }

    /// All bits of that mask.
    pub const MASK: u32 = 0b1110;
}

/// Bytes of the page with one of them (log page 80h).
pub const NOTICE_BYTES: usize = 64;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Which one it is, from 1 on; a gap says that some were lost.
    pub number: u64,
    /// What happened.
    pub kind: NoticeKind,
    /// As many more wait.
    pub left: u8,
    /// To which namespace.
    pub namespace: u32,
}

impl NoticeKind {
    /// The kind of a number, if it has one.
    #[must_use]
    pub fn parse(number: u8) -> Option<Self> {
        [Self::RegistrationPreempted, Self::ReservationReleased, Self::ReservationPreempted]
            .into_iter()
            .find(|&known| known as u8 == number)
    }
}

impl Notice {
    /// Reads a page; `None` when it has no notice, or one of a kind that does not exist.
    #[must_use]
    pub fn parse(page: &[u8; NOTICE_BYTES]) -> Option<Self> {
        Some(Self {
            number: u64_at(page, 0),
            kind: NoticeKind::parse(page[8])?,
            left: page[9],
            namespace: u32_at(page, 12),
        })
    }

    /// As a page. When there is none it is all zeroes.
    #[must_use]
    pub fn page(&self) -> [u8; NOTICE_BYTES] {
        let mut out = [0; NOTICE_BYTES];
        put(&mut out, 0, &self.number.to_le_bytes());
        out[8] = self.kind as u8;
        out[9] = self.left;
        put(&mut out, 12, &self.namespace.to_le_bytes());
        out
    }
}

/// Whether reading a page removes the notice: the host reads it from its beginning, and does not retain the event.
#[must_use]
pub const fn takes_notice(request: &Request) -> bool {
    request.offset == 0 && !request.retains_event
}

/// Whether a namespace with these capabilities can be reserved so that its holder alone writes.
#[must_use]
pub const fn has_write_exclusive(capabilities: u8) -> bool {
    capabilities & 1 << ReservationType::WriteExclusive as u8 != 0
}

/// Whether reservations of a namespace with these capabilities can outlast a loss of power.
#[must_use]
pub const fn can_persist(capabilities: u8) -> bool {
    capabilities & 1 != 0
}

/// What a namespace says that it can do (Base, Figure 280 "Reservation Capabilities", RESCAP): all types, keys ignored
/// where version 1.3 allows it, and whether reservations can outlast a loss of power.
#[must_use]
pub const fn capabilities(can_persist: bool) -> u8 {
    0b1111_1110 | can_persist as u8
}

#[cfg(test)]
mod tests;
