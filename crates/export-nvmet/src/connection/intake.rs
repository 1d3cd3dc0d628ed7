//! Reception: parses the bytes of the socket into commands and their data.

use super::queue::Queue;
use crate::limits::{
    DATA_BYTES_PER_TURN, H2C_BYTES_MAX, IN_CAPSULE_BYTES, PDUS_PER_TURN, PIECE_BYTES_MAX,
};
use crate::slots::{SlotIndex, Slots, Stage};
use strake_export_net::{Peer, Place, Received};
use strake_nvme_tcp::Digests;
use strake_nvme_tcp::digest::{self, DIGEST_BYTES};
use strake_nvme_tcp::pdu::{
    self, CAPSULE_CMD_BYTES, Common, DATA_BYTES, FatalStatus, Frame, PduError, PduKind, Transfer,
    Use, flag,
};
use strake_nvme_wire::Status;
use strake_units::Nanos;

/// The receive state of a connection. PDUs are processed strictly in order, and processing never waits for memory: the
/// data behind a command that needs memory may belong to a command that frees memory.
pub(super) struct Intake {
    front: Front,
    /// The reason, if nothing more is received.
    end: Option<End>,
    digests: Digests,
    /// Bytes of data received in this turn.
    received_now: usize,
    /// True if a piece of a large command's data was received in this turn, and more of the data is outstanding.
    took_piece: bool,
    /// True if the last receive call returned all requested bytes: the host is ahead of the controller.
    is_ahead: bool,
}

/// The reason why nothing more is received.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The host closed the connection, or requested this.
    Left,
    /// The host terminated the connection because of a PDU that it received.
    Terminated,
    /// The host violated the protocol.
    Refused(PduError),
    /// The socket failed.
    Broken,
}

/// The kind of bytes at the front of the stream.
#[derive(Clone, Copy, Debug)]
enum Front {
    /// The header of a PDU.
    Header,
    /// The data of a PDU.
    Data(Incoming),
    /// The data digest.
    Digest(Incoming),
    /// Nothing more is processed.
    Closed,
}

/// Data of one PDU that is being copied to the memory of a command.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    /// The command; `None` for data of a refused command.
    slot: Option<SlotIndex>,
    /// The offset in the data of the command.
    start: u32,
    /// The length in bytes.
    length: u32,
    /// The number of bytes received.
    got: u32,
    /// Whether a digest follows the data.
    digest: Use,
}

/// Whether reception can continue at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Yes,
    No,
}

impl Intake {
    pub(super) const fn new(digests: Digests) -> Self {
        let (received_now, took_piece, is_ahead) = (0, false, false);
        Self { front: Front::Header, end: None, digests, received_now, took_piece, is_ahead }
    }

    /// Ignores everything else that the host sends.
    pub(super) const fn close(&mut self) {
        self.front = Front::Closed;
    }

    /// Receives up to the limit of a turn; returns the number of steps, and the reason if reception has ended.
    #[inline]
    pub(super) fn take_in(
        &mut self,
        peer: &mut Peer,
        queue: &mut Queue,
        now: Nanos,
    ) -> (usize, Option<End>) {
        (self.received_now, self.took_piece) = (0, false);
        for step in 0..PDUS_PER_TURN {
            let progress = match self.front {
                _ if self.took_piece || self.received_now >= DATA_BYTES_PER_TURN => Progress::No,
                Front::Closed => Progress::No,
                Front::Header => match self.next_pdu(peer, queue, now) {
                    Ok(progress) => progress,
                    Err(error) => self.stop(End::Refused(error)),
                },
                Front::Data(incoming) => self.receive(peer, queue, incoming),
                Front::Digest(incoming) => self.check(peer, queue, incoming),
            };
            if progress == Progress::No {
                return (step, self.end.take());
            }
        }
        (PDUS_PER_TURN, self.end.take())
    }

    /// Ends reception for this reason.
    const fn stop(&mut self, end: End) -> Progress {
        self.front = Front::Closed;
        self.end = Some(end);
        Progress::No
    }

    /// Reads from the socket; reports whether there was something to read.
    fn fill(&mut self, peer: &mut Peer) -> Progress {
        let received = peer.fill();
        self.note_received(received)
    }

    const fn note_received(&mut self, received: Received) -> Progress {
        match received {
            Received::Full(_) | Received::Short(_) => Progress::Yes,
            Received::Blocked => Progress::No,
            Received::Ended => self.stop(End::Left),
            Received::Broken(_) => self.stop(End::Broken),
        }
    }

    fn next_pdu(
        &mut self,
        peer: &mut Peer,
        queue: &mut Queue,
        now: Nanos,
    ) -> Result<Progress, PduError> {
        let Some((common, frame)) = pdu::begin(peer.input().bytes(), self.digests)? else {
            return Ok(self.fill(peer));
        };
        let most = match common.kind {
            PduKind::CapsuleCmd => IN_CAPSULE_BYTES,
            PduKind::H2cData => H2C_BYTES_MAX,
            PduKind::H2cTermReq => return Ok(self.stop(End::Terminated)),
            PduKind::IcReq
            | PduKind::IcResp
            | PduKind::C2hTermReq
            | PduKind::CapsuleResp
            | PduKind::C2hData
            | PduKind::R2t => return Err(PduError::new(FatalStatus::Sequence, 0)),
        };
        if frame.data > most {
            return Err(PduError::new(FatalStatus::LimitExceeded, 4));
        }
        let bytes = peer.input().bytes();
        if !frame.header_is_whole(bytes)? {
            return Ok(self.fill(peer));
        }
        if let Some(header) = bytes.first_chunk::<CAPSULE_CMD_BYTES>()
            && common.kind == PduKind::CapsuleCmd
        {
            let sqe = pdu::command_of(header);
            let next = queue.command(&sqe, &frame, now)?;
            if queue.is_parting() {
                self.stop(End::Left);
                return Ok(Progress::Yes);
            }
            self.begin_data(peer, next, &frame);
        } else if let Some(header) = bytes.first_chunk::<DATA_BYTES>() {
            let transfer = Transfer::parse(header);
            let slot = awaited(&mut queue.slots, &transfer, &common, &frame)?;
            self.begin_data(peer, Some((slot, transfer.offset)), &frame);
        }
        Ok(Progress::Yes)
    }

