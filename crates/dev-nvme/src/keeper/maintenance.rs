//! Maintenance commands: one at a time, with the data in a chunk of the memory for copied data.
//!
//! A command of this kind never ends a session: a format may take hours, and a page that is not answered says nothing
//! about the medium. The controller owns the chunk until it has answered, or can no longer access memory.

use super::{Keeper, Purpose};
use crate::error::Reason;
use crate::limits::BOUNCE_BYTES;
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
}

impl Maintenance {
    /// Whether the answer is expected soon.
    pub(super) fn is_quick(&self) -> bool {
        self.reply.is_some() && self.command.time_s() <= TRANSFER_TIME_S
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
        let maintenance = Maintenance { command: maintained, chunk, until, reply: Some(reply) };
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
        if self.admin.any(|purpose| matches!(purpose, Purpose::Maintenance(_))) {
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

    /// Notifies the reader of a command that exceeds its time. The session continues.
    pub(super) fn give_up_maintenance(&mut self, now: Nanos) {
        for purpose in self.admin.late(now, Nanos(0)) {
            if let Purpose::Maintenance(maintenance) = purpose
                && now >= maintenance.until
            {
                maintenance.fail(Reason::NoAnswer);
            }
        }
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
