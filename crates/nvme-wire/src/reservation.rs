//! Reservations: access of several hosts to a namespace (Base, sections 7.2 to 7.5 and 8.19).

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

/// The identity of a host: its 128-bit Host Identifier.
pub type HostId = [u8; 16];

/// The reservation types (Base, section 8.19.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReservationType {
    /// The holder writes, every host reads.
    WriteExclusive = 1,
    /// Only the holder reads and writes.
    ExclusiveAccess = 2,
    /// Registrants write, every host reads.
    WriteExclusiveRegistrants = 3,
    /// Only registrants read and write.
    ExclusiveAccessRegistrants = 4,
    /// As [`WriteExclusiveRegistrants`](Self::WriteExclusiveRegistrants), and every registrant is a holder.
    WriteExclusiveAll = 5,
    /// As [`ExclusiveAccessRegistrants`](Self::ExclusiveAccessRegistrants), and every registrant is a holder.
    ExclusiveAccessAll = 6,
}

impl ReservationType {
    /// Every type, in the order of the codes.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrants,
        Self::ExclusiveAccessRegistrants,
        Self::WriteExclusiveAll,
        Self::ExclusiveAccessAll,
    ];

    /// The type of a code, if it is defined.
    #[must_use]
    pub fn parse(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&known| known as u8 == number)
    }

    /// True if every registrant is a holder.
    #[must_use]
    pub const fn is_held_by_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    /// True if registrants have the same access as the holder.
    #[must_use]
    pub const fn favours_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// True if all other hosts may read.
    #[must_use]
    pub const fn lets_others_read(self) -> bool {
        matches!(
            self,
            Self::WriteExclusive | Self::WriteExclusiveRegistrants | Self::WriteExclusiveAll
        )
    }
}

/// Whether the current key is checked against the key in the command (IEKEY).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyCheck {
    /// The key is checked.
    On,
    /// The key is ignored.
    Off,
}

/// The requested change of persistence through power loss (CPTPL).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Persistence {
    /// No change.
    Unchanged,
    /// A power loss clears reservation and registrations.
    Off,
    /// Reservation and registrations persist through a power loss.
    On,
}

/// The acquire action (RACQA).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Acquire {
    /// Acquire, if no other host holds a reservation.
    Free,
    /// Preempt the holder or the registrants with a key.
    Preempt,
    /// Preempt, and abort the commands of the preempted hosts.
    PreemptAndAbort,
}

/// The action of a reservation command; the keys are in its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Register with the new key.
    Register(Persistence),
    /// Unregister.
    Unregister(KeyCheck, Persistence),
    /// Replace the current key by the new one.
    Replace(KeyCheck, Persistence),
    /// Acquire a reservation.
    Acquire(Acquire, ReservationType),
    /// Release a reservation.
    Release(ReservationType),
    /// Clear the reservation and all registrations.
    Clear,
}

/// The IEKEY bit.
const IGNORE_KEY: u32 = 1 << 3;

impl Action {
    /// Parses dword 10 of a command that changes a reservation; `None` for other commands, and for reserved values.
    /// Only Register may ignore the key (Base, sections 7.2 and 7.4, IEKEY).
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

    /// The command for namespace `nsid`, whose data `sgl` describes.
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

    /// Bytes of its data: both keys, or only the first key for a release.
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
    /// The current key of the host (CRKEY).
    pub current: u64,
    /// The new key (NRKEY), or the key of the preempted registrants (PRKEY); unused in a release.
    pub other: u64,
}

impl Keys {
    /// Parses the keys.
    #[must_use]
    pub fn parse(bytes: &[u8; KEYS_BYTES]) -> Self {
        Self { current: u64_at(bytes, 0), other: u64_at(bytes, 8) }
    }

    /// The bytes of the keys.
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
    /// The size of the host's buffer in bytes, at least four.
    pub length: u64,
    /// Whether 128-bit host identifiers are requested (EDS).
    pub is_extended: bool,
}

impl Report {
    /// Parses dwords 10 and 11.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        Self { length: (u64::from(sqe.dword(10)) + 1) * 4, is_extended: sqe.dword(11) & 1 != 0 }
    }

    /// The command for namespace `nsid`. The length is a multiple of four.
    #[must_use]
    pub fn command(&self, nsid: u32) -> Sqe {
        let length = self.length as u32;
        Sqe::new(opcode::REPORT, nsid, Sgl::Transport { length })
            .with(10, (length / 4).saturating_sub(1))
            .with(11, self.is_extended.into())
    }
}

