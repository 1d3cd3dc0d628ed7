//! Fabrics commands and properties (Base, sections 6 and 3.1.3).

use crate::bytes::{array_at, put, u16_at};
use crate::command::{FABRICS, Sgl, Sqe};
use crate::nqn::FIELD_BYTES;

/// Kinds of fabrics commands (Base, Figure 386).
pub mod kind {
    /// Property Set.
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect.
    pub const CONNECT: u8 = 0x01;
    /// Property Get.
    pub const PROPERTY_GET: u8 = 0x04;
    /// Authentication Send.
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    /// Authentication Receive.
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    /// Disconnect.
    pub const DISCONNECT: u8 = 0x08;
}

/// Bytes of the data of Connect.
pub const CONNECT_DATA_BYTES: usize = 1024;
/// The controller ID in Connect that requests a new controller (Base, section 3.1.2.2 "dynamic controller").
pub const ANY_CONTROLLER: u16 = 0xffff;

/// The Connect command (Base, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Record format of the command; only 0 is defined.
    pub format: u16,
    /// The queue ID: 0 for the admin queue.
    pub queue: u16,
    /// Entries of the queue, less one.
    pub size: u16,
    /// Whether SQ flow control is in use.
    pub flow_control: FlowControl,
    /// The keep-alive timeout in milliseconds; 0 disables it.
    pub keep_alive_ms: u32,
}

/// Whether completions report the SQ head to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowControl {
    /// Completions report the SQ head.
    On,
    /// Completions do not report the SQ head, so success needs no completion.
    Off,
}

impl Connect {
    /// The offset of the size field, for reports of an invalid parameter.
    pub const SIZE_AT: u16 = 44;
    /// The offset of the queue ID.
    pub const QUEUE_AT: u16 = 42;
    /// The offset of the keep-alive timeout.
    pub const KEEP_ALIVE_AT: u16 = 48;

    /// Parses the command; `None` for other commands.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Option<Self> {
        if sqe.opcode() != FABRICS || sqe.fabrics_type() != kind::CONNECT {
            return None;
        }
        let off = sqe.0[46] & 1 << 2 != 0;
        Some(Self {
            format: u16_at(&sqe.0, 40),
            queue: u16_at(&sqe.0, 42),
            size: u16_at(&sqe.0, 44),
            flow_control: if off { FlowControl::Off } else { FlowControl::On },
            keep_alive_ms: sqe.dword(12),
        })
    }
}

impl Connect {
    /// The command, with its data in the capsule.
    #[must_use]
    pub fn command(&self) -> Sqe {
        let sgl = Sgl::InCapsule { offset: 0, length: CONNECT_DATA_BYTES as u32 };
        let mut sqe = fabrics_command(kind::CONNECT, sgl).with(12, self.keep_alive_ms);
        put(&mut sqe.0, 40, &self.format.to_le_bytes());
        put(&mut sqe.0, 42, &self.queue.to_le_bytes());
        put(&mut sqe.0, 44, &self.size.to_le_bytes());
        sqe.0[46] = match self.flow_control {
            FlowControl::On => 0,
            FlowControl::Off => 1 << 2,
        };
        sqe
    }
}

/// Fabrics commands have their type in the first byte of the namespace ID.
fn fabrics_command(kind: u8, sgl: Sgl) -> Sqe {
    Sqe::new(FABRICS, kind.into(), sgl)
}

/// The data of Connect (Base, Figure 392).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// The host identifier.
    pub host_id: [u8; 16],
    /// The controller ID, or [`ANY_CONTROLLER`].
    pub controller: u16,
    /// The field of the subsystem NQN.
    pub subsystem: [u8; FIELD_BYTES],
    /// The field of the host NQN.
    pub host: [u8; FIELD_BYTES],
}

impl ConnectData {
    /// The offset of the host identifier in the data.
    pub const HOST_ID_AT: u16 = 0;
    /// The offset of the controller ID.
    pub const CONTROLLER_AT: u16 = 16;
    /// The offset of the subsystem NQN.
    pub const SUBSYSTEM_AT: u16 = 256;
    /// The offset of the host NQN.
    pub const HOST_AT: u16 = 512;

    /// Parses the data.
    #[must_use]
    pub fn parse(bytes: &[u8; CONNECT_DATA_BYTES]) -> Self {
        Self {
            host_id: array_at(bytes, 0),
            controller: u16_at(bytes, 16),
            subsystem: array_at(bytes, 256),
            host: array_at(bytes, 512),
        }
    }

    /// The bytes of the data.
    #[must_use]
    pub fn bytes(&self) -> [u8; CONNECT_DATA_BYTES] {
        let mut out = [0; CONNECT_DATA_BYTES];
        put(&mut out, 0, &self.host_id);
        put(&mut out, 16, &self.controller.to_le_bytes());
        put(&mut out, 256, &self.subsystem);
        put(&mut out, 512, &self.host);
        out
    }
}

/// The part of Connect with an invalid parameter (Base, Figure 394).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The command itself.
    Command,
    /// The data of the command.
    Data,
}

/// The result of a Connect with an invalid parameter at byte `offset` of `part`.
#[must_use]
pub const fn invalid_parameter(part: Part, offset: u16) -> u64 {
    let in_data = match part {
        Part::Command => 0,
        Part::Data => 1 << 16,
    };
    in_data | offset as u64
}

/// A bit in the result of a successful Connect: the host must authenticate before any other command (Base, Figure 393,
/// AUTHREQ.ATR).
pub const PROOF_REQUIRED: u64 = 1 << 17;

/// A bit in the same result: the host must also establish a secure channel (AUTHREQ.ASCR).
pub const SECURE_CHANNEL_REQUIRED: u64 = 1 << 18;

