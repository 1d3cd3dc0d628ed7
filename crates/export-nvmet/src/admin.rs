//! What an admin queue answers (Base, section 5).
//!
//! Decisions are pure; a page is put together when there is memory to send it from.

use crate::admit::{Access, NAMESPACE, Need};
use crate::controller::{Controller, VERSION};
use crate::limits::{
    EFFECT_BYTES_MAX, EVENT_REQUESTS_MAX, IN_CAPSULE_BYTES, IO_ENTRIES, KEEP_ALIVE_MS_MAX,
    QUEUES_MAX, TRANSFER_BYTES_MAX,
};
use crate::registry::Registry;
use crate::subsystem::{Facts, Served};
use std::net::SocketAddr;
use strake_block::{SgMut, VolatileCache};
use strake_nvme_wire::command::admin;
use strake_nvme_wire::fabrics::{Property, kind};
use strake_nvme_wire::feature::{self, event};
use strake_nvme_wire::identify::{
    self, ControllerKind, IDENTIFY_BYTES, active_namespaces, cns, descriptors, optional,
};
use strake_nvme_wire::log::{self, page};
use strake_nvme_wire::nvm::ALL_NAMESPACES;
use strake_nvme_wire::{Sqe, Status};

/// A page to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// The controller.
    Controller,
    /// The namespace.
    Namespace,
    /// Namespaces after this one.
    Active(u32),
    /// What identifies the namespace.
    Descriptors,
    /// Limits of the command set.
    CommandSet,
    /// As many bytes of a log page from an offset on.
    Log { request: log::Request },
}

impl Page {
    /// Bytes to send.
    pub(crate) const fn bytes(&self) -> u32 {
        match self {
            Self::Log { request } => request.length as u32,
            Self::Controller
            | Self::Namespace
            | Self::Active(_)
            | Self::Descriptors
            | Self::CommandSet => IDENTIFY_BYTES as u32,
        }
    }

    /// Whether reading it tells a host what discovery knows.
    pub(crate) const fn answers_discovery_event(&self) -> bool {
        match self {
            Self::Log { request } => request.page == page::DISCOVERY && !request.retains_event,
            Self::Controller
            | Self::Namespace
            | Self::Active(_)
            | Self::Descriptors
            | Self::CommandSet => false,
        }
    }

    pub(crate) const fn need(&self) -> Need {
        Need::Send(self.bytes())
    }
}

/// What to do for an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Answer with this result.
    Result(u64),
    /// Send a page.
    Page(Page),
    /// Keep it until there is an event.
    Hold,
    /// The host is alive.
    Alive,
    /// The host wants signs of life to be awaited for this many milliseconds.
    KeepAlive(u32),
    /// Answer, then end the connection.
    Disconnect,
}

/// What an admin queue knows besides its controller.
pub(crate) struct Setting {
    /// How long signs of life are awaited, in milliseconds.
    pub(crate) keep_alive_ms: u32,
    /// Which events the host wants.
    pub(crate) events: u32,
}

/// Decides on a command of an admin queue.
pub(crate) fn decide(
    sqe: &Sqe,
    controller: &Controller,
    setting: &mut Setting,
) -> Result<Decision, Status> {
    if sqe.is_fused() {
        return Err(Status::INVALID_FIELD);
    }
    let io = controller.kind() == ControllerKind::Io;
    // Until it is enabled a controller knows fabrics commands only (Base, section 3.5.1).
    if !controller.is_ready() {
        return Err(Status::SEQUENCE_ERROR);
    }
    match sqe.opcode() {
        admin::IDENTIFY => identified(sqe, controller).map(Decision::Page),
        admin::GET_LOG_PAGE => logged(sqe, controller).map(Decision::Page),
        admin::KEEP_ALIVE => Ok(Decision::Alive),
        admin::ASYNC_EVENT => Ok(Decision::Hold),
        admin::SET_FEATURES => set_feature(sqe, io, setting),
        admin::GET_FEATURES => get_feature(sqe, controller, setting).map(Decision::Result),
        // Commands cannot be called back from a device: "not aborted" (Base, section 5.1).
        admin::ABORT if io => Ok(Decision::Result(1)),
        _ => Err(Status::INVALID_OPCODE),
    }
}

