//! What PDUs on their way out consist of.

use crate::limits::IO_ENTRIES;
use crate::slots::SlotIndex;
use strake_block::SgMut;
use strake_nvme_tcp::digest::{self, DIGEST_BYTES, Digest};
use strake_nvme_tcp::pdu::{DATA_BYTES, Use};

/// Longest header with its digest.
const HEAD_BYTES: usize = DATA_BYTES + DIGEST_BYTES;
/// What a header is padded with: less than one byte can say (TCP, section 3.6.2.2, "CPDA").
static PADDING: [u8; u8::MAX as usize] = [0; u8::MAX as usize];
/// PDUs that wait to be sent: a request for data, which a host may foresee, or data, and the end of each command;
/// besides them the answer to Connect and the request to end the connection.
pub(crate) const REPLIES_MAX: usize = 2 * IO_ENTRIES as usize + 2;

/// Bytes in a place of their own.
#[derive(Clone, Copy)]
struct Fixed<const N: usize> {
    bytes: [u8; N],
    used: u8,
}

impl<const N: usize> Fixed<N> {
    const fn new() -> Self {
        Self { bytes: [0; N], used: 0 }
    }

    fn push(&mut self, more: &[u8]) {
        let used = usize::from(self.used);
        self.bytes[used..used + more.len()].copy_from_slice(more);
        self.used += more.len() as u8;
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.used)]
    }
}

/// One PDU. It is small, because it moves with every command.
pub(crate) struct Reply {
    /// Bytes as they are, before everything else; a command has none.
    raw: Box<[u8]>,
    head: Fixed<HEAD_BYTES>,
    padding: u8,
    pub(crate) data: SgMut,
    tail: Fixed<DIGEST_BYTES>,
    /// The command that ends when this has been sent.
    pub(crate) ends: Option<SlotIndex>,
}

impl Reply {
    /// Bytes as they are: the answer to Connect, or a request to end the connection.
    pub(crate) fn raw(bytes: &[u8]) -> Self {
        Self {
            raw: bytes.into(),
            head: Fixed::new(),
            padding: 0,
            data: SgMut::default(),
            tail: Fixed::new(),
            ends: None,
        }
    }

    /// A PDU that is only a header.
    pub(crate) fn bare(header: &[u8], header_digest: Use) -> Self {
        let mut reply = Self::raw(&[]);
        reply.head.push(header);
        if header_digest == Use::On {
            reply.head.push(&digest::of(header));
        }
        reply
    }

    /// Data for the host behind a header, padded so that it begins at byte `lead`.
    pub(crate) fn data(
        header: &[u8],
        digests: strake_nvme_tcp::Digests,
        lead: usize,
        data: SgMut,
    ) -> Self {
        let mut reply = Self::bare(header, digests.header);
        reply.padding = (lead - usize::from(reply.head.used)) as u8;
        if digests.data == Use::On {
            let digest =
                data.parts().iter().fold(Digest::default(), |d, part| d.and(part.as_slice()));
            reply.tail.push(&digest.bytes());
        }
        reply.data = data;
        reply
    }

    /// The same as the last of its command.
    pub(crate) fn ending(mut self, slot: SlotIndex) -> Self {
        self.ends = Some(slot);
        self
    }
}

impl strake_export_net::Message for Reply {
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let padding = &PADDING[..usize::from(self.padding)];
        let data = self.data.parts().iter().map(|part| part.as_slice());
        [&*self.raw, self.head.as_slice(), padding]
            .into_iter()
            .chain(data)
            .chain([self.tail.as_slice()])
    }

    fn bytes(&self) -> usize {
        let fixed = [self.head.used, self.padding, self.tail.used].map(usize::from);
        self.raw.len() + fixed.into_iter().sum::<usize>() + self.data.len()
    }
}
