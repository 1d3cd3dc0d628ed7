//! Converts completions of the device into replies.

use super::{Connection, Life, Parked};
use crate::admit::{Framing, Work};
use crate::handshake::ReplyStyle;
use crate::limits::HELD_BYTES_MAX;
use crate::replies::{Part, Reply};
use crate::requests::{Slot, SlotIndex};
use crate::wire::{Code, command};
use strake_block::{Completion, Durability, Io, IoError, IoErrorKind, Op, SgMut};
use strake_export_net::count;
use strake_units::Nanos;

/// The error that reports a failure of the device to a client (section "Error values").
pub(crate) const fn code_of(kind: IoErrorKind) -> Code {
    match kind {
        IoErrorKind::NoSpace => Code::NoSpace,
        IoErrorKind::ReadOnly => Code::Perm,
        IoErrorKind::OutOfRange | IoErrorKind::Misaligned => Code::Invalid,
        IoErrorKind::Unsupported => Code::NotSupported,
        IoErrorKind::Aborted => Code::Shutdown,
        IoErrorKind::Medium
        | IoErrorKind::Device
        | IoErrorKind::Gone
        | IoErrorKind::Timeout
        | IoErrorKind::Lost => Code::Io,
    }
}

impl Connection {
    /// Processes the completions of the device, and returns their number.
    pub(super) fn poll_device(&mut self, now: Nanos) -> usize {
        let Some(mut batch) = self.device.poll(now) else { return 0 };
        let count = batch.len();
        for completion in batch.drain() {
            self.complete(completion);
        }
        self.device.give_back(batch);
        count
    }

    /// Fails the I/Os that wait for limits.
    pub(super) fn fail_held(&mut self) {
        while let Some(Io { token, op }) = self.device.take_held() {
            let result = Err(IoError::new(IoErrorKind::Lost));
            self.complete(Completion { token, op, result });
        }
    }

    /// Fails I/Os that wait for limits, and that a reservation does not permit any more.
    pub(super) fn obey_while_held(&mut self) {
        let Some(token) = self.device.held().map(|io| io.token) else { return };
        let slot = SlotIndex(token.0 as u16);
        self.obey_reservations(slot);
        if self.requests.get(slot).failure.is_some() {
            self.fail_held();
        }
    }

    fn complete(&mut self, completion: Completion) {
        let slot = SlotIndex(completion.token.0 as u16);
        let request = self.requests.get(slot);
        request.outstanding -= 1;
        if let Err(error) = completion.result {
            let failure = (code_of(error.kind), error.kind.text());
            request.failure.get_or_insert(failure);
        }
        match completion.op {
            Op::Read { at, data } => {
                let offset = at.bytes(self.facts.terms.block);
                match completion.result {
                    Ok(()) if self.life != Life::Broken => return self.deliver(slot, offset, data),
                    Ok(()) | Err(_) => self.pools.put(data),
                }
                self.unpark(slot);
            }
            Op::Write { data, .. } => self.pools.put_shared(data),
            Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {}
        }
        if self.requests.get(slot).is_over() {
            self.conclude(slot);
        }
    }

    /// Sends a piece of a read, immediately or when the preceding pieces were sent.
    fn deliver(&mut self, slot: SlotIndex, offset: u64, data: SgMut) {
        let request = *self.requests.get(slot);
        let Work::Read(framing) = request.work else { unreachable!("only reads have data") };
        let is_last = request.is_over();
        match framing {
            Framing::Chunks => {
                let ends = is_last && request.failure.is_none();
                let part = if ends { self.last(slot) } else { Part::Early };
                let reply = Reply::data_chunk(request.cookie, offset, data, part);
                self.replies.push(reply);
                if is_last && !ends {
                    self.conclude(slot);
                }
            }
            Framing::OneChunk | Framing::Simple => {
                self.parked.push(Parked { slot, offset, data });
                if request.failure.is_some() {
                    self.unpark(slot);
                } else if is_last || request.length > HELD_BYTES_MAX {
                    self.send_in_order(slot);
                }
                if is_last && request.failure.is_some() {
                    self.conclude(slot);
                }
            }
        }
    }

    /// Releases the buffers of a failed read that wait for preceding pieces, because the rest of the read may need
    /// them.
    fn unpark(&mut self, slot: SlotIndex) {
        let pools = &mut self.pools;
        for piece in self.parked.extract_if(.., |piece| piece.slot == slot) {
            pools.put(piece.data);
        }
    }

