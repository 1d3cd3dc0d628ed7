//! One command after another over a connection that is waited for: how everything begins, and the admin queue.

use crate::address::{Address, HostName};
use crate::error::{Breach, Reason};
use crate::link::Terms;
use crate::names::places_of;
use crate::stream::{Stream, Until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use strake_nvme_auth::Names;
use strake_nvme_tcp::digest::{self, DIGEST_BYTES};
use strake_nvme_tcp::pdu::{
    self, CAPSULE_CMD_BYTES, CAPSULE_RESP_BYTES, COMMON_BYTES, Common, DATA_BYTES, Frame, IC_BYTES,
    IcReq, IcResp, PduKind, Transfer, Use, flag,
};
use strake_nvme_tcp::{Digests, framing};
use strake_nvme_wire::{Cqe, Sqe};
use strake_tls::Wire;

/// The data of a command: in its capsule, or to be received. A command has one or the other.
pub(crate) enum Load<'a> {
    Nothing,
    Sent(&'a [u8]),
    Received(&'a mut [u8]),
    /// As many bytes as the target has, and no more than there is room for; the room is cut to them.
    Message(&'a mut Vec<u8>),
}

/// Where data is put that comes, and how much of it has.
struct Room<'a> {
    bytes: &'a mut [u8],
    got: usize,
    /// It has to be filled.
    whole: bool,
}

impl Room<'_> {
    const fn is_enough(&self) -> bool {
        !self.whole || self.got == self.bytes.len()
    }
}

/// A connection with its digests and sizes agreed on.
pub(crate) struct Dialog {
    stream: Stream,
    digests: Digests,
    alignment: u8,
    data_bytes_max: u32,
    cid: u16,
    event: Event,
    /// When everything has to be over.
    ends: Option<Until>,
}

/// The identifier of the request for events; other commands never have it.
const EVENT_CID: u16 = 0;

/// Whether the target has been asked for an event (Base, section 5.2), and what it said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    NotAsked,
    Asked,
    Answered(Cqe),
}

impl Dialog {
    /// Connects, with TLS if there is a key for it, and agrees on sizes and on digests, of which a target may refuse
    /// some that are `wanted` (TCP, section 3.2).
    pub(crate) fn begin(
        address: &Address,
        host: &HostName,
        wanted: Digests,
        until: Until,
    ) -> Result<Self, Reason> {
        Self::begin_at(&places_of(address, until)?, address, host, wanted, until)
    }

    /// The same, where the machine was found before.
    pub(crate) fn begin_at(
        places: &[SocketAddr],
        address: &Address,
        host: &HostName,
        wanted: Digests,
        until: Until,
    ) -> Result<Self, Reason> {
        let names = Names { host: host.nqn.clone(), subsystem: address.nqn.clone() };
        let offers = host.tls.as_ref().map(|key| key.offers(&names)).unwrap_or_default();
        let mut dialog = Self {
            stream: Stream::open(places, &offers, until)?,
            digests: Digests::default(),
            alignment: 0,
            data_bytes_max: 0,
            cid: EVENT_CID,
            event: Event::NotAsked,
            ends: None,
        };
        dialog.stream.put(&IcReq { alignment: 0, digests: wanted, r2ts_max: 0 }.bytes(), until)?;
        let (common, _, header) = dialog.header(until)?;
        let header: &[u8; IC_BYTES] = match common.kind {
            PduKind::IcResp => header.first_chunk().ok_or(Breach::Unexpected)?,
            _ => return Err(dialog.unexpected(common.kind, &header)),
        };
        let granted = IcResp::parse(header)?;
        if !wanted.include(granted.digests) {
            return Err(Breach::Digests.into());
        }
        dialog.digests = granted.digests;
        dialog.alignment = IcResp::alignment(header);
        dialog.data_bytes_max = granted.data_bytes_max;
        Ok(dialog)
    }

    /// Sets when everything from now on has to be over, however long each step may take: a target that answers every
    /// step late must not hold us longer than one that does not answer.
    pub(crate) fn finish_by(&mut self, ends: Until) {
        self.ends = Some(ends);
    }

