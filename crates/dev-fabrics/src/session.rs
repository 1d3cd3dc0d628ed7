//! A controller after its Connect command: enabling it, Keep Alive, and its I/O queues.

use crate::address::{Address, HostName};
use crate::dialog::{Dialog, Load};
use crate::error::Reason;
use crate::identify::{Facts, identify_controller, identify_namespace};
use crate::limits::{
    ADMIN_ENTRIES, IO_ENTRIES_MAX, KEEP_ALIVE_ANSWER_MAX, KEEP_ALIVE_MS, NOTICES_MAX, QUEUES_MAX,
    READY_POLL, READY_TIME_MAX, SETUP_TIME_MAX,
};
use crate::link::{Life, Link};
use crate::proof::prove;
use crate::stream::Until;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;
use strake_nvme_tcp::Digests;
use strake_nvme_wire::command::admin;
use strake_nvme_wire::fabrics::{
    ANY_CONTROLLER, Capabilities, Configuration, Connect, ConnectData, FlowControl, Property,
    Width, property, ready,
};
use strake_nvme_wire::feature::{self, event};
use strake_nvme_wire::identified::ControllerFacts;
use strake_nvme_wire::log::{CHANGED_BYTES, Request, page};
use strake_nvme_wire::reservation::{NOTICE_BYTES, Notice, NoticeKind};
use strake_nvme_wire::{Cqe, Sgl, Sqe, Status, nqn};

/// The parameters for connecting I/O queues of a controller.
#[derive(Clone)]
pub(crate) struct Gate {
    address: Address,
    /// The address of the admin queue: a host name may have several addresses, or may have changed.
    pub(crate) place: SocketAddr,
    digests: Digests,
    controller: u16,
    entries: u32,
    in_capsule_bytes: u32,
    /// The number of granted I/O queues.
    pub(crate) queues: u32,
}

impl Gate {
    /// Connects I/O queue `number`, 1 or more, as `host`, whose secrets may have changed meanwhile.
    pub(crate) fn queue(
        &self,
        number: u16,
        host: &HostName,
        (life, facts): (&Arc<Life>, &Arc<Facts>),
    ) -> Result<Link, Reason> {
        let until = Until::within(SETUP_TIME_MAX);
        let (places, address) = ([self.place], &self.address);
        let mut dialog = Dialog::begin_at(&places, address, host, self.digests, until)?;
        dialog.finish_by(until);
        let connect = connect_of(number, self.entries, 0);
        join(&mut dialog, address, host, (connect, self.controller))?;
        // A queue is full when one entry is left.
        let terms = dialog.terms(self.in_capsule_bytes, self.entries - 1);
        let (life, facts) = (Arc::clone(life), Arc::clone(facts));
        Ok(Link { wire: dialog.into_wire()?, number, terms, life, facts })
    }
}

/// An association of this host with a controller.
pub(crate) struct Session {
    dialog: Dialog,
    /// Whether the target reports changes of its namespaces and their access states.
    tells: bool,
    pub(crate) gate: Gate,
    pub(crate) facts: Facts,
}

impl Session {
    /// Establishes an association and identifies the namespace (Base, section 3.5.1 "Controller Initialization").
    pub(crate) fn begin(
        address: &Address,
        host: &HostName,
        digests: Digests,
    ) -> Result<Self, Reason> {
        let mut dialog = Dialog::begin(address, host, digests, Until::within(SETUP_TIME_MAX))?;
        let connect = connect_of(0, u32::from(ADMIN_ENTRIES), KEEP_ALIVE_MS);
        let cqe = join(&mut dialog, address, host, (connect, ANY_CONTROLLER))?;
        let entries = enable(&mut dialog)?;
        let controller = identify_controller(&mut dialog)?;
        // Events are enabled first, so that changes during the setup are reported as well.
        let tells = watch(&mut dialog, &controller)?;
        let facts = identify_namespace(&mut dialog, address, &controller)?;
        let asked = command(admin::SET_FEATURES, 0)
            .with(10, feature::QUEUES.into())
            .with(11, feature::queues_asked(QUEUES_MAX));
        let granted = accepted(dialog.run(asked, Load::Nothing, SETUP_TIME_MAX)?)?;
        let commands = match controller.commands_max {
            0 => IO_ENTRIES_MAX,
            most => u32::from(most),
        };
        let gate = Gate {
            address: address.clone(),
            place: dialog.place()?,
            digests,
            controller: cqe.result as u16,
            // A queue with fewer than two entries has no room for a command.
            entries: entries.min(commands).clamp(2, IO_ENTRIES_MAX),
            in_capsule_bytes: controller.in_capsule_bytes,
            queues: feature::queues_of(granted.result as u32).min(QUEUES_MAX.into()),
        };
        Ok(Self { dialog, tells, gate, facts })
    }

