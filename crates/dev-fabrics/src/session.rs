//! A controller from its Connect command on: what it can, what its namespace is, signs of life, and its I/O queues.

use crate::address::{Address, HostName};
use crate::dialog::{Dialog, Load};
use crate::error::{Reason, Unfit};
use crate::limits::{
    ADMIN_ENTRIES, BYTES_MAX, IO_BYTES_MAX, IO_ENTRIES_MAX, KEEP_ALIVE_ANSWER_MAX, KEEP_ALIVE_MS,
    KEEP_ALIVES_MISSED, KEEP_ALIVES_MISSED_IN_TRAFFIC, QUEUES_MAX, QUIESCE_UNTOLD, READY_POLL,
    READY_TIME_MAX, SETTLE_TIME_MAX, SETUP_TIME_MAX,
};
use crate::link::Link;
use crate::proof::prove;
use std::fmt::Write as _;
use std::os::fd::BorrowedFd;
use std::time::Instant;
use strake_block::{DeallocateReads, VolatileCache};
use strake_nvme_wire::command::admin;
use strake_nvme_wire::fabrics::{
    ANY_CONTROLLER, Capabilities, Configuration, Connect, ConnectData, FlowControl, Property,
    Width, property, ready,
};
use strake_nvme_wire::feature::{self, event};
use strake_nvme_wire::identified::{ControllerFacts, NamespaceFacts, uuid_of, zeroes_bytes_max};
use strake_nvme_wire::identify::{Deallocated, IDENTIFY_BYTES, Page, cns, optional};
use strake_nvme_wire::log::{CHANGED_BYTES, Request, page};
use strake_nvme_wire::nvm::RANGE_BYTES;
use strake_nvme_wire::{Cqe, Digests, Sgl, Sqe, Status, nqn};
use strake_units::{BlockSize, Nanos};

/// What of a namespace and its controller matters to I/O.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) identity: String,
    pub(crate) serial: String,
    pub(crate) model: String,
    pub(crate) nsid: u32,
    pub(crate) blocks: u64,
    pub(crate) block: BlockSize,
    /// Most bytes of one command.
    pub(crate) transfer_bytes: u32,
    /// Most bytes of one Write Zeroes; `None` when there is no such command.
    pub(crate) zeroes_bytes: Option<u64>,
    pub(crate) deallocate: DeallocateReads,
    pub(crate) cache: VolatileCache,
    pub(crate) read_only: bool,
    pub(crate) optimal_bytes: u32,
    /// How long after the end of an association the target may still do what it was told over it.
    pub(crate) settle_time: Nanos,
    /// Which instance of its device the target says that it serves.
    pub(crate) instance: Option<[u8; 16]>,
}

/// A controller of ours.
pub(crate) struct Session {
    address: Address,
    digests: Digests,
    dialog: Dialog,
    /// Whether the target tells when its namespaces change.
    tells: bool,
    controller: u16,
    entries: u32,
    in_capsule_bytes: u32,
    /// I/O queues granted.
    pub(crate) queues: u32,
    pub(crate) facts: Facts,
}

impl Session {
    /// Makes an association and looks at the namespace (Base, section 3.5.1 "Controller Initialization").
    pub(crate) fn begin(
        address: &Address,
        host: &HostName,
        digests: Digests,
    ) -> Result<Self, Reason> {
        let mut dialog = Dialog::begin(address, digests, SETUP_TIME_MAX)?;
        let connect = connect_of(0, u32::from(ADMIN_ENTRIES), KEEP_ALIVE_MS);
        let cqe = join(&mut dialog, address, host, (connect, ANY_CONTROLLER))?;
        let entries = enable(&mut dialog)?;
        let (controller, facts) = look(&mut dialog, address)?;
        let asked = command(admin::SET_FEATURES, 0)
            .with(10, feature::QUEUES.into())
            .with(11, feature::queues_asked(QUEUES_MAX));
        let granted = accepted(dialog.run(asked, Load::Nothing, SETUP_TIME_MAX)?)?;
        let commands = match controller.commands_max {
            0 => IO_ENTRIES_MAX,
            most => u32::from(most),
        };
        let tells = watch(&mut dialog, &controller)?;
        Ok(Self {
            address: address.clone(),
            digests,
            dialog,
            tells,
            controller: cqe.result as u16,
            // A queue has two entries at least, or nothing fits it.
            entries: entries.min(commands).clamp(2, IO_ENTRIES_MAX),
            in_capsule_bytes: controller.in_capsule_bytes,
            queues: feature::queues_of(granted.result as u32).min(QUEUES_MAX.into()),
            facts,
        })
    }

