//! Protocol data units: what a connection consists of (TCP, section 3.6 "PDU Definitions").

use crate::digest::{self, DIGEST_BYTES};
use strake_nvme_wire::bytes::{array_at, put, u16_at, u32_at};
use strake_nvme_wire::command::{CQE_BYTES, Cqe, SQE_BYTES, Sqe};

/// Bytes that every PDU begins with (TCP, Figure 6 "PDU Common Header").
pub const COMMON_BYTES: usize = 8;
/// Bytes of an ICReq and of an ICResp (TCP, section 3.6.2.2 and 3.6.2.3).
pub const IC_BYTES: usize = 128;
/// Bytes of the header of a command capsule: the common header and the command.
pub const CAPSULE_CMD_BYTES: usize = COMMON_BYTES + SQE_BYTES;
/// Bytes of the header of a response capsule.
pub const CAPSULE_RESP_BYTES: usize = COMMON_BYTES + CQE_BYTES;
/// Bytes of the header of an H2CData, C2HData, R2T and of a request to end the connection.
pub const DATA_BYTES: usize = 24;
/// Longest header with its digest.
pub const HEADER_BYTES_MAX: usize = IC_BYTES;
/// Bytes of the offending header that a request to end the connection quotes at most (TCP, section 3.6.2.4).
pub const QUOTED_BYTES_MAX: usize = 128;

/// Kinds of PDUs (TCP, Figure 7 "PDU Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PduKind {
    /// The host asks for a connection.
    IcReq = 0x00,
    /// The controller grants it.
    IcResp = 0x01,
    /// The host ends the connection because of an error.
    H2cTermReq = 0x02,
    /// The controller does.
    C2hTermReq = 0x03,
    /// A command, with data or without.
    CapsuleCmd = 0x04,
    /// A completion.
    CapsuleResp = 0x05,
    /// Data for the controller.
    H2cData = 0x06,
    /// Data for the host.
    C2hData = 0x07,
    /// The controller is ready for data.
    R2t = 0x09,
}

impl PduKind {
    const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            0x00 => Self::IcReq,
            0x01 => Self::IcResp,
            0x02 => Self::H2cTermReq,
            0x03 => Self::C2hTermReq,
            0x04 => Self::CapsuleCmd,
            0x05 => Self::CapsuleResp,
            0x06 => Self::H2cData,
            0x07 => Self::C2hData,
            0x09 => Self::R2t,
            _ => return None,
        })
    }

    /// Bytes of its header, without a digest.
    #[must_use]
    pub const fn header_bytes(self) -> usize {
        match self {
            Self::IcReq | Self::IcResp => IC_BYTES,
            Self::CapsuleCmd => CAPSULE_CMD_BYTES,
            Self::CapsuleResp => CAPSULE_RESP_BYTES,
            Self::H2cTermReq | Self::C2hTermReq | Self::H2cData | Self::C2hData | Self::R2t => {
                DATA_BYTES
            }
        }
    }

    /// Connections are made, and ended in anger, without digests (TCP, section 3.6.2).
    const fn has_header_digest(self) -> bool {
        !matches!(self, Self::IcReq | Self::IcResp | Self::H2cTermReq | Self::C2hTermReq)
    }

    const fn payload(self) -> Payload {
        match self {
            Self::H2cData | Self::C2hData => Payload::Always,
            Self::CapsuleCmd => Payload::Perhaps,
            Self::IcReq | Self::IcResp | Self::CapsuleResp | Self::R2t => Payload::Never,
            Self::H2cTermReq | Self::C2hTermReq => Payload::Quote,
        }
    }
}

/// What follows the header of a kind of PDU.
enum Payload {
    Always,
    Perhaps,
    Never,
    /// The beginning of a PDU, without offset and digest.
    Quote,
}

/// Flags of the common header (TCP, section 3.6.2).
pub mod flag {
    /// A header digest follows the header.
    pub const HDGST: u8 = 1 << 0;
    /// A data digest follows the data.
    pub const DDGST: u8 = 1 << 1;
    /// The last PDU of a transfer.
    pub const LAST: u8 = 1 << 2;
    /// Stands for a successful completion (C2HData).
    pub const SUCCESS: u8 = 1 << 3;
}

