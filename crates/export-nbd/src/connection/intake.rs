//! Converts bytes of the socket into I/Os at the device.

use super::{Connection, Life};
use crate::admit::{Extents, Verdict, Work, admit, payload_bytes, permit};
use crate::limits::{
    EFFECT_BYTES_MAX, EXTENTS_PER_REPLY, PAYLOAD_BYTES_PER_TURN, REQUESTS_PER_TURN,
};
use crate::replies::Reply;
use crate::requests::{Issued, Slot, SlotIndex};
use crate::wire::{REQUEST_BYTES, Request, allocation, status_descriptor};
use strake_block::{Durability, ExtentSource, Io, Op, SgMut, Token};
use strake_export_net::{Connection as _, Place, Received, freeze};
use strake_units::{Lba, LbaRange};

/// Maximum number of extent lookups of one status request. It is larger than the number of reported extents, because
/// equal neighbours are joined.
const LOOKUPS_PER_STATUS: usize = 2 * EXTENTS_PER_REPLY;

/// The state of the received byte stream.
#[derive(Debug)]
pub(super) enum Intake {
    /// The header of a request.
    Header,
    /// A request without payload, whose I/Os from byte `next` on are not created yet.
    Issuing { slot: SlotIndex, next: u64 },
    /// A write whose next piece starts at byte `next` and has no buffers yet.
    Waiting { slot: SlotIndex, next: u64 },
    /// A piece of a write of which `filled` bytes were received.
    Receiving { slot: SlotIndex, next: u64, data: SgMut, filled: usize },
    /// The payload of a failed request, which is discarded. The request is answered after its payload, because a client
    /// need not expect an earlier answer.
    Discarding { slot: SlotIndex, left: u64 },
    /// Further input is ignored.
    Closed,
}

/// Whether intake can continue immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Yes,
    No,
}

impl Connection {
    /// Processes as much input as fits, within the limit of a turn, and returns the amount of work.
    pub(super) fn take_in(&mut self) -> usize {
        self.received_now = 0;
        for step in 0..REQUESTS_PER_TURN {
            // A full device queue stops intake, so that at most one request waits in the backlog.
            if self.device.is_full() {
                return step + self.device.submit_backlog();
            }
            if self.received_now >= PAYLOAD_BYTES_PER_TURN || self.take_step() == Progress::No {
                return step;
            }
        }
        REQUESTS_PER_TURN
    }

    fn take_step(&mut self) -> Progress {
        match std::mem::replace(&mut self.intake, Intake::Closed) {
            Intake::Closed => Progress::No,
            Intake::Header => self.next_request(),
            Intake::Issuing { slot, next } => self.issue(slot, next),
            Intake::Waiting { slot, next } => self.prepare_piece(slot, next),
            Intake::Receiving { slot, next, data, filled } => {
                self.receive(slot, next, data, filled)
            }
            Intake::Discarding { slot, left } => self.discard(slot, left),
        }
    }

    /// Stops processing the input of the client. A request without payload is still issued to its end.
    pub(super) fn abandon_intake(&mut self) {
        match std::mem::replace(&mut self.intake, Intake::Closed) {
            Intake::Issuing { slot, next } if self.life != Life::Broken => {
                self.intake = Intake::Issuing { slot, next };
            }
            Intake::Receiving { data, .. } => self.pools.put(data),
            Intake::Closed
            | Intake::Header
            | Intake::Issuing { .. }
            | Intake::Waiting { .. }
            | Intake::Discarding { .. } => {}
        }
    }

    /// Returns the next state of intake after a request.
    fn after_request(&self) -> Intake {
        match self.life {
            Life::Open => Intake::Header,
            Life::Draining { .. } | Life::Broken => Intake::Closed,
        }
    }