/// Decides on a fabrics command, on a queue of whatever kind (Base, section 6).
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
    if controller.kind() == ControllerKind::Discovery {
        return Err(Status::INVALID_FIELD);
    }
    match (wanted, sqe.nsid()) {
        (cns::NAMESPACE, NAMESPACE) => Ok(Page::Namespace),
        (cns::DESCRIPTORS, NAMESPACE) => Ok(Page::Descriptors),
        (cns::NAMESPACE | cns::DESCRIPTORS, _) => Err(Status::INVALID_NAMESPACE),
        // Base, section 5.17.2.3: the two highest numbers are no numbers.
        (cns::ACTIVE_NAMESPACES, 0xffff_fffe..) => Err(Status::INVALID_NAMESPACE),
        (cns::ACTIVE_NAMESPACES, after) => Ok(Page::Active(after)),
        // Of the command sets only NVM, number 0, is here.
        (cns::COMMAND_SET_CONTROLLER, _) if sqe.dword(11) >> 24 == 0 => Ok(Page::CommandSet),
        _ => Err(Status::INVALID_FIELD),
    }
}

fn logged(sqe: &Sqe, controller: &Controller) -> Result<Page, Status> {
    let request = log::Request::parse(sqe);
    let size = match (controller.kind(), request.page) {
        (ControllerKind::Io, page::ERRORS) => log::ERROR_BYTES as u64,
        (ControllerKind::Io, page::HEALTH) => log::HEALTH_BYTES as u64,
        (ControllerKind::Io, page::FIRMWARE) => log::FIRMWARE_BYTES as u64,
        (ControllerKind::Io, page::CHANGED_NAMESPACES) => log::CHANGED_BYTES as u64,
        // It grows and shrinks, so what lies behind its end is zeroes rather than an error.
        (ControllerKind::Discovery, page::DISCOVERY) => u64::MAX,
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
    Ok(Page::Log { request })
}

fn set_feature(sqe: &Sqe, io: bool, setting: &mut Setting) -> Result<Decision, Status> {
    // Nothing is kept over a reset of the controller (SV, "save").
    if sqe.dword(10) & 1 << 31 != 0 {
        return Err(Status::INVALID_FIELD);
    }
    let value = sqe.dword(11);
    match sqe.dword(10) as u8 {
        feature::QUEUES if io => {
            let granted =
                feature::queues_granted(value, QUEUES_MAX).ok_or(Status::INVALID_FIELD)?;
            Ok(Decision::Result(granted.into()))
        }
        feature::ASYNC_EVENTS => {
            setting.events = value;
            Ok(Decision::Result(0))
        }
        feature::KEEP_ALIVE if value <= KEEP_ALIVE_MS_MAX => {
            setting.keep_alive_ms = value;
            Ok(Decision::KeepAlive(value))
        }
        // It was said in Connect (Base, section 5.27.1.25).
        feature::HOST_ID => Err(Status::SEQUENCE_ERROR),
        feature::WRITE_CACHE if io => Err(Status::NOT_CHANGEABLE),
        _ => Err(Status::INVALID_FIELD),
    }
}

fn get_feature(sqe: &Sqe, controller: &Controller, setting: &Setting) -> Result<u64, Status> {
    // Only the current value: there are no others to select.
    if sqe.dword(10) >> 8 & 0b111 != 0 {
        return Err(Status::INVALID_FIELD);
    }
    let io = controller.export.as_deref();
    let last_queue = u64::from(QUEUES_MAX) - 1;
    match (sqe.dword(10) as u8, io) {
        (feature::QUEUES, Some(_)) => Ok(last_queue | last_queue << 16),
        (feature::WRITE_CACHE, Some(export)) => {
            Ok(u64::from(export.facts.cache == VolatileCache::Present))
        }
        (feature::ASYNC_EVENTS, _) => Ok(setting.events.into()),
        (feature::KEEP_ALIVE, _) => Ok(setting.keep_alive_ms.into()),
        _ => Err(Status::INVALID_FIELD),
    }
}

/// What pages are made of.
pub(crate) struct Content<'a> {
    pub(crate) controller: &'a Controller,
    pub(crate) registry: &'a Registry,
    /// Where the host reached us.
    pub(crate) address: SocketAddr,
}

