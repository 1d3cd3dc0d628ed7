//! Log pages (Base, section 5.16.1).

use crate::bytes::{put, put_text};
use crate::command::{Sgl, Sqe, admin};
use crate::nqn::FIELD_BYTES;
use crate::status::Status;

/// Identifiers of pages (Base, Figure 206).
pub mod page {
    /// Error information.
    pub const ERRORS: u8 = 0x01;
    /// SMART / health information.
    pub const HEALTH: u8 = 0x02;
    /// Firmware slot information.
    pub const FIRMWARE: u8 = 0x03;
    /// Changed namespaces.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands supported and effects.
    pub const COMMANDS: u8 = 0x05;
    /// Asymmetric namespace access.
    pub const ACCESS: u8 = 0x0c;
    /// Discovery.
    pub const DISCOVERY: u8 = 0x70;
    /// Reservation notification.
    pub const RESERVATION: u8 = 0x80;
}

/// Bytes of an entry of the error log.
pub const ERROR_BYTES: usize = 64;
/// Bytes of the health page.
pub const HEALTH_BYTES: usize = 512;
/// Bytes of the firmware page.
pub const FIRMWARE_BYTES: usize = 512;
/// Bytes of the page of supported commands.
pub const COMMANDS_BYTES: usize = 4096;
/// Bytes of the list of changed namespaces.
pub const CHANGED_BYTES: usize = 4096;
/// Bytes of the header of the ANA page.
pub const ACCESS_BYTES: usize = 16;
/// Bytes of each ANA group descriptor, without namespace IDs.
pub const ACCESS_GROUP_BYTES: usize = 32;
/// Bytes of the header of the discovery page, and of each of its entries.
pub const DISCOVERY_BYTES: usize = 1024;

/// The parameters of Get Log Page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The page identifier.
    pub page: u8,
    /// The offset in bytes.
    pub offset: u64,
    /// The length in bytes, at least four.
    pub length: u64,
    /// Whether the event is retained: the read does not clear it (RAE).
    pub retains_event: bool,
    /// The log specific field (LSP).
    pub specific: u8,
}

impl Request {
    /// Parses dwords 10 to 13.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let dwords = u64::from(sqe.dword(10) >> 16) | u64::from(sqe.dword(11) & 0xffff) << 16;
        Self {
            page: sqe.dword(10) as u8,
            offset: sqe.qword(12),
            length: (dwords + 1) * 4,
            retains_event: sqe.dword(10) & 1 << 15 != 0,
            specific: (sqe.dword(10) >> 8) as u8 & 0x7f,
        }
    }

    /// The command. The length is a multiple of four, and less than 16 GiB.
    #[must_use]
    pub fn command(&self) -> Sqe {
        let dwords = self.length / 4 - 1;
        let retain = u32::from(self.retains_event) << 15;
        let low = (dwords as u32) << 16 | retain | u32::from(self.specific) << 8;
        Sqe::new(admin::GET_LOG_PAGE, 0, Sgl::Transport { length: self.length as u32 })
            .with(10, low | u32::from(self.page))
            .with(11, (dwords >> 16) as u32)
            .with(12, self.offset as u32)
            .with(13, (self.offset >> 32) as u32)
    }
}

/// A failed command (Base, section 5.16.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The number of the failure, from 1 on.
    pub number: u64,
    /// The queue of the command.
    pub queue: u16,
    /// The CID of the command.
    pub cid: u16,
    /// The status.
    pub status: Status,
    /// The first block, if the command has blocks; 0 otherwise.
    pub block: u64,
    /// The namespace ID, if the command has one; 0 otherwise.
    pub namespace: u32,
}

impl Failure {
    /// The entry of the error log.
    #[must_use]
    pub fn bytes(&self) -> [u8; ERROR_BYTES] {
        let mut out = [0; ERROR_BYTES];
        put(&mut out, 0, &self.number.to_le_bytes());
        put(&mut out, 8, &self.queue.to_le_bytes());
        put(&mut out, 10, &self.cid.to_le_bytes());
        put(&mut out, 12, &self.status.word().to_le_bytes());
        // Parameter error location: no specific byte of the command.
        put(&mut out, 14, &u16::MAX.to_le_bytes());
        put(&mut out, 16, &self.block.to_le_bytes());
        put(&mut out, 24, &self.namespace.to_le_bytes());
        // TRTYPE: TCP.
        out[29] = 3;
        out
    }
}

