//! Submission and completion queue entries (Base, sections 3.3.3.1 and 3.3.3.2).

use crate::bytes::{array_at, put, u16_at, u32_at, u64_at};
use crate::status::Status;

/// Bytes of a command.
pub const SQE_BYTES: usize = 64;
/// Bytes of a completion.
pub const CQE_BYTES: usize = 16;

/// Commands of an admin queue (Base, Figure 138).
pub mod admin {
    /// Get Log Page.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Set Features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT: u8 = 0x0c;
    /// Firmware Commit.
    pub const COMMIT: u8 = 0x10;
    /// Firmware Image Download.
    pub const DOWNLOAD: u8 = 0x11;
    /// Keep Alive.
    pub const KEEP_ALIVE: u8 = 0x18;
    /// Format NVM.
    pub const FORMAT: u8 = 0x80;
    /// Sanitize.
    pub const SANITIZE: u8 = 0x84;
}

/// The opcode of all fabrics commands (Base, section 6 "Fabrics Command Set").
pub const FABRICS: u8 = 0x7f;

/// A submission queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sqe(pub [u8; SQE_BYTES]);

impl Sqe {
    /// A command with an SGL descriptor, which every command over fabrics has; the other fields are zero.
    #[must_use]
    pub fn new(opcode: u8, nsid: u32, sgl: Sgl) -> Self {
        let mut bytes = [0; SQE_BYTES];
        bytes[0] = opcode;
        // PSDT: an SGL.
        bytes[1] = 0b01 << 6;
        put(&mut bytes, 4, &nsid.to_le_bytes());
        put(&mut bytes, 24, &sgl.bytes());
        Self(bytes)
    }

    /// Sets the CID.
    #[must_use]
    pub fn named(mut self, cid: u16) -> Self {
        put(&mut self.0, 2, &cid.to_le_bytes());
        self
    }

    /// Sets dword `index`, 10 to 15, to `value`.
    ///
    /// # Panics
    /// Panics with any other index, which is an error of the caller.
    #[must_use]
    pub fn with(mut self, index: usize, value: u32) -> Self {
        assert!((10..16).contains(&index), "dwords 10 to 15 are the command's own");
        put(&mut self.0, index * 4, &value.to_le_bytes());
        self
    }

    /// The opcode.
    #[must_use]
    pub const fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// True if it is one half of a fused operation.
    #[must_use]
    pub const fn is_fused(&self) -> bool {
        !matches!(self.fuse(), Fuse::Alone)
    }

    /// The FUSE field.
    #[must_use]
    pub const fn fuse(&self) -> Fuse {
        match self.0[1] & 0b11 {
            0 => Fuse::Alone,
            1 => Fuse::First,
            2 => Fuse::Second,
            _ => Fuse::Reserved,
        }
    }

    /// True if an SGL describes its data, as fabrics require (Base, section 3.3.3.1, PSDT).
    #[must_use]
    pub const fn has_sgl(&self) -> bool {
        matches!(self.0[1] >> 6, 0b01 | 0b10)
    }

    /// The CID.
    #[must_use]
    pub fn cid(&self) -> u16 {
        u16_at(&self.0, 2)
    }

    /// The namespace ID.
    #[must_use]
    pub fn nsid(&self) -> u32 {
        u32_at(&self.0, 4)
    }

    /// The type of a fabrics command.
    #[must_use]
    pub const fn fabrics_type(&self) -> u8 {
        self.0[4]
    }

    /// The descriptor of its data.
    ///
    /// # Errors
    /// Returns an error if TCP does not support the kind of the descriptor.
    pub fn sgl(&self) -> Result<Sgl, SglError> {
        if self.has_sgl() { Sgl::parse(&array_at(&self.0, 24)) } else { Err(SglError::Kind) }
    }