/// Why a connection cannot go on (TCP, Figure 21 "Fatal Error Status").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FatalStatus {
    /// A field of a header has a value it must not have.
    InvalidHeader = 0x01,
    /// A PDU that is not expected now.
    Sequence = 0x02,
    /// The header is not what its digest says.
    HeaderDigest = 0x03,
    /// Data outside what was asked for.
    OutOfRange = 0x04,
    /// More data than agreed on.
    LimitExceeded = 0x05,
    /// A parameter that this side does not know.
    Unsupported = 0x06,
}

/// A PDU after which nothing can be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PduError {
    /// What is wrong.
    pub status: FatalStatus,
    /// Where in the header, in bytes.
    pub offset: u32,
}

impl PduError {
    /// An error of a header's field at `offset`.
    #[must_use]
    pub const fn field(offset: u32) -> Self {
        Self { status: FatalStatus::InvalidHeader, offset }
    }

    /// An error of another kind, about the field at `offset`.
    #[must_use]
    pub const fn new(status: FatalStatus, offset: u32) -> Self {
        Self { status, offset }
    }
}

impl std::fmt::Display for PduError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a broken PDU: {:?} at byte {}", self.status, self.offset)
    }
}

impl std::error::Error for PduError {}

/// Whether a digest is used on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Use {
    /// It is not.
    #[default]
    Off,
    /// It is.
    On,
}

impl Use {
    const fn of(flags: u8, flag: u8) -> Self {
        if flags & flag == 0 { Self::Off } else { Self::On }
    }

    /// Bytes of the digest.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Off => 0,
            Self::On => DIGEST_BYTES,
        }
    }

    const fn flag(self, flag: u8) -> u8 {
        match self {
            Self::Off => 0,
            Self::On => flag,
        }
    }
}

/// The digests agreed on for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Digests {
    /// Of headers.
    pub header: Use,
    /// Of data.
    pub data: Use,
}

impl Digests {
    /// Whether no digest is in `others` that is not here.
    #[must_use]
    pub fn include(self, others: Self) -> bool {
        let has = |own, other| other == Use::Off || own == Use::On;
        has(self.header, others.header) && has(self.data, others.data)
    }

    /// As in ICReq and ICResp, and as in the flags of a PDU.
    #[must_use]
    pub const fn of(byte: u8) -> Self {
        Self { header: Use::of(byte, flag::HDGST), data: Use::of(byte, flag::DDGST) }
    }

    /// As in ICReq and ICResp.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self.header.flag(flag::HDGST) | self.data.flag(flag::DDGST)
    }
}

/// What every PDU begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// What it is.
    pub kind: PduKind,
    /// See [`flag`].
    pub flags: u8,
    /// Where the data begins, when there is some.
    pub data_offset: u8,
    /// Bytes of the whole PDU.
    pub bytes: u32,
}

/// How a PDU is cut: header, its digest and padding, data, its digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Bytes of the header without its digest.
    pub header: usize,
    /// Bytes from the beginning to the data, or to the end if there is none; at most 255.
    pub lead: usize,
    /// Bytes of data.
    pub data: u32,
    /// Whether a digest of the header follows it.
    pub header_digest: Use,
    /// Whether a digest of the data follows it.
    pub data_digest: Use,
}

impl Frame {
    /// Whether everything in front of the data is in `bytes`, which the PDU begins. If it is, its digest is checked.
    ///
    /// # Errors
    /// When the header is not what its digest says.
    pub fn header_is_whole(&self, bytes: &[u8]) -> Result<bool, PduError> {
        if bytes.len() < self.lead {
            return Ok(false);
        }
        let said = &bytes[self.header..self.header + self.header_digest.bytes()];
        if self.header_digest == Use::On && said != digest::of(&bytes[..self.header]) {
            return Err(PduError::new(FatalStatus::HeaderDigest, self.header as u32));
        }
        Ok(true)
    }
}