    /// Reads from the socket. Returns `No` if no input is available.
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
            Received::Broken(_) => {
                self.break_off();
                Progress::No
            }
        }
    }

    fn next_request(&mut self) -> Progress {
        self.intake = Intake::Header;
        if !self.requests.has_room() {
            return Progress::No;
        }
        let Some(bytes) = self.peer.input().bytes().first_chunk::<REQUEST_BYTES>() else {
            return self.fill();
        };
        let Some(request) = Request::parse(bytes) else {
            self.drain();
            return Progress::No;
        };
        self.peer.input().consume(REQUEST_BYTES);
        match admit(&request, &self.facts.terms) {
            Verdict::Do(work) => self.begin(&request, work),
            Verdict::Refuse(code, words) => {
                let slot = self.requests.begin(slot_of(&request, Work::Nothing));
                self.requests.get(slot).failure = Some((code, words));
                self.give_up(slot, u64::from(payload_bytes(&request)))
            }
            Verdict::Disconnect | Verdict::Violation => {
                self.drain();
                Progress::No
            }
        }
    }

    fn begin(&mut self, request: &Request, work: Work) -> Progress {
        let slot = self.requests.begin(slot_of(request, work));
        let next = request.offset;
        self.intake = match work {
            Work::Nothing => {
                self.conclude(slot);
                Intake::Header
            }
            Work::Write(_) => Intake::Waiting { slot, next },
            Work::Read(_) | Work::Zeroes(_) | Work::Trim(_) | Work::Flush | Work::Status(_) => {
                Intake::Issuing { slot, next }
            }
        };
        Progress::Yes
    }

    /// Creates the next I/O of a request without payload.
    fn issue(&mut self, slot: SlotIndex, next: u64) -> Progress {
        self.obey_reservations(slot);
        let request = *self.requests.get(slot);
        if request.failure.is_some() {
            return self.give_up(slot, 0);
        }
        let (work, cookie, end) = (request.work, request.cookie, request.end());
        let size = self.facts.terms.block;
        let at = Lba(next >> size.shift());
        let effect = (end - next).min(EFFECT_BYTES_MAX);
        let range = LbaRange::new(at, effect >> size.shift());
        let (op, bytes) = match work {
            Work::Read(_) => {
                let bytes = self.facts.piece(next, end);
                let Some(data) = self.pools.take(bytes) else {
                    self.intake = Intake::Issuing { slot, next };
                    return Progress::No;
                };
                (Op::Read { at, data }, bytes as u64)
            }
            Work::Zeroes(durability) => (Op::WriteZeroes { range, durability }, effect),
            Work::Trim(_) => (Op::Deallocate { range }, effect),
            Work::Flush => (Op::Flush, 0),
            Work::Status(extents) => return self.report_status(slot, cookie, next, extents),
            Work::Nothing | Work::Write(_) => unreachable!("never issued from here"),
        };
        self.hand_over(slot, op, (next, next + bytes));
        Progress::Yes
    }

    /// Submits the I/O of a request for the bytes from `at` to `next`, where the next one starts.
    fn hand_over(&mut self, slot: SlotIndex, op: Op, (at, next): (u64, u64)) {
        let request = self.requests.get(slot);
        let before = at - request.offset;
        request.outstanding += 1;
        let is_write = matches!(request.work, Work::Write(_));
        self.intake = if next == request.end() {
            request.issued = Issued::Wholly;
            self.after_request()
        } else if is_write {
            Intake::Waiting { slot, next }
        } else {
            Intake::Issuing { slot, next }
        };
        self.device.submit_part(Io { token: Token(u64::from(slot.0)), op }, before);
    }

    /// Fails a request that a reservation does not permit now.
    pub(super) fn obey_reservations(&mut self, slot: SlotIndex) {
        let rights = self.connection_slot.export.rights.get();
        let request = self.requests.get(slot);
        if request.failure.is_none() {
            request.failure = permit(request.work, rights).err();
        }
    }

    fn prepare_piece(&mut self, slot: SlotIndex, next: u64) -> Progress {
        self.obey_reservations(slot);
        let request = self.requests.get(slot);
        let end = request.end();
        if request.failure.is_some() {
            return self.give_up(slot, end - next);
        }
        match self.pools.take(self.facts.piece(next, end)) {
            Some(data) => {
                self.intake = Intake::Receiving { slot, next, data, filled: 0 };
                Progress::Yes
            }
            None => {
                self.intake = Intake::Waiting { slot, next };
                Progress::No
            }
        }
    }

    fn receive(
        &mut self,
        slot: SlotIndex,
        next: u64,
        mut data: SgMut,
        mut filled: usize,
    ) -> Progress {
        let mut progress = Progress::Yes;
        let most = data.len() - filled;
        filled += self.peer.input().move_to(Place { data: &mut data, at: filled, most });
        if filled < data.len() {
            let most = data.len() - filled;
            let received = self.peer.fill_through(Place { data: &mut data, at: filled, most });
            filled = data.len().min(filled + received.bytes());
            self.received_now += received.bytes();
            // The piece is put back first, so that a disconnection finds its buffers.
            let whole = filled == data.len();
            self.intake = Intake::Receiving { slot, next, data, filled };
            progress = self.note_received(received);
            if !whole || progress == Progress::No {
                return progress;
            }
            let Intake::Receiving { data: same, .. } =
                std::mem::replace(&mut self.intake, Intake::Closed)
            else {
                return Progress::No;
            };
            data = same;
        }
        self.write_piece(slot, next, data);
        progress
    }

    fn write_piece(&mut self, slot: SlotIndex, next: u64, data: SgMut) {
        self.obey_reservations(slot);
        let end = next + data.len() as u64;
        let request = self.requests.get(slot);
        if request.failure.is_some() {
            let left = request.end() - end;
            self.give_up(slot, left);
            return;
        }
        let durability = match self.requests.get(slot).work {
            Work::Write(durability) => durability,
            Work::Nothing
            | Work::Read(_)
            | Work::Zeroes(_)
            | Work::Trim(_)
            | Work::Flush
            | Work::Status(_) => Durability::Normal,
        };
        let at = Lba(next >> self.facts.terms.block.shift());
        self.hand_over(slot, Op::Write { at, data: freeze(data), durability }, (next, end));
    }

    /// Continues without the rest of a failed request, of whose payload `left` bytes have not arrived yet.
    fn give_up(&mut self, slot: SlotIndex, left: u64) -> Progress {
        if left > 0 {
            self.intake = Intake::Discarding { slot, left };
            return Progress::Yes;
        }
        self.intake = self.after_request();
        let request = self.requests.get(slot);
        request.issued = Issued::Wholly;
        if request.is_over() {
            self.conclude(slot);
        }
        Progress::Yes
    }

    fn discard(&mut self, slot: SlotIndex, left: u64) -> Progress {
        let here = (self.peer.input().bytes().len() as u64).min(left);
        self.peer.input().consume(here as usize);
        if here == left {
            return self.give_up(slot, 0);
        }
        self.intake = Intake::Discarding { slot, left: left - here };
        self.fill()
    }

    fn report_status(
        &mut self,
        slot: SlotIndex,
        cookie: u64,
        next: u64,
        extents: Extents,
    ) -> Progress {
        let wanted = match extents {
            Extents::One => 1,
            Extents::Several => EXTENTS_PER_REPLY,
        };
        let Some(data) = self.pools.take(wanted * allocation::DESCRIPTOR_BYTES) else {
            self.intake = Intake::Issuing { slot, next };
            return Progress::No;
        };
        let mut buf = data.into_single().expect("a list of descriptors fits one buffer");
        let size = self.facts.terms.block;
        let range = LbaRange::new(
            Lba(next >> size.shift()),
            u64::from(self.requests.get(slot).length) >> size.shift(),
        );
        let source = self.connection_slot.export.extents.as_deref();
        let mut used = 0;
        let count = describe(source, range, wanted, |blocks, state| {
            let bytes = (blocks << size.shift()) as u32;
            let end = used + allocation::DESCRIPTOR_BYTES;
            buf.as_mut_slice()[used..end].copy_from_slice(&status_descriptor(bytes, state));
            used = end;
        });
        buf.truncate(count * allocation::DESCRIPTOR_BYTES);
        self.requests.get(slot).issued = Issued::Wholly;
        self.replies.push(Reply::status_chunk(cookie, buf.into(), slot));
        self.intake = self.after_request();
        Progress::Yes
    }
}

