//! Log pages (Base, section 5.16.1).

use crate::bytes::{put, put_text};
use crate::command::{Sgl, Sqe, admin};
use crate::nqn::FIELD_BYTES;
use crate::status::Status;

/// Identifiers of pages (Base, Figure 206).
pub mod page {
    /// What went wrong.
    pub const ERRORS: u8 = 0x01;
    /// How the medium is.
    pub const HEALTH: u8 = 0x02;
    /// What firmware there is.
    pub const FIRMWARE: u8 = 0x03;
    /// Namespaces that changed.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Which commands there are.
    pub const COMMANDS: u8 = 0x05;
    /// How namespaces can be reached.
    pub const ACCESS: u8 = 0x0c;
    /// Subsystems.
    pub const DISCOVERY: u8 = 0x70;
    /// What others did to reservations.
    pub const RESERVATION: u8 = 0x80;
}

/// Bytes of an entry of the error log.
pub const ERROR_BYTES: usize = 64;
/// Bytes of the health page.
pub const HEALTH_BYTES: usize = 512;
/// Bytes of the firmware page.
pub const FIRMWARE_BYTES: usize = 512;
/// Bytes of the page about commands.
pub const COMMANDS_BYTES: usize = 4096;
/// Bytes of the list of changed namespaces.
pub const CHANGED_BYTES: usize = 4096;
/// Bytes of the header of the page about access.
pub const ACCESS_BYTES: usize = 16;
/// Bytes of each of its groups, without the namespaces in it.
pub const ACCESS_GROUP_BYTES: usize = 32;
/// Bytes of the header of the discovery page, and of each of its entries.
pub const DISCOVERY_BYTES: usize = 1024;

/// What Get Log Page asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which page.
    pub page: u8,
    /// From which byte on.
    pub offset: u64,
    /// How many bytes, at least four.
    pub length: u64,
    /// The event is retained: reading does not clear it (RAE).
    pub retains_event: bool,
    /// What it says to the page (LSP).
    pub specific: u8,
}

impl Request {
    /// Reads dwords 10 to 13.
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

    /// As a command. Over the wire the length is a multiple of four, and less than 16 GiB.
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

/// A command that failed (Base, section 5.16.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which failure it is, from 1 on.
    pub number: u64,
    /// The queue of the command.
    pub queue: u16,
    /// The host's name for it.
    pub cid: u16,
    /// The result.
    pub status: Status,
    /// Its first block, if it has blocks; 0 otherwise.
    pub block: u64,
    /// Its namespace, if it has one; 0 otherwise.
    pub namespace: u32,
}

impl Failure {
    /// As an entry of the error log.
    #[must_use]
    pub fn bytes(&self) -> [u8; ERROR_BYTES] {
        let mut out = [0; ERROR_BYTES];
        put(&mut out, 0, &self.number.to_le_bytes());
        put(&mut out, 8, &self.queue.to_le_bytes());
        put(&mut out, 10, &self.cid.to_le_bytes());
        put(&mut out, 12, &self.status.word().to_le_bytes());
        // No byte of the command is to blame for certain.
        put(&mut out, 14, &u16::MAX.to_le_bytes());
        put(&mut out, 16, &self.block.to_le_bytes());
        put(&mut out, 24, &self.namespace.to_le_bytes());
        // TRTYPE: TCP.
        out[29] = 3;
        out
    }
}

/// What there is to say of the health of something that has no wear, and whose temperature is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether writes are refused everywhere.
    pub writes_refused: bool,
    /// Bytes that hosts have read.
    pub read_bytes: u64,
    /// Bytes that hosts have written.
    pub written_bytes: u64,
    /// Commands with which they did.
    pub reads: u64,
    /// As before, for writes.
    pub writes: u64,
    /// Commands that failed on the medium.
    pub media_errors: u64,
    /// Failures that the error log had, including those it no longer holds.
    pub failures: u64,
}