    /// Sends a Keep Alive, and awaits its completion. Returns the current properties of the namespace if they may have
    /// changed.
    pub(crate) fn keep_alive(&mut self) -> Result<Option<Facts>, Reason> {
        self.dialog.finish_by(Until::within(KEEP_ALIVE_ANSWER_MAX));
        let sqe = command(admin::KEEP_ALIVE, 0);
        accepted(self.dialog.run(sqe, Load::Nothing, KEEP_ALIVE_ANSWER_MAX)?)?;
        self.news()
    }

    /// Receives unsolicited PDUs. Returns the current properties of the namespace if they may have changed.
    pub(crate) fn listen(&mut self) -> Result<Option<Facts>, Reason> {
        self.dialog.finish_by(Until::within(KEEP_ALIVE_ANSWER_MAX));
        if self.dialog.listen(KEEP_ALIVE_ANSWER_MAX)? { self.news() } else { Ok(None) }
    }

    /// True if there may be a PDU although the socket is not readable.
    pub(crate) fn has_more(&self) -> bool {
        self.dialog.has_more()
    }

    /// Identifies the namespace again after an event, or always if the target reports no events. The next event request
    /// and the read of the log precede the identification, so that changes during it are reported as well.
    fn news(&mut self) -> Result<Option<Facts>, Reason> {
        match self.dialog.take_event() {
            Some(cqe) if cqe.status.is_success() => {
                self.dialog.ask_event(command(admin::ASYNC_EVENT, 0), SETUP_TIME_MAX)?;
                if cqe.result & event::RESULT_MASK == event::RESERVATION_RESULT {
                    self.notices()?;
                }
                // Reads the list of changed namespaces, so that the target reports the next change.
                read_log(&mut self.dialog, page::CHANGED_NAMESPACES, 0, &mut [0; CHANGED_BYTES])?;
            }
            Some(_) => self.tells = false,
            None if self.tells => return Ok(None),
            None => {}
        }
        let controller = identify_controller(&mut self.dialog)?;
        identify_namespace(&mut self.dialog, &self.gate.address, &controller).map(Some)
    }