/// Bytes of the header of a report with 128-bit host identifiers, and of each of its registrants.
pub const REPORT_BYTES: usize = 64;

/// The header of a report (Base, section 7.5, extended Reservation Status).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportHead {
    /// The number of registration changes.
    pub generation: u32,
    /// The reservation type.
    pub kind: Option<ReservationType>,
    /// The number of registrants.
    pub registrants: u16,
    /// Whether the state persists through a power loss.
    pub persists: bool,
}

impl ReportHead {
    /// Parses the header.
    #[must_use]
    pub fn parse(bytes: &[u8; REPORT_BYTES]) -> Self {
        Self {
            generation: u32_at(bytes, 0),
            kind: ReservationType::parse(bytes[4]),
            registrants: u16_at(bytes, 5),
            persists: bytes[9] & 1 != 0,
        }
    }

    /// The bytes of the header.
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
    /// The host identifier.
    pub host: HostId,
    /// The reservation key.
    pub key: u64,
    /// Whether it holds the reservation.
    pub holds: bool,
}

impl ReportedRegistrant {
    /// Parses a registrant.
    #[must_use]
    pub fn parse(bytes: &[u8; REPORT_BYTES]) -> Self {
        Self { host: array_at(bytes, 16), key: u64_at(bytes, 8), holds: bytes[2] & 1 != 0 }
    }

    /// The bytes of a registrant. Controllers are dynamic, so CNTLID is FFFFh.
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

/// Notices about the actions of other hosts (Base, section 8.19.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoticeKind {
    /// The registration of the host was preempted.
    RegistrationPreempted = 1,
    /// A reservation that included the host was released, or has changed its type.
    ReservationReleased = 2,
    /// The reservation and the registrations were preempted or cleared.
    ReservationPreempted = 3,
}

impl NoticeKind {
    /// The bit of the notice in the Reservation Notification Mask (Base, section 5.27.1, feature 82h).
    #[must_use]
    pub const fn mask_bit(self) -> u32 {
        1 << self as u8
    }

    /// All bits of that mask.
    pub const MASK: u32 = 0b1110;
}

/// Bytes of the log page with one notice (log page 80h).
pub const NOTICE_BYTES: usize = 64;

/// A notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The number of the notice, from 1 on; a gap means that notices were lost.
    pub number: u64,
    /// The kind.
    pub kind: NoticeKind,
    /// The number of further notices.
    pub left: u8,
    /// The namespace ID.
    pub namespace: u32,
}

impl NoticeKind {
    /// The kind of a code, if it is defined.
    #[must_use]
    pub fn parse(number: u8) -> Option<Self> {
        [Self::RegistrationPreempted, Self::ReservationReleased, Self::ReservationPreempted]
            .into_iter()
            .find(|&known| known as u8 == number)
    }
}

impl Notice {
    /// Parses a page; `None` if it has no notice, or one of an undefined kind.
    #[must_use]
    pub fn parse(page: &[u8; NOTICE_BYTES]) -> Option<Self> {
        Some(Self {
            number: u64_at(page, 0),
            kind: NoticeKind::parse(page[8])?,
            left: page[9],
            namespace: u32_at(page, 12),
        })
    }

    /// The log page. A page without a notice is all zeroes.
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

/// True if the read of a page removes the notice: the read starts at offset 0, and does not retain the event.
#[must_use]
pub const fn takes_notice(request: &Request) -> bool {
    request.offset == 0 && !request.retains_event
}

/// True if a namespace with these capabilities supports Write Exclusive reservations.
#[must_use]
pub const fn has_write_exclusive(capabilities: u8) -> bool {
    capabilities & 1 << ReservationType::WriteExclusive as u8 != 0
}

/// True if reservations of a namespace with these capabilities can persist through a power loss.
#[must_use]
pub const fn can_persist(capabilities: u8) -> bool {
    capabilities & 1 != 0
}

/// The Reservation Capabilities of a namespace (Base, Figure 280, RESCAP): all types, IEKEY as in version 1.3, and
/// persistence through a power loss.
#[must_use]
pub const fn capabilities(can_persist: bool) -> u8 {
    0b1111_1110 | can_persist as u8
}

#[cfg(test)]
mod tests;
