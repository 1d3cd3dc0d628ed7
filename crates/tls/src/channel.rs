//! Data of a connection after the handshake: into records and out of them, in buffers that are there from the beginning
//! (RFC 8446, sections 4.6 and 5).
//!
//! ```text
//! socket -> input: [data handed out | data | whole records | part of one | free]
//! output: [records sent | records to be sent | free] -> socket
//! ```

use crate::error::{Alert, TlsError};
use crate::hello::kind;
use crate::limits::{
    BLOCKS_PER_KEY_MAX, DATA_BYTES_MAX, HEADER_BYTES, IDLE_RECORDS_MAX, INPUT_BYTES,
    OVERHEAD_BYTES, RECORDS_PER_SEND,
};
use crate::record::{Half, Header, content};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

/// Which side of the connection we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// That which connected.
    Client,
    /// That which was connected to.
    Server,
}

/// Why nothing was received or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure<E> {
    /// The connection said so.
    Socket(E),
    /// TLS did.
    Tls(TlsError),
}

impl<E> From<TlsError> for Failure<E> {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

/// Whether something may still come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// The other side has said that it sends nothing further.
    Ended,
    /// It did what it must not, or was cut off.
    Failed(TlsError),
}

/// A record that was sealed: where it ends in the output, and its data.
#[derive(Clone, Copy, Default)]
struct Sealed {
    end: usize,
    data: usize,
}

const OUTPUT_BYTES: usize = RECORDS_PER_SEND * (DATA_BYTES_MAX + OVERHEAD_BYTES) + 64;
/// A KeyUpdate: its type, its length, and that none is asked for in return (RFC 8446, section 4.6.3).
const KEY_UPDATE: [u8; 5] = [kind::KEY_UPDATE, 0, 0, 1, 0];

/// Both directions of a connection.
pub struct Channel {
    side: Side,
    reader: Half,
    writer: Half,
    input: Box<[u8]>,
    /// Data in the input that was not handed out.
    data: Range<usize>,
    /// Bytes in the input that were not looked at; behind the data.
    unread: Range<usize>,
    /// Records without data, one behind another.
    idle: u32,
    life: Life,
    output: Box<[u8]>,
    /// Bytes in the output that were not sent.
    unsent: Range<usize>,
    sealed: [Sealed; RECORDS_PER_SEND + 1],
    records: usize,
    /// Records of them whose data counts as sent.
    counted: usize,
    /// Other keys are wanted for what is sent.
    owes_update: bool,
}

/// How far data has been put into slices.
#[derive(Default)]
struct Cursor {
    slice: usize,
    at: usize,
}

impl Channel {
    /// A channel for which the keys are there; `rest` came behind the handshake.
    pub(crate) fn new(side: Side, reader: Half, writer: Half, rest: &[u8]) -> Self {
        let mut input = vec![0; INPUT_BYTES.max(rest.len())].into_boxed_slice();
        input[..rest.len()].copy_from_slice(rest);
        Self {
            side,
            reader,
            writer,
            input,
            data: 0..0,
            unread: 0..rest.len(),
            idle: 0,
            life: Life::Open,
            output: vec![0; OUTPUT_BYTES].into_boxed_slice(),
            unsent: 0..0,
            sealed: [Sealed::default(); RECORDS_PER_SEND + 1],
            records: 0,
            counted: 0,
            owes_update: false,
        }
    }

    /// Has what is sent from here on go with other keys, sooner than their bound demands.
    pub const fn change_keys(&mut self) {
        self.owes_update = true;
    }

