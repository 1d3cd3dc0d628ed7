//! What OpenSSL reads from and writes to instead of a socket: bytes that came, and bytes that are to go.
//!
//! ```text
//! socket -> input: [read | unread | free]   OpenSSL   output: [sent | unsent | free] -> socket
//! ```

use crate::limits::{INPUT_BYTES, OUTPUT_BYTES};
use crate::record_meter::RecordMeter;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::ops::Range;

/// Two buffers that have their size from the beginning.
pub(crate) struct Pipe {
    input: Vec<u8>,
    unread: Range<usize>,
    meter: RecordMeter,
    /// OpenSSL found no readable byte since the last [`take_read`](Self::take_read).
    ran_out: bool,
    output: Box<[u8]>,
    unsent: Range<usize>,
}

impl Default for Pipe {
    fn default() -> Self {
        let output = vec![0; OUTPUT_BYTES].into_boxed_slice();
        let (input, meter) = (vec![0; INPUT_BYTES], RecordMeter::default());
        Self { input, unread: 0..0, meter, ran_out: false, output, unsent: 0..0 }
    }
}

impl Pipe {
    /// The free part of the input; what is unread moves to its beginning.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.input.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        &mut self.input[self.unread.end..]
    }

    /// That many bytes came into the room.
    pub(crate) const fn came(&mut self, bytes: usize) {
        self.unread.end += bytes;
    }

    /// Takes what came while there was no channel yet, however much.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        if self.room().len() < bytes.len() {
            self.input.resize(self.unread.end + bytes.len(), 0);
        }
        self.room()[..bytes.len()].copy_from_slice(bytes);
        self.came(bytes.len());
    }

    /// Whether OpenSSL has not read all that came. Of part of a record it reads what there is.
    pub(crate) const fn has_unread(&self) -> bool {
        self.unread.start < self.unread.end
    }

    /// Sets the number of records that OpenSSL may begin from now on.
    pub(crate) const fn allow(&mut self, records: usize) {
        self.meter.allow(records);
    }

    /// Returns the records that OpenSSL has read completely since the last call, and whether it found no readable byte.
    pub(crate) const fn take_read(&mut self) -> (usize, bool) {
        (self.meter.take_complete(), std::mem::replace(&mut self.ran_out, false))
    }

    /// True if OpenSSL may begin no further record.
    pub(crate) const fn is_spent(&self) -> bool {
        self.meter.is_spent()
    }

    pub(crate) fn unsent(&self) -> &[u8] {
        &self.output[self.unsent.clone()]
    }

    /// That many bytes went out.
    pub(crate) const fn went(&mut self, bytes: usize) {
        self.unsent.start += bytes;
    }

    /// Where in the output what is unsent lies.
    pub(crate) const fn place(&self) -> &Range<usize> {
        &self.unsent
    }

    /// Moves what is unsent to the beginning of the output.
    pub(crate) fn make_room(&mut self) {
        self.output.copy_within(self.unsent.clone(), 0);
        self.unsent = 0..self.unsent.len();
    }
}

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let count = into.len().min(self.unread.len()).min(self.meter.readable());
        if count == 0 {
            self.ran_out = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        let start = self.unread.start;
        into[..count].copy_from_slice(&self.input[start..start + count]);
        self.meter.read(&into[..count]);
        self.unread.start += count;
        Ok(count)
    }
}

impl Write for Pipe {
    /// Takes all or nothing: OpenSSL writes a record at a time, and there is room for those that are asked for.
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let end = self.unsent.end;
        let room = self.output.get_mut(end..end + bytes.len());
        room.ok_or(Error::from(ErrorKind::WouldBlock))?.copy_from_slice(bytes);
        self.unsent.end += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
