//! From bytes of the socket to commands and their data.

use super::{Connection, Voice};
use crate::handshake::check_header_digest;
use crate::limits::{
    DATA_BYTES_PER_TURN, H2C_BYTES_MAX, IN_CAPSULE_BYTES, PDUS_PER_TURN, PIECE_BYTES_MAX,
};
use crate::replies::Reply;
use crate::slots::{SlotIndex, Stage};
use strake_export_net::{Connection as _, Place, Received};
use strake_nvme_wire::Status;
use strake_nvme_wire::digest::{self, DIGEST_BYTES};
use strake_nvme_wire::pdu::{
    self, CAPSULE_CMD_BYTES, COMMON_BYTES, Common, DATA_BYTES, FatalStatus, Frame, PduError,
    PduKind, Transfer, Use, flag,
};
use strake_units::Nanos;

/// What the front of the stream of bytes is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Intake {
    /// The header of a PDU.
    Header,
    /// The data of one.
    Data(Incoming),
    /// The digest of the data.
    Digest(Incoming),
    /// Nothing more will be looked at.
    Closed,
}

/// Data of one PDU on its way into a command's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    /// Whose it is; `None` for data of a command that was refused.
    pub(super) slot: Option<SlotIndex>,
    /// Where it begins in the command's data.
    pub(super) start: u32,
    /// Bytes of it.
    pub(super) length: u32,
    /// As many are there.
    pub(super) got: u32,
    /// Whether a digest follows it.
    pub(super) digest: Use,
}

/// Whether intake can go on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Yes,
    No,
}

impl Connection {
    /// Takes in as much as fits, within the bound of a turn; says how much that was.
    pub(super) fn take_in(&mut self, now: Nanos) -> usize {
        (self.received_now, self.took_piece) = (0, false);
        for step in 0..PDUS_PER_TURN {
            let enough = self.took_piece || self.received_now >= DATA_BYTES_PER_TURN;
            if enough || self.take_step(now) == Progress::No {
                return step;
            }
        }
        PDUS_PER_TURN
    }

    fn take_step(&mut self, now: Nanos) -> Progress {
        match self.intake {
            Intake::Closed => Progress::No,
            Intake::Header => match self.next_pdu(now) {
                Ok(progress) => progress,
                Err(error) => self.refuse(error),
            },
            Intake::Data(incoming) => self.receive(incoming),
            Intake::Digest(incoming) => self.check(incoming),
        }
    }

    /// Reads from the socket, or finds out that there is nothing to read.
    fn fill(&mut self) -> Progress {
        let received = self.peer.fill();
        self.note_received(received)
    }

    fn note_received(&mut self, received: Received) -> Progress {
        match received {
            Received::Full(_) | Received::Short(_) => Progress::Yes,
            Received::Blocked => Progress::No,
            Received::Ended => {
                self.drain();
                Progress::No
            }
            Received::Broken => {
                self.break_off();
                Progress::No
            }
        }
    }

    /// Ends the connection because of what the host sent, and says why (TCP, section 3.5).
    fn refuse(&mut self, error: PduError) -> Progress {
        self.complete_owed();
        let known = self.peer.input().bytes();
        let (bytes, length) =
            pdu::c2h_term_req(error, &known[..known.len().min(CAPSULE_CMD_BYTES)]);
        self.replies.push(Reply::raw(&bytes[..length]));
        self.leave(Voice::Silent);
        Progress::No
    }

