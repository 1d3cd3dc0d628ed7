//! A small NBD client, so that the demo has a real one on any machine.
//!
//! Fixed newstyle negotiation with `NBD_OPT_GO` and simple replies; requests may be pipelined, since sending and
//! receiving are two halves. Source of every constant: the NBD protocol document, `doc/proto.md` of
//! NetworkBlockDevice/nbd, sections "Fixed newstyle negotiation" and "Transmission phase".

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// "NBDMAGIC", which opens every negotiation.
const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT", before every option.
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before every answer to an option.
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// `NBD_FLAG_FIXED_NEWSTYLE | NBD_FLAG_NO_ZEROES`, the same bits on both sides.
const HANDSHAKE_FLAGS: u16 = 0b11;
/// `NBD_OPT_GO`: choose an export and begin.
const OPT_GO: u32 = 7;
/// `NBD_REP_ACK`, `NBD_REP_INFO`; errors have [`REP_ERROR`] set.
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_ERROR: u32 = 1 << 31;
/// `NBD_INFO_EXPORT` and `NBD_INFO_BLOCK_SIZE`.
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;
/// Largest answer to an option that is accepted; the document recommends no more for strings.
const OPTION_REPLY_BYTES_MAX: u32 = 4096 + 64;
/// Before every request and every simple reply.
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// How long the server may stay silent: far longer than any request takes, so that a hang is an error.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// What a request asks for, as numbered by the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `NBD_CMD_READ`
    Read,
    /// `NBD_CMD_WRITE`
    Write,
    /// `NBD_CMD_DISC`
    Disconnect,
    /// `NBD_CMD_FLUSH`
    Flush,
}

impl Verb {
    const fn number(self) -> u16 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Disconnect => 2,
            Self::Flush => 3,
        }
    }
}

/// A request without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub verb: Verb,
    /// Comes back with the reply.
    pub cookie: u64,
    /// Where, in bytes.
    pub offset: u64,
    /// How much, in bytes.
    pub length: u32,
}

/// A reply without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Cookie of the request.
    pub cookie: u64,
    /// 0, or the protocol's error number.
    pub error: u32,
}

/// The half that sends requests.
pub struct Sender(UnixStream);

/// The half that receives replies.
pub struct Receiver(UnixStream);

/// Connects to `export` behind the unix socket at `path`; gives its size in bytes and both halves.
///
/// # Errors
/// When no process listens there, the server refuses the export (with its reason), or what it says is not NBD.
pub fn connect(path: &Path, export: &str) -> io::Result<(u64, Sender, Receiver)> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let size = negotiate(&mut stream, export)?;
    let receiver = stream.try_clone()?;
    Ok((size, Sender(stream), Receiver(receiver)))
}

/// The negotiation over any stream; gives the size of the export.
///
/// # Errors
/// As [`connect`].
pub fn negotiate(stream: &mut (impl Read + Write), export: &str) -> io::Result<u64> {
    expect(u64::from_be_bytes(read(stream)?), INIT_MAGIC, "the server does not speak NBD")?;
    expect(u64::from_be_bytes(read(stream)?), OPTION_MAGIC, "the server speaks oldstyle NBD only")?;
    let flags = u16::from_be_bytes(read(stream)?) & HANDSHAKE_FLAGS;
    expect(flags, HANDSHAKE_FLAGS, "the server does not speak fixed newstyle NBD")?;
    let mut out = Vec::new();
    out.extend(u32::from(HANDSHAKE_FLAGS).to_be_bytes());
    out.extend(go(export)?);
    stream.write_all(&out)?;
    let mut size = None;
    loop {
        match option_reply(stream)? {
            (REP_ACK, _) => break,
            (REP_INFO, data) => size = info_size(&data).or(size),
            (code, data) if code & REP_ERROR != 0 => {
                let why = String::from_utf8_lossy(&data);
                return Err(io::Error::other(format!(
                    "export {export:?} refused ({code:#x}): {why}"
                )));
            }
            (code, _) => return Err(bad(&format!("unknown answer {code} to NBD_OPT_GO"))),
        }
    }
    size.ok_or_else(|| bad("the server did not tell the size of the export"))
}

