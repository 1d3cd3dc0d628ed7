//! What PDUs on their way out consist of.

use crate::limits::IO_ENTRIES;
use crate::slots::SlotIndex;
use strake_block::SgMut;
use strake_nvme_tcp::digest::DIGEST_BYTES;
use strake_nvme_tcp::pdu::DATA_BYTES;
use strake_nvme_tcp::{Digests, Framing};

/// Longest header with its digest.
const HEAD_BYTES: usize = DATA_BYTES + DIGEST_BYTES;
/// PDUs that wait to be sent: a request for data, which a host may foresee, or data, and the end of each command;
/// besides them the answer to Connect and the request to end the connection.
pub(crate) const REPLIES_MAX: usize = 2 * IO_ENTRIES as usize + 2;

/// One PDU. It is small, because it moves with every command.
pub(crate) struct Reply {
    /// Bytes as they are, before everything else; a command has none.
    raw: Box<[u8]>,
    framing: Framing<HEAD_BYTES, DIGEST_BYTES>,
    pub(crate) data: SgMut,
    /// The command that ends when this has been sent.
    pub(crate) ends: Option<SlotIndex>,
}

impl Reply {
    /// Bytes as they are: the answer to Connect, or a request to end the connection.
    pub(crate) fn raw(bytes: &[u8]) -> Self {
        let (framing, data) = (Framing::default(), SgMut::default());
        Self { raw: bytes.into(), framing, data, ends: None }
    }

    /// A PDU that is only a header.
    pub(crate) fn bare(header: &[u8], digests: Digests) -> Self {
        Self { framing: Framing::bare(header, digests), ..Self::raw(&[]) }
    }

    /// Data for the host behind a header, padded so that it begins at byte `lead`.
    pub(crate) fn data(header: &[u8], digests: Digests, lead: usize, data: SgMut) -> Self {
        let parts = data.parts().iter().map(|part| part.as_slice());
        let framing = Framing::around(header, digests, lead, parts);
        Self { framing, data, ..Self::raw(&[]) }
    }

    /// The same as the last of its command.
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
