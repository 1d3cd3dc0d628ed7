//! The bytes of the protocol: constants, and conversions between bytes and values.
//!
//! Numbers and layouts are from "The NBD protocol" (`doc/proto.md` of NetworkBlockDevice/nbd); section names in
//! comments are of that document. Everything is big-endian (section "Conventions"). The functions do not allocate, read
//! a socket or keep state, and they accept arbitrary bytes.

/// First eight bytes a server sends: `NBDMAGIC` (section "Newstyle negotiation").
pub const MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Begins the second half of the greeting and every option: `IHAVEOPT` (section "Newstyle negotiation").
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Begins every option reply (section "Fixed newstyle negotiation").
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins every request (section "Request message").
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins every simple reply (section "Simple reply message").
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Begins every chunk of a structured reply (section "Structured reply chunk message").
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Longest string the protocol allows, in bytes (section "Conventions").
pub const STRING_BYTES_MAX: usize = 4096;
/// Bytes of the server's greeting.
pub const GREETING_BYTES: usize = 18;
/// Bytes of the client flags that answer the greeting.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// Bytes of an option's header.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of an option reply's header.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;
/// Bytes of a request's header.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply's header.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a structured reply chunk's header.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// Reserved zeroes after the answer to `NBD_OPT_EXPORT_NAME` (section "Newstyle negotiation").
pub const EXPORT_NAME_PADDING: usize = 124;

