//! One command after another over a connection that is waited for: how everything begins, and the admin queue.

use crate::address::Address;
use crate::error::{Breach, Reason};
use crate::link::Terms;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use strake_nvme_wire::digest::{self, DIGEST_BYTES};
use strake_nvme_wire::pdu::{
    self, CAPSULE_CMD_BYTES, CAPSULE_RESP_BYTES, COMMON_BYTES, Common, DATA_BYTES, Frame, IC_BYTES,
    IcReq, IcResp, PduKind, Transfer, Use, flag,
};
use strake_nvme_wire::{Cqe, Digests, Sqe};

/// The data of a command: in its capsule, or to be received. A command has one or the other.
pub(crate) enum Load<'a> {
    Nothing,
    Sent(&'a [u8]),
    Received(&'a mut [u8]),
}

/// A connection with its digests and sizes agreed on.
pub(crate) struct Dialog {
    stream: TcpStream,
    digests: Digests,
    alignment: u8,
    data_bytes_max: u32,
    cid: u16,
}

/// Time that is left for something.
#[derive(Clone, Copy)]
struct Until(Instant);

impl Until {
    fn left(self) -> Result<Duration, Reason> {
        let left = self.0.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(Reason::Silent) } else { Ok(left) }
    }
}

impl Dialog {
    /// Connects and agrees on sizes and on digests, of which a target may refuse some that are `wanted` (TCP, section
    /// 3.2).
    pub(crate) fn begin(
        address: &Address,
        wanted: Digests,
        patience: Duration,
    ) -> Result<Self, Reason> {
        let until = Until(Instant::now() + patience);
        let stream = dial(address, until)?;
        stream.set_nodelay(true).map_err(|error| Reason::of_io(&error))?;
        let mut dialog =
            Self { stream, digests: Digests::default(), alignment: 0, data_bytes_max: 0, cid: 0 };
        dialog.put(&IcReq { alignment: 0, digests: wanted, r2ts_max: 0 }.bytes(), until)?;
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

    /// The connection, which is not waited for any more.
    pub(crate) fn into_socket(self) -> Result<OwnedFd, Reason> {
        self.stream.set_nonblocking(true).map_err(|error| Reason::of_io(&error))?;
        Ok(self.stream.into())
    }

    /// Waits for `span`, or until the target says something that nobody has asked for.
    pub(crate) fn rest(&self, span: Duration) -> Result<(), Reason> {
        let span = Timespec { tv_sec: 0, tv_nsec: i64::from(span.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&span)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Reason::Socket(errno)),
        }
    }

    /// Closes the connection so that nothing more reaches the target.
    pub(crate) fn abort(self) {
        // Where that cannot be set, what was sent arrives, and the target times out as it does when it is cut off.
        let _ = set_socket_linger(&self.stream, Some(Duration::ZERO));
    }

    /// Runs a command to its end. Its status is for the caller to look at.
    pub(crate) fn run(
        &mut self,
        sqe: Sqe,
        load: Load<'_>,
        patience: Duration,
    ) -> Result<Cqe, Reason> {
        let until = Until(Instant::now() + patience);
        self.cid = self.cid.wrapping_add(1);
        let data: &[u8] = match &load {
            Load::Sent(data) => data,
            Load::Nothing | Load::Received(_) => &[],
        };
        let capsule = self.capsule(&sqe.named(self.cid), data);
        self.put(&capsule, until)?;
        let mut empty = [];
        let room: &mut [u8] = match load {
            Load::Received(room) => room,
            Load::Nothing | Load::Sent(_) => &mut empty,
        };
        self.answer(room, until)
    }

    fn capsule(&self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let lead = pdu::lead(CAPSULE_CMD_BYTES, self.digests, self.alignment);
        let header = pdu::capsule_cmd(sqe, self.digests, lead, data.len() as u32);
        let mut out = header.to_vec();
        if self.digests.header == Use::On {
            out.extend_from_slice(&digest::of(&header));
        }
        if !data.is_empty() {
            out.resize(lead, 0);
            out.extend_from_slice(data);
            if self.digests.data == Use::On {
                out.extend_from_slice(&digest::of(data));
            }
        }
        out
    }

