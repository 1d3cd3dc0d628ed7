//! Reception: from the bytes of a target to completed requests.

use super::FabricsQueue;
use crate::error::{Breach, Reason, Unfit, Verdict, verdict};
use crate::limits::{PDUS_PER_POLL, RETRY_AFTER};
use crate::queue::outbox::Asked;
use crate::queue::slot::{SlotIndex, Stage};
use crate::reservation::ReservationMode;
use strake_block::{IoErrorKind, Op};
use strake_nvme_tcp::digest::{self, DIGEST_BYTES};
use strake_nvme_tcp::pdu::{
    self, CAPSULE_RESP_BYTES, Common, DATA_BYTES, Frame, PduKind, Transfer, Use, flag,
};
use strake_nvme_wire::Status;
use strake_tls::{Place, Received};
use strake_units::Nanos;

/// Data that is being received for a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    index: SlotIndex,
    /// The offset in the data of the request.
    start: usize,
    length: u32,
    got: u32,
    digest: Use,
    /// Whether the SUCCESS flag replaces a completion.
    ends: bool,
}

/// The kind of bytes that is processed next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Intake {
    Header,
    Data(Incoming),
    Digest(Incoming),
}

/// Whether to continue at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Yes,
    /// The socket has no more bytes for now.
    No,
}

impl FabricsQueue {
    /// Receives up to the limit of a poll.
    pub(super) fn take_in(&mut self, now: Nanos) -> Result<(), Reason> {
        self.more = false;
        if self.in_flight == 0 && self.slots.are_free() {
            return Ok(());
        }
        if let Some(link) = &mut self.link {
            link.wire.begin_turn();
        }
        for _ in 0..PDUS_PER_POLL {
            let progress = match self.intake {
                Intake::Header => self.header(now)?,
                Intake::Data(incoming) => self.receive(incoming, now)?,
                Intake::Digest(incoming) => self.compare(incoming, now)?,
            };
            if progress == Progress::No {
                // The kernel reports no event for bytes that were read but not decrypted.
                self.more = self.link.as_ref().is_some_and(|link| link.wire.is_paused());
                return Ok(());
            }
        }
        self.more = true;
        Ok(())
    }

    fn fill(&mut self) -> Result<Progress, Reason> {
        let Some(link) = &mut self.link else { return Ok(Progress::No) };
        progress(self.input.fill(&mut link.wire))
    }

    fn header(&mut self, now: Nanos) -> Result<Progress, Reason> {
        let Some(digests) = self.link.as_ref().map(|link| link.terms.digests) else {
            return Ok(Progress::No);
        };
        let bytes = self.input.bytes();
        let Some((common, frame)) = pdu::header(bytes, digests)? else { return self.fill() };
        match common.kind {
            PduKind::CapsuleResp => {
                if let Some(header) = bytes.first_chunk::<CAPSULE_RESP_BYTES>() {
                    let cqe = pdu::completion_of(header);
                    self.input.consume(frame.lead);
                    self.answered(cqe.cid, cqe.status, now)?;
                }
            }
            PduKind::C2hData => {
                let transfer = transfer_of(bytes);
                self.input.consume(frame.lead);
                self.begin_data(&transfer, &common, &frame)?;
            }
            PduKind::R2t => {
                let transfer = transfer_of(bytes);
                self.input.consume(frame.lead);
                self.asked(&transfer)?;
            }
            PduKind::C2hTermReq => {
                let header = bytes.first_chunk().copied().unwrap_or([0; DATA_BYTES]);
                let (status, field) = pdu::term_req_of(&header);
                return Err(Reason::Ended(status, field));
            }
            PduKind::IcReq
            | PduKind::IcResp
            | PduKind::H2cTermReq
            | PduKind::CapsuleCmd
            | PduKind::H2cData => return Err(Breach::Unexpected.into()),
        }
        Ok(Progress::Yes)
    }

