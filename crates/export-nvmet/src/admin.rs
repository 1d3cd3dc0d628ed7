//! Admin commands and their results (Base, section 5).
//!
//! Decisions are pure functions. A page is assembled when a buffer is available for it.

mod reserved;

use crate::admit::{Access, Need};
use crate::controller::{Controller, VERSION};
use crate::limits::{
    DATASET_BLOCKS_MAX, EFFECT_BYTES_MAX, EVENT_REQUESTS_MAX, FAILURES_MAX, IN_CAPSULE_BYTES,
    IO_ENTRIES, KEEP_ALIVE_MS_MAX, NAMESPACES_MAX, QUEUES_MAX, TRANSFER_BYTES_MAX,
};
use crate::namespace::Served;
use crate::registry::Registry;
use crate::subsystem::{Subsystem, View, is_number};
use std::net::SocketAddr;
use std::sync::Arc;
use strake_block::SgMut;
use strake_nvme_wire::command::admin;
use strake_nvme_wire::fabrics::{Property, kind};
use strake_nvme_wire::feature::{self, event};
use strake_nvme_wire::identify::{
    self, ControllerKind, IDENTIFY_BYTES, active_namespaces, cns, descriptors, optional,
};
use strake_nvme_wire::log::{self, Does, Names, page};
use strake_nvme_wire::nvm::{ALL_NAMESPACES, opcode};
use strake_nvme_wire::reservation::{self, HostId, NOTICE_BYTES, Notice};
use strake_nvme_wire::{Sqe, Status};

/// A data structure that is sent to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// The Identify Controller data structure.
    Controller,
    /// The Identify Namespace data structure; all zeroes for a namespace that does not exist.
    Namespace(Option<identify::Namespace>),
    /// The active namespace IDs above this one.
    Active(u32),
    /// The identification descriptors of a namespace.
    Descriptors([u8; 16]),
    /// Limits of the command set.
    CommandSet,
    /// The host identifier.
    HostId,
    /// The registrants and the reservation of a namespace.
    Reservations { namespace: u32, bytes: u32 },
    /// The Reservation Notification log page.
    Notice(log::Request),
    /// A part of a log page.
    Log(log::Request),
}

impl Page {
    /// Length in bytes.
    pub(crate) const fn bytes(&self) -> u32 {
        match self {
            Self::Log(request) | Self::Notice(request) => request.length as u32,
            Self::Reservations { bytes, .. } => *bytes,
            Self::HostId => size_of::<HostId>() as u32,
            Self::Controller
            | Self::Namespace(_)
            | Self::Active(_)
            | Self::Descriptors(_)
            | Self::CommandSet => IDENTIFY_BYTES as u32,
        }
    }

    pub(crate) const fn need(&self) -> Need {
        Need::Send(self.bytes())
    }
}

/// The effect of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The command completes with this result.
    Result(u64),
    /// The controller sends a page.
    Page(Page),
    /// The command stays outstanding until there is an event.
    Hold,
    /// Reservations of the namespace persist through a power loss, or no longer do so.
    Persist(bool, u32),
    /// The host sent a keep-alive.
    Alive,
    /// The host requests a keep-alive timeout of this many milliseconds.
    KeepAlive(u32),
    /// The command completes, then the connection is closed.
    Disconnect,
}

/// State of an admin queue that is not part of the controller.
pub(crate) struct Setting {
    /// The events that the host requests.
    pub(crate) events: u32,
    /// The number of I/O queues that the host may connect.
    pub(crate) queues: u16,
}