/// Handshake flags of the server (section "Handshake flags").
pub mod handshake_flag {
    /// `NBD_FLAG_FIXED_NEWSTYLE`.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// `NBD_FLAG_NO_ZEROES`.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Handshake flags of the client (section "Client flags").
pub mod client_flag {
    /// `NBD_FLAG_C_FIXED_NEWSTYLE`.
    pub const FIXED_NEWSTYLE: u32 = 1 << 0;
    /// `NBD_FLAG_C_NO_ZEROES`.
    pub const NO_ZEROES: u32 = 1 << 1;
}

/// The capabilities of an export (section "Transmission flags").
pub mod transmission_flag {
    /// `NBD_FLAG_HAS_FLAGS`.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// `NBD_FLAG_READ_ONLY`.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `NBD_FLAG_SEND_FLUSH`.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// `NBD_FLAG_SEND_FUA`.
    pub const SEND_FUA: u16 = 1 << 3;
    /// `NBD_FLAG_SEND_TRIM`.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `NBD_FLAG_SEND_WRITE_ZEROES`.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// `NBD_FLAG_SEND_DF`.
    pub const SEND_DF: u16 = 1 << 7;
    /// `NBD_FLAG_CAN_MULTI_CONN`.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// `NBD_FLAG_SEND_CACHE`.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// `NBD_FLAG_SEND_FAST_ZERO`.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Options a client may ask for (section "Option types").
pub mod option {
    /// `NBD_OPT_EXPORT_NAME`.
    pub const EXPORT_NAME: u32 = 1;
    /// `NBD_OPT_ABORT`.
    pub const ABORT: u32 = 2;
    /// `NBD_OPT_LIST`.
    pub const LIST: u32 = 3;
    /// `NBD_OPT_STARTTLS`.
    pub const STARTTLS: u32 = 5;
    /// `NBD_OPT_INFO`.
    pub const INFO: u32 = 6;
    /// `NBD_OPT_GO`.
    pub const GO: u32 = 7;
    /// `NBD_OPT_STRUCTURED_REPLY`.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// `NBD_OPT_LIST_META_CONTEXT`.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// `NBD_OPT_SET_META_CONTEXT`.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Answers to options (section "Option reply types").
pub mod option_reply {
    /// `NBD_REP_ACK`.
    pub const ACK: u32 = 1;
    /// `NBD_REP_SERVER`.
    pub const SERVER: u32 = 2;
    /// `NBD_REP_INFO`.
    pub const INFO: u32 = 3;
    /// `NBD_REP_META_CONTEXT`.
    pub const META_CONTEXT: u32 = 4;
    /// `NBD_REP_ERR_UNSUP`.
    pub const ERR_UNSUP: u32 = (1 << 31) + 1;
    /// `NBD_REP_ERR_POLICY`.
    pub const ERR_POLICY: u32 = (1 << 31) + 2;
    /// `NBD_REP_ERR_INVALID`.
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    /// `NBD_REP_ERR_UNKNOWN`.
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
    /// `NBD_REP_ERR_SHUTDOWN`.
    pub const ERR_SHUTDOWN: u32 = (1 << 31) + 7;
    /// `NBD_REP_ERR_TOO_BIG`.
    pub const ERR_TOO_BIG: u32 = (1 << 31) + 9;
}

/// Kinds of information about an export (section "Option reply types", `NBD_REP_INFO`).
pub mod info {
    /// `NBD_INFO_EXPORT`.
    pub const EXPORT: u16 = 0;
    /// `NBD_INFO_NAME`.
    pub const NAME: u16 = 1;
    /// `NBD_INFO_DESCRIPTION`.
    pub const DESCRIPTION: u16 = 2;
    /// `NBD_INFO_BLOCK_SIZE`.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Commands (section "Request types").
pub mod command {
    /// `NBD_CMD_READ`.
    pub const READ: u16 = 0;
    /// `NBD_CMD_WRITE`.
    pub const WRITE: u16 = 1;
    /// `NBD_CMD_DISC`.
    pub const DISC: u16 = 2;
    /// `NBD_CMD_FLUSH`.
    pub const FLUSH: u16 = 3;
    /// `NBD_CMD_TRIM`.
    pub const TRIM: u16 = 4;
    /// `NBD_CMD_CACHE`.
    pub const CACHE: u16 = 5;
    /// `NBD_CMD_WRITE_ZEROES`.
    pub const WRITE_ZEROES: u16 = 6;
    /// `NBD_CMD_BLOCK_STATUS`.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands (section "Command flags").
pub mod command_flag {
    /// `NBD_CMD_FLAG_FUA`.
    pub const FUA: u16 = 1 << 0;
    /// `NBD_CMD_FLAG_NO_HOLE`.
    pub const NO_HOLE: u16 = 1 << 1;
    /// `NBD_CMD_FLAG_DF`.
    pub const DF: u16 = 1 << 2;
    /// `NBD_CMD_FLAG_REQ_ONE`.
    pub const REQ_ONE: u16 = 1 << 3;
    /// `NBD_CMD_FLAG_FAST_ZERO`.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Chunks of a structured reply (section "Structured reply types").
pub mod chunk {
    /// `NBD_REPLY_TYPE_NONE`.
    pub const NONE: u16 = 0;
    /// `NBD_REPLY_TYPE_OFFSET_DATA`.
    pub const OFFSET_DATA: u16 = 1;
    /// `NBD_REPLY_TYPE_BLOCK_STATUS`.
    pub const BLOCK_STATUS: u16 = 5;
    /// `NBD_REPLY_TYPE_ERROR`.
    pub const ERROR: u16 = (1 << 15) + 1;
}

/// The flag of a reply's last chunk, `NBD_REPLY_FLAG_DONE` (section "Structured reply flags").
pub const REPLY_FLAG_DONE: u16 = 1 << 0;

/// The metadata context for allocation, and the states it reports (section "`base:allocation` metadata context").
pub mod allocation {
    /// Its name.
    pub const NAME: &str = "base:allocation";
    /// The wildcard that lists it.
    pub const WILDCARD: &str = "base:";
    /// The identifier that this server assigns to it. Any number is possible.
    pub const CONTEXT: u32 = 1;
    /// `NBD_STATE_HOLE`.
    pub const HOLE: u32 = 1 << 0;
    /// `NBD_STATE_ZERO`.
    pub const ZERO: u32 = 1 << 1;
    /// Bytes of one descriptor in a status chunk.
    pub const DESCRIPTOR_BYTES: usize = 8;
    /// Bytes of a status chunk before its first descriptor.
    pub const PREFIX_BYTES: usize = 4;
}

/// Error numbers a reply may carry (section "Error values").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Code {
    /// `NBD_EPERM`.
    Perm = 1,
    /// `NBD_EIO`.
    Io = 5,
    /// `NBD_EINVAL`.
    Invalid = 22,
    /// `NBD_ENOSPC`.
    NoSpace = 28,
    /// `NBD_EOVERFLOW`.
    Overflow = 75,
    /// `NBD_ENOTSUP`.
    NotSupported = 95,
    /// `NBD_ESHUTDOWN`.
    Shutdown = 108,
}

/// One received request, of which only the magic number was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Command flags.
    pub flags: u16,
    /// Command.
    pub command: u16,
    /// The identifier of the request from the client, returned unchanged.
    pub cookie: u64,
    /// First byte on the export.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

impl Request {
    /// Reads a request header; `None` if it does not start with the magic number. The stream has then lost its framing
    /// and can no longer be used.
    #[must_use]
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let mut take = Cursor::new(bytes);
        if take.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Self {
            flags: take.u16()?,
            command: take.u16()?,
            cookie: take.u64()?,
            offset: take.u64()?,
            length: take.u32()?,
        })
    }