/// Health of a device without wear and with unknown temperature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether all namespaces reject writes.
    pub writes_refused: bool,
    /// Bytes that hosts have read.
    pub read_bytes: u64,
    /// Bytes that hosts have written.
    pub written_bytes: u64,
    /// Read commands of hosts.
    pub reads: u64,
    /// Write commands of hosts.
    pub writes: u64,
    /// Commands that failed with a media error.
    pub media_errors: u64,
    /// Failures that were added to the error log, including those it no longer holds.
    pub failures: u64,
}

impl Health {
    /// The log page (Base, section 5.16.1.3).
    #[must_use]
    pub fn page(&self) -> [u8; HEALTH_BYTES] {
        let mut out = [0; HEALTH_BYTES];
        // Critical warning: the medium is read-only.
        out[0] = u8::from(self.writes_refused) << 3;
        // Available spare, and its threshold.
        out[3] = 100;
        out[4] = 10;
        // Units of a thousand times 512 bytes, rounded up.
        let units = |bytes: u64| bytes.div_ceil(512_000);
        for (at, value) in [
            (32, units(self.read_bytes)),
            (48, units(self.written_bytes)),
            (64, self.reads),
            (80, self.writes),
            (160, self.media_errors),
            (176, self.failures),
        ] {
            put(&mut out, at, &value.to_le_bytes());
        }
        out
    }
}

/// The firmware page (Base, section 5.16.1.4): `revision` is in the only slot.
#[must_use]
pub fn firmware(revision: &str) -> [u8; FIRMWARE_BYTES] {
    let mut out = [0; FIRMWARE_BYTES];
    out[0] = 1;
    put_text(&mut out, (8, 8), revision, b' ');
    out
}

/// The list of changed namespaces (Base, section 5.16.1.5): their IDs in ascending order, at most 1024. If there are
/// more, the list only states that there are too many.
#[must_use]
pub fn changed_namespaces(numbers: impl IntoIterator<Item = u32>) -> [u8; CHANGED_BYTES] {
    let mut out = [0; CHANGED_BYTES];
    for (place, number) in numbers.into_iter().enumerate() {
        if place >= CHANGED_BYTES / 4 {
            out.fill(0);
            put(&mut out, 0, &u32::MAX.to_le_bytes());
            break;
        }
        put(&mut out, place * 4, &number.to_le_bytes());
    }
    out
}

/// The effect of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Does {
    /// The command changes no block.
    Nothing,
    /// The command may change blocks.
    Changes,
}

/// The page of supported commands (Base, section 5.16.1.6, "Commands Supported and Effects"), for admin and for I/O
/// queues.
#[must_use]
pub fn commands(admin: &[u8], io: &[(u8, Does)]) -> [u8; COMMANDS_BYTES] {
    let mut out = [0; COMMANDS_BYTES];
    for &opcode in admin {
        // CSUPP: the command is supported.
        out[usize::from(opcode) * 4] = 1;
    }
    for &(opcode, does) in io {
        // LBCC: logical blocks may change.
        out[1024 + usize::from(opcode) * 4] = match does {
            Does::Nothing => 1,
            Does::Changes => 0b11,
        };
    }
    out
}

/// The ANA state of a group through a controller (Base, section 8.1.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Optimized.
    Optimized = 1,
    /// Non-optimized.
    NonOptimized = 2,
    /// Inaccessible.
    Inaccessible = 3,
    /// Persistent loss.
    Lost = 4,
    /// Change, or an unknown state.
    Changing = 0xf,
}

impl Access {
    /// The state of a code.
    const fn of(code: u8) -> Self {
        match code {
            1 => Self::Optimized,
            2 => Self::NonOptimized,
            3 => Self::Inaccessible,
            4 => Self::Lost,
            _ => Self::Changing,
        }
    }
}

/// A group of namespaces with the same access state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessGroup {
    /// The group ID, from 1 on.
    pub number: u32,
    /// The change count, which increases with each change of the group.
    pub changes: u64,
    /// The access state.
    pub access: Access,
    /// The only namespace of the group.
    pub namespace: u32,
}

/// Whether the ANA page contains namespace IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Names {
    /// The page contains namespace IDs.
    Given,
    /// The page contains only groups (RGO).
    LeftOut,
}