/// Decides on a command of an admin queue.
pub(crate) fn decide(
    sqe: &Sqe,
    controller: &Controller,
    registry: &Registry,
    setting: &mut Setting,
) -> Result<Decision, Status> {
    if sqe.is_fused() {
        return Err(Status::INVALID_FIELD);
    }
    let io = controller.kind() == ControllerKind::Io;
    // A controller that is not enabled executes only fabrics commands (Base, section 3.5.1).
    if !controller.is_ready() {
        return Err(Status::SEQUENCE_ERROR);
    }
    match sqe.opcode() {
        admin::IDENTIFY => identified(sqe, controller).map(Decision::Page),
        admin::GET_LOG_PAGE => logged(sqe, controller).map(Decision::Page),
        admin::KEEP_ALIVE => Ok(Decision::Alive),
        admin::ASYNC_EVENT => Ok(Decision::Hold),
        admin::SET_FEATURES => reserved::set(sqe, controller)
            .unwrap_or_else(|| set_feature(sqe, controller, registry, setting)),
        admin::GET_FEATURES => reserved::get(sqe, controller)
            .unwrap_or_else(|| get_feature(sqe, controller, setting).map(Decision::Result)),
        // A device cannot abort an I/O. The result is "not aborted" (Base, section 5.1).
        admin::ABORT if io => Ok(Decision::Result(1)),
        _ => Err(Status::INVALID_OPCODE),
    }
}

/// Decides on a fabrics command, on an admin or an I/O queue (Base, section 6).
pub(crate) fn decide_fabrics(
    sqe: &Sqe,
    controller: &Controller,
    queue: u16,
) -> Result<Decision, Status> {
    match (sqe.fabrics_type(), queue) {
        (kind::PROPERTY_GET, 0) => {
            let wanted = Property::parse(sqe).ok_or(Status::INVALID_FIELD)?;
            controller.get(wanted).map(Decision::Result)
        }
        (kind::PROPERTY_SET, 0) => {
            let wanted = Property::parse(sqe).ok_or(Status::INVALID_FIELD)?;
            controller.set(wanted).map(Decision::Result)
        }
        (kind::CONNECT, _) => Err(Status::SEQUENCE_ERROR),
        (kind::DISCONNECT, 0) => Err(Status::INVALID_QUEUE),
        (kind::DISCONNECT, _) if sqe.dword(10) & 0xffff == 0 => Ok(Decision::Disconnect),
        (kind::DISCONNECT, _) => Err(Status::INCOMPATIBLE_FORMAT),
        _ => Err(Status::INVALID_OPCODE),
    }
}

fn identified(sqe: &Sqe, controller: &Controller) -> Result<Page, Status> {
    let wanted = sqe.dword(10) as u8;
    if wanted == cns::CONTROLLER {
        return Ok(Page::Controller);
    }
    let subsystem = controller.subsystem.as_deref().ok_or(Status::INVALID_FIELD)?;
    match (wanted, sqe.nsid()) {
        (cns::NAMESPACE, number) if is_number(number) => match subsystem.view(number) {
            View::Absent => Ok(Page::Namespace(None)),
            View::Inaccessible => Err(Status::INACCESSIBLE),
            View::Online(facts) => Ok(Page::Namespace(Some(facts.page))),
        },
        (cns::DESCRIPTORS, number) => {
            subsystem.uuid(number).map(Page::Descriptors).ok_or(Status::INVALID_NAMESPACE)
        }
        (cns::NAMESPACE, _) => Err(Status::INVALID_NAMESPACE),
        // Base, section 5.17.2.3: the two highest values are not valid here.
        (cns::ACTIVE_NAMESPACES, 0xffff_fffe..) => Err(Status::INVALID_NAMESPACE),
        (cns::ACTIVE_NAMESPACES, after) => Ok(Page::Active(after)),
        // The only command set is NVM, number 0.
        (cns::COMMAND_SET_CONTROLLER, _) if sqe.dword(11) >> 24 == 0 => Ok(Page::CommandSet),
        _ => Err(Status::INVALID_FIELD),
    }
}