impl Content<'_> {
    /// Fills `data`, whose length is that of the page.
    pub(crate) fn fill(&self, page: Page, data: &mut SgMut) {
        let nothing = [0; IDENTIFY_BYTES];
        match (page, self.controller.export.as_deref()) {
            (Page::Log { request }, _) => {
                let whole = self.log(request.page);
                let from = usize::try_from(request.offset).unwrap_or(usize::MAX).min(whole.len());
                put(&whole[from..], data);
            }
            (Page::Controller, _) => put(&self.controller_page(), data),
            (Page::Active(after), _) => put(&active_namespaces(after), data),
            (Page::CommandSet, _) => {
                put(&identify::command_set_controller(Facts::pages_log2(EFFECT_BYTES_MAX)), data);
            }
            (Page::Namespace, Some(export)) => put(&export.facts.namespace.page(), data),
            (Page::Descriptors, Some(export)) => put(&descriptors(&export.uuid), data),
            (Page::Namespace | Page::Descriptors, None) => put(&nothing, data),
        }
    }

    fn controller_page(&self) -> identify::Page {
        let serial = self.controller.export.as_deref().map(serial).unwrap_or_default();
        let export = self.controller.export.as_deref();
        let transfer_bytes = export.map_or(TRANSFER_BYTES_MAX, |e| e.facts.terms.transfer_bytes);
        let dataset = export.map_or(0, |e| match e.facts.terms.deallocate {
            crate::admit::Ability::Present => optional::DATASET_MANAGEMENT,
            crate::admit::Ability::Absent => 0,
        });
        let controller = identify::Controller {
            serial: &serial,
            model: "Strake array",
            firmware: env!("CARGO_PKG_VERSION"),
            id: self.controller.id,
            kind: self.controller.kind(),
            nqn: export.map_or(strake_nvme_wire::nqn::DISCOVERY, |export| &export.nqn),
            version: VERSION,
            transfer_pages_log2: Facts::pages_log2(transfer_bytes.into()),
            commands_max: IO_ENTRIES,
            events: match self.controller.kind() {
                ControllerKind::Io => 0,
                ControllerKind::Discovery => event::DISCOVERY_CHANGED,
            },
            event_requests_max: EVENT_REQUESTS_MAX,
            namespaces: u32::from(export.is_some()),
            commands: if export.is_some() { optional::WRITE_ZEROES | dataset } else { 0 },
            write_cache: export.is_some_and(|e| e.facts.cache == VolatileCache::Present),
            in_capsule_bytes: if export.is_some() { IN_CAPSULE_BYTES } else { 0 },
        };
        controller.page()
    }

    fn log(&self, page: u8) -> Vec<u8> {
        match page {
            page::HEALTH => {
                let export = self.controller.export.as_deref();
                let refused = export.is_some_and(|e| e.facts.terms.access == Access::ReadOnly);
                log::health(refused).to_vec()
            }
            page::FIRMWARE => log::firmware(env!("CARGO_PKG_VERSION")).to_vec(),
            page::DISCOVERY => {
                self.registry.discovery_page(&self.controller.host.nqn, self.address)
            }
            // Nothing went wrong that is not said in completions, and namespaces do not change.
            _ => Vec::new(),
        }
    }
}

/// What hosts show of an export besides its name: the beginning of its UUID.
fn serial(export: &Served) -> String {
    export.uuid[..10].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fills `data` with `bytes` and zeroes behind them.
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