    /// The target requests data (R2T; TCP, section 3.6.2.10): the bytes behind the previous ones, with one R2T at a
    /// time, as negotiated.
    fn asked(&mut self, transfer: &Transfer) -> Result<(), Reason> {
        let (index, slot) = self.slots.find(transfer.cid).ok_or(Breach::NoSuchCommand)?;
        if slot.stage != Stage::Waiting {
            return Err(Breach::TooEarly.into());
        }
        if !slot.changes() {
            return Err(Breach::WrongDirection.into());
        }
        if transfer.offset != slot.moved {
            return Err(Breach::Offset.into());
        }
        let left = slot.piece.bytes - slot.moved;
        if transfer.length == 0 || transfer.length > left {
            return Err(Breach::Length.into());
        }
        let until = slot.moved + transfer.length;
        let asked = Asked { cid: transfer.cid, tag: transfer.tag, from: slot.moved, until };
        slot.moved = until;
        self.stats.counts.goes(transfer.length);
        slot.stage = Stage::Sending;
        let Some(link) = &self.link else { return Ok(()) };
        slot.send_data(asked, &self.ability, &link.terms);
        self.outbox.push(index);
        Ok(())
    }

    /// Data of a read (C2HData; TCP, section 3.6.2.9): the bytes behind the previous ones.
    fn begin_data(
        &mut self,
        transfer: &Transfer,
        common: &Common,
        frame: &Frame,
    ) -> Result<(), Reason> {
        let (index, slot) = self.slots.find(transfer.cid).ok_or(Breach::NoSuchCommand)?;
        if slot.stage != Stage::Waiting {
            return Err(Breach::TooEarly.into());
        }
        if !matches!(slot.op(), Op::Read { .. }) {
            return Err(Breach::WrongDirection.into());
        }
        if transfer.offset != slot.moved {
            return Err(Breach::Offset.into());
        }
        let left = slot.piece.bytes - slot.moved;
        if transfer.length != frame.data || transfer.length > left {
            return Err(Breach::Length.into());
        }
        let (last, ends) = (common.flags & flag::LAST != 0, common.flags & flag::SUCCESS != 0);
        if (last && transfer.length != left) || (ends && !last) {
            return Err(Breach::Short.into());
        }
        let start = slot.piece.offset + slot.moved as usize;
        let (length, digest) = (transfer.length, frame.data_digest);
        self.intake = Intake::Data(Incoming { index, start, length, got: 0, digest, ends });
        Ok(())
    }

    /// Copies data to its destination.
    fn receive(&mut self, mut incoming: Incoming, now: Nanos) -> Result<Progress, Reason> {
        let Some(link) = &mut self.link else { return Ok(Progress::No) };
        let Op::Read { data, .. } = self.slots.get(incoming.index).op() else {
            unreachable!("data is received only for a read");
        };
        let at = incoming.start + incoming.got as usize;
        let most = (incoming.length - incoming.got) as usize;
        let place = Place { data, at, most };
        let mut going_on = Progress::Yes;
        if self.input.bytes().is_empty() {
            let received = self.input.fill_through(&mut link.wire, place);
            going_on = progress(received)?;
            incoming.got += received.bytes().min(most) as u32;
        } else {
            incoming.got += self.input.move_to(place) as u32;
        }
        self.intake = Intake::Data(incoming);
        if incoming.got == incoming.length {
            match incoming.digest {
                Use::On => self.intake = Intake::Digest(incoming),
                Use::Off => self.finish(incoming, now)?,
            }
        }
        Ok(going_on)
    }

    /// Verifies the data digest. After a mismatch the data is read again; the connection remains usable (TCP, section
    /// 3.3.1.1).
    fn compare(&mut self, incoming: Incoming, now: Nanos) -> Result<Progress, Reason> {
        let Some(said) = self.input.bytes().first_chunk::<DIGEST_BYTES>().copied() else {
            return self.fill();
        };
        self.input.consume(DIGEST_BYTES);
        let slot = self.slots.get(incoming.index);
        let Op::Read { data, .. } = slot.op() else {
            unreachable!("data is received only for a read");
        };
        let is = digest::of_all(data.slices(incoming.start, incoming.length as usize));
        slot.damaged |= is != said;
        self.finish(incoming, now)?;
        Ok(Progress::Yes)
    }