/// What `bytes` begin with, and how it is cut; `None` while too little of it is there.
///
/// # Errors
/// The fatal error status to report to the peer.
pub fn begin(bytes: &[u8], digests: Digests) -> Result<Option<(Common, Frame)>, PduError> {
    let Some(first) = bytes.first_chunk::<COMMON_BYTES>() else { return Ok(None) };
    let common = Common::parse(first)?;
    Ok(Some((common, common.frame(digests)?)))
}

/// The same as soon as everything in front of the data is there, with its digest checked.
///
/// # Errors
/// The fatal error status to report to the peer.
pub fn header(bytes: &[u8], digests: Digests) -> Result<Option<(Common, Frame)>, PduError> {
    let Some((common, frame)) = begin(bytes, digests)? else { return Ok(None) };
    Ok(frame.header_is_whole(bytes)?.then_some((common, frame)))
}

impl Common {
    /// Reads the first bytes of a PDU: its type and its length are possible.
    ///
    /// # Errors
    /// The fatal error status to report to the peer.
    pub fn parse(bytes: &[u8; COMMON_BYTES]) -> Result<Self, PduError> {
        let kind = PduKind::of(bytes[0]).ok_or(PduError::field(0))?;
        if usize::from(bytes[2]) != kind.header_bytes() {
            return Err(PduError::field(2));
        }
        let common = Self { kind, flags: bytes[1], data_offset: bytes[3], bytes: u32_at(bytes, 4) };
        if (common.bytes as usize) < kind.header_bytes() {
            return Err(PduError::field(4));
        }
        Ok(common)
    }

    /// How the PDU is cut on a connection with `digests`. Its length is consistent with what its kind has.
    ///
    /// # Errors
    /// The fatal error status to report to the peer.
    pub fn frame(&self, digests: Digests) -> Result<Frame, PduError> {
        let header = self.kind.header_bytes();
        let total = self.bytes as usize;
        let header_digest =
            self.digest(digests.header, flag::HDGST, self.kind.has_header_digest())?;
        let least = header + header_digest.bytes();
        let none = Frame { header, lead: least, data: 0, header_digest, data_digest: Use::Off };
        match self.kind.payload() {
            Payload::Never | Payload::Perhaps if total == least => {
                self.digest(digests.data, flag::DDGST, false)?;
                Ok(none)
            }
            Payload::Quote if total <= least + QUOTED_BYTES_MAX => {
                Ok(Frame { data: (total - least) as u32, ..none })
            }
            Payload::Never | Payload::Quote => Err(PduError::field(4)),
            Payload::Perhaps | Payload::Always => {
                let data_digest = self.digest(digests.data, flag::DDGST, true)?;
                let lead = usize::from(self.data_offset);
                // TCP, section 3.6.1: padding keeps data aligned; four bytes are the least alignment.
                if lead < least || !lead.is_multiple_of(4) {
                    return Err(PduError::field(3));
                }
                let data = total.checked_sub(lead + data_digest.bytes()).filter(|&data| data > 0);
                let data = data.ok_or(PduError::field(4))? as u32;
                Ok(Frame { header, lead, data, header_digest, data_digest })
            }
        }
    }

    /// Whether a digest is there, which must be so exactly if it was agreed on and there is something to digest.
    fn digest(&self, agreed: Use, flag: u8, applies: bool) -> Result<Use, PduError> {
        let due = if applies { agreed } else { Use::Off };
        if Use::of(self.flags, flag) == due { Ok(due) } else { Err(PduError::field(1)) }
    }

    /// As bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; COMMON_BYTES] {
        let mut out = [0; COMMON_BYTES];
        out[0] = self.kind as u8;
        out[1] = self.flags;
        out[2] = self.kind.header_bytes() as u8;
        out[3] = self.data_offset;
        put(&mut out, 4, &self.bytes.to_le_bytes());
        out
    }
}

/// A header without data behind it, with room for its digest: the sender appends that.
fn bare<const N: usize>(kind: PduKind, digests: Digests) -> [u8; N] {
    let header = digests.header;
    let mut out = [0; N];
    let bytes = (N + header.bytes()) as u32;
    let common = Common { kind, flags: header.flag(flag::HDGST), data_offset: 0, bytes };
    put(&mut out, 0, &common.bytes());
    out
}