impl Health {
    /// As a page (Base, section 5.16.1.3).
    #[must_use]
    pub fn page(&self) -> [u8; HEALTH_BYTES] {
        let mut out = [0; HEALTH_BYTES];
        // Critical warning: the medium is read-only.
        out[0] = u8::from(self.writes_refused) << 3;
        // All spare is there, and the threshold below which it would not be enough.
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

/// The list of changed namespaces (Base, section 5.16.1.5): their numbers in ascending order, of which there is room
/// for 1024. Of more it says only that there are too many.
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

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Does {
    /// It leaves blocks as they are.
    Nothing,
    /// It may change their content.
    Changes,
}

/// The page about commands (Base, section 5.16.1.6, "Commands Supported and Effects"): those of admin and of I/O queues
/// that there are.
#[must_use]
pub fn commands(admin: &[u8], io: &[(u8, Does)]) -> [u8; COMMANDS_BYTES] {
    let mut out = [0; COMMANDS_BYTES];
    for &opcode in admin {
        // CSUPP: it is there.
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

/// How the namespaces of a group can be reached through a controller (Base, section 8.1.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// As well as can be.
    Optimized = 1,
    /// In a roundabout way.
    NonOptimized = 2,
    /// Not, for now.
    Inaccessible = 3,
    /// No longer.
    Lost = 4,
    /// Not while that changes, or in a way that is not known.
    Changing = 0xf,
}

impl Access {
    /// The way that a code stands for.
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

/// A group of namespaces that are reached in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessGroup {
    /// Its number, from 1 on.
    pub number: u32,
    /// Grows with each change of it.
    pub changes: u64,
    /// How it is reached.
    pub access: Access,
    /// The only namespace in it.
    pub namespace: u32,
}

/// Whether the page about access names namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Names {
    /// It does.
    Given,
    /// It names groups only (RGO).
    LeftOut,
}

/// The page about access to namespaces (Base, section 5.16.1.13, "Asymmetric Namespace Access"), which has changed as
/// often as `changes` says.
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

/// The groups of which the page tells (NAGRPD; Base, Figure 231).
#[must_use]
pub fn access_groups_in(page: &[u8]) -> u16 {
    let count = page.get(8..).and_then(|rest| rest.first_chunk());
    count.map_or(0, |count| u16::from_le_bytes(*count))
}

/// How the namespaces of `group` are reached, as a page about access says; `None` when it says nothing of that group.
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

/// The beginning of the discovery page (Base, Figure 263).
#[must_use]
pub fn discovery_header(generation: u64, records: u64) -> [u8; DISCOVERY_BYTES] {
    let mut out = [0; DISCOVERY_BYTES];
    put(&mut out, 0, &generation.to_le_bytes());
    put(&mut out, 8, &records.to_le_bytes());
    out
}

/// Families of addresses (Base, Figure 264, ADRFAM).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    Ipv4 = 1,
    /// IPv6.
    Ipv6 = 2,
}

/// Where a subsystem is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portal<'a> {
    /// What kind of address it is.
    pub family: Family,
    /// The address as text.
    pub address: &'a str,
    /// The TCP port as text.
    pub port: &'a str,
    /// What a host has to use there.
    pub security: Security,
}

/// Whether a host has to use a secure channel (Base, Figure 264, TREQ; TCP, Figure 17, SECTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// None is there.
    None,
    /// TLS 1.3, and nothing without it.
    Tls,
    /// It has to ask there.
    NotSpecified,
}

/// An entry of the discovery page (Base, Figure 264; TCP, section 3.1.1): a subsystem that can be reached over TCP.
#[must_use]
pub fn discovery_entry(nqn: &str, portal: &Portal<'_>) -> [u8; DISCOVERY_BYTES] {
    let mut out = reached_over_tcp(nqn, portal);
    // SUBTYPE: with namespaces. PORTID: the only one.
    out[2] = 2;
    out[4] = 1;
    out
}

/// An entry of the discovery page that refers to another discovery service (Base, section 3.1.2.3 and Figure 264). Its
/// port is none of ours, so PORTID is 0.
#[must_use]
pub fn discovery_referral(nqn: &str, portal: &Portal<'_>) -> [u8; DISCOVERY_BYTES] {
    let mut out = reached_over_tcp(nqn, portal);
    // SUBTYPE: a referral.
    out[2] = 1;
    out
}

/// What all entries have in common.
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
