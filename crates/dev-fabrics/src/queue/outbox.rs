//! PDUs on their way out, in the order they were composed. Each slot has at most one.

use crate::link::Terms;
use crate::queue::piece::Ability;
use crate::queue::slot::{SlotIndex, Slots, Stage};
use strake_block::Sg;
use strake_nvme_tcp::Digests;
use strake_nvme_tcp::digest::{self, DIGEST_BYTES, Digest};
use strake_nvme_tcp::pdu::{self, CAPSULE_CMD_BYTES, DATA_BYTES, PduKind, Transfer, Use, flag};
use strake_nvme_wire::Sqe;
use strake_nvme_wire::nvm::RANGE_BYTES;
use strake_tls::{Message, Messages};

/// Longest way to the data of a PDU: what the coarsest alignment makes of it (TCP, section 3.6.2.3, CPDA).
const LEAD_BYTES_MAX: usize = 128;
/// Longest beginning: a command with the range of a deallocation behind it.
const HEAD_BYTES: usize = LEAD_BYTES_MAX + RANGE_BYTES;

const _: () = assert!(CAPSULE_CMD_BYTES + DIGEST_BYTES <= LEAD_BYTES_MAX);

/// Data that the target has asked for and that was not sent yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) cid: u16,
    pub(crate) tag: u16,
    /// Where the next PDU begins in the data of the command.
    pub(crate) from: u32,
    /// Where the last one ends.
    pub(crate) until: u32,
}

/// A PDU to be sent, and what follows it.
pub(crate) struct Out {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    data: Sg,
    data_bytes: usize,
    tail: [u8; DIGEST_BYTES],
    tail_bytes: usize,
    pub(crate) asked: Option<Asked>,
}

impl Default for Out {
    fn default() -> Self {
        Self {
            head: [0; HEAD_BYTES],
            head_bytes: 0,
            data: Sg::default(),
            data_bytes: 0,
            tail: [0; DIGEST_BYTES],
            tail_bytes: 0,
            asked: None,
        }
    }
}

impl Out {
    /// Lets go of data.
    pub(crate) fn clear(&mut self) {
        self.data = Sg::default();
        (self.head_bytes, self.data_bytes, self.tail_bytes) = (0, 0, 0);
        self.asked = None;
    }

    fn header(&mut self, header: &[u8], digests: Digests) {
        self.clear();
        self.put(header);
        if digests.header == Use::On {
            self.put(&digest::of(header));
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.head[self.head_bytes..self.head_bytes + bytes.len()].copy_from_slice(bytes);
        self.head_bytes += bytes.len();
    }

    fn pad(&mut self, lead: usize) {
        self.head[self.head_bytes..lead].fill(0);
        self.head_bytes = lead;
    }

    fn put_tail(&mut self, digest: Digest, digests: Digests) {
        if digests.data == Use::On {
            self.tail = digest.bytes();
            self.tail_bytes = DIGEST_BYTES;
        }
    }

    fn put_data(&mut self, data: Sg, digests: Digests) {
        self.data_bytes = data.len();
        if digests.data == Use::On {
            let parts = data.parts().iter();
            let digest = parts.fold(Digest::default(), |digest, part| digest.and(part.as_slice()));
            self.put_tail(digest, digests);
        }
        self.data = data;
    }

    /// A command without data.
    pub(crate) fn command(&mut self, sqe: &Sqe, terms: &Terms) {
        self.header(&pdu::capsule_cmd(sqe, terms.digests, 0, 0), terms.digests);
    }

    /// A command with its data.
    pub(crate) fn command_with(&mut self, sqe: &Sqe, data: Sg, terms: &Terms) {
        let lead = pdu::lead(CAPSULE_CMD_BYTES, terms.digests, terms.alignment);
        let length = data.len() as u32;
        self.header(&pdu::capsule_cmd(sqe, terms.digests, lead, length), terms.digests);
        self.pad(lead);
        self.put_data(data, terms.digests);
    }

    /// A command with a few bytes of its own.
    pub(crate) fn command_with_bytes(
        &mut self,
        sqe: &Sqe,
        bytes: &[u8; RANGE_BYTES],
        terms: &Terms,
    ) {
        let lead = pdu::lead(CAPSULE_CMD_BYTES, terms.digests, terms.alignment);
        let length = RANGE_BYTES as u32;
        self.header(&pdu::capsule_cmd(sqe, terms.digests, lead, length), terms.digests);
        self.pad(lead);
        self.put(bytes);
        self.put_tail(Digest::default().and(bytes), terms.digests);
    }

    /// The next data PDU of what was asked for, with `data` as far as one PDU holds it.
    pub(crate) fn data_for(&mut self, asked: Asked, data: Sg, terms: &Terms) {
        let lead = pdu::lead(DATA_BYTES, terms.digests, terms.alignment);
        let Asked { cid, tag, from: offset, until } = asked;
        let length = data.len() as u32;
        let transfer = Transfer { cid, tag, offset, length };
        let from = offset + length;
        let flags = if from == until { flag::LAST } else { 0 };
        let header = transfer.data(PduKind::H2cData, terms.digests, lead, flags);
        self.header(&header, terms.digests);
        self.pad(lead);
        self.put_data(data, terms.digests);
        self.asked = (from < until).then_some(Asked { from, ..asked });
    }
}

impl Message for Out {
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let data = self.data.parts().iter().map(strake_block::Buf::as_slice);
        let (head, tail) = (&self.head[..self.head_bytes], &self.tail[..self.tail_bytes]);
        [head].into_iter().chain(data).chain([tail])
    }

    fn bytes(&self) -> usize {
        self.head_bytes + self.data_bytes + self.tail_bytes
    }
}

/// Where the PDUs of slots are while they are sent.
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

    /// What has been sent waits for its answer; of what the target has asked for, the next PDU follows.
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