    fn finish(&mut self, incoming: Incoming, now: Nanos) -> Result<(), Reason> {
        self.intake = Intake::Header;
        let slot = self.slots.get(incoming.index);
        slot.moved += incoming.length;
        self.stats.counts.came(incoming.length);
        if incoming.ends {
            return self.conclude(incoming.index, Status::SUCCESS, now);
        }
        Ok(())
    }

    fn answered(&mut self, cid: u16, status: Status, now: Nanos) -> Result<(), Reason> {
        let (index, slot) = self.slots.find(cid).ok_or(Breach::NoSuchCommand)?;
        if slot.stage != Stage::Waiting {
            return Err(Breach::TooEarly.into());
        }
        self.conclude(index, status, now)
    }

    /// Processes the completion of a command.
    fn conclude(&mut self, index: SlotIndex, status: Status, now: Nanos) -> Result<(), Reason> {
        let slot = self.slots.get(index);
        if status.is_success() && slot.moved != slot.piece.bytes {
            return Err(Breach::Short.into());
        }
        if status.is(Status::INVALID_NAMESPACE) {
            // The namespace ID may next belong to another namespace: no command is sent before the namespace is
            // identified again.
            return Err(Reason::Unusable(Unfit::Absent));
        }
        let is_reserving = self.shared.options.reservation != ReservationMode::Off;
        if status.is(Status::RESERVATION_CONFLICT) && is_reserving {
            return Err(Reason::TakenOver);
        }
        self.in_flight -= 1;
        if !status.is_success() {
            self.stats.counts.failure();
        }
        let damaged = slot.damaged && status.is_success();
        match if damaged { Verdict::Again } else { verdict(status) } {
            Verdict::Done => self.done(index, now),
            Verdict::Later => {
                // The number of attempts is not limited, only their time; see `give_up`.
                slot.tries -= 1;
                self.send_again(index, now.plus(RETRY_AFTER), IoErrorKind::Gone);
            }
            Verdict::Again => self.send_again(index, now.plus(RETRY_AFTER), IoErrorKind::Device),
            Verdict::Failed(kind) => {
                let kind = failure(slot.op(), kind);
                self.end(index, Err(kind));
            }
        }
        Ok(())
    }

    /// Processes the success of a command.
    fn done(&mut self, index: SlotIndex, now: Nanos) {
        let (slot, shared) = (self.slots.get(index), &self.shared);
        if self.ability.caches
            && slot.needs_flush()
            && let Some(link) = &self.link
        {
            shared.cache.changed(link.life.number);
        }
        if !slot.advance(&self.ability) {
            slot.stage = Stage::Ready;
            return self.ready.push_back(index);
        }
        if let (Op::Flush, Some(link)) = (slot.op(), &self.link)
            && link.life.number < shared.cache.current()
        {
            // The flush may not cover changes that completed over the next association before it was sent.
            return self.send_again(index, now, IoErrorKind::Gone);
        }
        let lost = shared.cache.has_lost(self.since);
        let result = match slot.op() {
            // The data of the read may be older than completed changes.
            Op::Flush | Op::Read { .. } if lost => Err(IoErrorKind::Gone),
            Op::Flush => {
                shared.cache.flushed(slot.covers);
                Ok(())
            }
            Op::Read { .. } | Op::Write { .. } | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {
                Ok(())
            }
        };
        self.end(index, result);
    }
}

fn progress(received: Received) -> Result<Progress, Reason> {
    match received {
        Received::Full(_) | Received::Short(_) => Ok(Progress::Yes),
        Received::Blocked => Ok(Progress::No),
        Received::Ended => Err(Reason::Closed),
        Received::Broken(error) => Err(error.into()),
    }
}

/// The fields of a complete header.
fn transfer_of(bytes: &[u8]) -> Transfer {
    Transfer::parse(&bytes.first_chunk().copied().unwrap_or([0; DATA_BYTES]))
}

/// Only a read can have unreadable blocks; a write that the medium rejected is a drive failure.
fn failure(op: &Op, kind: IoErrorKind) -> IoErrorKind {
    match (op, kind) {
        (Op::Read { .. }, kind) => kind,
        (_, IoErrorKind::Medium) => IoErrorKind::Device,
        (_, kind) => kind,
    }
}
