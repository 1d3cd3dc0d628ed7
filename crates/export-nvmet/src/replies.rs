//! Outgoing PDUs.

use crate::limits::IO_ENTRIES;
use crate::slots::SlotIndex;
use strake_block::SgMut;
use strake_nvme_tcp::digest::DIGEST_BYTES;
use strake_nvme_tcp::pdu::DATA_BYTES;
use strake_nvme_tcp::{Digests, Framing};

/// The longest header with its digest.
const HEAD_BYTES: usize = DATA_BYTES + DIGEST_BYTES;
/// Queued PDUs: for each command an R2T, or data, and the completion; in addition the completion of Connect and the
/// request to terminate the connection.
pub(crate) const REPLIES_MAX: usize = 2 * IO_ENTRIES as usize + 2;

/// One PDU. The type is small, because it is moved for every command.
pub(crate) struct Reply {
    /// Raw bytes that precede everything else; a command has none.
    raw: Box<[u8]>,
    framing: Framing<HEAD_BYTES, DIGEST_BYTES>,
    pub(crate) data: SgMut,
    /// The command that ends when this PDU was sent.
    pub(crate) ends: Option<SlotIndex>,
}

impl Reply {
    /// Raw bytes: the completion of Connect, or a request to terminate the connection.
    pub(crate) fn raw(bytes: &[u8]) -> Self {
        let (framing, data) = (Framing::default(), SgMut::default());
        Self { raw: bytes.into(), framing, data, ends: None }
    }

    /// A PDU that consists of a header.
    pub(crate) fn bare(header: &[u8], digests: Digests) -> Self {
        Self { framing: Framing::bare(header, digests), ..Self::raw(&[]) }
    }

    /// A header with data for the host, padded so that the data starts at byte `lead`.
    pub(crate) fn data(header: &[u8], digests: Digests, lead: usize, data: SgMut) -> Self {
        let parts = data.parts().iter().map(|part| part.as_slice());
        let framing = Framing::around(header, digests, lead, parts);
        Self { framing, data, ..Self::raw(&[]) }
    }

    /// Marks the PDU as the last of its command.
    pub(crate) fn ending(mut self, slot: SlotIndex) -> Self {
        self.ends = Some(slot);
        self
    }
}

impl strake_export_net::Message for Reply {
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let data = self.data.parts().iter().map(|part| part.as_slice());
        [&*self.raw].into_iter().chain(self.framing.parts(data))
    }

    fn bytes(&self) -> usize {
        self.raw.len() + self.framing.bytes() + self.data.len()
    }
}