    /// Dword `index` of the command, 10 to 15.
    ///
    /// # Panics
    /// Panics with any other index, which is an error of the caller.
    #[must_use]
    pub fn dword(&self, index: usize) -> u32 {
        assert!((10..16).contains(&index), "dwords 10 to 15 are the command's own");
        u32_at(&self.0, index * 4)
    }

    /// Dwords `index` and `index + 1` as one number.
    #[must_use]
    pub fn qword(&self, index: usize) -> u64 {
        u64::from(self.dword(index)) | u64::from(self.dword(index + 1)) << 32
    }
}

/// The part of a command in a fused operation, in which two commands are one atomic operation (Base, section 3.3.3.1,
/// FUSE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fuse {
    /// The command is not fused.
    Alone,
    /// The first of two fused commands.
    First,
    /// The second of two fused commands.
    Second,
    /// A reserved value.
    Reserved,
}

/// The location of a command's data (Base, section 4.1.2 "Scatter Gather List"; TCP, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sgl {
    /// In the capsule.
    InCapsule {
        /// The offset in the data of the capsule.
        offset: u64,
        /// The length in bytes.
        length: u32,
    },
    /// In separate PDUs.
    Transport {
        /// The length in bytes.
        length: u32,
    },
}

/// The reason why a descriptor is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SglError {
    /// TCP does not support the kind of the descriptor.
    Kind,
}

/// Data block, by offset (Base, Figures 117 and 118).
const DATA_BLOCK_OFFSET: u8 = 0x01;
/// Transport data block, of the transport's own subtype (TCP, section 2.1).
const TRANSPORT_DATA_BLOCK: u8 = 0x5a;

impl Sgl {
    fn parse(bytes: &[u8; 16]) -> Result<Self, SglError> {
        let length = u32_at(bytes, 8);
        match bytes[15] {
            DATA_BLOCK_OFFSET => Ok(Self::InCapsule { offset: u64_at(bytes, 0), length }),
            TRANSPORT_DATA_BLOCK => Ok(Self::Transport { length }),
            _ => Err(SglError::Kind),
        }
    }

    /// The bytes of the descriptor.
    #[must_use]
    pub fn bytes(&self) -> [u8; 16] {
        let (offset, length, kind) = match *self {
            Self::InCapsule { offset, length } => (offset, length, DATA_BLOCK_OFFSET),
            Self::Transport { length } => (0, length, TRANSPORT_DATA_BLOCK),
        };
        let mut out = [0; 16];
        put(&mut out, 0, &offset.to_le_bytes());
        put(&mut out, 8, &length.to_le_bytes());
        out[15] = kind;
        out
    }

    /// The length in bytes.
    #[must_use]
    pub const fn length(&self) -> u32 {
        match *self {
            Self::InCapsule { length, .. } | Self::Transport { length } => length,
        }
    }
}

/// A completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// The command-specific result.
    pub result: u64,
    /// The SQ head: the number of commands taken from the queue, modulo its size; `FFFFh` without flow control.
    pub head: u16,
    /// The CID.
    pub cid: u16,
    /// The status.
    pub status: Status,
}

impl Cqe {
    /// The bytes of the entry; over fabrics, they have no queue identifier (Base, Figure 91).
    #[must_use]
    pub fn bytes(&self) -> [u8; CQE_BYTES] {
        let mut out = [0; CQE_BYTES];
        put(&mut out, 0, &self.result.to_le_bytes());
        put(&mut out, 8, &self.head.to_le_bytes());
        put(&mut out, 12, &self.cid.to_le_bytes());
        put(&mut out, 14, &self.status.word().to_le_bytes());
        out
    }

    /// Parses the bytes of an entry.
    #[must_use]
    pub fn parse(bytes: &[u8; CQE_BYTES]) -> Self {
        Self {
            result: u64_at(bytes, 0),
            head: u16_at(bytes, 8),
            cid: u16_at(bytes, 12),
            status: Status::of_word(u16_at(bytes, 14)),
        }
    }
}