fn slot_of(request: &Request, work: Work) -> Slot {
    let issued = match work {
        Work::Nothing => Issued::Wholly,
        Work::Read(_)
        | Work::Write(_)
        | Work::Zeroes(_)
        | Work::Trim(_)
        | Work::Flush
        | Work::Status(_) => Issued::Partly,
    };
    Slot {
        cookie: request.cookie,
        command: request.command,
        offset: request.offset,
        length: request.length,
        work,
        issued,
        outstanding: 0,
        failure: None,
        ordered: 0,
    }
}

/// Emits up to `wanted` extents of equal state that cover the start of `range`, and returns their number.
fn describe(
    source: Option<&dyn ExtentSource>,
    range: LbaRange,
    wanted: usize,
    mut emit: impl FnMut(u64, u32),
) -> usize {
    let Some(source) = source else {
        emit(range.blocks, 0);
        return 1;
    };
    let mut run: Option<(u64, u32)> = None;
    let mut emitted = 0;
    let mut at = range.start.0;
    for _ in 0..LOOKUPS_PER_STATUS {
        let left = range.end().0 - at;
        if left == 0 {
            break;
        }
        let extent = source.extent(Lba(at), left);
        // An answer that does not match the question is ignored: the state "written" is always safe.
        let fits = extent.range.start == Lba(at) && (1..=left).contains(&extent.range.blocks);
        let (blocks, state) = match (fits, extent.written) {
            (true, false) => (extent.range.blocks, allocation::HOLE | allocation::ZERO),
            (true, true) => (extent.range.blocks, 0),
            (false, _) => (left, 0),
        };
        at += blocks;
        run = match run {
            Some((before, same)) if same == state => Some((before + blocks, state)),
            Some((before, other)) => {
                emit(before, other);
                emitted += 1;
                if emitted == wanted {
                    return emitted;
                }
                Some((blocks, state))
            }
            None => Some((blocks, state)),
        };
    }
    if let Some((blocks, state)) = run {
        emit(blocks, state);
        emitted += 1;
    }
    emitted
}
