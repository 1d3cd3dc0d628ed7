//! Maintenance commands: one at a time, with the data in a chunk of the memory for copied data.
//!
//! A page that is not answered says nothing about the medium. Therefore a read without an answer never ends the
//! session: it counts as lost, and the next command is accepted. A command that changes the drive may still be executed
//! after its time limit. The keeper aborts the command and, if the abort does not help, resets the controller before it
//! accepts another one. The controller owns the chunk until it has answered, or can no longer access memory.

use super::{Keeper, Purpose};
use crate::error::Reason;
use crate::lifecycle::Named;
use crate::limits::{ADMIN_TIME_MAX, BOUNCE_BYTES, LOST_READS_MAX};
use crate::shared::{BouncePool, Reply};
use crate::wire::command;
use std::sync::Arc;
use strake_nvme_wire::Cqe;
use strake_nvme_wire::command::admin;
use strake_nvme_wire::identify::cns;
use strake_nvme_wire::maintenance::{
    AdminCommand, Answer, TRANSFER_BYTES_MAX, TRANSFER_TIME_S, Transfer,
};
use strake_units::Nanos;

const _: () = assert!(TRANSFER_BYTES_MAX as usize <= BOUNCE_BYTES);

/// A chunk for the data of a command.
struct Chunk {
    pool: Arc<BouncePool>,
    number: u16,
}

impl Chunk {
    fn offset(&self) -> usize {
        BouncePool::offset(self.number)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.pool.give_back(self.number);
    }
}

/// A maintenance command that the controller has.
pub(super) struct Maintenance {
    command: AdminCommand,
    /// The data of the command, if it has data.
    chunk: Option<Chunk>,
    /// The time at which the reader stops waiting.
    until: Nanos,
    /// `None` once the reader no longer waits.
    reply: Option<Reply>,
    /// Whether the keeper has requested an abort.
    is_aborted: bool,
    /// Whether the keeper no longer waits for the answer to a read.
    is_lost: bool,
}

impl Maintenance {
    /// Whether the answer is expected soon.
    pub(super) fn is_quick(&self) -> bool {
        self.reply.is_some() && self.command.time_s() <= TRANSFER_TIME_S
    }

    /// Whether a late execution of the command changes nothing.
    const fn is_read(&self) -> bool {
        matches!(self.command.transfer(), Transfer::FromDrive(_))
    }

    fn is_format(&self) -> bool {
        self.command.opcode() == admin::FORMAT
    }

    /// Notifies the reader that there will be no answer.
    pub(super) fn fail(&mut self, reason: Reason) {
        if let Some(reply) = self.reply.take() {
            let _ = reply.try_send(Err(reason));
        }
    }
}

impl Keeper {
    /// Sends a maintenance command, unless the controller has another one.
    pub(super) fn maintain(&mut self, maintained: AdminCommand, reply: Reply) {
        let (chunk, prps) = match self.prepare(&maintained) {
            Ok(prepared) => prepared,
            Err(reason) => {
                let _ = reply.try_send(Err(reason));
                return;
            }
        };
        let mut sqe = command(maintained.opcode(), maintained.nsid(), prps);
        for (at, dword) in maintained.dwords().iter().enumerate() {
            sqe = sqe.with(10 + at, *dword);
        }
        let until = self.now.plus(Nanos::SECOND.times(maintained.time_s().into()));
        let reply = Some(reply);
        let (is_aborted, is_lost) = (false, false);
        let maintenance =
            Maintenance { command: maintained, chunk, until, reply, is_aborted, is_lost };
        let sent = self.admin.send(self.now, sqe, Purpose::Maintenance(Box::new(maintenance)));
        if let Err(Purpose::Maintenance(mut refused)) = sent {
            refused.fail(Reason::Busy);
        }
    }

