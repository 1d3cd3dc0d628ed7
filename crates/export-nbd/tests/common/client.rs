//! A small NBD client that can also violate the protocol. Every wait has a time limit, so an unresponsive server fails
//! the test instead of blocking it.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use strake_export_nbd::wire::{
    self, CHUNK_HEADER_BYTES, Request, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, option,
    option_reply,
};

/// Maximum wait for the server before the test fails.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Client {
    pub stream: UnixStream,
}

/// One message of the server in the transmission phase, without the data of a simple reply.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    Simple { error: u32, cookie: u64 },
    Chunk { flags: u16, kind: u16, cookie: u64, payload: Vec<u8> },
}

impl Message {
    pub fn cookie(&self) -> u64 {
        match self {
            Self::Simple { cookie, .. } | Self::Chunk { cookie, .. } => *cookie,
        }
    }

    /// The error number in a reply, 0 for success.
    pub fn error(&self) -> u32 {
        match self {
            Self::Simple { error, .. } => *error,
            Self::Chunk { kind: wire::chunk::ERROR, payload, .. } => word(&payload[..4]),
            Self::Chunk { .. } => 0,
        }
    }
}

pub fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}

pub fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

pub fn request(command: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Request {
    Request { flags, command, cookie, offset, length }
}

impl Client {
    /// Connects and reads nothing.
    pub fn dial(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout can be set");
        Self { stream }
    }

    /// Connects and exchanges greetings.
    pub fn hello(path: &Path) -> Self {
        let mut client = Self::dial(path);
        assert_eq!(client.take(wire::GREETING_BYTES), wire::greeting());
        client.put(&3_u32.to_be_bytes());
        client
    }

    /// Connects to an export with simple replies.
    pub fn simple(path: &Path, name: &str) -> Self {
        let mut client = Self::hello(path);
        assert_eq!(client.go(name), Ok(()));
        client
    }

    /// Connects to an export with structured replies and its allocation context.
    pub fn structured(path: &Path, name: &str) -> Self {
        let mut client = Self::hello(path);
        client.option(option::STRUCTURED_REPLY, &[]);
        let query = [string(name), vec![0, 0, 0, 1], string("base:allocation")].concat();
        let replies = client.option(option::SET_META_CONTEXT, &query);
        assert_eq!(replies.len(), 2, "the context and the end");
        assert_eq!(client.go(name), Ok(()));
        client
    }

    pub fn put(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes bytes");
    }

    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("the server sends bytes");
        bytes
    }

    /// True if the server has closed the connection without sending further bytes.
    pub fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    pub fn put_option(&mut self, code: u32, data: &[u8]) {
        let head = wire::OPTION_MAGIC.to_be_bytes();
        let length = (data.len() as u32).to_be_bytes();
        self.put(&[&head[..], &code.to_be_bytes(), &length, data].concat());
    }

    /// Sends an option and returns all replies to it.
    pub fn option(&mut self, code: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.put_option(code, data);
        let mut replies = Vec::new();
        loop {
            let head = self.take(wire::OPTION_REPLY_HEADER_BYTES);
            assert_eq!(head[..8], wire::OPTION_REPLY_MAGIC.to_be_bytes());
            assert_eq!(word(&head[8..12]), code);
            let kind = word(&head[12..16]);
            let data = self.take(word(&head[16..20]) as usize);
            replies.push((kind, data));
            if kind == option_reply::ACK || kind >> 31 == 1 {
                return replies;
            }
        }
    }

    /// Requests an export; the error is the error reply of a refusal.
    pub fn go(&mut self, name: &str) -> Result<(), u32> {
        let data = [string(name), vec![0, 0]].concat();
        match self.option(option::GO, &data).last() {
            Some((option_reply::ACK, _)) => Ok(()),
            Some((kind, _)) => Err(*kind),
            None => Err(0),
        }
    }

    pub fn message(&mut self) -> Message {
        let head = self.take(16);
        let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
        match word(&head[..4]) {
            SIMPLE_REPLY_MAGIC => {
                Message::Simple { error: word(&head[4..8]), cookie: number(&head[8..16]) }
            }
            STRUCTURED_REPLY_MAGIC => {
                let short = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
                let length = word(&self.take(CHUNK_HEADER_BYTES - 16)) as usize;
                let payload = self.take(length);
                Message::Chunk {
                    flags: short(&head[4..6]),
                    kind: short(&head[6..8]),
                    cookie: number(&head[8..16]),
                    payload,
                }
            }
            other => panic!("no reply begins with {other:#x}"),
        }
    }

    /// Sends a request without payload and returns the error number of its only reply.
    pub fn ask(&mut self, request: &Request) -> u32 {
        self.put(&request.bytes());
        let message = self.message();
        assert_eq!(message.cookie(), request.cookie);
        message.error()
    }

    /// Writes and returns the error number.
    pub fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u32 {
        let request = request(wire::command::WRITE, flags, 0xabc, offset, data.len() as u32);
        self.put(&request.bytes());
        self.put(data);
        let message = self.message();
        assert_eq!(message.cookie(), 0xabc);
        message.error()
    }

    /// Reads with simple replies.
    pub fn read_simple(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        match self.ask(&request(wire::command::READ, 0, 0xdef, offset, length)) {
            0 => Ok(self.take(length as usize)),
            error => Err(error),
        }
    }

    /// Reads with structured replies, and returns also the number of chunks.
    pub fn read_chunks(
        &mut self,
        flags: u16,
        offset: u64,
        length: u32,
    ) -> Result<(Vec<u8>, usize), u32> {
        self.put(&request(wire::command::READ, flags, 0x123, offset, length).bytes());
        let mut data = vec![None; length as usize];
        let (mut chunks, mut error) = (0, None);
        loop {
            let Message::Chunk { flags, kind, cookie, payload } = self.message() else {
                panic!("a read is answered with chunks")
            };
            assert_eq!(cookie, 0x123);
            match kind {
                wire::chunk::OFFSET_DATA => {
                    let at = u64::from_be_bytes(payload[..8].try_into().expect("eight bytes"));
                    let at = (at - offset) as usize;
                    for (to, from) in data[at..].iter_mut().zip(&payload[8..]) {
                        assert!(to.replace(*from).is_none(), "a byte was sent twice");
                    }
                    chunks += 1;
                }
                wire::chunk::ERROR => error = Some(word(&payload[..4])),
                wire::chunk::NONE => assert!(payload.is_empty()),
                other => panic!("unexpected chunk {other}"),
            }
            if flags & wire::REPLY_FLAG_DONE != 0 {
                break;
            }
        }
        match error {
            Some(error) => Err(error),
            None => Ok((data.into_iter().map(|b| b.expect("every byte came")).collect(), chunks)),
        }
    }
}