/// What both sides say when a connection begins, of the one version that there is: the data alignment that the sender
/// asks for (HPDA, CPDA), in dwords less one, and the digests.
fn agreement(bytes: &[u8; IC_BYTES]) -> Result<(u8, Digests), PduError> {
    if u16_at(bytes, 8) != 0 {
        return Err(PduError::new(FatalStatus::Unsupported, 8));
    }
    if bytes[10] > 31 {
        return Err(PduError::field(10));
    }
    if bytes[11] & !(flag::HDGST | flag::DDGST) != 0 {
        return Err(PduError::field(11));
    }
    Ok((bytes[10], Digests::of(bytes[11])))
}

/// What the host asks for when a connection begins (TCP, section 3.6.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcReq {
    /// Alignment of data for the host, in dwords less one; at most 31.
    pub alignment: u8,
    /// The digests that it requests.
    pub digests: Digests,
    /// Outstanding R2Ts it bears per command, less one.
    pub r2ts_max: u32,
}

impl IcReq {
    /// Reads an ICReq whose common header was looked at.
    ///
    /// # Errors
    /// With what to tell the host.
    pub fn parse(bytes: &[u8; IC_BYTES]) -> Result<Self, PduError> {
        let (alignment, digests) = agreement(bytes)?;
        Ok(Self { alignment, digests, r2ts_max: u32_at(bytes, 12) })
    }

    /// As bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; IC_BYTES] {
        let mut out = bare(PduKind::IcReq, Digests::default());
        out[10] = self.alignment;
        out[11] = self.digests.byte();
        put(&mut out, 12, &self.r2ts_max.to_le_bytes());
        out
    }

    /// Bytes from the beginning of a C2HData to its data, aligned as the host requests.
    #[must_use]
    pub const fn data_offset(&self) -> usize {
        lead(DATA_BYTES, self.digests, self.alignment)
    }
}

/// What the controller grants (TCP, section 3.6.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcResp {
    /// The digests that will be used.
    pub digests: Digests,
    /// Largest data of one H2CData in bytes; a multiple of 4, at least 4096.
    pub data_bytes_max: u32,
}

impl IcResp {
    /// As bytes. The controller has no wish for alignment.
    #[must_use]
    pub fn bytes(&self) -> [u8; IC_BYTES] {
        let mut out = bare(PduKind::IcResp, Digests::default());
        out[11] = self.digests.byte();
        put(&mut out, 12, &self.data_bytes_max.to_le_bytes());
        out
    }

    /// Reads an ICResp whose common header was looked at.
    ///
    /// # Errors
    /// With what to tell the controller.
    pub fn parse(bytes: &[u8; IC_BYTES]) -> Result<Self, PduError> {
        let (_, digests) = agreement(bytes)?;
        let data_bytes_max = u32_at(bytes, 12);
        if data_bytes_max < 4096 || !data_bytes_max.is_multiple_of(4) {
            return Err(PduError::field(12));
        }
        Ok(Self { digests, data_bytes_max })
    }

    /// The alignment of data that the controller requests, in the bytes of an ICResp that was read: in dwords less one.
    #[must_use]
    pub const fn alignment(bytes: &[u8; IC_BYTES]) -> u8 {
        bytes[10]
    }
}

/// Bytes from the beginning of a PDU with a header of `header` bytes to its data, for the alignment that the receiver
/// wants, in dwords less one.
#[must_use]
pub const fn lead(header: usize, digests: Digests, alignment: u8) -> usize {
    (header + digests.header.bytes()).next_multiple_of((alignment as usize + 1) * 4)
}

/// The header of a command capsule, without its digest, with `data` bytes behind it from byte `lead` on.
#[must_use]
pub fn capsule_cmd(sqe: &Sqe, digests: Digests, lead: usize, data: u32) -> [u8; CAPSULE_CMD_BYTES] {
    let mut out = bare(PduKind::CapsuleCmd, digests);
    if data > 0 {
        let bytes = lead as u32 + data + digests.data.bytes() as u32;
        let flags = digests.byte();
        let kind = PduKind::CapsuleCmd;
        put(&mut out, 0, &Common { kind, flags, data_offset: lead as u8, bytes }.bytes());
    }
    put(&mut out, COMMON_BYTES, &sqe.0);
    out
}