    /// Puts the data of a command into a chunk, and returns the chunk and its PRPs.
    fn prepare(&self, maintained: &AdminCommand) -> Result<(Option<Chunk>, (u64, u64)), Reason> {
        if !self.lifecycle.is_ready() {
            return Err(self.lifecycle.reason.clone().unwrap_or(Reason::NotReady));
        }
        let is_expected =
            |purpose: &Purpose| matches!(purpose, Purpose::Maintenance(m) if !m.is_lost);
        if self.admin.any(is_expected) || self.lost() >= LOST_READS_MAX {
            return Err(Reason::Busy);
        }
        let bytes = maintained.transfer().bytes();
        if bytes == 0 {
            return Ok((None, (0, 0)));
        }
        let bounces = &self.shared.bounces;
        let most = self.controller.as_ref().map_or(0, |controller| controller.transfer_bytes);
        if bytes > BOUNCE_BYTES.min(most as usize) {
            return Err(Reason::Memory(format!("{bytes} bytes exceed a transfer")));
        }
        let number = bounces.take().ok_or(Reason::Busy)?;
        let chunk = Chunk { pool: Arc::clone(bounces), number };
        match maintained.transfer() {
            Transfer::ToDrive(data) => bounces.memory.put(chunk.offset(), data),
            // The chunk holds data of an earlier request, which a drive that transfers too little must not disclose.
            Transfer::FromDrive(_) | Transfer::Nothing => {
                bounces.memory.put(chunk.offset(), &vec![0; bytes]);
            }
        }
        let prps = bounces.memory.prps(chunk.offset(), bytes);
        Ok((Some(chunk), prps))
    }

    /// Passes the answer of the controller to the reader.
    pub(super) fn maintained(&mut self, mut maintenance: Maintenance, cqe: Cqe) {
        let is_good = cqe.status.is_success();
        let mut data = Vec::new();
        if let (Transfer::FromDrive(bytes), Some(chunk)) =
            (maintenance.command.transfer(), &maintenance.chunk)
            && is_good
        {
            data.resize(*bytes as usize, 0);
            chunk.pool.memory.get(chunk.offset(), &mut data);
        }
        if let Some(reply) = maintenance.reply.take() {
            let answer = Answer { status: cqe.status, result: cqe.result as u32, data };
            let _ = reply.try_send(Ok(answer));
        }
        if maintenance.is_format() {
            self.look_at_namespace();
        }
    }

    /// The number of lost reads.
    fn lost(&self) -> usize {
        self.admin.count(|purpose| matches!(purpose, Purpose::Maintenance(m) if m.is_lost))
    }

    /// Notifies the reader of a command that exceeds its time, and aborts a command that changes the drive. Returns
    /// whether only a reset of the controller can end the command.
    pub(super) fn give_up_maintenance(&mut self, now: Nanos) -> bool {
        let (mut late, mut is_stuck) = (None, false);
        for (cid, purpose) in self.admin.pending() {
            let Purpose::Maintenance(maintenance) = purpose else { continue };
            if now < maintenance.until || maintenance.is_lost {
                continue;
            }
            maintenance.fail(Reason::NoAnswer);
            if maintenance.is_read() {
                maintenance.is_lost = true;
            } else if !maintenance.is_aborted {
                maintenance.is_aborted = true;
                late = Some(cid);
            } else {
                is_stuck |= now >= maintenance.until.plus(ADMIN_TIME_MAX);
            }
        }
        if let Some(cid) = late {
            self.abort(Named { queue: 0, cid });
        }
        is_stuck
    }

    /// Reads the Identify of the namespace, unless a format is in progress: a change that ends the session would reset
    /// the controller during the format.
    pub(super) fn look_at_namespace(&mut self) {
        let is_format =
            |purpose: &Purpose| matches!(purpose, Purpose::Maintenance(m) if m.is_format());
        if self.admin.any(is_format) {
            return;
        }
        let address = (self.admin.page_address(crate::admin::DataPage::Namespace), 0);
        let sqe = command(admin::IDENTIFY, self.nsid, address).with(10, cns::NAMESPACE.into());
        self.send(sqe, Purpose::Namespace);
    }
}