fn logged(sqe: &Sqe, controller: &Controller) -> Result<Page, Status> {
    let request = log::Request::parse(sqe);
    let size = match (controller.kind(), request.page) {
        (ControllerKind::Io, page::ERRORS) => u64::from(FAILURES_MAX) * log::ERROR_BYTES as u64,
        (ControllerKind::Io, page::HEALTH) => log::HEALTH_BYTES as u64,
        (ControllerKind::Io, page::FIRMWARE) => log::FIRMWARE_BYTES as u64,
        (ControllerKind::Io, page::COMMANDS) => log::COMMANDS_BYTES as u64,
        (ControllerKind::Io, page::RESERVATION) => NOTICE_BYTES as u64,
        (ControllerKind::Io, page::CHANGED_NAMESPACES) => log::CHANGED_BYTES as u64,
        // These pages have variable lengths, so a read behind the end returns zeroes and does not fail.
        (ControllerKind::Io, page::ACCESS) | (ControllerKind::Discovery, page::DISCOVERY) => {
            u64::MAX
        }
        (ControllerKind::Io | ControllerKind::Discovery, _) => {
            return Err(Status::INVALID_LOG_PAGE);
        }
    };
    let too_long = request.length > u64::from(TRANSFER_BYTES_MAX);
    if too_long || request.offset > size || !request.offset.is_multiple_of(4) {
        return Err(Status::INVALID_FIELD);
    }
    if request.page == page::HEALTH && !matches!(sqe.nsid(), 0 | ALL_NAMESPACES) {
        return Err(Status::INVALID_NAMESPACE);
    }
    if request.page == page::RESERVATION {
        return Ok(Page::Notice(request));
    }
    Ok(Page::Log(request))
}

fn set_feature(
    sqe: &Sqe,
    controller: &Controller,
    registry: &Registry,
    setting: &mut Setting,
) -> Result<Decision, Status> {
    let io = controller.kind() == ControllerKind::Io;
    // No feature is saved over a reset of the controller (SV, "save").
    if sqe.dword(10) & 1 << 31 != 0 {
        return Err(Status::INVALID_FIELD);
    }
    let value = sqe.dword(11);
    match sqe.dword(10) as u8 {
        feature::QUEUES if io => {
            let granted = feature::queues_granted(value, queues_free(controller, registry))
                .ok_or(Status::INVALID_FIELD)?;
            setting.queues = feature::queues_of(granted) as u16;
            Ok(Decision::Result(granted.into()))
        }
        feature::ASYNC_EVENTS => {
            setting.events = value;
            Ok(Decision::Result(0))
        }
        feature::KEEP_ALIVE if value <= KEEP_ALIVE_MS_MAX => {
            controller.set_keep_alive(value);
            Ok(Decision::KeepAlive(value))
        }
        // Connect sets the host identifier (Base, section 5.27.1.25).
        feature::HOST_ID => Err(Status::SEQUENCE_ERROR),
        feature::WRITE_CACHE
        | feature::ARBITRATION
        | feature::POWER
        | feature::TEMPERATURE
        | feature::ERROR_RECOVERY
        | feature::WRITE_ATOMICITY
            if io =>
        {
            Err(Status::NOT_CHANGEABLE)
        }
        _ => Err(Status::INVALID_FIELD),
    }
}

/// The number of I/O queues that a host can connect now, but at least one: a host that is granted none does not retry.
fn queues_free(controller: &Controller, registry: &Registry) -> u16 {
    let (subsystem, host) = (controller.subsystem.as_deref(), &controller.host.nqn);
    let room = subsystem.map_or(0, |subsystem| registry.room_for(subsystem, host));
    room.clamp(1, QUEUES_MAX.into()) as u16
}

fn get_feature(sqe: &Sqe, controller: &Controller, setting: &Setting) -> Result<u64, Status> {
    // Only the current value can be selected.
    if sqe.dword(10) >> 8 & 0b111 != 0 {
        return Err(Status::INVALID_FIELD);
    }
    let last_queue = u64::from(setting.queues) - 1;
    match (sqe.dword(10) as u8, controller.kind()) {
        (feature::QUEUES, ControllerKind::Io) => Ok(last_queue | last_queue << 16),
        (feature::WRITE_CACHE, ControllerKind::Io) => Ok(1),
        // Arbitration: no burst limit. The values of the others are zero: one power state, no temperature threshold, no
        // error recovery limit, and each block is written atomically for any length of the write.
        (feature::ARBITRATION, ControllerKind::Io) => Ok(0b111),
        (
            feature::POWER
            | feature::TEMPERATURE
            | feature::ERROR_RECOVERY
            | feature::WRITE_ATOMICITY,
            ControllerKind::Io,
        ) => Ok(0),
        (feature::ASYNC_EVENTS, _) => Ok(setting.events.into()),
        (feature::KEEP_ALIVE, _) => Ok(controller.keep_alive_ms().into()),
        _ => Err(Status::INVALID_FIELD),
    }
}

