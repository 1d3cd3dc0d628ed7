//! How a connection begins: the host asks for it, then connects it to a queue.
//!
//! ```text
//! Asking --ICReq--> Connecting --Connect--> served, or refused and closed
//! ```
//! Pure: bytes go in, bytes and decisions come out (TCP, section 3.2; Base, section 6.3).

use crate::limits::H2C_BYTES_MAX;
use strake_nvme_wire::command::FABRICS;
use strake_nvme_wire::fabrics::{
    CONNECT_DATA_BYTES, Connect, ConnectData, FlowControl, Part, invalid_parameter,
};
use strake_nvme_wire::pdu::{
    self, CAPSULE_CMD_BYTES, COMMON_BYTES, Common, FatalStatus, Frame, IC_BYTES, IcReq, IcResp,
    PduError, PduKind, Use,
};
use strake_nvme_wire::{Cqe, Digests, Sgl, Sqe, Status, digest};

/// Who decides whether a host may connect.
pub trait Directory {
    /// What is needed to serve it.
    type Admission;

    /// Decides on a Connect command, and names the controller.
    ///
    /// # Errors
    /// With what to tell the host.
    fn connect(
        &self,
        connect: &Connect,
        data: &ConnectData,
    ) -> Result<(u16, Self::Admission), Refusal>;
}

/// Why a host may not connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status of its Connect command.
    pub status: Status,
    /// The result of it.
    pub result: u64,
}

impl Refusal {
    /// A refusal that is about nothing in particular.
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

/// What was agreed on for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The digests in use.
    pub digests: Digests,
    /// Bytes from the beginning of a C2HData PDU to its data.
    pub data_offset: usize,
    /// Entries of the queue.
    pub entries: u16,
    /// Whether the host watches the queue's head.
    pub flow_control: FlowControl,
    /// How long to wait for a sign of life, in milliseconds; 0 for ever.
    pub keep_alive_ms: u32,
}

/// What to do next.
pub enum Next<A> {
    /// Nothing, until there are more bytes.
    More,
    /// Serve the host. The bytes are the answer to its Connect command, to be sent when it can be served.
    Serve(A, Agreement, Vec<u8>),
    /// Send what is to be sent and close the connection.
    Close,
}

/// What came of looking at bytes.
pub struct Step<A> {
    /// How many of them were used up.
    pub taken: usize,
    /// What to do next.
    pub next: Next<A>,
}

impl<A> Step<A> {
    const fn more(taken: usize) -> Self {
        Self { taken, next: Next::More }
    }
}

/// Where a connection is on its way to a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handshake {
    /// Nothing was agreed on.
    #[default]
    Asking,
    /// The Connect command is awaited.
    Connecting(IcReq),
}

/// The beginning of `input` if it is a whole header and what goes with it.
fn lead(input: &[u8], digests: Digests) -> Result<Option<(Common, Frame)>, PduError> {
    let Some(first) = input.first_chunk::<COMMON_BYTES>() else { return Ok(None) };
    let common = Common::parse(first)?;
    let frame = common.frame(digests)?;
    if input.len() < frame.lead {
        return Ok(None);
    }
    check_header_digest(input, &frame)?;
    Ok(Some((common, frame)))
}

/// Whether a header is what its digest says; `input` holds both.
///
/// # Errors
/// When it is not.
pub(crate) fn check_header_digest(input: &[u8], frame: &Frame) -> Result<(), PduError> {
    let end = frame.header + frame.header_digest.bytes();
    if frame.header_digest == Use::On
        && input.get(frame.header..end) != Some(&digest::of(&input[..frame.header])[..])
    {
        return Err(PduError::new(FatalStatus::HeaderDigest, frame.header as u32));
    }
    Ok(())
}

impl Handshake {
    /// Looks at what the host has sent; answers go to `out`.
    pub fn step<D: Directory>(
        &mut self,
        input: &[u8],
        directory: &D,
        out: &mut Vec<u8>,
    ) -> Step<D::Admission> {
        let step = match *self {
            Self::Asking => self.ask(input, out),
            Self::Connecting(asked) => connect(input, asked, directory, out),
        };
        step.unwrap_or_else(|error| {
            let quoted = &input[..input.len().min(IC_BYTES)];
            let (bytes, length) = pdu::c2h_term_req(error, quoted);
            out.extend_from_slice(&bytes[..length]);
            Step { taken: 0, next: Next::Close }
        })
    }

    fn ask<A>(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Step<A>, PduError> {
        let Some((common, _)) = lead(input, Digests::default())? else { return Ok(Step::more(0)) };
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

fn connect<D: Directory>(
    input: &[u8],
    asked: IcReq,
    directory: &D,
    out: &mut Vec<u8>,
) -> Result<Step<D::Admission>, PduError> {
    let digests = asked.digests;
    let Some((common, frame)) = lead(input, digests)? else { return Ok(Step::more(0)) };
    if common.kind != PduKind::CapsuleCmd {
        return Err(PduError::new(FatalStatus::Sequence, 0));
    }
    if frame.data as usize > CONNECT_DATA_BYTES {
        return Err(PduError::new(FatalStatus::LimitExceeded, 4));
    }
    let total = common.bytes as usize;
    let (Some(header), Some(whole)) =
        (input.first_chunk::<CAPSULE_CMD_BYTES>(), input.get(..total))
    else {
        return Ok(Step::more(0));
    };
    let sqe = pdu::command_of(header);
    let data = &whole[frame.lead..frame.lead + frame.data as usize];
    let sound = frame.data_digest == Use::Off || whole[total - 4..] == digest::of(data);
    let result = match (sound, parse(&sqe, data)) {
        (false, _) => Err(Refusal::plain(Status::TRANSIENT_TRANSPORT)),
        (true, Err(status)) => Err(Refusal::plain(status)),
        (true, Ok((command, data))) => {
            directory.connect(&command, &data).map(|(id, admission)| (command, id, admission))
        }
    };
    let answer = |head, result, status| {
        let cqe = Cqe { result, head, cid: sqe.cid(), status };
        let header = pdu::capsule_resp(&cqe, digests);
        let mut bytes = header.to_vec();
        if digests.header == Use::On {
            bytes.extend_from_slice(&digest::of(&header));
        }
        bytes
    };
    let next = match result {
        Err(refusal) => {
            out.extend_from_slice(&answer(0, refusal.result, refusal.status));
            Next::Close
        }
        Ok((command, controller, admission)) => {
            let agreement = Agreement {
                digests,
                data_offset: asked.data_offset(),
                entries: command.size + 1,
                flow_control: command.flow_control,
                keep_alive_ms: command.keep_alive_ms,
            };
            let head = match command.flow_control {
                FlowControl::On => 1,
                FlowControl::Off => u16::MAX,
            };
            Next::Serve(admission, agreement, answer(head, controller.into(), Status::SUCCESS))
        }
    };
    Ok(Step { taken: total, next })
}

/// The command and its data, if that is what the capsule holds.
fn parse(sqe: &Sqe, data: &[u8]) -> Result<(Connect, ConnectData), Status> {
    let command = Connect::parse(sqe).ok_or(match sqe.opcode() {
        // Nothing else can come first (Base, section 3.3.2.2).
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
