//! The outgoing PDUs of a connection, in order: R2T, data, completions.

use crate::handshake::Agreement;
use crate::limits::OWED_BEHIND_MAX;
use crate::replies::{REPLIES_MAX, Reply};
use crate::slots::{SlotIndex, Slots, Stage};
use std::collections::VecDeque;
use strake_block::SgMut;
use strake_export_net::{Peer, SendQueue, Sent, Supply};
use strake_nvme_tcp::pdu::{self, CAPSULE_CMD_BYTES, PduError, PduKind, Transfer, flag};
use strake_nvme_wire::Cqe;
use strake_nvme_wire::fabrics::FlowControl;

/// PDUs that wait to be sent.
pub(super) struct Sending {
    link: Agreement,
    /// The number of completed commands, modulo the size of the queue. An entry is free when its command has completed
    /// and its data was sent.
    head: u16,
    replies: SendQueue<Reply>,
    /// Commands whose data is in `replies` and whose completion is not yet there.
    owed: VecDeque<SlotIndex>,
    /// The number of bytes of that data.
    owed_behind: usize,
}

impl Sending {
    /// Creates the queue, with the completion of Connect unless that was sent before.
    pub(super) fn new(link: Agreement, final_reply: &[u8]) -> Self {
        let mut replies = SendQueue::new(REPLIES_MAX);
        if !final_reply.is_empty() {
            replies.push(Reply::raw(final_reply));
        }
        let (head, entries) = (link.taken % link.entries, usize::from(link.entries));
        Self { link, head, replies, owed: VecDeque::with_capacity(entries), owed_behind: 0 }
    }

    /// Requests `length` bytes of a command's data from the host (R2T).
    pub(super) fn ask_for_data(&mut self, index: SlotIndex, cid: u16, length: u32) {
        let wanted = Transfer { cid, tag: index.0, offset: 0, length };
        let digests = self.link.digests;
        self.replies.push(Reply::bare(&wanted.r2t(digests), digests));
    }

    /// Sends the data of a command that succeeded, and a completion if the host needs one (TCP, section 3.3.2.2,
    /// "SUCCESS flag").
    pub(super) fn data(&mut self, slots: &mut Slots, index: SlotIndex, data: SgMut) {
        let digests = self.link.digests;
        let (flags, needs_completion) = match self.link.flow_control {
            FlowControl::On => (flag::LAST, true),
            FlowControl::Off => (flag::LAST | flag::SUCCESS, false),
        };
        let length = data.len() as u32;
        let slot = slots.get(index);
        slot.stage = Stage::Replying;
        let transfer = Transfer { cid: slot.cid, tag: 0, offset: 0, length };
        let lead = self.link.data_offset;
        let header = transfer.data(PduKind::C2hData, digests, lead, flags);
        let reply = Reply::data(&header, digests, lead, data);
        if !needs_completion {
            return self.replies.push(reply.ending(index));
        }
        if self.owed_behind + length as usize > OWED_BEHIND_MAX {
            self.complete_owed(slots);
        }
        self.replies.push(reply);
        self.owed.push_back(index);
        self.owed_behind += length as usize;
    }

    /// Queues the completions of commands behind the data of all of them. A host that receives completions together
    /// sends its next commands together, which saves system calls on both sides.
    #[inline]
    pub(super) fn complete_owed(&mut self, slots: &mut Slots) {
        self.owed_behind = 0;
        while let Some(index) = self.owed.pop_front() {
            self.completion(slots, index);
        }
    }

    /// Queues a completion. The SQ head advances only now: a host that uses only the head (Base, section 3.3.2.6 of
    /// revision 2.1) would otherwise send more commands than fit.
    pub(super) fn completion(&mut self, slots: &mut Slots, index: SlotIndex) {
        self.head = (self.head + 1) % self.link.entries;
        let (head, digests) = (self.link.head_at(self.head), self.link.digests);
        let slot = slots.get(index);
        let cqe = Cqe { result: slot.result, head, cid: slot.cid, status: slot.status };
        let reply = Reply::bare(&pdu::capsule_resp(&cqe, digests), digests);
        self.replies.push(reply.ending(index));
    }

    /// Terminates the connection because of a PDU of the host, which begins with `bytes`, and reports the reason (TCP,
    /// section 3.5).
    pub(super) fn terminate(&mut self, slots: &mut Slots, error: PduError, bytes: &[u8]) {
        self.complete_owed(slots);
        let (bytes, length) =
            pdu::c2h_term_req(error, &bytes[..bytes.len().min(CAPSULE_CMD_BYTES)]);
        self.replies.push(Reply::raw(&bytes[..length]));
    }

    pub(super) fn send(&mut self, peer: &mut Peer, pools: &mut Supply, slots: &mut Slots) -> Sent {
        peer.send(&mut self.replies, |reply| retire(reply, pools, slots))
    }

    /// Discards all queued PDUs.
    pub(super) fn abandon(&mut self, pools: &mut Supply, slots: &mut Slots) {
        self.replies.abandon(|reply| retire(reply, pools, slots));
        self.owed.drain(..).for_each(|slot| slots.end(slot));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }
}

/// Releases the buffers and the command of a reply.
fn retire(reply: Reply, pools: &mut Supply, slots: &mut Slots) {
    pools.put(reply.data);
    if let Some(slot) = reply.ends {
        slots.end(slot);
    }
}
