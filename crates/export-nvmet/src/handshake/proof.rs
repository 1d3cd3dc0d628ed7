//! Authentication of a host (Base, sections 6.1, 6.2 and 8.13).

use super::{Agreement, Capsule, Directory, Next, Refusal, Step, completion};
use crate::limits::{COMMANDS_BEFORE_PROOF, IN_CAPSULE_BYTES, MESSAGE_ROOM_MAX};
use strake_nvme_auth::{Answer, Exchange};
use strake_nvme_tcp::framing;
use strake_nvme_tcp::pdu::{PduError, PduKind, Transfer, flag};
use strake_nvme_wire::command::FABRICS;
use strake_nvme_wire::fabrics::{FlowControl, kind, message_bytes};
use strake_nvme_wire::{Cqe, Sgl, Sqe, Status};

/// A connected queue whose host has not authenticated. It takes no connection slot.
pub struct Proving<D: Directory> {
    link: Agreement,
    stand: Stand<D>,
    exchange: Exchange,
}

/// The progress of an authentication.
enum Stand<D: Directory> {
    /// The host has not authenticated yet.
    Claims(D::Claim),
    /// The host has authenticated, and is served after the notification.
    Admitted(D::Admission),
    /// The host will not be served.
    Over,
}

/// The response to a command.
enum Reply {
    Status(Status),
    /// A message, padded with zeroes to this number of bytes.
    Message(Vec<u8>, u32),
}

impl<D: Directory> Proving<D> {
    pub(super) const fn new(link: Agreement, claim: D::Claim, exchange: Exchange) -> Self {
        Self { link, stand: Stand::Claims(claim), exchange }
    }

    /// Processes the next command. Every command completes; after too many of them the connection is closed.
    pub(super) fn step(
        &mut self,
        input: &[u8],
        directory: &D,
        out: &mut Vec<u8>,
    ) -> Result<Step<D::Admission>, PduError> {
        self.stand = match std::mem::replace(&mut self.stand, Stand::Over) {
            Stand::Admitted(admission) => {
                let next = Next::Serve(admission, self.link, Vec::new());
                return Ok(Step { taken: 0, next });
            }
            before @ (Stand::Claims(_) | Stand::Over) => before,
        };
        let most = IN_CAPSULE_BYTES as usize;
        let Some(capsule) = Capsule::read(input, self.link.digests, most)? else {
            return Ok(Step::more(0));
        };
        self.link.taken += 1;
        let was_sound = self.exchange.failure().is_none();
        let (mut reply, answer) = self.decide(&capsule);
        // A failure is recorded when it is detected, because the host need not send another command.
        if let (true, true, Stand::Claims(claim)) =
            (was_sound, self.has_failed(answer), &self.stand)
        {
            directory.failed_handshake(claim);
        }
        let mut next = Next::More;
        match answer {
            Answer::Proven => match self.admit(directory) {
                Ok(()) => {}
                Err(status) => (reply, next) = (Reply::Status(status), Next::Close),
            },
            Answer::Goes if self.link.taken <= COMMANDS_BEFORE_PROOF => {}
            Answer::Goes | Answer::Failed => next = Next::Close,
        }
        out.extend(self.bytes(capsule.sqe.cid(), reply));
        Ok(Step { taken: capsule.bytes, next })
    }

    /// True if the authentication failed or the host aborted it.
    fn has_failed(&self, answer: Answer) -> bool {
        answer == Answer::Failed || self.exchange.failure().is_some()
    }

    /// Admits an authenticated host.
    fn admit(&mut self, directory: &D) -> Result<(), Status> {
        let Stand::Claims(claim) = std::mem::replace(&mut self.stand, Stand::Over) else {
            return Err(Status::SEQUENCE_ERROR);
        };
        let admission = directory.settle(claim).map_err(|Refusal { status, .. }| status)?;
        self.stand = Stand::Admitted(admission);
        Ok(())
    }

    fn decide(&mut self, capsule: &Capsule<'_>) -> (Reply, Answer) {
        let refuse = |status| (Reply::Status(status), Answer::Goes);
        if !capsule.is_sound {
            return refuse(Status::TRANSIENT_TRANSPORT);
        }
        let sqe = &capsule.sqe;
        match (sqe.opcode(), sqe.fabrics_type()) {
            (FABRICS, kind::AUTHENTICATION_SEND) => match sent(capsule) {
                Err(status) => refuse(status),
                Ok(message) => (Reply::Status(Status::SUCCESS), self.exchange.take(message)),
            },
            (FABRICS, kind::AUTHENTICATION_RECEIVE) => match room(sqe) {
                Err(status) => refuse(status),
                Ok(room) => match self.exchange.give() {
                    // A message that does not fit is lost, and the authentication fails.
                    (message, _) if message.len() > room as usize => {
                        (Reply::Status(Status::INVALID_FIELD), Answer::Failed)
                    }
                    (message, answer) => (Reply::Message(message, room), answer),
                },
            },
            (FABRICS, kind::CONNECT) => refuse(Status::SEQUENCE_ERROR),
            _ => refuse(Status::PROOF_REQUIRED),
        }
    }

    fn bytes(&self, cid: u16, reply: Reply) -> Vec<u8> {
        let digests = self.link.digests;
        let end = |status| Cqe { result: 0, head: self.link.head_at(self.link.taken), cid, status };
        let (message, room) = match reply {
            Reply::Status(status) => return completion(&end(status), digests),
            Reply::Message(message, room) => (message, room),
        };
        let flags = match self.link.flow_control {
            FlowControl::On => flag::LAST,
            FlowControl::Off => flag::LAST | flag::SUCCESS,
        };
        let transfer = Transfer { cid, tag: 0, offset: 0, length: room };
        let lead = self.link.data_offset;
        let header = transfer.data(PduKind::C2hData, digests, lead, flags);
        let mut data = message;
        data.resize(room as usize, 0);
        let mut out = framing::whole(&header, digests, lead, &data);
        if self.link.flow_control == FlowControl::On {
            out.extend(completion(&end(Status::SUCCESS), digests));
        }
        out
    }
}

/// The message of an Authentication Send, from its capsule.
fn sent<'a>(capsule: &Capsule<'a>) -> Result<&'a [u8], Status> {
    let bytes = message_bytes(&capsule.sqe).ok_or(Status::INVALID_FIELD)?;
    match capsule.sqe.sgl() {
        Ok(Sgl::InCapsule { offset: 0, length })
            if length == bytes && length as usize == capsule.data.len() && length > 0 =>
        {
            Ok(capsule.data)
        }
        Ok(Sgl::InCapsule { .. }) => Err(Status::SGL_LENGTH),
        Ok(Sgl::Transport { .. }) | Err(_) => Err(Status::SGL_TYPE),
    }
}

/// The buffer size of an Authentication Receive.
fn room(sqe: &Sqe) -> Result<u32, Status> {
    let bytes = message_bytes(sqe).ok_or(Status::INVALID_FIELD)?;
    match sqe.sgl() {
        Ok(Sgl::Transport { length })
            if length == bytes && (1..=MESSAGE_ROOM_MAX).contains(&length) =>
        {
            Ok(length)
        }
        Ok(Sgl::Transport { .. }) => Err(Status::SGL_LENGTH),
        Ok(Sgl::InCapsule { .. }) | Err(_) => Err(Status::SGL_TYPE),
    }
}