/// The sources of pages.
pub(crate) struct Content<'a> {
    pub(crate) controller: &'a Controller,
    pub(crate) registry: &'a Registry,
    /// The local address of the connection.
    pub(crate) address: SocketAddr,
    /// The state of the topic of the requested log page that the host had seen before.
    pub(crate) since: u64,
    /// The notice that the host reads.
    pub(crate) notice: Option<Notice>,
}

impl Content<'_> {
    /// Fills `data`, whose length is that of the page.
    ///
    /// # Errors
    /// Returns a status if the object of the page was removed after the request.
    pub(crate) fn fill(&self, page: Page, data: &mut SgMut) -> Result<(), Status> {
        match page {
            Page::Log(request) => match (request.page, &self.controller.subsystem) {
                (page::DISCOVERY, None) => {
                    let host = &self.controller.host.nqn;
                    put_from(&request, &self.registry.discovery_page(host, self.address), data);
                }
                _ => put_from(&request, &self.log(&request), data),
            },
            Page::Notice(request) => {
                let page = self.notice.map_or([0; NOTICE_BYTES], |notice| notice.page());
                put_from(&request, &page, data);
            }
            Page::HostId => put(&self.controller.host.id, data),
            Page::Reservations { namespace, .. } => {
                let subsystem = self.controller.subsystem.as_deref();
                let kept = subsystem.ok_or(Status::INVALID_NAMESPACE)?.kept(namespace)?;
                put(&kept.reservations().report(), data);
            }
            Page::Controller => put(&self.controller_page(), data),
            Page::Active(after) => put(&self.active_page(after), data),
            Page::CommandSet => put(&LIMITS.page(), data),
            Page::Namespace(Some(namespace)) => put(&namespace.page(), data),
            Page::Namespace(None) => put(&[], data),
            Page::Descriptors(uuid) => put(&descriptors(&uuid), data),
        }
        Ok(())
    }

    fn active_page(&self, after: u32) -> identify::Page {
        let numbers = self.controller.subsystem.as_deref().map(Subsystem::numbers);
        active_namespaces(numbers.into_iter().flatten().filter(|&number| number > after))
    }

    fn controller_page(&self) -> identify::Page {
        let subsystem = self.controller.subsystem.as_deref();
        let serial = subsystem.map(Subsystem::serial).unwrap_or_default();
        let is_io = subsystem.is_some();
        let controller = identify::Controller {
            serial: &serial,
            model: "Strake array",
            firmware: env!("CARGO_PKG_VERSION"),
            id: self.controller.id,
            kind: self.controller.kind(),
            nqn: subsystem.map_or(strake_nvme_wire::nqn::DISCOVERY, |known| &known.nqn),
            version: VERSION,
            transfer_pages_log2: pages_log2(TRANSFER_BYTES_MAX.into()),
            commands_max: IO_ENTRIES,
            events: match self.controller.kind() {
                ControllerKind::Io => event::NAMESPACES_CHANGED | event::ACCESS_CHANGED,
                ControllerKind::Discovery => event::DISCOVERY_CHANGED,
            },
            event_requests_max: EVENT_REQUESTS_MAX,
            failures_max: FAILURES_MAX,
            namespaces_max: if is_io { NAMESPACES_MAX } else { 0 },
            commands: if is_io { COMMANDS } else { 0 },
            compare_and_write: is_io,
            copy_formats: u16::from(is_io),
            // Namespaces are added and removed, and each of them may have a write cache.
            write_cache: is_io,
            in_capsule_bytes: if is_io { IN_CAPSULE_BYTES } else { 0 },
            // A discovery controller has no I/O queue.
            disconnects: is_io,
        };
        controller.page()
    }

    fn log(&self, request: &log::Request) -> Vec<u8> {
        let subsystem = self.controller.subsystem.as_deref();
        match (request.page, subsystem) {
            (page::COMMANDS, Some(_)) => log::commands(&ADMIN_COMMANDS, &IO_COMMANDS).to_vec(),
            (page::ERRORS, Some(_)) => self.controller.failures().page(),
            (page::HEALTH, Some(subsystem)) => self.health(subsystem).page().to_vec(),
            (page::FIRMWARE, _) => log::firmware(env!("CARGO_PKG_VERSION")).to_vec(),
            (page::CHANGED_NAMESPACES, Some(subsystem)) => {
                log::changed_namespaces(subsystem.listed_after(self.since)).to_vec()
            }
            (page::ACCESS, Some(subsystem)) => {
                let names = if request.specific & 1 == 0 { Names::Given } else { Names::LeftOut };
                log::access(subsystem.reached(), &subsystem.groups(), names)
            }
            _ => Vec::new(),
        }
    }

    /// The health of the subsystem. Counters start when its devices are first served or when the controller is created.
    fn health(&self, subsystem: &Subsystem) -> log::Health {
        let served = subsystem.online();
        let is_read_only = |served: &Arc<Served>| served.facts.terms.access == Access::ReadOnly;
        let stats = subsystem.stats();
        let failures = self.controller.failures();
        log::Health {
            writes_refused: !served.is_empty() && served.iter().all(is_read_only),
            read_bytes: stats.iter().map(|s| s.read_bytes).sum(),
            written_bytes: stats.iter().map(|s| s.written_bytes).sum(),
            reads: stats.iter().map(|s| s.reads).sum(),
            writes: stats.iter().map(|s| s.writes).sum(),
            media_errors: failures.media,
            failures: failures.count,
        }
    }
}

