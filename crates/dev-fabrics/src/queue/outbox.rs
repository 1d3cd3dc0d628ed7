//! Outgoing PDUs, in the order in which they were composed. Each slot has at most one.

use crate::link::Terms;
use crate::queue::piece::Ability;
use crate::queue::slot::{SlotIndex, Slots, Stage};
use strake_block::{Buf, Sg};
use strake_nvme_tcp::digest::DIGEST_BYTES;
use strake_nvme_tcp::pdu::{self, CAPSULE_CMD_BYTES, DATA_BYTES, PduKind, Transfer, flag};
use strake_nvme_tcp::{Digests, Framing};
use strake_nvme_wire::Sqe;
use strake_nvme_wire::nvm::RANGE_BYTES;
use strake_tls::{Message, Messages};

/// The longest header with its digest: a command.
const HEAD_BYTES: usize = CAPSULE_CMD_BYTES + DIGEST_BYTES;
/// The longest trailer: the range of a deallocation, and its digest.
const TAIL_BYTES: usize = RANGE_BYTES + DIGEST_BYTES;

/// Requested data that was not sent yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) cid: u16,
    pub(crate) tag: u16,
    /// The offset of the next PDU in the data of the command.
    pub(crate) from: u32,
    /// The end of the requested data.
    pub(crate) until: u32,
}

/// A PDU to send, and the data behind it.
#[derive(Default)]
pub(crate) struct Out {
    framing: Framing<HEAD_BYTES, TAIL_BYTES>,
    data: Sg,
    pub(crate) asked: Option<Asked>,
}

impl Out {
    /// Releases data.
    pub(crate) fn clear(&mut self) {
        self.data = Sg::default();
        self.asked = None;
    }

    fn put(&mut self, header: &[u8], lead: usize, data: Sg, digests: Digests) {
        let parts = data.parts().iter().map(Buf::as_slice);
        let framing = Framing::around(header, digests, lead, parts);
        *self = Self { framing, data, asked: None };
    }

    /// A command without data.
    pub(crate) fn command(&mut self, sqe: &Sqe, terms: &Terms) {
        let header = pdu::capsule_cmd(sqe, terms.digests, 0, 0);
        *self = Self { framing: Framing::bare(&header, terms.digests), ..Self::default() };
    }

    /// A command with its data.
    pub(crate) fn command_with(&mut self, sqe: &Sqe, data: Sg, terms: &Terms) {
        let lead = pdu::lead(CAPSULE_CMD_BYTES, terms.digests, terms.alignment);
        let header = pdu::capsule_cmd(sqe, terms.digests, lead, data.len() as u32);
        self.put(&header, lead, data, terms.digests);
    }

    /// A command with a few bytes as data.
    pub(crate) fn command_with_bytes(
        &mut self,
        sqe: &Sqe,
        bytes: &[u8; RANGE_BYTES],
        terms: &Terms,
    ) {
        let lead = pdu::lead(CAPSULE_CMD_BYTES, terms.digests, terms.alignment);
        let header = pdu::capsule_cmd(sqe, terms.digests, lead, RANGE_BYTES as u32);
        let framing = Framing::holding(&header, terms.digests, lead, bytes);
        *self = Self { framing, ..Self::default() };
    }

    /// The next data PDU of an R2T, with `data` up to the limit of one PDU.
    pub(crate) fn data_for(&mut self, asked: Asked, data: Sg, terms: &Terms) {
        let lead = pdu::lead(DATA_BYTES, terms.digests, terms.alignment);
        let Asked { cid, tag, from: offset, until } = asked;
        let length = data.len() as u32;
        let transfer = Transfer { cid, tag, offset, length };
        let from = offset + length;
        let flags = if from == until { flag::LAST } else { 0 };
        let header = transfer.data(PduKind::H2cData, terms.digests, lead, flags);
        self.put(&header, lead, data, terms.digests);
        self.asked = (from < until).then_some(Asked { from, ..asked });
    }
}

impl Message for Out {
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.framing.parts(self.data.parts().iter().map(Buf::as_slice))
    }

    fn bytes(&self) -> usize {
        self.framing.bytes() + self.data.len()
    }
}

/// Access to the PDUs of slots while they are sent.
pub(crate) struct Outgoing<'a> {
    pub(crate) slots: &'a mut Slots,
    pub(crate) ability: &'a Ability,
    pub(crate) terms: &'a Terms,
}

impl Messages<SlotIndex> for Outgoing<'_> {
    type Message = Out;

    fn of<'a>(&'a self, index: &'a SlotIndex) -> &'a Out {
        &self.slots.peek(*index).out
    }

    /// A sent command waits for its completion; after a data PDU, the next one of the R2T follows.
    fn sent(&mut self, index: SlotIndex) -> Option<SlotIndex> {
        let slot = self.slots.get(index);
        let asked = slot.out.asked;
        slot.out.clear();
        match asked {
            Some(asked) => {
                slot.send_data(asked, self.ability, self.terms);
                Some(index)
            }
            None => {
                slot.stage = Stage::Waiting;
                None
            }
        }
    }
}
