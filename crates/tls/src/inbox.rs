//! Messages of a handshake out of the records that carry them (RFC 8446, section 5.1): a record may have several, and a
//! message may take several records.

use crate::error::{Alert, TlsError};
use crate::limits::{HANDSHAKE_RECORDS_MAX, HEADER_BYTES, MESSAGE_BYTES_MAX};
use crate::record::{Half, Header, content};

/// Bytes in front of a message: its type and its length.
const LEAD_BYTES: usize = 4;

const UNEXPECTED: TlsError = TlsError::Breach(Alert::UnexpectedMessage);

/// What came and was not looked at yet. It holds less than a record, and less than a message and a record.
#[derive(Default)]
pub(crate) struct Inbox {
    wire: Vec<u8>,
    messages: Vec<u8>,
    records: u32,
}

impl Inbox {
    /// Puts bytes of the connection behind those that are there.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.wire.extend(bytes);
    }

    /// The next whole message, of records that are encrypted when there is a `half`.
    pub(crate) fn next(
        &mut self,
        mut half: Option<&mut Half>,
    ) -> Result<Option<Vec<u8>>, TlsError> {
        loop {
            if let Some(message) = self.whole()? {
                return Ok(Some(message));
            }
            if !self.unpack(half.as_deref_mut())? {
                return Ok(None);
            }
        }
    }

    fn whole(&mut self) -> Result<Option<Vec<u8>>, TlsError> {
        let Some(&[_, high, middle, low]) = self.messages.first_chunk::<LEAD_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(TlsError::Breach(Alert::DecodeError));
        }
        if self.messages.len() < LEAD_BYTES + length {
            return Ok(None);
        }
        let rest = self.messages.split_off(LEAD_BYTES + length);
        Ok(Some(std::mem::replace(&mut self.messages, rest)))
    }

    /// Looks at the next record; false when it is not all there.
    fn unpack(&mut self, half: Option<&mut Half>) -> Result<bool, TlsError> {
        let Some(header) = Header::read(&self.wire)? else { return Ok(false) };
        let end = HEADER_BYTES + header.body;
        if self.wire.len() < end {
            return Ok(false);
        }
        self.records += 1;
        if self.records > HANDSHAKE_RECORDS_MAX {
            return Err(UNEXPECTED);
        }
        let rest = self.wire.split_off(end);
        let mut record = std::mem::replace(&mut self.wire, rest);
        let (kind, inside) = match (header.kind, half) {
            (content::DATA, Some(half)) => half.open(&mut record)?,
            (content::DATA, None) | (content::HANDSHAKE, Some(_)) => return Err(UNEXPECTED),
            (kind, _) => (kind, HEADER_BYTES..end),
        };
        self.sort(kind, header.kind, &record[inside])?;
        Ok(true)
    }

    fn sort(&mut self, kind: u8, outside: u8, body: &[u8]) -> Result<(), TlsError> {
        match kind {
            content::HANDSHAKE if !body.is_empty() => {
                self.messages.extend(body);
                Ok(())
            }
            content::ALERT if body.len() == 2 => Err(TlsError::Told(body[1])),
            // It means nothing any more, and is sent for the sake of what lies between (RFC 8446, section D.4).
            content::CHANGE_CIPHER_SPEC
                if outside == kind && body == [1] && self.records > 1 && self.is_at_end() =>
            {
                Ok(())
            }
            _ => Err(UNEXPECTED),
        }
    }

    /// True when nothing of a further message is there: keys change only between records (RFC 8446, section 5.1).
    pub(crate) const fn is_at_end(&self) -> bool {
        self.messages.is_empty()
    }

    /// What came behind the handshake.
    pub(crate) fn into_rest(self) -> Result<Vec<u8>, TlsError> {
        if self.is_at_end() { Ok(self.wire) } else { Err(UNEXPECTED) }
    }
}