/// The ANA page (Base, section 5.16.1.13, "Asymmetric Namespace Access"), with the change count `changes`.
#[must_use]
pub fn access(changes: u64, groups: &[AccessGroup], names: Names) -> Vec<u8> {
    let mut out = changes.to_le_bytes().to_vec();
    out.extend_from_slice(&(groups.len() as u16).to_le_bytes());
    out.extend_from_slice(&[0; 6]);
    for group in groups {
        let namespaces = u32::from(names == Names::Given);
        out.extend_from_slice(&group.number.to_le_bytes());
        out.extend_from_slice(&namespaces.to_le_bytes());
        out.extend_from_slice(&group.changes.to_le_bytes());
        out.push(group.access as u8);
        out.extend_from_slice(&[0; 15]);
        if names == Names::Given {
            out.extend_from_slice(&group.namespace.to_le_bytes());
        }
    }
    out
}

/// The number of groups in the page (NAGRPD; Base, Figure 231).
#[must_use]
pub fn access_groups_in(page: &[u8]) -> u16 {
    let count = page.get(8..).and_then(|rest| rest.first_chunk());
    count.map_or(0, |count| u16::from_le_bytes(*count))
}

/// The access state of `group` in an ANA page; `None` if the page does not contain the group.
#[must_use]
pub fn access_in(page: &[u8], group: u32) -> Option<Access> {
    let u32_of = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    };
    let groups = page.get(8..)?.first_chunk().map(|count| u16::from_le_bytes(*count))?;
    let mut rest = page.get(ACCESS_BYTES..)?;
    for _ in 0..groups {
        let (number, namespaces, code) = (u32_of(rest, 0)?, u32_of(rest, 4)?, *rest.get(16)?);
        if number == group {
            return Some(Access::of(code & 0xf));
        }
        rest =
            rest.get(ACCESS_GROUP_BYTES.checked_add((namespaces as usize).checked_mul(4)?)?..)?;
    }
    None
}

/// The header of the discovery page (Base, Figure 263).
#[must_use]
pub fn discovery_header(generation: u64, records: u64) -> [u8; DISCOVERY_BYTES] {
    let mut out = [0; DISCOVERY_BYTES];
    put(&mut out, 0, &generation.to_le_bytes());
    put(&mut out, 8, &records.to_le_bytes());
    out
}

/// Address families (Base, Figure 264, ADRFAM).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    Ipv4 = 1,
    /// IPv6.
    Ipv6 = 2,
}

/// The transport address of a subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portal<'a> {
    /// The address family.
    pub family: Family,
    /// The address as text.
    pub address: &'a str,
    /// The TCP port as text.
    pub port: &'a str,
    /// The security requirement.
    pub security: Security,
}

/// Whether a host must use a secure channel (Base, Figure 264, TREQ; TCP, Figure 17, SECTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// No secure channel is supported.
    None,
    /// TLS 1.3 is required.
    Tls,
    /// Not specified.
    NotSpecified,
}

/// An entry of the discovery page (Base, Figure 264; TCP, section 3.1.1): a subsystem that is reached over TCP.
#[must_use]
pub fn discovery_entry(nqn: &str, portal: &Portal<'_>) -> [u8; DISCOVERY_BYTES] {
    let mut out = reached_over_tcp(nqn, portal);
    // SUBTYPE: an NVM subsystem. PORTID: the only port.
    out[2] = 2;
    out[4] = 1;
    out
}

/// An entry of the discovery page that refers to another discovery service (Base, section 3.1.2.3 and Figure 264). Its
/// port does not belong to this subsystem, so PORTID is 0.
#[must_use]
pub fn discovery_referral(nqn: &str, portal: &Portal<'_>) -> [u8; DISCOVERY_BYTES] {
    let mut out = reached_over_tcp(nqn, portal);
    // SUBTYPE: a referral.
    out[2] = 1;
    out
}

/// The common fields of all entries.
fn reached_over_tcp(nqn: &str, portal: &Portal<'_>) -> [u8; DISCOVERY_BYTES] {
    let mut out = [0; DISCOVERY_BYTES];
    out[0] = 3;
    out[1] = portal.family as u8;
    // TREQ, and SECTYPE of TSAS.
    (out[3], out[768]) = match portal.security {
        Security::None => (0b10, 0),
        Security::Tls => (0b01, 2),
        Security::NotSpecified => (0b00, 0),
    };
    // A controller is created for each host that connects; the admin queue has 32 entries.
    put(&mut out, 6, &u16::MAX.to_le_bytes());
    put(&mut out, 8, &32_u16.to_le_bytes());
    put_text(&mut out, (32, 32), portal.port, b' ');
    put_text(&mut out, (256, FIELD_BYTES), nqn, 0);
    put_text(&mut out, (512, FIELD_BYTES), portal.address, b' ');
    out
}