    /// Connects I/O queue `number`, 1 or more, as `host`, which may have got other secrets meanwhile.
    pub(crate) fn queue(
        &self,
        number: u16,
        host: &HostName,
        (association, settled_at): (u64, Nanos),
    ) -> Result<Link, Reason> {
        let mut dialog = Dialog::begin(&self.address, self.digests, SETUP_TIME_MAX)?;
        let connect = connect_of(number, self.entries, 0);
        join(&mut dialog, &self.address, host, (connect, self.controller))?;
        // A queue is full with one entry left.
        let terms = dialog.terms(self.in_capsule_bytes, self.entries - 1);
        Ok(Link { socket: dialog.into_socket()?, terms, association, settled_at })
    }

    /// Shows that we are alive, and sees whether the target is. Returns what the namespace is now if that may have
    /// changed.
    pub(crate) fn keep_alive(&mut self) -> Result<Option<Facts>, Reason> {
        let sqe = command(admin::KEEP_ALIVE, 0);
        accepted(self.dialog.run(sqe, Load::Nothing, KEEP_ALIVE_ANSWER_MAX)?)?;
        self.news()
    }

    /// Takes what the target says without being asked. Returns what the namespace is now if that may have changed.
    pub(crate) fn listen(&mut self) -> Result<Option<Facts>, Reason> {
        self.dialog.listen(SETUP_TIME_MAX)?;
        self.news()
    }

    /// Looks again if there is an event, or if nobody would tell. The next event is asked for and the list read before
    /// that, so that what changes during the look is told as well.
    fn news(&mut self) -> Result<Option<Facts>, Reason> {
        match self.dialog.take_event() {
            Some(cqe) if cqe.status.is_success() => {
                self.dialog.ask_event(command(admin::ASYNC_EVENT, 0), SETUP_TIME_MAX)?;
                forget_changes(&mut self.dialog)?;
            }
            Some(_) => self.tells = false,
            None if self.tells => return Ok(None),
            None => {}
        }
        look(&mut self.dialog, &self.address).map(|(_, facts)| Some(facts))
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.dialog.as_fd()
    }

    /// Leaves at once: nothing more reaches the target, and its end of the connection breaks.
    pub(crate) fn abort(self) {
        self.dialog.abort();
    }

    /// Leaves in order, as far as the target cooperates.
    pub(crate) fn leave(self) {
        leave(self.dialog);
    }
}