    /// Queues the available data of a read that must be sent in order.
    fn send_in_order(&mut self, slot: SlotIndex) {
        loop {
            let request = *self.requests.get(slot);
            let next = request.offset + u64::from(request.ordered);
            let Some(at) =
                self.parked.iter().position(|piece| piece.slot == slot && piece.offset == next)
            else {
                return;
            };
            let data = self.parked.swap_remove(at).data;
            let ordered = request.ordered + data.len() as u32;
            self.requests.get(slot).ordered = ordered;
            let part = if ordered == request.length { self.last(slot) } else { Part::Early };
            self.replies.push(ordered_reply(&request, data, part));
            if ordered == request.length {
                return;
            }
        }
    }

    /// Counts a successful read with its last reply.
    fn last(&mut self, slot: SlotIndex) -> Part {
        self.count_success(slot);
        Part::Last(slot)
    }

    /// Answers a request that has no outstanding I/O, and whose end was not sent with its data.
    pub(super) fn conclude(&mut self, slot: SlotIndex) {
        let request = *self.requests.get(slot);
        if self.life == Life::Broken {
            self.requests.end(slot);
            return;
        }
        if request.work == Work::Trim(Durability::Fua) && request.failure.is_none() {
            return self.flush_after(slot);
        }
        if request.failure.is_none() {
            self.count_success(slot);
        } else {
            count(&self.connection_slot.export.counters[self.lane].errors, 1);
        }
        match request.work {
            Work::Read(framing) => self.conclude_read(slot, &request, framing),
            Work::Nothing
            | Work::Write(_)
            | Work::Zeroes(_)
            | Work::Trim(_)
            | Work::Flush
            | Work::Status(_) => self.answer(slot, &request),
        }
    }

    /// Ends a failed read: its end was not sent with its data.
    fn conclude_read(&mut self, slot: SlotIndex, request: &Slot, framing: Framing) {
        // Section "Request types", `NBD_CMD_READ`: after a header that announced data, the reply cannot become an
        // error.
        if framing == Framing::Simple && request.ordered > 0 {
            return self.break_off();
        }
        self.answer(slot, request);
    }

    fn answer(&mut self, slot: SlotIndex, request: &Slot) {
        let is_read = request.command == command::READ;
        let reply = match self.facts.terms.agreement.replies {
            // Section "Structured reply chunk message": errors may contain text, and reads must be chunks. A simple
            // reply suffices for the other requests.
            ReplyStyle::Structured if is_read || request.failure.is_some() => {
                Reply::last_chunk(request.cookie, request.failure, slot)
            }
            ReplyStyle::Structured | ReplyStyle::Simple => {
                let code = request.failure.map(|(code, _)| code);
                Reply::simple(request.cookie, code, SgMut::default(), Part::Last(slot))
            }
        };
        self.replies.push(reply);
    }

    /// Flushes a completed trim that must be stable before it is answered.
    fn flush_after(&mut self, slot: SlotIndex) {
        let request = self.requests.get(slot);
        request.work = Work::Flush;
        request.outstanding += 1;
        self.device.submit(Io { token: strake_block::Token(u64::from(slot.0)), op: Op::Flush });
    }

    fn count_success(&mut self, slot: SlotIndex) {
        let request = self.requests.get(slot);
        let counters = &self.connection_slot.export.counters[self.lane];
        match request.work {
            Work::Read(_) => {
                count(&counters.reads, 1);
                count(&counters.read_bytes, u64::from(request.length));
            }
            Work::Write(_) => {
                count(&counters.writes, 1);
                count(&counters.written_bytes, u64::from(request.length));
            }
            Work::Zeroes(_) | Work::Trim(_) => count(&counters.effects, 1),
            Work::Flush => count(&counters.flushes, 1),
            Work::Nothing | Work::Status(_) => {}
        }
    }
}

fn ordered_reply(request: &Slot, data: SgMut, part: Part) -> Reply {
    let is_first = request.ordered == 0;
    match request.work {
        Work::Read(Framing::Simple) if is_first => Reply::simple(request.cookie, None, data, part),
        Work::Read(Framing::OneChunk) if is_first => {
            // The only data chunk goes out when everything was read, so it can be the last chunk too: its
            // parts are marked by the header, and the slot by whichever part ends it.
            Reply::only_chunk(request.cookie, request.offset, request.length, data, part)
        }
        Work::Read(_)
        | Work::Nothing
        | Work::Write(_)
        | Work::Zeroes(_)
        | Work::Trim(_)
        | Work::Flush
        | Work::Status(_) => Reply::raw(data, part),
    }
}