/// `NBD_OPT_GO` for `export`, asking for block sizes too: a server may refuse clients that do not.
fn go(export: &str) -> io::Result<Vec<u8>> {
    let name = u32::try_from(export.len()).map_err(|_| bad("the name is too long"))?;
    let mut out = Vec::new();
    out.extend(OPTION_MAGIC.to_be_bytes());
    out.extend(OPT_GO.to_be_bytes());
    out.extend((4 + name + 2 + 2).to_be_bytes());
    out.extend(name.to_be_bytes());
    out.extend(export.as_bytes());
    out.extend(1u16.to_be_bytes());
    out.extend(INFO_BLOCK_SIZE.to_be_bytes());
    Ok(out)
}

fn option_reply(stream: &mut impl Read) -> io::Result<(u32, Vec<u8>)> {
    expect(u64::from_be_bytes(read(stream)?), OPTION_REPLY_MAGIC, "not an answer to an option")?;
    expect(u32::from_be_bytes(read(stream)?), OPT_GO, "an answer to another option")?;
    let code = u32::from_be_bytes(read(stream)?);
    let length = u32::from_be_bytes(read(stream)?);
    if length > OPTION_REPLY_BYTES_MAX {
        return Err(bad(&format!("an answer of {length} bytes to an option")));
    }
    let mut data = vec![0; length as usize];
    stream.read_exact(&mut data)?;
    Ok((code, data))
}

/// The size in an `NBD_INFO_EXPORT`; nothing in any other information.
fn info_size(data: &[u8]) -> Option<u64> {
    let (kind, rest) = data.split_first_chunk::<2>()?;
    let (size, _) = rest.split_first_chunk::<8>()?;
    (u16::from_be_bytes(*kind) == INFO_EXPORT).then(|| u64::from_be_bytes(*size))
}

impl Sender {
    /// Sends `request`, with `data` if it is a write.
    ///
    /// # Errors
    /// When the connection is gone, or the server has read nothing for half a minute.
    pub fn send(&mut self, request: Request, data: &[u8]) -> io::Result<()> {
        let mut header = [0; 28];
        header[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        header[6..8].copy_from_slice(&request.verb.number().to_be_bytes());
        header[8..16].copy_from_slice(&request.cookie.to_be_bytes());
        header[16..24].copy_from_slice(&request.offset.to_be_bytes());
        header[24..28].copy_from_slice(&request.length.to_be_bytes());
        self.0.write_all(&header)?;
        self.0.write_all(data)
    }

    /// Says goodbye. Only when nothing is in flight.
    pub fn disconnect(mut self) {
        let goodbye = Request { verb: Verb::Disconnect, cookie: 0, offset: 0, length: 0 };
        // The server may be gone already, which is what is asked for.
        let _ = self.send(goodbye, &[]);
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Receiver {
    /// The next reply; `None` when the server has closed the connection between two replies.
    ///
    /// # Errors
    /// When the connection breaks, stays silent for half a minute, or carries something else.
    pub fn reply(&mut self) -> io::Result<Option<Reply>> {
        let mut first = [0; 1];
        if self.0.read(&mut first)? == 0 {
            return Ok(None);
        }
        let mut rest = [0; 15];
        self.0.read_exact(&mut rest)?;
        let magic = u32::from_be_bytes([first[0], rest[0], rest[1], rest[2]]);
        expect(magic, SIMPLE_REPLY_MAGIC, "not a simple reply")?;
        let error = u32::from_be_bytes([rest[3], rest[4], rest[5], rest[6]]);
        let mut cookie = [0; 8];
        cookie.copy_from_slice(&rest[7..]);
        Ok(Some(Reply { cookie: u64::from_be_bytes(cookie), error }))
    }

    /// The data that follows the reply to a read.
    ///
    /// # Errors
    /// As [`Receiver::reply`].
    pub fn data(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact(into)
    }
}

fn read<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn expect<T: PartialEq>(got: T, wanted: T, otherwise: &str) -> io::Result<()> {
    if got == wanted { Ok(()) } else { Err(bad(otherwise)) }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