/// Has the controller shut down, and closes the connection.
pub(crate) fn leave(mut dialog: Dialog) {
    let value = Configuration::SHUTDOWN.0.into();
    let shutdown = Property { offset: property::CC, width: Width::Four, value };
    // Whatever it answers, the connection is closed next.
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

/// Says Connect (Base, section 6.3), and proves who we are where that is asked for.
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

/// Makes the controller work and waits until it does. Returns the entries a queue may have.
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

fn identify(dialog: &mut Dialog, what: u8, nsid: u32) -> Result<Page, Reason> {
    let mut page = [0; IDENTIFY_BYTES];
    let length = IDENTIFY_BYTES as u32;
    let sqe = Sqe::new(admin::IDENTIFY, nsid, Sgl::Transport { length }).with(10, u32::from(what));
    accepted(dialog.run(sqe, Load::Received(&mut page), SETUP_TIME_MAX)?)?;
    Ok(page)
}

/// Asks to be told when namespaces change. False when the target does not do that.
fn watch(dialog: &mut Dialog, controller: &ControllerFacts) -> Result<bool, Reason> {
    if controller.events & event::NAMESPACES_CHANGED == 0 {
        return Ok(false);
    }
    let wanted = command(admin::SET_FEATURES, 0)
        .with(10, feature::ASYNC_EVENTS.into())
        .with(11, event::NAMESPACES_CHANGED);
    let told = dialog.run(wanted, Load::Nothing, SETUP_TIME_MAX)?.status.is_success();
    if told {
        dialog.ask_event(command(admin::ASYNC_EVENT, 0), SETUP_TIME_MAX)?;
    }
    Ok(told)
}

/// The command that reads so many bytes of a log page.
pub(crate) fn log_page(page: u8, offset: u64, bytes: usize) -> Sqe {
    let length = bytes as u64;
    Request { page, offset, length, retains_event: false, specific: 0 }.command()
}

/// Reads which namespaces changed, which has the target tell of the next change (Base, section 5.16.1.5).
fn forget_changes(dialog: &mut Dialog) -> Result<(), Reason> {
    let mut list = [0; CHANGED_BYTES];
    let read = log_page(page::CHANGED_NAMESPACES, 0, list.len());
    accepted(dialog.run(read, Load::Received(&mut list), SETUP_TIME_MAX)?).map(drop)
}

/// Looks at the controller and its namespace.
fn look(dialog: &mut Dialog, address: &Address) -> Result<(ControllerFacts, Facts), Reason> {
    let controller = ControllerFacts::parse(&identify(dialog, cns::CONTROLLER, 0)?);
    if controller.in_capsule_offset != 0 {
        return Err(Reason::Unusable(Unfit::Capsule));
    }
    if settle_time(&controller) > SETTLE_TIME_MAX {
        return Err(Reason::Unusable(Unfit::Quiesce));
    }
    let facts = look_at_namespace(dialog, address, &controller)?;
    Ok((controller, facts))
}

fn look_at_namespace(
    dialog: &mut Dialog,
    address: &Address,
    controller: &ControllerFacts,
) -> Result<Facts, Reason> {
    let unfit = |why| Err(Reason::Unusable(why));
    let nsid = address.nsid;
    let namespace = match identify(dialog, cns::NAMESPACE, nsid) {
        Ok(page) => NamespaceFacts::parse(&page),
        Err(Reason::Refused(_)) => return unfit(Unfit::Absent),
        Err(reason) => return Err(reason),
    };
    if namespace.blocks == 0 {
        return unfit(Unfit::Absent);
    }
    if namespace.metadata_bytes != 0 {
        return unfit(Unfit::Metadata);
    }
    let block = match namespace.block_log2 {
        9 => BlockSize::B512,
        12 => BlockSize::B4096,
        _ => return unfit(Unfit::BlockSize),
    };
    if namespace.blocks > BYTES_MAX >> block.shift() {
        return unfit(Unfit::Size);
    }
    // What the controller does not have, it refuses.
    let descriptors = match identify(dialog, cns::DESCRIPTORS, nsid) {
        Ok(page) => uuid_of(&page),
        Err(Reason::Refused(_)) => None,
        Err(reason) => return Err(reason),
    };
    let zeroes_bytes = if controller.commands & optional::WRITE_ZEROES == 0 {
        None
    } else {
        match identify(dialog, cns::COMMAND_SET_CONTROLLER, 0) {
            Ok(page) => Some(zeroes_bytes_max(&page).unwrap_or(u64::MAX)),
            Err(Reason::Refused(_)) => Some(u64::MAX),
            Err(reason) => return Err(reason),
        }
    };
    let optimal = u32::from(namespace.optimal_blocks) << block.shift();
    Ok(Facts {
        identity: identity_of(&namespace, descriptors, address, controller),
        serial: controller.serial.clone(),
        model: controller.model.clone(),
        nsid,
        blocks: namespace.blocks,
        block,
        transfer_bytes: transfer_bytes(controller.transfer_pages_log2).max(block.bytes()),
        zeroes_bytes,
        deallocate: match namespace.deallocated {
            // Ranges are sent in the capsule.
            _ if controller.commands & optional::DATASET_MANAGEMENT == 0
                || (controller.in_capsule_bytes as usize) < RANGE_BYTES =>
            {
                DeallocateReads::Unsupported
            }
            // NVMe promises it for what was deallocated, not that all of it will be: nothing that parity can rest on.
            Deallocated::Zeroes | Deallocated::Unspecified => DeallocateReads::Unspecified,
        },
        cache: if controller.write_cache { VolatileCache::Present } else { VolatileCache::Absent },
        read_only: namespace.write_protected,
        optimal_bytes: optimal,
        settle_time: settle_time(controller),
        instance: namespace.instance,
    })
}

/// How long a controller may go on after the end of its association: until it misses signs of life, and then until it
/// has stopped (TP4129).
fn settle_time(controller: &ControllerFacts) -> Nanos {
    let missed = match controller.traffic_is_life {
        true => KEEP_ALIVES_MISSED_IN_TRAFFIC,
        false => KEEP_ALIVES_MISSED,
    };
    let quiesce = match controller.quiesce_ms {
        0 => QUIESCE_UNTOLD,
        told => Nanos::MILLI.times(told.into()),
    };
    Nanos::MILLI.times(missed * u64::from(KEEP_ALIVE_MS)).plus(quiesce)
}

/// Most bytes of a command (MDTS), in pages of 4 KiB.
fn transfer_bytes(pages_log2: u8) -> u32 {
    match pages_log2 {
        0 => IO_BYTES_MAX,
        log2 => 4096_u32
            .checked_shl(log2.into())
            .filter(|&b| b > 0)
            .map_or(IO_BYTES_MAX, |bytes| bytes.min(IO_BYTES_MAX)),
    }
}

/// What identifies the namespace wherever it shows up. The same as the kernel calls one that it is connected to itself
/// (`wwid` in sysfs), so that one drive is never taken for two.
fn identity_of(
    namespace: &NamespaceFacts,
    uuid: Option<[u8; 16]>,
    address: &Address,
    controller: &ControllerFacts,
) -> String {
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    if let Some(uuid) = uuid.filter(|uuid| *uuid != [0; 16]) {
        let all = hex(&uuid);
        let [a, b, c, d, e] = [&all[..8], &all[8..12], &all[12..16], &all[16..20], &all[20..]];
        return format!("wwid:uuid.{a}-{b}-{c}-{d}-{e}");
    }
    if namespace.nguid != [0; 16] {
        return format!("wwid:eui.{}", hex(&namespace.nguid));
    }
    if namespace.eui64 != [0; 8] {
        return format!("wwid:eui.{}", hex(&namespace.eui64));
    }
    format!("nvme:{}/{}/{}", address.nqn, controller.serial, address.nsid)
}

#[cfg(test)]
mod tests {
    use super::settle_time;
    use strake_nvme_wire::identified::ControllerFacts;
    use strake_nvme_wire::identify::IDENTIFY_BYTES;
    use strake_units::Nanos;

    /// TP4129: twice or three times KATO until the target misses its host, and then CQT.
    #[test]
    fn what_was_sent_is_over_when_the_target_says_so() {
        for (attributes, quiesce_ms, expected_ms) in
            [(0, 0_u16, 8000), (1 << 6, 0, 11_000), (0, 500, 6500), (1 << 6 | 1, 12_000, 21_000)]
        {
            let mut page = [0; IDENTIFY_BYTES];
            page[96] = attributes;
            page[386..388].copy_from_slice(&quiesce_ms.to_le_bytes());
            let facts = ControllerFacts::parse(&page);
            assert_eq!(settle_time(&facts), Nanos::MILLI.times(expected_ms), "{quiesce_ms}");
        }
    }
}
