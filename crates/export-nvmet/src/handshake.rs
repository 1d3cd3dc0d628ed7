//! The handshake of a connection: initialization, Connect command, and authentication if the host needs it.
//!
//! ```text
//! Asking --ICReq--> Connecting --Connect--> served, or rejected and closed
//!                                   '-----> Proving --messages--> served, or rejected and closed
//! ```
//! Pure: bytes are the input, bytes and decisions are the output (TCP, section 3.2; Base, sections 6.3 and 8.13).

mod proof;

pub use proof::Proving;

use crate::limits::H2C_BYTES_MAX;
use strake_nvme_auth::Exchange;
use strake_nvme_tcp::pdu::{
    self, CAPSULE_CMD_BYTES, FatalStatus, IC_BYTES, IcReq, IcResp, PduError, PduKind, Use,
};
use strake_nvme_tcp::{Digests, digest, framing};
use strake_nvme_wire::command::FABRICS;
use strake_nvme_wire::fabrics::{
    CONNECT_DATA_BYTES, Connect, ConnectData, FlowControl, PROOF_REQUIRED, Part, invalid_parameter,
};
use strake_nvme_wire::{Cqe, Sgl, Sqe, Status};

/// Decides whether a host may connect.
pub trait Directory {
    /// A request of a host that has not authenticated yet. It takes no connection slot.
    type Claim;
    /// The resources for serving the host.
    type Admission;

    /// Decides on a Connect command.
    ///
    /// Returns the completion of the Connect command.
    fn connect(
        &self,
        connect: &Connect,
        data: &ConnectData,
    ) -> Result<Welcome<Self::Claim>, Refusal>;

    /// Admits an authenticated host.
    ///
    /// Returns the reason for the host.
    fn settle(&self, claim: Self::Claim) -> Result<Self::Admission, Refusal>;

    /// Records a host that failed to authenticate.
    fn failed_handshake(&self, claim: &Self::Claim);
}

/// The result for a host that may connect.
pub struct Welcome<C> {
    /// The controller ID.
    pub controller: u16,
    /// The request of the host.
    pub claim: C,
    /// The authentication that the host must complete; `None` if it needs none.
    pub proof: Option<Exchange>,
}

/// The reason why a host may not connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the Connect command.
    pub status: Status,
    /// The result of the Connect command.
    pub result: u64,
}

impl Refusal {
    /// A refusal that names no field.
    #[must_use]
    pub const fn plain(status: Status) -> Self {
        Self { status, result: 0 }
    }

    /// A refusal because of the field at byte `offset`.
    #[must_use]
    pub const fn of(part: Part, offset: u16) -> Self {
        Self { status: Status::INVALID_PARAMETERS, result: invalid_parameter(part, offset) }
    }
}

/// The negotiated parameters of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The digests in use.
    pub digests: Digests,
    /// Bytes from the beginning of a C2HData PDU to its data.
    pub data_offset: usize,
    /// Entries of the queue.
    pub entries: u16,
    /// Whether SQ flow control is in use.
    pub flow_control: FlowControl,
    /// Keep-alive timeout in milliseconds; 0 disables it.
    pub keep_alive_ms: u32,
    /// Commands that were already taken from the queue.
    pub taken: u16,
}

impl Agreement {
    /// The SQ head in the completion of Connect; FFFFh without flow control (Base, section 6.3).
    #[must_use]
    pub const fn head(&self) -> u16 {
        match self.flow_control {
            FlowControl::On => self.taken % self.entries,
            FlowControl::Off => u16::MAX,
        }
    }

    /// The SQ head in completions after `taken` commands; 0 without flow control (Base, section 3.3.2.5 of revision
    /// 2.1).
    #[must_use]
    pub const fn head_at(&self, taken: u16) -> u16 {
        match self.flow_control {
            FlowControl::On => taken % self.entries,
            FlowControl::Off => 0,
        }
    }
}

/// The subsystem and the host of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) subsystem: &'a str,
    pub(crate) host: &'a str,
}

/// The next action.
pub enum Next<A> {
    /// Wait for more bytes.
    More,
    /// Serve the host. The bytes are the completion of its Connect command, to be sent when the host can be served;
    /// empty if that was sent before.
    Serve(A, Agreement, Vec<u8>),
    /// Send the pending bytes and close the connection.
    Close,
}

/// The result of processing bytes.
pub struct Step<A> {
    /// The number of bytes that were processed.
    pub taken: usize,
    /// The next action.
    pub next: Next<A>,
}

impl<A> Step<A> {
    const fn more(taken: usize) -> Self {
        Self { taken, next: Next::More }
    }
}

/// The states of a connection before it becomes a queue.
#[derive(Default)]
pub enum Handshake<D: Directory> {
    /// The connection waits for ICReq.
    #[default]
    Asking,
    /// The connection waits for the Connect command.
    Connecting(IcReq),
    /// The host must authenticate.
    Proving(Box<Proving<D>>),
}

impl<D: Directory> Handshake<D> {
    /// True if the host authenticates.
    #[must_use]
    pub const fn is_proving(&self) -> bool {
        matches!(self, Self::Proving(_))
    }

    /// Processes the bytes that the host has sent; responses are appended to `out`.
    pub fn step(&mut self, input: &[u8], directory: &D, out: &mut Vec<u8>) -> Step<D::Admission> {
        let step = match self {
            Self::Asking => self.ask(input, out),
            Self::Connecting(asked) => {
                let asked = *asked;
                self.connect(input, asked, directory, out)
            }
            Self::Proving(proving) => proving.step(input, directory, out),
        };
        step.unwrap_or_else(|error| {
            let quoted = &input[..input.len().min(IC_BYTES)];
            let (bytes, length) = pdu::c2h_term_req(error, quoted);
            out.extend_from_slice(&bytes[..length]);
            Step { taken: 0, next: Next::Close }
        })
    }