    /// Skips a header, and prepares for the data behind it, if there is some: the data of `whose`, from an offset on.
    fn begin_data(&mut self, peer: &mut Peer, whose: Option<(SlotIndex, u32)>, frame: &Frame) {
        peer.input().consume(frame.lead);
        if frame.data == 0 {
            return;
        }
        let (slot, start) = whose.map_or((None, 0), |(slot, start)| (Some(slot), start));
        let (length, digest) = (frame.data, frame.data_digest);
        self.front = Front::Data(Incoming { slot, start, length, got: 0, digest });
    }

    /// Copies data to its destination, or discards it.
    fn receive(&mut self, peer: &mut Peer, queue: &mut Queue, mut incoming: Incoming) -> Progress {
        let left = incoming.length - incoming.got;
        let mut progress = Progress::Yes;
        let here = match incoming.slot {
            None => {
                let here = peer.input().bytes().len().min(left as usize);
                peer.input().consume(here);
                here
            }
            Some(slot) => {
                let Stage::Receiving { data, .. } = &mut queue.slots.get(slot).stage else {
                    unreachable!("data is received only for a command that expects it");
                };
                let at = (incoming.start + incoming.got) as usize;
                peer.input().move_to(Place { data, at, most: left as usize })
            }
        };
        incoming.got += here as u32;
        self.received_now += here;
        if incoming.got < incoming.length {
            progress = self.receive_more(peer, queue, &mut incoming);
        }
        // The receive call may have found the end of the connection.
        if self.end.is_some() {
            return Progress::No;
        }
        if incoming.got < incoming.length {
            self.front = Front::Data(incoming);
            return progress;
        }
        match incoming.digest {
            Use::On => self.front = Front::Digest(incoming),
            Use::Off => self.finish(queue, incoming),
        }
        progress
    }

    fn receive_more(
        &mut self,
        peer: &mut Peer,
        queue: &mut Queue,
        incoming: &mut Incoming,
    ) -> Progress {
        let Some(slot) = incoming.slot else { return self.fill(peer) };
        let Stage::Receiving { data, .. } = &mut queue.slots.get(slot).stage else {
            unreachable!("data is received only for a command that expects it");
        };
        let (left, at) = (incoming.length - incoming.got, incoming.start + incoming.got);
        let (left, at) = (left as usize, at as usize);
        let most = if self.is_ahead { left } else { left.min(PIECE_BYTES_MAX) };
        let is_piece = most < left;
        let place = Place { data, at, most };
        let received = match is_piece {
            true => peer.fill_to(place),
            false => peer.fill_through(place),
        };
        let bytes = received.bytes().min(most);
        self.took_piece = is_piece && bytes == most;
        self.is_ahead = bytes == most && (self.is_ahead || is_piece);
        incoming.got += bytes as u32;
        self.received_now += bytes;
        self.note_received(received)
    }

    /// Verifies the data digest. A mismatch fails only the command (TCP, section 3.3.1.1).
    fn check(&mut self, peer: &mut Peer, queue: &mut Queue, incoming: Incoming) -> Progress {
        let Some(said) = peer.input().bytes().first_chunk::<DIGEST_BYTES>().copied() else {
            return self.fill(peer);
        };
        peer.input().consume(DIGEST_BYTES);
        if let Some(index) = incoming.slot {
            let slot = queue.slots.get(index);
            if let Stage::Receiving { data, .. } = &slot.stage
                && digest::of_all(data.slices(incoming.start as usize, incoming.length as usize))
                    != said
            {
                slot.status = Status::TRANSIENT_TRANSPORT;
            }
        }
        self.finish(queue, incoming);
        Progress::Yes
    }

    /// Finishes a PDU whose data has arrived.
    fn finish(&mut self, queue: &mut Queue, incoming: Incoming) {
        self.front = Front::Header;
        let Some(index) = incoming.slot else { return };
        let Stage::Receiving { data, got, .. } = &mut queue.slots.get(index).stage else { return };
        *got += incoming.length;
        if *got as usize == data.len() {
            queue.received(index);
        }
    }
}

/// The command of an H2CData PDU, if the PDU carries the requested bytes: the next ones, and with the LAST flag if they
/// are the last (TCP, section 3.6.2.8).
fn awaited(
    slots: &mut Slots,
    transfer: &Transfer,
    common: &Common,
    frame: &Frame,
) -> Result<SlotIndex, PduError> {
    let slot = slots.find(transfer.tag).ok_or(PduError::field(10))?;
    let Stage::Receiving { data, got, .. } = &slot.stage else {
        return Err(PduError::field(10));
    };
    if slot.cid != transfer.cid {
        return Err(PduError::field(8));
    }
    if transfer.length != frame.data {
        return Err(PduError::field(16));
    }
    let left = data.len() as u32 - got;
    if transfer.offset != *got || transfer.length > left {
        return Err(PduError::new(FatalStatus::OutOfRange, 12));
    }
    if (common.flags & flag::LAST != 0) != (transfer.length == left) {
        return Err(PduError::field(1));
    }
    Ok(SlotIndex(transfer.tag))
}