/// The completion of a response capsule.
#[must_use]
pub fn completion_of(bytes: &[u8; CAPSULE_RESP_BYTES]) -> Cqe {
    Cqe::parse(&array_at(bytes, COMMON_BYTES))
}

/// Why the other side ends the connection, in its own words: the status and the field that it names.
#[must_use]
pub fn term_req_of(bytes: &[u8; DATA_BYTES]) -> (u16, u32) {
    (u16_at(bytes, 8), u16_at(bytes, 10) as u32 | (u16_at(bytes, 12) as u32) << 16)
}

/// The command of a command capsule.
#[must_use]
pub fn command_of(bytes: &[u8; CAPSULE_CMD_BYTES]) -> Sqe {
    Sqe(array_at(bytes, COMMON_BYTES))
}

/// A completion in its capsule, without the digest.
#[must_use]
pub fn capsule_resp(cqe: &Cqe, digests: Digests) -> [u8; CAPSULE_RESP_BYTES] {
    let mut out = bare(PduKind::CapsuleResp, digests);
    put(&mut out, COMMON_BYTES, &cqe.bytes());
    out
}

/// The header of data in either direction, and of the request for it (TCP, sections 3.6.2.8 to 3.6.2.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The command that it belongs to.
    pub cid: u16,
    /// What the controller calls the transfer; 0 in C2HData.
    pub tag: u16,
    /// Where the data is in that of the command.
    pub offset: u32,
    /// Bytes of data.
    pub length: u32,
}

impl Transfer {
    /// Reads the fields of a header.
    #[must_use]
    pub fn parse(bytes: &[u8; DATA_BYTES]) -> Self {
        Self {
            cid: u16_at(bytes, 8),
            tag: u16_at(bytes, 10),
            offset: u32_at(bytes, 12),
            length: u32_at(bytes, 16),
        }
    }

    fn fill(&self, out: &mut [u8; DATA_BYTES]) {
        put(out, 8, &self.cid.to_le_bytes());
        put(out, 10, &self.tag.to_le_bytes());
        put(out, 12, &self.offset.to_le_bytes());
        put(out, 16, &self.length.to_le_bytes());
    }

    /// A request for data.
    #[must_use]
    pub fn r2t(&self, digests: Digests) -> [u8; DATA_BYTES] {
        let mut out = bare(PduKind::R2t, digests);
        self.fill(&mut out);
        out
    }

    /// The header of a data PDU whose data begins at byte `lead` of it; `flags` besides those of digests.
    #[must_use]
    pub fn data(
        &self,
        kind: PduKind,
        digests: Digests,
        lead: usize,
        flags: u8,
    ) -> [u8; DATA_BYTES] {
        let bytes = lead as u32 + self.length + digests.data.bytes() as u32;
        let common = Common { kind, flags: flags | digests.byte(), data_offset: lead as u8, bytes };
        let mut out = [0; DATA_BYTES];
        put(&mut out, 0, &common.bytes());
        self.fill(&mut out);
        out
    }
}

/// A controller's request to end the connection, which quotes `header` as far as that is allowed. Returns it and its
/// length.
#[must_use]
pub fn c2h_term_req(
    error: PduError,
    header: &[u8],
) -> ([u8; DATA_BYTES + QUOTED_BYTES_MAX], usize) {
    let quoted = &header[..header.len().min(QUOTED_BYTES_MAX)];
    let total = DATA_BYTES + quoted.len();
    let kind = PduKind::C2hTermReq;
    let common = Common { kind, flags: 0, data_offset: 0, bytes: total as u32 };
    let mut out = [0; DATA_BYTES + QUOTED_BYTES_MAX];
    put(&mut out, 0, &common.bytes());
    put(&mut out, 8, &(error.status as u16).to_le_bytes());
    put(&mut out, 10, &error.offset.to_le_bytes());
    put(&mut out, DATA_BYTES, quoted);
    (out, total)
}