/// The message length of an Authentication Send, or the buffer size of an Authentication Receive (Base, sections 6.1
/// and 6.2); `None` for a security protocol other than that of NVMe.
#[must_use]
pub fn message_bytes(sqe: &Sqe) -> Option<u32> {
    // SPSP0, SPSP1 and SECP.
    (sqe.dword(10) >> 8 == 0xe9_01_01).then(|| sqe.dword(11))
}

/// An Authentication Send with a message of `length` bytes in its capsule (Base, section 6.2).
#[must_use]
pub fn message_send(length: u32) -> Sqe {
    message(kind::AUTHENTICATION_SEND, Sgl::InCapsule { offset: 0, length }, length)
}

/// An Authentication Receive with a buffer of `length` bytes (Base, section 6.1).
#[must_use]
pub fn message_receive(length: u32) -> Sqe {
    message(kind::AUTHENTICATION_RECEIVE, Sgl::Transport { length }, length)
}

fn message(kind: u8, sgl: Sgl, length: u32) -> Sqe {
    fabrics_command(kind, sgl).with(10, 0xe901_0100).with(11, length)
}

/// Controller properties (Base, Figure 33).
pub mod property {
    /// Capabilities, 8 bytes.
    pub const CAP: u32 = 0x00;
    /// Version, 4 bytes.
    pub const VS: u32 = 0x08;
    /// Configuration, 4 bytes.
    pub const CC: u32 = 0x14;
    /// Status, 4 bytes.
    pub const CSTS: u32 = 0x1c;
}

/// A Property Get or Set (Base, sections 6.5 and 6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// The offset of the property.
    pub offset: u32,
    /// The width in the command.
    pub width: Width,
    /// The new value of a Property Set.
    pub value: u64,
}

/// Width of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// Four bytes.
    Four,
    /// Eight bytes.
    Eight,
}

impl Property {
    /// Parses the command; `None` if the width is reserved.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Option<Self> {
        let width = match sqe.0[40] & 0b111 {
            0 => Width::Four,
            1 => Width::Eight,
            _ => return None,
        };
        Some(Self { offset: sqe.dword(11), width, value: sqe.qword(12) })
    }

    /// The Property Get command.
    #[must_use]
    pub fn get(&self) -> Sqe {
        self.command(kind::PROPERTY_GET)
    }

    /// The Property Set command.
    #[must_use]
    pub fn set(&self) -> Sqe {
        self.command(kind::PROPERTY_SET)
            .with(12, self.value as u32)
            .with(13, (self.value >> 32) as u32)
    }

    fn command(&self, kind: u8) -> Sqe {
        let mut sqe = fabrics_command(kind, Sgl::Transport { length: 0 }).with(11, self.offset);
        sqe.0[40] = match self.width {
            Width::Four => 0,
            Width::Eight => 1,
        };
        sqe
    }
}

/// Controller configuration (Base, section 3.1.3.5), which a host sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Configuration(pub u32);

impl Configuration {
    /// The value with which a host of this version enables a controller, with the assumptions that
    /// [`is_possible`](Self::is_possible) checks.
    pub const ENABLED: Self = Self(1 | 6 << 16 | 4 << 20);
    /// As [`ENABLED`](Self::ENABLED), with a request for a normal shutdown.
    pub const SHUTDOWN: Self = Self(Self::ENABLED.0 | 0b01 << 14);

    /// The host requests that the controller is enabled.
    #[must_use]
    pub const fn is_enabled(self) -> bool {
        self.0 & 1 != 0
    }

    /// The host requests a shutdown.
    #[must_use]
    pub const fn is_shutdown(self) -> bool {
        self.0 >> 14 & 0b11 != 0
    }

    /// Checks the assumptions of the host: the NVM command set, pages of 4 KiB, round robin, entries of 64 and 16
    /// bytes. A discovery controller has no I/O queues, so a host may set their entry sizes to 0.
    #[must_use]
    pub const fn is_possible(self) -> bool {
        let (set, page, arbitration) =
            (self.0 >> 4 & 0b111, self.0 >> 7 & 0xf, self.0 >> 11 & 0b111);
        let (sqe, cqe) = (self.0 >> 16 & 0xf, self.0 >> 20 & 0xf);
        set == 0
            && page == 0
            && arbitration == 0
            && (sqe == 6 || sqe == 0)
            && (cqe == 4 || cqe == 0)
    }
}

/// Controller status (Base, section 3.1.3.6).
pub mod ready {
    /// The controller is ready.
    pub const READY: u32 = 1 << 0;
    /// The controller has failed.
    pub const FATAL: u32 = 1 << 1;
    /// The shutdown is complete.
    pub const SHUT_DOWN: u32 = 0b10 << 2;
}

/// Capabilities (Base, section 3.1.3.1): queues of `entries` entries, physically contiguous as fabrics require; the NVM
/// command set; pages of 4 KiB; ready within `ready_half_seconds` half seconds.
#[must_use]
pub const fn capabilities(entries: u16, ready_half_seconds: u8) -> u64 {
    (entries as u64 - 1) | 1 << 16 | (ready_half_seconds as u64) << 24 | 1 << 37
}

/// The capabilities that a host needs (Base, section 3.1.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Maximum entries of a queue, from 1 to 65536.
    pub entries_max: u32,
    /// The time until the controller is ready, in half seconds.
    pub ready_half_seconds: u8,
}

impl Capabilities {
    /// Parses the property.
    #[must_use]
    pub const fn parse(value: u64) -> Self {
        Self { entries_max: (value & 0xffff) as u32 + 1, ready_half_seconds: (value >> 24) as u8 }
    }
}