    /// The bytes of the request, as a client sends them.
    #[must_use]
    pub fn bytes(&self) -> [u8; REQUEST_BYTES] {
        let mut out = [0; REQUEST_BYTES];
        let mut put = Filler::new(&mut out);
        put.u32(REQUEST_MAGIC);
        put.u16(self.flags);
        put.u16(self.command);
        put.u64(self.cookie);
        put.u64(self.offset);
        put.u32(self.length);
        out
    }
}

/// The header of an option (section "Newstyle negotiation").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// Which option.
    pub option: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl OptionHeader {
    /// Reads an option header; `None` when it does not begin with the magic number.
    #[must_use]
    pub fn parse(bytes: &[u8; OPTION_HEADER_BYTES]) -> Option<Self> {
        let mut take = Cursor::new(bytes);
        if take.u64()? != OPTION_MAGIC {
            return None;
        }
        Some(Self { option: take.u32()?, length: take.u32()? })
    }
}

/// The server's greeting, with the two handshake flags this server has.
#[must_use]
pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut out = [0; GREETING_BYTES];
    let mut put = Filler::new(&mut out);
    put.u64(MAGIC);
    put.u64(OPTION_MAGIC);
    put.u16(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
    out
}

/// The header of an option reply with `length` bytes of data.
#[must_use]
pub fn option_reply_header(
    option: u32,
    reply: u32,
    length: usize,
) -> [u8; OPTION_REPLY_HEADER_BYTES] {
    let mut out = [0; OPTION_REPLY_HEADER_BYTES];
    let mut put = Filler::new(&mut out);
    put.u64(OPTION_REPLY_MAGIC);
    put.u32(option);
    put.u32(reply);
    put.u32(u32::try_from(length).expect("replies to options are far below 4 GiB"));
    out
}

/// A simple reply without its data; `None` is success.
#[must_use]
pub fn simple_reply(cookie: u64, error: Option<Code>) -> [u8; SIMPLE_REPLY_BYTES] {
    let mut out = [0; SIMPLE_REPLY_BYTES];
    let mut put = Filler::new(&mut out);
    put.u32(SIMPLE_REPLY_MAGIC);
    put.u32(error.map_or(0, |code| code as u32));
    put.u64(cookie);
    out
}

/// The header of a chunk of a structured reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// [`REPLY_FLAG_DONE`] or nothing.
    pub flags: u16,
    /// One of [`chunk`].
    pub kind: u16,
    /// The request's cookie.
    pub cookie: u64,
    /// Bytes of payload that follow.
    pub length: u32,
}

impl ChunkHeader {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut out = [0; CHUNK_HEADER_BYTES];
        let mut put = Filler::new(&mut out);
        put.u32(STRUCTURED_REPLY_MAGIC);
        put.u16(self.flags);
        put.u16(self.kind);
        put.u64(self.cookie);
        put.u32(self.length);
        out
    }
}

/// One descriptor of a status chunk.
#[must_use]
pub fn status_descriptor(bytes: u32, state: u32) -> [u8; allocation::DESCRIPTOR_BYTES] {
    let mut out = [0; allocation::DESCRIPTOR_BYTES];
    let mut put = Filler::new(&mut out);
    put.u32(bytes);
    put.u32(state);
    out
}

/// Reads big-endian values from the front of a slice; `None` if too few bytes remain.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// A cursor over `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// The next 16 bits.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a string with a preceding 32-bit length: UTF-8 without NUL of at most [`STRING_BYTES_MAX`] bytes (section
    /// "Conventions"), or `None`. A length beyond the data is refused before the string is read.
    pub fn string(&mut self) -> Option<&'a str> {
        let length = self.u32()? as usize;
        text(self.bytes(length)?)
    }

    /// True if no bytes remain.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// `bytes` as a protocol string, or `None` when it is not one (section "Conventions").
#[must_use]
pub fn text(bytes: &[u8]) -> Option<&str> {
    if bytes.len() > STRING_BYTES_MAX || bytes.contains(&0) {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

/// Writes big-endian values one after another into a slice that is long enough by construction.
pub(crate) struct Filler<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Filler<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0 }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }

    pub(crate) const fn len(&self) -> usize {
        self.at
    }
}

#[cfg(test)]
mod tests;