    /// Takes data and the completion that ends it.
    fn answer(&mut self, room: &mut [u8], until: Until) -> Result<Cqe, Reason> {
        let mut got = 0;
        loop {
            let (common, frame, header) = self.header(until)?;
            match common.kind {
                PduKind::CapsuleResp => {
                    let header: &[u8; CAPSULE_RESP_BYTES] =
                        header.first_chunk().ok_or(Breach::Unexpected)?;
                    let cqe = pdu::completion_of(header);
                    if cqe.cid != self.cid {
                        return Err(Breach::NoSuchCommand.into());
                    }
                    if cqe.status.is_success() && got < room.len() {
                        return Err(Breach::Short.into());
                    }
                    return Ok(cqe);
                }
                PduKind::C2hData => {
                    let header: &[u8; DATA_BYTES] =
                        header.first_chunk().ok_or(Breach::Unexpected)?;
                    got = self.data(&Transfer::parse(header), &frame, room, got, until)?;
                    if common.flags & flag::SUCCESS != 0 {
                        return self.succeeded(common.flags, got == room.len());
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
        room: &mut [u8],
        got: usize,
        until: Until,
    ) -> Result<usize, Reason> {
        if transfer.cid != self.cid {
            return Err(Breach::NoSuchCommand.into());
        }
        if transfer.offset as usize != got {
            return Err(Breach::Offset.into());
        }
        let length = transfer.length as usize;
        if transfer.length != frame.data || length > room.len() - got {
            return Err(Breach::Length.into());
        }
        let place = &mut room[got..got + length];
        self.take(place, until)?;
        if frame.data_digest == Use::On {
            let mut said = [0; DIGEST_BYTES];
            self.take(&mut said, until)?;
            if said != digest::of(place) {
                return Err(Breach::DataDigest.into());
            }
        }
        Ok(got + length)
    }

    /// A header, looked at, without its data.
    fn header(&mut self, until: Until) -> Result<(Common, Frame, Vec<u8>), Reason> {
        let mut first = [0; COMMON_BYTES];
        self.take(&mut first, until)?;
        let common = Common::parse(&first)?;
        let frame = common.frame(self.digests)?;
        let mut header = first.to_vec();
        header.resize(frame.lead, 0);
        self.take(&mut header[COMMON_BYTES..], until)?;
        check_digest(&header, &frame)?;
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

    fn put(&mut self, mut bytes: &[u8], until: Until) -> Result<(), Reason> {
        while !bytes.is_empty() {
            let timeout = self.stream.set_write_timeout(Some(until.left()?));
            match timeout.and_then(|()| self.stream.write(bytes)) {
                Ok(0) => return Err(Reason::Closed),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Reason::of_io(&error)),
            }
        }
        Ok(())
    }

    /// Fills `place`, in the time that is left, however small the pieces are in which bytes come.
    fn take(&mut self, mut place: &mut [u8], until: Until) -> Result<(), Reason> {
        while !place.is_empty() {
            let timeout = self.stream.set_read_timeout(Some(until.left()?));
            match timeout.and_then(|()| self.stream.read(place)) {
                Ok(0) => return Err(Reason::Closed),
                Ok(got) => place = &mut place[got..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Reason::of_io(&error)),
            }
        }
        Ok(())
    }
}

/// Whether a header is what its digest says; `bytes` hold it whole.
pub(crate) fn check_digest(bytes: &[u8], frame: &Frame) -> Result<(), Reason> {
    let said = &bytes[frame.header..frame.header + frame.header_digest.bytes()];
    if frame.header_digest == Use::On && said != digest::of(&bytes[..frame.header]) {
        return Err(Breach::HeaderDigest.into());
    }
    Ok(())
}

/// Connects to the first address of the machine that answers.
fn dial(address: &Address, until: Until) -> Result<TcpStream, Reason> {
    let places = (address.machine.as_str(), address.port)
        .to_socket_addrs()
        .map_err(|_| Reason::NoSuchMachine)?;
    let mut last = Reason::NoSuchMachine;
    for place in places {
        match TcpStream::connect_timeout(&place, until.left()?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Reason::of_io(&error),
        }
    }
    Err(last)
}