/// Commands of admin queues of I/O controllers.
const ADMIN_COMMANDS: [u8; 7] = [
    admin::GET_LOG_PAGE,
    admin::IDENTIFY,
    admin::ABORT,
    admin::SET_FEATURES,
    admin::GET_FEATURES,
    admin::ASYNC_EVENT,
    admin::KEEP_ALIVE,
];

/// Commands of I/O queues.
const IO_COMMANDS: [(u8, Does); 12] = [
    (opcode::FLUSH, Does::Nothing),
    (opcode::WRITE, Does::Changes),
    (opcode::READ, Does::Nothing),
    (opcode::COMPARE, Does::Nothing),
    (opcode::WRITE_ZEROES, Does::Changes),
    (opcode::DATASET_MANAGEMENT, Does::Changes),
    (opcode::VERIFY, Does::Nothing),
    (opcode::COPY, Does::Changes),
    (reservation::opcode::REGISTER, Does::Nothing),
    (reservation::opcode::REPORT, Does::Nothing),
    (reservation::opcode::ACQUIRE, Does::Nothing),
    (reservation::opcode::RELEASE, Does::Nothing),
];

/// The optional commands that are supported.
const COMMANDS: u16 = optional::COMPARE
    | optional::WRITE_ZEROES
    | optional::DATASET_MANAGEMENT
    | optional::VERIFY
    | optional::COPY
    | optional::RESERVATIONS;

/// Limits of the command set.
const LIMITS: identify::CommandSetLimits = identify::CommandSetLimits {
    verify_pages_log2: pages_log2(TRANSFER_BYTES_MAX as u64),
    zeroes_pages_log2: pages_log2(EFFECT_BYTES_MAX),
    dataset_ranges: u8::MAX,
    dataset_range_blocks: DATASET_BLOCKS_MAX,
    dataset_blocks: DATASET_BLOCKS_MAX as u64,
};

/// A limit in bytes as a power of two of the smallest page of a controller (CAP.MPSMIN).
const fn pages_log2(bytes: u64) -> u8 {
    (bytes / 4096).ilog2() as u8
}

/// Copies the requested part of a page to `data`.
fn put_from(request: &log::Request, whole: &[u8], data: &mut SgMut) {
    let from = usize::try_from(request.offset).unwrap_or(usize::MAX).min(whole.len());
    put(&whole[from..], data);
}

/// Copies `bytes` to `data` and fills the rest with zeroes.
fn put(bytes: &[u8], data: &mut SgMut) {
    let used = bytes.len().min(data.len());
    data.copy_from(0, &bytes[..used]);
    let mut at = 0;
    for part in data.parts_mut() {
        let length = part.len();
        let from = used.saturating_sub(at).min(length);
        part.as_mut_slice()[from..].fill(0);
        at += length;
    }
}
