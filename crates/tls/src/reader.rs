//! Bytes of messages: numbers are big-endian, and whatever has a length has it in front (RFC 8446, section 3).

use crate::error::{Alert, TlsError};

/// What is left of a message.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

/// A message that ends too early, or too late.
const BROKEN: TlsError = TlsError::Breach(Alert::DecodeError);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], TlsError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(BROKEN)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, TlsError> {
        Ok(self.take(1)?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, TlsError> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// What has its length in one byte in front.
    pub(crate) fn short(&mut self) -> Result<Reader<'a>, TlsError> {
        let length = self.u8()?;
        self.take(length.into()).map(Reader)
    }

    /// What has its length in two bytes in front.
    pub(crate) fn long(&mut self) -> Result<Reader<'a>, TlsError> {
        let length = self.u16()?;
        self.take(length.into()).map(Reader)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nothing may be left.
    pub(crate) const fn end(&self) -> Result<(), TlsError> {
        if self.0.is_empty() { Ok(()) } else { Err(BROKEN) }
    }
}

/// Puts what `write` writes behind `out`, with its length in two bytes in front.
pub(crate) fn put_long(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend([0; 2]);
    write(out);
    let length = (out.len() - at - 2) as u16;
    out[at..at + 2].copy_from_slice(&length.to_be_bytes());
}

/// Puts what `write` writes behind `out`, with its length in one byte in front.
pub(crate) fn put_short(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.push(0);
    write(out);
    out[at] = (out.len() - at - 1) as u8;
}

/// A message of a handshake (RFC 8446, section 4).
pub(crate) fn message(kind: u8, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![kind, 0];
    put_long(&mut out, write);
    out
}

/// A record that is not encrypted.
pub(crate) fn put_record(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.extend([kind, 3, 3]);
    put_long(out, |out| out.extend(body));
}
