//! Counts the records in the bytes that OpenSSL reads, and limits how many it may begin.
//!
//! One call of OpenSSL may process any number of records that hold no data, such as KeyUpdates. OpenSSL has no limit
//! for them, so the input withholds the bytes of further records.

use crate::limits::HEADER_BYTES;

/// The position in the received records.
pub(crate) struct RecordMeter {
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that were read.
    header_bytes: usize,
    /// Bytes of the body that were not read.
    body_left: usize,
    /// Records that may still begin.
    allowed: usize,
    /// Records that were read completely and are not yet counted.
    complete: usize,
}

impl Default for RecordMeter {
    /// A meter without a limit, for a handshake, which has a limit of its own.
    fn default() -> Self {
        let (header, header_bytes, body_left) = ([0; HEADER_BYTES], 0, 0);
        Self { header, header_bytes, body_left, allowed: usize::MAX, complete: 0 }
    }
}

impl RecordMeter {
    /// Sets the number of records that may begin from now on.
    pub(crate) const fn allow(&mut self, records: usize) {
        self.allowed = records;
    }

    /// True if the next byte begins a record that may not begin.
    pub(crate) const fn is_spent(&self) -> bool {
        self.allowed == 0 && self.header_bytes == 0 && self.body_left == 0
    }

    /// Returns how many of the next bytes may be read at once: at most the rest of a header, or of a body.
    pub(crate) const fn readable(&self) -> usize {
        if self.is_spent() {
            0
        } else if self.body_left > 0 {
            self.body_left
        } else {
            HEADER_BYTES - self.header_bytes
        }
    }

    /// Counts bytes that were read, at most [`readable`](Self::readable).
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.readable());
        if self.body_left > 0 {
            self.body_left -= bytes.len();
            self.complete += usize::from(self.body_left == 0);
            return;
        }
        if self.header_bytes == 0 && !bytes.is_empty() {
            self.allowed -= 1;
        }
        self.header[self.header_bytes..][..bytes.len()].copy_from_slice(bytes);
        self.header_bytes += bytes.len();
        if self.header_bytes == HEADER_BYTES {
            self.header_bytes = 0;
            self.body_left = u16::from_be_bytes([self.header[3], self.header[4]]).into();
            self.complete += usize::from(self.body_left == 0);
        }
    }

    /// Returns the number of records that were read completely since the last call.
    pub(crate) const fn take_complete(&mut self) -> usize {
        std::mem::replace(&mut self.complete, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads from `wire` in pieces of at most `piece` bytes until the meter grants nothing; returns the bytes read.
    fn read(meter: &mut RecordMeter, wire: &[u8], piece: usize) -> usize {
        let mut at = 0;
        loop {
            let count = meter.readable().min(piece).min(wire.len() - at);
            if count == 0 {
                return at;
            }
            meter.read(&wire[at..at + count]);
            at += count;
        }
    }

    #[test]
    fn records_are_counted_however_their_bytes_are_cut() {
        let record = |length: u16| {
            let [high, low] = length.to_be_bytes();
            [&[23, 3, 3, high, low][..], &vec![9; length.into()]].concat()
        };
        let wire = [record(1), record(0), record(300), record(2)].concat();
        for piece in [1, 2, 5, 7, usize::MAX] {
            let mut meter = RecordMeter::default();
            assert_eq!(read(&mut meter, &wire, piece), wire.len());
            assert_eq!((meter.take_complete(), meter.take_complete()), (4, 0));
            meter.allow(2);
            assert_eq!(read(&mut meter, &wire, piece), 6 + 5);
            assert!(meter.is_spent());
            assert_eq!(meter.take_complete(), 2);
            meter.allow(1);
            assert_eq!(read(&mut meter, &wire[11..100], piece), 89, "a part of the next record");
            assert!(!meter.is_spent(), "a record that has begun may be completed");
            assert_eq!(meter.take_complete(), 0);
        }
    }
}