    fn ask<A>(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Step<A>, PduError> {
        let Some((common, _)) = pdu::header(input, Digests::default())? else {
            return Ok(Step::more(0));
        };
        if common.kind != PduKind::IcReq {
            return Err(PduError::new(FatalStatus::Sequence, 0));
        }
        let Some(bytes) = input.first_chunk::<IC_BYTES>() else { return Ok(Step::more(0)) };
        let asked = IcReq::parse(bytes)?;
        let granted = IcResp { digests: asked.digests, data_bytes_max: H2C_BYTES_MAX };
        out.extend_from_slice(&granted.bytes());
        *self = Self::Connecting(asked);
        Ok(Step::more(IC_BYTES))
    }
}

/// A complete capsule.
struct Capsule<'a> {
    sqe: Sqe,
    /// The data of the command.
    data: &'a [u8],
    /// Whether the data digest matches.
    is_sound: bool,
    /// Length of the capsule in bytes.
    bytes: usize,
}

impl<'a> Capsule<'a> {
    /// Reads a capsule with at most `most` bytes of data; `None` if it is incomplete.
    fn read(input: &'a [u8], digests: Digests, most: usize) -> Result<Option<Self>, PduError> {
        let Some((common, frame)) = pdu::header(input, digests)? else { return Ok(None) };
        if common.kind != PduKind::CapsuleCmd {
            return Err(PduError::new(FatalStatus::Sequence, 0));
        }
        if frame.data as usize > most {
            return Err(PduError::new(FatalStatus::LimitExceeded, 4));
        }
        let bytes = common.bytes as usize;
        let (Some(header), Some(whole)) =
            (input.first_chunk::<CAPSULE_CMD_BYTES>(), input.get(..bytes))
        else {
            return Ok(None);
        };
        let data = &whole[frame.lead..frame.lead + frame.data as usize];
        let is_sound = frame.data_digest == Use::Off || whole[bytes - 4..] == digest::of(data);
        Ok(Some(Self { sqe: pdu::command_of(header), data, is_sound, bytes }))
    }
}

/// A capsule with a completion.
fn completion(cqe: &Cqe, digests: Digests) -> Vec<u8> {
    framing::whole(&pdu::capsule_resp(cqe, digests), digests, 0, &[])
}

impl<D: Directory> Handshake<D> {
    fn connect(
        &mut self,
        input: &[u8],
        asked: IcReq,
        directory: &D,
        out: &mut Vec<u8>,
    ) -> Result<Step<D::Admission>, PduError> {
        let digests = asked.digests;
        let Some(capsule) = Capsule::read(input, digests, CONNECT_DATA_BYTES)? else {
            return Ok(Step::more(0));
        };
        let (taken, cid) = (capsule.bytes, capsule.sqe.cid());
        let refuse = |refusal: Refusal, out: &mut Vec<u8>| {
            let Refusal { status, result } = refusal;
            out.extend(completion(&Cqe { result, head: 0, cid, status }, digests));
            Ok(Step { taken, next: Next::Close })
        };
        let (command, data) = match (capsule.is_sound, parse(&capsule.sqe, capsule.data)) {
            (false, _) => return refuse(Refusal::plain(Status::TRANSIENT_TRANSPORT), out),
            (true, Err(status)) => return refuse(Refusal::plain(status), out),
            (true, Ok(read)) => read,
        };
        let Welcome { controller, claim, proof } = match directory.connect(&command, &data) {
            Ok(welcome) => welcome,
            Err(refusal) => return refuse(refusal, out),
        };
        let link = Agreement {
            digests,
            data_offset: asked.data_offset(),
            entries: command.size + 1,
            flow_control: command.flow_control,
            keep_alive_ms: command.keep_alive_ms,
            taken: 1,
        };
        let answer = |result| {
            completion(&Cqe { result, head: link.head(), cid, status: Status::SUCCESS }, digests)
        };
        if let Some(exchange) = proof {
            out.extend(answer(u64::from(controller) | PROOF_REQUIRED));
            *self = Self::Proving(Box::new(Proving::new(link, claim, exchange)));
            return Ok(Step::more(taken));
        }
        match directory.settle(claim) {
            Err(refusal) => refuse(refusal, out),
            Ok(admission) => {
                let next = Next::Serve(admission, link, answer(controller.into()));
                Ok(Step { taken, next })
            }
        }
    }
}

/// The command and its data, if the capsule holds a Connect command.
fn parse(sqe: &Sqe, data: &[u8]) -> Result<(Connect, ConnectData), Status> {
    let command = Connect::parse(sqe).ok_or(match sqe.opcode() {
        // Connect must be the first command (Base, section 3.3.2.2).
        FABRICS => Status::SEQUENCE_ERROR,
        _ => Status::INVALID_OPCODE,
    })?;
    let length = CONNECT_DATA_BYTES as u32;
    match sqe.sgl() {
        Ok(Sgl::InCapsule { offset: 0, length: said }) if said == length => {}
        Ok(_) => return Err(Status::SGL_LENGTH),
        Err(_) => return Err(Status::SGL_TYPE),
    }
    let data = data.first_chunk::<CONNECT_DATA_BYTES>().ok_or(Status::SGL_LENGTH)?;
    Ok((command, ConnectData::parse(data)))
}

#[cfg(test)]
mod tests;
