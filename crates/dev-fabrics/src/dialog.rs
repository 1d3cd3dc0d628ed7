//! A connection on which one command at a time is sent and awaited: the setup of connections, and the admin queue.

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

/// The data of a command: in its capsule, or received. A command has at most one of them.
pub(crate) enum Load<'a> {
    Nothing,
    Sent(&'a [u8]),
    Received(&'a mut [u8]),
    /// The bytes that the target sends, limited by the length of the vector, which is then truncated to the received
    /// length.
    Message(&'a mut Vec<u8>),
}

/// The buffer for received data, and the number of received bytes.
struct Room<'a> {
    bytes: &'a mut [u8],
    got: usize,
    /// True if the buffer must be filled.
    whole: bool,
}

impl Room<'_> {
    const fn is_enough(&self) -> bool {
        !self.whole || self.got == self.bytes.len()
    }
}

/// A connection after the negotiation of digests and sizes.
pub(crate) struct Dialog {
    stream: Stream,
    digests: Digests,
    alignment: u8,
    data_bytes_max: u32,
    cid: u16,
    event: Event,
    /// The time limit of all commands.
    ends: Option<Until>,
}

/// The CID of the Asynchronous Event Request; no other command uses it.
const EVENT_CID: u16 = 0;

/// The state of the Asynchronous Event Request (Base, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    NotAsked,
    Asked,
    Answered(Cqe),
}

impl Dialog {
    /// Connects, with TLS if there is a key, and negotiates sizes and digests. A target may reject some of the `wanted`
    /// digests (TCP, section 3.2).
    pub(crate) fn begin(
        address: &Address,
        host: &HostName,
        wanted: Digests,
        until: Until,
    ) -> Result<Self, Reason> {
        Self::begin_at(&places_of(address, until)?, address, host, wanted, until)
    }

    /// As [`begin`](Self::begin), with resolved addresses.
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

    /// Sets a time limit for everything from now on, in addition to the limit of each step: a target that answers every
    /// step late must not delay the caller more than a silent one.
    pub(crate) fn finish_by(&mut self, ends: Until) {
        self.ends = Some(ends);
    }

    fn until(&self, patience: Duration) -> Until {
        let until = Until::within(patience);
        self.ends.map_or(until, |ends| ends.min(until))
    }

    /// The address of the peer.
    pub(crate) fn place(&self) -> Result<SocketAddr, Reason> {
        self.stream.place()
    }

    /// The parameters of the connection for an I/O queue.
    pub(crate) fn terms(&self, in_capsule_bytes: u32, window: u32) -> Terms {
        Terms {
            digests: self.digests,
            alignment: self.alignment,
            data_bytes_max: self.data_bytes_max,
            in_capsule_bytes,
            window,
        }
    }

    /// Converts the connection for I/O; no call waits from now on.
    pub(crate) fn into_wire(self) -> Result<Wire, Reason> {
        self.stream.into_wire()
    }

    /// Waits for `span`, or until the target sends an unsolicited PDU.
    pub(crate) fn rest(&self, span: Duration) -> Result<(), Reason> {
        let span = Timespec { tv_sec: 0, tv_nsec: i64::from(span.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&span)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Reason::Socket(errno)),
        }
    }

    /// Closes the connection so that no further bytes reach the target.
    pub(crate) fn abort(self) {
        self.stream.abort();
    }

    /// Executes a command. The caller checks the status.
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

    /// Sends the next Asynchronous Event Request, and does not wait for its completion.
    pub(crate) fn ask_event(&mut self, sqe: Sqe, patience: Duration) -> Result<(), Reason> {
        let capsule = self.capsule(&sqe.named(EVENT_CID), &[]);
        self.stream.put(&capsule, self.until(patience))?;
        self.event = Event::Asked;
        Ok(())
    }

    /// Receives an unsolicited PDU: the completion of the event request. Returns false if there is none: the readable
    /// bytes may have been TLS records without data.
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

    /// Takes the event that was received.
    pub(crate) fn take_event(&mut self) -> Option<Cqe> {
        let Event::Answered(cqe) = self.event else { return None };
        self.event = Event::NotAsked;
        Some(cqe)
    }

    /// Returns whether a completion belongs to the event request, and records it.
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

    /// True if there may be a PDU although the socket is not readable.
    pub(crate) fn has_more(&self) -> bool {
        self.stream.has_more()
    }

    fn capsule(&self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let lead = pdu::lead(CAPSULE_CMD_BYTES, self.digests, self.alignment);
        let header = pdu::capsule_cmd(sqe, self.digests, lead, data.len() as u32);
        framing::whole(&header, self.digests, lead, data)
    }

    /// Receives data and the completion behind it.
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

    /// The completion that the SUCCESS flag replaces (TCP, section 3.3.2.2).
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

    /// Receives and checks a header, without the data behind it.
    fn header(&mut self, until: Until) -> Result<(Common, Frame, Vec<u8>), Reason> {
        let mut first = [0; COMMON_BYTES];
        self.stream.take(&mut first, until)?;
        self.header_behind(first, until)
    }

    /// As [`header`](Self::header), after the first bytes were received.
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
