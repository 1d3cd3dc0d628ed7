//! PDUs on their way out, in the order they were composed. Each slot has at most one.

use crate::limits::{SENDS_PER_TURN, SLICES_PER_SEND};
use crate::link::Terms;
use crate::queue::piece::Ability;
use crate::queue::slot::{SlotIndex, Slots, Stage};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::IoSlice;
use strake_block::Sg;
use strake_block::buf::SEGMENTS_MAX;
use strake_nvme_tcp::Digests;
use strake_nvme_tcp::digest::{self, DIGEST_BYTES, Digest};
use strake_nvme_tcp::pdu::{self, CAPSULE_CMD_BYTES, DATA_BYTES, PduKind, Transfer, Use, flag};
use strake_nvme_wire::Sqe;
use strake_nvme_wire::nvm::RANGE_BYTES;
use strake_tls::{Wire, WireError};

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

    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let data = self.data.parts().iter().map(strake_block::Buf::as_slice);
        let (head, tail) = (&self.head[..self.head_bytes], &self.tail[..self.tail_bytes]);
        [head].into_iter().chain(data).chain([tail])
    }

    fn bytes(&self) -> usize {
        self.head_bytes + self.data_bytes + self.tail_bytes
    }
}

/// What came of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// All that the socket takes.
    Fine,
    /// The connection is broken.
    Broken(WireError),
}

/// The line of slots with a PDU to be sent.
pub(crate) struct Outbox {
    line: VecDeque<SlotIndex>,
    /// Bytes of the first PDU that went out already.
    sent: usize,
    /// The socket took less than it was offered.
    blocked: bool,
}

impl Outbox {
    pub(crate) fn new(slots: usize) -> Self {
        Self { line: VecDeque::with_capacity(slots), sent: 0, blocked: false }
    }

    pub(crate) fn push(&mut self, index: SlotIndex) {
        self.line.push_back(index);
    }

    pub(crate) fn clear(&mut self) {
        self.line.clear();
        (self.sent, self.blocked) = (0, false);
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Sends what the socket takes. What has been sent waits for its answer; of what the target has asked for, the next
    /// PDU goes to the end of the line.
    pub(crate) fn send(
        &mut self,
        wire: &mut Wire,
        slots: &mut Slots,
        (ability, terms): (&Ability, &Terms),
    ) -> Sent {
        self.blocked = false;
        for _ in 0..SENDS_PER_TURN {
            if self.line.is_empty() {
                return Sent::Fine;
            }
            match self.send_once(wire, slots) {
                Ok(bytes) => self.retire(bytes, slots, (ability, terms)),
                Err(WireError::Socket(Errno::AGAIN | Errno::NOBUFS)) => {
                    self.blocked = true;
                    return Sent::Fine;
                }
                Err(WireError::Socket(Errno::INTR)) => {}
                Err(error) => return Sent::Broken(error),
            }
        }
        // More than a turn's share: the socket has room, and an idle core is woken for it.
        self.blocked = !self.line.is_empty();
        Sent::Fine
    }

    fn send_once(&self, wire: &mut Wire, slots: &Slots) -> Result<usize, WireError> {
        let mut slices = [IoSlice::new(&[]); SLICES_PER_SEND];
        let mut used = 0;
        let mut skip = self.sent;
        for index in &self.line {
            // It goes into this call whole or not at all.
            if used + 2 + SEGMENTS_MAX > SLICES_PER_SEND {
                break;
            }
            for part in slots.peek(*index).out.parts() {
                let over = skip.min(part.len());
                skip -= over;
                if over < part.len() {
                    slices[used] = IoSlice::new(&part[over..]);
                    used += 1;
                }
            }
        }
        wire.send(&slices[..used])
    }

    fn retire(&mut self, bytes: usize, slots: &mut Slots, (ability, terms): (&Ability, &Terms)) {
        self.sent += bytes;
        while let Some(first) = self.line.front().copied()
            && self.sent >= slots.peek(first).out.bytes()
        {
            let slot = slots.get(first);
            self.sent -= slot.out.bytes();
            self.line.pop_front();
            let asked = slot.out.asked;
            slot.out.clear();
            match asked {
                Some(asked) => {
                    slot.send_data(asked, ability, terms);
                    self.line.push_back(first);
                }
                None => slot.stage = Stage::Waiting,
            }
        }
    }
}