    /// Receives into slices until they are full or `receive`, which gets the room for what comes, has nothing more.
    /// Returns how many bytes there are, zero when the other side has ended its part.
    ///
    /// # Errors
    /// Those of `receive`, and of TLS, after which there is nothing more.
    pub fn receive<E>(
        &mut self,
        into: &mut [IoSliceMut<'_>],
        mut receive: impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, Failure<E>> {
        let (mut count, mut cursor) = (0, Cursor::default());
        loop {
            count += self.hand_out(into, &mut cursor);
            if cursor.slice == into.len() {
                return Ok(count);
            }
            match self.life {
                Life::Ended => return Ok(count),
                Life::Failed(error) if count == 0 => return Err(error.into()),
                Life::Failed(_) => return Ok(count),
                Life::Open => {}
            }
            match self.open_next() {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    self.life = Life::Failed(error);
                    continue;
                }
            }
            match receive(self.room()) {
                Ok(0) => self.life = Life::Failed(TlsError::Truncated),
                Ok(bytes) => self.unread.end += bytes,
                Err(_) if count > 0 => return Ok(count),
                Err(error) => return Err(Failure::Socket(error)),
            }
        }
    }

    /// Copies data to where it is wanted.
    fn hand_out(&mut self, into: &mut [IoSliceMut<'_>], cursor: &mut Cursor) -> usize {
        let mut count = 0;
        while let Some(slice) = into.get_mut(cursor.slice) {
            let room = &mut slice[cursor.at..];
            let fits = room.len().min(self.data.len());
            room[..fits].copy_from_slice(&self.input[self.data.start..self.data.start + fits]);
            self.data.start += fits;
            count += fits;
            cursor.at += fits;
            if cursor.at < slice.len() {
                break;
            }
            *cursor = Cursor { slice: cursor.slice + 1, at: 0 };
        }
        count
    }

    /// The free part of the input; a record that is not all there is moved to the beginning, and finds room.
    fn room(&mut self) -> &mut [u8] {
        if self.unread.start > 0 {
            self.input.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        &mut self.input[self.unread.end..]
    }

    /// Opens the next record, of which all data was handed out before; false when it is not all there.
    fn open_next(&mut self) -> Result<bool, TlsError> {
        let Some(header) = Header::read(&self.input[self.unread.clone()])? else {
            return Ok(false);
        };
        let start = self.unread.start;
        let end = start + HEADER_BYTES + header.body;
        if end > self.unread.end {
            return Ok(false);
        }
        if header.kind != content::DATA {
            return Err(TlsError::Breach(Alert::UnexpectedMessage));
        }
        let (kind, inside) = self.reader.open(&mut self.input[start..end])?;
        self.unread.start = end;
        let inside = start + inside.start..start + inside.end;
        if kind == content::DATA && !inside.is_empty() {
            self.idle = 0;
            self.data = inside;
            return Ok(true);
        }
        self.idle += 1;
        if self.idle > IDLE_RECORDS_MAX {
            return Err(TlsError::Breach(Alert::UnexpectedMessage));
        }
        self.take_note(kind, inside)?;
        Ok(true)
    }

    /// Looks at a record that is not data.
    fn take_note(&mut self, kind: u8, inside: Range<usize>) -> Result<(), TlsError> {
        let body = &self.input[inside.clone()];
        match (kind, body) {
            (content::DATA, _) => Ok(()),
            (content::ALERT, [_, 0]) => {
                self.life = Life::Ended;
                Ok(())
            }
            (content::ALERT, [_, number]) => Err(TlsError::Told(*number)),
            (content::HANDSHAKE, [_, ..]) => self.take_messages(inside),
            _ => Err(TlsError::Breach(Alert::UnexpectedMessage)),
        }
    }

    /// Messages after the handshake, whole ones: what needs several records has no place here.
    fn take_messages(&mut self, mut inside: Range<usize>) -> Result<(), TlsError> {
        let unexpected = TlsError::Breach(Alert::UnexpectedMessage);
        while !inside.is_empty() {
            let body = &self.input[inside.clone()];
            let &[message, 0, high, low, ref rest @ ..] = body else { return Err(unexpected) };
            let length = usize::from(u16::from_be_bytes([high, low]));
            match (message, rest.get(..length).ok_or(unexpected)?) {
                // What a client could come back with; it comes back with its key.
                (kind::NEW_SESSION_TICKET, _) if self.side == Side::Client => {}
                (kind::KEY_UPDATE, [wanted @ 0..=1]) if rest.len() == 1 => {
                    self.owes_update |= *wanted == 1;
                    self.reader.update()?;
                }
                (kind::KEY_UPDATE, [2..=u8::MAX]) => {
                    return Err(TlsError::Breach(Alert::IllegalParameter));
                }
                _ => return Err(unexpected),
            }
            inside.start += 4 + length;
        }
        Ok(())
    }

    /// Sends bytes of `parts` by `send`, and returns how many went out in whole records. Whoever gets fewer than it has
    /// comes back with the same bytes from there on: some may be sealed already, whatever is in `parts` then.
    ///
    /// # Errors
    /// Those of `send`, when nothing that counts went out, and of TLS.
    pub fn send<E>(
        &mut self,
        parts: &[IoSlice<'_>],
        mut send: impl FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, Failure<E>> {
        if self.unsent.is_empty() {
            self.seal(parts)?;
        }
        while !self.unsent.is_empty() {
            match send(&self.output[self.unsent.clone()]) {
                Ok(bytes) => self.unsent.start += bytes,
                Err(error) => {
                    return match self.count() {
                        0 => Err(Failure::Socket(error)),
                        bytes => Ok(bytes),
                    };
                }
            }
        }
        Ok(self.count())
    }

    /// Data of the records that have gone out and were not counted.
    fn count(&mut self) -> usize {
        let mut data = 0;
        while self.counted < self.records && self.sealed[self.counted].end <= self.unsent.start {
            data += self.sealed[self.counted].data;
            self.counted += 1;
        }
        data
    }

    /// Seals as much as there are records for. All that was sealed before has gone out.
    fn seal(&mut self, parts: &[IoSlice<'_>]) -> Result<(), TlsError> {
        (self.unsent, self.records, self.counted) = (0..0, 0, 0);
        if self.owes_update || self.writer.blocks() >= BLOCKS_PER_KEY_MAX {
            self.put_own(content::HANDSHAKE, &KEY_UPDATE)?;
            self.writer.update()?;
            self.owes_update = false;
        }
        let mut parts = parts.iter().map(|part| &**part).filter(|part| !part.is_empty());
        let mut part: &[u8] = &[];
        for _ in 0..RECORDS_PER_SEND {
            let start = self.unsent.end + HEADER_BYTES;
            let mut count = 0;
            while count < DATA_BYTES_MAX {
                if part.is_empty() {
                    let Some(next) = parts.next() else { break };
                    part = next;
                }
                let (now, later) = part.split_at(part.len().min(DATA_BYTES_MAX - count));
                self.output[start + count..start + count + now.len()].copy_from_slice(now);
                count += now.len();
                part = later;
            }
            if count == 0 {
                break;
            }
            self.close_record(content::DATA, (count, count))?;
        }
        Ok(())
    }

    /// Seals `count` bytes that lie at the end of the output, behind the room for a header.
    fn close_record(&mut self, kind: u8, (count, data): (usize, usize)) -> Result<(), TlsError> {
        let total = self.writer.seal(kind, &mut self.output[self.unsent.end..], count)?;
        self.unsent.end += total;
        self.sealed[self.records] = Sealed { end: self.unsent.end, data };
        self.records += 1;
        Ok(())
    }

    /// Seals something of TLS itself.
    fn put_own(&mut self, kind: u8, body: &[u8]) -> Result<(), TlsError> {
        let start = self.unsent.end + HEADER_BYTES;
        self.output[start..start + body.len()].copy_from_slice(body);
        self.close_record(kind, (body.len(), 0))
    }

    /// Tells the other side, in one try, that this was all, or what was wrong. Nothing is sent after it. Where part of
    /// a record is still to be sent, nobody could tell where the next begins, and nothing is told.
    pub fn say_farewell<E>(&mut self, send: impl FnOnce(&[u8]) -> Result<usize, E>) {
        let alert = match self.life {
            Life::Open | Life::Ended => Some(Alert::CloseNotify),
            Life::Failed(error) => error.alert(),
        };
        let Some(alert) = alert.filter(|_| self.unsent.is_empty()) else { return };
        let level = if alert == Alert::CloseNotify { 1 } else { 2 };
        (self.unsent, self.records, self.counted) = (0..0, 0, 0);
        if self.put_own(content::ALERT, &[level, alert as u8]).is_ok() {
            // Whoever does not hear it sees the connection end.
            let _ = send(&self.output[self.unsent.clone()]);
        }
    }
}

#[cfg(test)]
impl Channel {
    /// A record that is not data.
    pub(crate) fn sealed_for_test(&mut self, kind: u8, body: &[u8]) -> Vec<u8> {
        (self.unsent, self.records, self.counted) = (0..0, 0, 0);
        self.put_own(kind, body).expect("a record");
        let record = self.output[self.unsent.clone()].to_vec();
        self.unsent = 0..0;
        record
    }

    /// Sends with other keys, as was announced.
    pub(crate) fn follow_for_test(&mut self) {
        self.writer.update().expect("a key");
    }

    pub(crate) fn wear_out_for_test(&mut self) {
        self.writer.wear_out_for_test();
    }
}