    fn next_pdu(&mut self, now: Nanos) -> Result<Progress, PduError> {
        let Some(first) = self.peer.input().bytes().first_chunk::<COMMON_BYTES>() else {
            return Ok(self.fill());
        };
        let common = Common::parse(first)?;
        let frame = common.frame(self.link.digests)?;
        let most = match common.kind {
            PduKind::CapsuleCmd => IN_CAPSULE_BYTES,
            PduKind::H2cData => H2C_BYTES_MAX,
            PduKind::H2cTermReq => {
                self.leave(Voice::Silent);
                return Ok(Progress::No);
            }
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
        let bytes = self.peer.input().bytes();
        if bytes.len() < frame.lead {
            return Ok(self.fill());
        }
        check_header_digest(bytes, &frame)?;
        if let Some(header) = bytes.first_chunk::<CAPSULE_CMD_BYTES>()
            && common.kind == PduKind::CapsuleCmd
        {
            let sqe = pdu::command_of(header);
            let next = self.command(&sqe, &frame, now)?;
            self.begin_data(next, &frame);
        } else if let Some(header) = bytes.first_chunk::<DATA_BYTES>() {
            let transfer = Transfer::parse(header);
            let slot = self.awaited(&transfer, &common, &frame)?;
            self.begin_data(Some((slot, transfer.offset)), &frame);
        }
        Ok(Progress::Yes)
    }

    /// Goes past a header, to the data behind it if there is some: that of `whose`, from an offset on.
    fn begin_data(&mut self, whose: Option<(SlotIndex, u32)>, frame: &Frame) {
        self.peer.input().consume(frame.lead);
        // A command may have ended the connection.
        if !matches!(self.intake, Intake::Header) || frame.data == 0 {
            return;
        }
        let (slot, start) = whose.map_or((None, 0), |(slot, start)| (Some(slot), start));
        let (length, digest) = (frame.data, frame.data_digest);
        self.intake = Intake::Data(Incoming { slot, start, length, got: 0, digest });
    }

    /// The command that data is for, if it is what was asked for: the next bytes, and marked as the last if they are
    /// (TCP, section 3.6.2.8).
    fn awaited(
        &mut self,
        transfer: &Transfer,
        common: &Common,
        frame: &Frame,
    ) -> Result<SlotIndex, PduError> {
        let slot = self.slots.find(transfer.tag).ok_or(PduError::field(10))?;
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

    /// Receives data into its place, or throws it away.
    fn receive(&mut self, mut incoming: Incoming) -> Progress {
        let left = incoming.length - incoming.got;
        let mut progress = Progress::Yes;
        let here = match incoming.slot {
            None => {
                let here = self.peer.input().bytes().len().min(left as usize);
                self.peer.input().consume(here);
                here
            }
            Some(slot) => {
                let Stage::Receiving { data, .. } = &mut self.slots.get(slot).stage else {
                    unreachable!("data is received only for a command that expects it");
                };
                let at = (incoming.start + incoming.got) as usize;
                self.peer.input().move_to(Place { data, at, most: left as usize })
            }
        };
        incoming.got += here as u32;
        self.received_now += here;
        if incoming.got < incoming.length {
            progress = self.receive_more(&mut incoming);
        }
        // Receiving may have found the end of the connection.
        if !matches!(self.intake, Intake::Data(_)) {
            return Progress::No;
        }
        if incoming.got < incoming.length {
            self.intake = Intake::Data(incoming);
            return progress;
        }
        match incoming.digest {
            Use::On => self.intake = Intake::Digest(incoming),
            Use::Off => self.finish(incoming),
        }
        progress
    }

    fn receive_more(&mut self, incoming: &mut Incoming) -> Progress {
        let Some(slot) = incoming.slot else { return self.fill() };
        let Stage::Receiving { data, .. } = &mut self.slots.get(slot).stage else {
            unreachable!("data is received only for a command that expects it");
        };
        let (left, at) = (incoming.length - incoming.got, incoming.start + incoming.got);
        let (left, at) = (left as usize, at as usize);
        let most = if self.is_ahead { left } else { left.min(PIECE_BYTES_MAX) };
        let is_piece = most < left;
        let place = Place { data, at, most };
        let received = match is_piece {
            true => self.peer.fill_to(place),
            false => self.peer.fill_through(place),
        };
        let bytes = received.bytes().min(most);
        self.took_piece = is_piece && bytes == most;
        self.is_ahead = bytes == most && (self.is_ahead || is_piece);
        incoming.got += bytes as u32;
        self.received_now += bytes;
        self.note_received(received)
    }

    /// Compares data with its digest. Damaged data fails its command and nothing else (TCP, section 3.3.1.1).
    fn check(&mut self, incoming: Incoming) -> Progress {
        let Some(said) = self.peer.input().bytes().first_chunk::<DIGEST_BYTES>().copied() else {
            return self.fill();
        };
        self.peer.input().consume(DIGEST_BYTES);
        if let Some(index) = incoming.slot {
            let slot = self.slots.get(index);
            if let Stage::Receiving { data, .. } = &slot.stage
                && digest::of_all(data.slices(incoming.start as usize, incoming.length as usize))
                    != said
            {
                slot.status = Status::TRANSIENT_TRANSPORT;
            }
        }
        self.finish(incoming);
        Progress::Yes
    }

    /// The data of a PDU is there.
    fn finish(&mut self, incoming: Incoming) {
        self.intake = Intake::Header;
        let Some(index) = incoming.slot else { return };
        let Stage::Receiving { data, got, .. } = &mut self.slots.get(index).stage else { return };
        *got += incoming.length;
        if *got as usize == data.len() {
            self.received(index);
        }
    }
}