    fn until(&self, patience: Duration) -> Until {
        let until = Until::within(patience);
        self.ends.map_or(until, |ends| ends.min(until))
    }

    /// Where the other end is.
    pub(crate) fn place(&self) -> Result<SocketAddr, Reason> {
        self.stream.place()
    }

    /// What an I/O queue needs to know of the connection.
    pub(crate) fn terms(&self, in_capsule_bytes: u32, window: u32) -> Terms {
        Terms {
            digests: self.digests,
            alignment: self.alignment,
            data_bytes_max: self.data_bytes_max,
            in_capsule_bytes,
            window,
        }
    }

    /// The connection for I/O, on which no call waits from now on.
    pub(crate) fn into_wire(self) -> Result<Wire, Reason> {
        self.stream.into_wire()
    }

    /// Waits for `span`, or until the target sends something unasked.
    pub(crate) fn rest(&self, span: Duration) -> Result<(), Reason> {
        let span = Timespec { tv_sec: 0, tv_nsec: i64::from(span.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&span)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Reason::Socket(errno)),
        }
    }

    /// Closes the connection so that nothing more reaches the target.
    pub(crate) fn abort(self) {
        self.stream.abort();
    }

    /// Runs a command to its end. Its status is for the caller to look at.
    pub(crate) fn run(
        &mut self,
        sqe: Sqe,
        load: Load<'_>,
        patience: Duration,
    ) -> Result<Cqe, Reason> {
        let until = self.until(patience);
        self.cid = self.cid.checked_add(1).unwrap_or(EVENT_CID + 1);
        let data: &[u8] = match &load {
            Load::Sent(data) => data,
            Load::Nothing | Load::Received(_) | Load::Message(_) => &[],
        };
        let capsule = self.capsule(&sqe.named(self.cid), data);
        self.stream.put(&capsule, until)?;
        match load {
            Load::Nothing | Load::Sent(_) => {
                self.answer(&mut Room { bytes: &mut [], got: 0, whole: true }, until)
            }
            Load::Received(bytes) => self.answer(&mut Room { bytes, got: 0, whole: true }, until),
            Load::Message(message) => {
                let mut room = Room { bytes: message, got: 0, whole: false };
                let cqe = self.answer(&mut room, until);
                let got = room.got;
                message.truncate(got);
                cqe
            }
        }
    }

    /// Asks for the next event, which is answered when there is one, and not waited for.
    pub(crate) fn ask_event(&mut self, sqe: Sqe, patience: Duration) -> Result<(), Reason> {
        let capsule = self.capsule(&sqe.named(EVENT_CID), &[]);
        self.stream.put(&capsule, self.until(patience))?;
        self.event = Event::Asked;
        Ok(())
    }

    /// Takes what the target says without being asked for anything else: an event. False when that is not there: what
    /// made the socket readable may have been for TLS alone.
    pub(crate) fn listen(&mut self, patience: Duration) -> Result<bool, Reason> {
        let mut first = [0; COMMON_BYTES];
        let got = self.stream.take_now(&mut first)?;
        if got == 0 {
            return Ok(false);
        }
        let until = self.until(patience);
        self.stream.take(&mut first[got..], until)?;
        let (common, _, header) = self.header_behind(first, until)?;
        match (common.kind, header.first_chunk::<CAPSULE_RESP_BYTES>()) {
            (PduKind::CapsuleResp, Some(header)) if self.is_event(&pdu::completion_of(header)) => {
                Ok(true)
            }
            (PduKind::CapsuleResp, _) => Err(Breach::NoSuchCommand.into()),
            (kind, _) => Err(self.unexpected(kind, &header)),
        }
    }

    /// The event that came, once.
    pub(crate) fn take_event(&mut self) -> Option<Cqe> {
        let Event::Answered(cqe) = self.event else { return None };
        self.event = Event::NotAsked;
        Some(cqe)
    }

    /// Whether a completion is that of the request for events, which is noted then.
    fn is_event(&mut self, cqe: &Cqe) -> bool {
        let is = cqe.cid == EVENT_CID && self.event == Event::Asked;
        if is {
            self.event = Event::Answered(*cqe);
        }
        is
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether there is something to listen to although the socket may have nothing.
    pub(crate) fn has_more(&self) -> bool {
        self.stream.has_more()
    }

    fn capsule(&self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let lead = pdu::lead(CAPSULE_CMD_BYTES, self.digests, self.alignment);
        let header = pdu::capsule_cmd(sqe, self.digests, lead, data.len() as u32);
        framing::whole(&header, self.digests, lead, data)
    }

    /// Takes data and the completion that ends it.
    fn answer(&mut self, room: &mut Room<'_>, until: Until) -> Result<Cqe, Reason> {
        loop {
            let (common, frame, header) = self.header(until)?;
            match common.kind {
                PduKind::CapsuleResp => {
                    let header: &[u8; CAPSULE_RESP_BYTES] =
                        header.first_chunk().ok_or(Breach::Unexpected)?;
                    let cqe = pdu::completion_of(header);
                    if self.is_event(&cqe) {
                        continue;
                    }
                    if cqe.cid != self.cid {
                        return Err(Breach::NoSuchCommand.into());
                    }
                    if cqe.status.is_success() && !room.is_enough() {
                        return Err(Breach::Short.into());
                    }
                    return Ok(cqe);
                }
                PduKind::C2hData => {
                    let header: &[u8; DATA_BYTES] =
                        header.first_chunk().ok_or(Breach::Unexpected)?;
                    self.data(&Transfer::parse(header), &frame, room, until)?;
                    if common.flags & flag::SUCCESS != 0 {
                        return self.succeeded(common.flags, room.is_enough());
                    }
                }
                kind => return Err(self.unexpected(kind, &header)),
            }
        }
    }

    /// A completion that data stood for (TCP, section 3.3.2.2).
    fn succeeded(&self, flags: u8, whole: bool) -> Result<Cqe, Reason> {
        if flags & flag::LAST == 0 || !whole {
            return Err(Breach::Short.into());
        }
        let status = strake_nvme_wire::Status::SUCCESS;
        Ok(Cqe { result: 0, head: 0, cid: self.cid, status })
    }

    fn data(
        &mut self,
        transfer: &Transfer,
        frame: &Frame,
        room: &mut Room<'_>,
        until: Until,
    ) -> Result<(), Reason> {
        if transfer.cid != self.cid {
            return Err(Breach::NoSuchCommand.into());
        }
        if transfer.offset as usize != room.got {
            return Err(Breach::Offset.into());
        }
        let length = transfer.length as usize;
        if transfer.length != frame.data || length > room.bytes.len() - room.got {
            return Err(Breach::Length.into());
        }
        let place = &mut room.bytes[room.got..room.got + length];
        self.stream.take(place, until)?;
        if frame.data_digest == Use::On {
            let mut said = [0; DIGEST_BYTES];
            self.stream.take(&mut said, until)?;
            if said != digest::of(place) {
                return Err(Breach::DataDigest.into());
            }
        }
        room.got += length;
        Ok(())
    }

    /// A header, looked at, without its data.
    fn header(&mut self, until: Until) -> Result<(Common, Frame, Vec<u8>), Reason> {
        let mut first = [0; COMMON_BYTES];
        self.stream.take(&mut first, until)?;
        self.header_behind(first, until)
    }

    /// The same, of which the first bytes are there.
    fn header_behind(
        &mut self,
        first: [u8; COMMON_BYTES],
        until: Until,
    ) -> Result<(Common, Frame, Vec<u8>), Reason> {
        let common = Common::parse(&first)?;
        let frame = common.frame(self.digests)?;
        let mut header = first.to_vec();
        header.resize(frame.lead, 0);
        self.stream.take(&mut header[COMMON_BYTES..], until)?;
        frame.header_is_whole(&header)?;
        Ok((common, frame, header))
    }

    fn unexpected(&self, kind: PduKind, header: &[u8]) -> Reason {
        match header.first_chunk() {
            Some(header) if kind == PduKind::C2hTermReq => {
                let (status, field) = pdu::term_req_of(header);
                Reason::Ended(status, field)
            }
            Some(_) | None => Breach::Unexpected.into(),
        }
    }
}

#[cfg(test)]
mod tests;