    /// Reads all reservation notices of the target (Base, section 8.19.1).
    fn notices(&mut self) -> Result<(), Reason> {
        for _ in 0..NOTICES_MAX {
            let mut page = [0; NOTICE_BYTES];
            read_log(&mut self.dialog, page::RESERVATION, 0, &mut page)?;
            let Some(notice) = Notice::parse(&page) else { return Ok(()) };
            // A released reservation was not a reservation of this host.
            if notice.namespace == self.gate.address.nsid
                && notice.kind != NoticeKind::ReservationReleased
            {
                return Err(Reason::TakenOver);
            }
            if notice.left == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.dialog.as_fd()
    }

    /// Closes the connection at once, so that no further bytes reach the target.
    pub(crate) fn abort(self) {
        self.dialog.abort();
    }

    /// Shuts the controller down, if the target cooperates, and closes the connection.
    pub(crate) fn leave(self) {
        leave(self.dialog);
    }
}

/// Shuts the controller down, and closes the connection.
pub(crate) fn leave(mut dialog: Dialog) {
    let value = Configuration::SHUTDOWN.0.into();
    let shutdown = Property { offset: property::CC, width: Width::Four, value };
    dialog.finish_by(Until::within(KEEP_ALIVE_ANSWER_MAX));
    // The connection is closed regardless of the result.
    let _ = dialog.run(shutdown.set(), Load::Nothing, KEEP_ALIVE_ANSWER_MAX);
}

pub(crate) fn connect_of(queue: u16, entries: u32, keep_alive_ms: u32) -> Connect {
    let size = (entries - 1) as u16;
    Connect { format: 0, queue, size, flow_control: FlowControl::Off, keep_alive_ms }
}

fn command(opcode: u8, length: u32) -> Sqe {
    Sqe::new(opcode, 0, Sgl::Transport { length })
}

pub(crate) fn accepted(cqe: Cqe) -> Result<Cqe, Reason> {
    if cqe.status.is_success() { Ok(cqe) } else { Err(Reason::Refused(cqe.status)) }
}

/// Sends Connect (Base, section 6.3), and authenticates if the target requires it.
pub(crate) fn join(
    dialog: &mut Dialog,
    address: &Address,
    host: &HostName,
    (connect, controller): (Connect, u16),
) -> Result<Cqe, Reason> {
    let name = |text: &str| nqn::field(text).map_err(|_| Reason::Refused(Status::INVALID_HOST));
    let data = ConnectData {
        host_id: host.id,
        controller,
        subsystem: name(&address.nqn)?,
        host: name(&host.nqn)?,
    };
    let cqe =
        accepted(dialog.run(connect.command(), Load::Sent(&data.bytes()), SETUP_TIME_MAX)?)?;
    prove(dialog, address, host, cqe.result)?;
    Ok(cqe)
}

/// Enables the controller and waits until it is ready. Returns the maximum number of queue entries.
pub(crate) fn enable(dialog: &mut Dialog) -> Result<u32, Reason> {
    let get = |dialog: &mut Dialog, offset, width| {
        let sqe = Property { offset, width, value: 0 }.get();
        accepted(dialog.run(sqe, Load::Nothing, SETUP_TIME_MAX)?).map(|cqe| cqe.result)
    };
    let capabilities = Capabilities::parse(get(dialog, property::CAP, Width::Eight)?);
    let value = Configuration::ENABLED.0.into();
    let enable = Property { offset: property::CC, width: Width::Four, value };
    accepted(dialog.run(enable.set(), Load::Nothing, SETUP_TIME_MAX)?)?;
    let deadline = Instant::now() + READY_TIME_MAX;
    loop {
        let status = get(dialog, property::CSTS, Width::Four)? as u32;
        if status & ready::FATAL != 0 {
            return Err(Reason::NotReady);
        }
        if status & ready::READY != 0 {
            return Ok(capabilities.entries_max);
        }
        if Instant::now() >= deadline {
            return Err(Reason::NotReady);
        }
        dialog.rest(READY_POLL)?;
    }
}

/// Enables reports of changes of namespaces and of access states. Returns false if the target does not support them.
fn watch(dialog: &mut Dialog, controller: &ControllerFacts) -> Result<bool, Reason> {
    let access = if controller.access_groups == 0 { 0 } else { event::ACCESS_CHANGED };
    let wanted = event::NAMESPACES_CHANGED | access;
    if controller.events & wanted != wanted {
        return Ok(false);
    }
    let ask =
        command(admin::SET_FEATURES, 0).with(10, feature::ASYNC_EVENTS.into()).with(11, wanted);
    let reported = dialog.run(ask, Load::Nothing, SETUP_TIME_MAX)?.status.is_success();
    if reported {
        dialog.ask_event(command(admin::ASYNC_EVENT, 0), SETUP_TIME_MAX)?;
    }
    Ok(reported)
}

/// The command that reads this number of bytes of a log page.
pub(crate) fn log_page(page: u8, offset: u64, bytes: usize) -> Sqe {
    let length = bytes as u64;
    Request { page, offset, length, retains_event: false, specific: 0 }.command()
}

/// Reads the first bytes of a log page into all of `room`. The read re-enables the event of the page (Base, section
/// 5.16.1).
pub(crate) fn read_log(
    dialog: &mut Dialog,
    page: u8,
    specific: u8,
    room: &mut [u8],
) -> Result<(), Reason> {
    let length = room.len() as u64;
    let read = Request { page, offset: 0, length, retains_event: false, specific }.command();
    accepted(dialog.run(read, Load::Received(room), SETUP_TIME_MAX)?).map(drop)
}

#[cfg(test)]
mod tests;
