//! Maintenance: telemetry, Format NVM, Sanitize and firmware (Base, sections 5.12 to 5.14, 5.16.1 and 5.24).

use crate::bus::Bus;
use crate::controller::Controller;
use crate::fault::Fault;
use crate::io::take;
use crate::medium::Namespace;
use crate::status::{
    FIRMWARE_IMAGE, FIRMWARE_NEEDS_RESET, FIRMWARE_OVERLAP, FIRMWARE_SLOT, SANITIZE_FAILED,
    SANITIZE_IN_PROGRESS,
};
use strake_nvme_wire::bytes::{put, put_text};
use strake_nvme_wire::log::{FIRMWARE_BYTES, Request};
use strake_nvme_wire::{Sqe, Status};
use strake_units::Nanos;

/// What the maintenance commands of a controller are like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaintenanceSpec {
    /// The last block of each telemetry area; `None` without telemetry.
    pub telemetry: Option<[u16; 3]>,
    /// Whether there are controller-initiated telemetry data.
    pub has_own_telemetry: bool,
    /// Supported actions of Sanitize (SANICAP).
    pub sanitize_actions: u32,
    /// How long a sanitize operation takes.
    pub sanitize_time: Nanos,
    /// Properties of Format NVM (FNA).
    pub format_attributes: u8,
    /// Allocated namespaces that are attached to no controller; with 0, there is no Namespace Management.
    pub unattached: u32,
    /// Slots of firmware (FRMW).
    pub firmware_slots: u8,
    /// The granularity of pieces of firmware (FWUG).
    pub firmware_granularity: u8,
    /// The maximum time of an activation, in units of 100 ms (MTFA).
    pub firmware_pause: u16,
}

impl Default for MaintenanceSpec {
    /// All commands, three slots of firmware of which the first is read-only, and activation without a reset.
    fn default() -> Self {
        Self {
            telemetry: Some([1, 2, 600]),
            has_own_telemetry: false,
            sanitize_actions: 0b111,
            sanitize_time: Nanos(0),
            format_attributes: 1 << 2,
            unattached: 0,
            firmware_slots: 1 << 4 | 3 << 1 | 1,
            firmware_granularity: 1,
            firmware_pause: 10,
        }
    }
}

/// The first bytes of an image of firmware that the model accepts. The revision follows, in eight bytes.
pub const FIRMWARE_MAGIC: [u8; 8] = *b"STRAKEFW";

/// The state of a sanitize operation.
#[derive(Clone, Copy, Debug, Default)]
enum Sanitizing {
    #[default]
    Never,
    Running {
        since: Nanos,
        dword: u32,
    },
    Done(u32),
    Failed(u32),
}

/// The state of maintenance.
#[derive(Debug, Default)]
pub(crate) struct Maintained {
    /// The telemetry generation.
    generation: u8,
    sanitizing: Sanitizing,
    /// The transferred parts of an image.
    image: Vec<u8>,
    /// Revisions by slot; `None` for the factory revision in slot 1.
    slots: [Option<String>; 7],
    /// The running slot, zero-based.
    running: usize,
    /// The slot that the next reset activates, zero-based.
    next: Option<usize>,
}

type Outcome = Result<u32, Status>;

/// The telemetry log of an identifier.
pub(crate) fn telemetry(controller: &mut Controller, request: &Request) -> Result<Vec<u8>, Status> {
    let Some(areas) = controller.spec.maintenance.telemetry else {
        return Err(Status::INVALID_LOG_PAGE);
    };
    let creates = request.page == 0x07 && request.specific & 1 != 0;
    let changes = request.offset == 0 && controller.faults.take(Fault::TelemetryChanges);
    if creates || changes {
        controller.maintained.generation = controller.maintained.generation.wrapping_add(1);
    }
    let generation = controller.maintained.generation;
    let mut header = [0; 512];
    header[0] = request.page;
    for (at, last) in areas.iter().enumerate() {
        put(&mut header, 8 + 2 * at, &last.to_le_bytes());
    }
    header[381] = generation;
    header[382] = u8::from(controller.spec.maintenance.has_own_telemetry);
    header[383] = generation;
    let blocks = (1..=u32::from(areas[2])).flat_map(|block| {
        let word = u64::from(generation) << 32 | u64::from(block);
        word.to_le_bytes().repeat(64)
    });
    Ok(header.into_iter().chain(blocks).collect())
}

/// The firmware slot page.
pub(crate) fn firmware_page(controller: &Controller) -> [u8; FIRMWARE_BYTES] {
    let maintained = &controller.maintained;
    let mut out = [0; FIRMWARE_BYTES];
    let next = maintained.next.map_or(0, |slot| slot as u8 + 1);
    out[0] = (maintained.running as u8 + 1) | next << 4;
    put_text(&mut out, (8, 8), &controller.spec.firmware, b' ');
    for (at, revision) in maintained.slots.iter().enumerate() {
        if let Some(revision) = revision {
            put_text(&mut out, (8 + 8 * at, 8), revision, b' ');
        }
    }
    out
}

/// The revision of the running firmware.
pub(crate) fn revision(controller: &Controller) -> String {
    let own = controller.maintained.slots[controller.maintained.running].clone();
    own.unwrap_or_else(|| controller.spec.firmware.clone())
}

pub(crate) fn download(controller: &mut Controller, bus: &dyn Bus, sqe: &Sqe) -> Outcome {
    let bytes = (sqe.dword(10) as usize).saturating_add(1) * 4;
    let offset = sqe.dword(11) as usize * 4;
    let step = match controller.spec.maintenance.firmware_granularity {
        u8::MAX => 4,
        units => usize::from(units.max(1)) * 4096,
    };
    if bytes > 1 << 20 || !offset.is_multiple_of(step) {
        return Err(Status::INVALID_FIELD);
    }
    let piece = take(bus, sqe, bytes)?;
    let image = &mut controller.maintained.image;
    if offset == 0 {
        image.clear();
    }
    if offset != image.len() {
        return Err(FIRMWARE_OVERLAP);
    }
    image.extend(piece);
    Ok(0)
}

pub(crate) fn commit(controller: &mut Controller, sqe: &Sqe) -> Outcome {
    let (slot, action) = (sqe.dword(10) as usize & 0b111, sqe.dword(10) >> 3 & 0b111);
    let slots = usize::from(controller.spec.maintenance.firmware_slots >> 1 & 0b111);
    let slot = if slot == 0 { 2.min(slots) } else { slot };
    let is_fixed = slot == 1 && controller.spec.maintenance.firmware_slots & 1 != 0;
    if slot > slots || is_fixed {
        return Err(FIRMWARE_SLOT);
    }
    let image = std::mem::take(&mut controller.maintained.image);
    let Some((revision, _)) =
        image.strip_prefix(&FIRMWARE_MAGIC).and_then(|rest| rest.split_first_chunk::<8>())
    else {
        return Err(FIRMWARE_IMAGE);
    };
    let revision = String::from_utf8_lossy(revision).trim().to_owned();
    controller.maintained.slots[slot - 1] = Some(revision);
    match action {
        0b001 => controller.maintained.next = Some(slot - 1),
        0b011 if controller.faults.take(Fault::FirmwareNeedsReset) => {
            controller.maintained.next = Some(slot - 1);
            return Err(FIRMWARE_NEEDS_RESET);
        }
        0b011 => (controller.maintained.running, controller.maintained.next) = (slot - 1, None),
        0b000 => {}
        _ => return Err(Status::INVALID_FIELD),
    }
    Ok(0)
}

/// A reset activates firmware.
pub(crate) fn activate_firmware(controller: &mut Controller) {
    if let Some(next) = controller.maintained.next.take() {
        controller.maintained.running = next;
    }
}

pub(crate) fn sanitize(controller: &mut Controller, sqe: &Sqe) -> Outcome {
    progress_sanitize(controller);
    let dword = sqe.dword(10);
    let bit = match dword & 0b111 {
        0b010 => 1,
        0b011 => 2,
        0b100 => 0,
        _ => return Err(Status::INVALID_FIELD),
    };
    if controller.spec.maintenance.sanitize_actions & 1 << bit == 0 {
        return Err(Status::INVALID_FIELD);
    }
    if let Sanitizing::Running { .. } = controller.maintained.sanitizing {
        return Err(SANITIZE_IN_PROGRESS);
    }
    controller.maintained.sanitizing = Sanitizing::Running { since: controller.now, dword };
    progress_sanitize(controller);
    Ok(0)
}

/// Ends a sanitize operation whose time has passed.
fn progress_sanitize(controller: &mut Controller) {
    let Sanitizing::Running { since, dword } = controller.maintained.sanitizing else { return };
    if controller.now < since.plus(controller.spec.maintenance.sanitize_time) {
        return;
    }
    if controller.faults.take(Fault::SanitizeFails) {
        controller.maintained.sanitizing = Sanitizing::Failed(dword);
        return;
    }
    for namespace in controller.namespaces.iter_mut().flatten() {
        *namespace = Namespace::new(namespace.spec);
    }
    controller.maintained.sanitizing = Sanitizing::Done(dword);
}

/// Why commands of I/O queues are not executed.
pub(crate) fn refuses_io(controller: &mut Controller) -> Option<Status> {
    progress_sanitize(controller);
    match controller.maintained.sanitizing {
        Sanitizing::Running { .. } => Some(SANITIZE_IN_PROGRESS),
        Sanitizing::Failed(_) => Some(SANITIZE_FAILED),
        Sanitizing::Never | Sanitizing::Done(_) => None,
    }
}

/// Sanitize Status (Base, section 5.16.1.25).
pub(crate) fn sanitize_status(controller: &mut Controller) -> Vec<u8> {
    progress_sanitize(controller);
    let (done, state, dword) = match controller.maintained.sanitizing {
        Sanitizing::Never => (u16::MAX, 0, 0),
        Sanitizing::Done(dword) => (u16::MAX, 1, dword),
        Sanitizing::Running { since, dword } => {
            let whole = controller.spec.maintenance.sanitize_time.0.max(1);
            let part = controller.now.since(since).0.min(whole - 1) * 65_536 / whole;
            (part as u16, 2, dword)
        }
        Sanitizing::Failed(dword) => (0, 3, dword),
    };
    let mut out = [0; 512];
    put(&mut out, 0, &u16::to_le_bytes(done));
    out[2] = state;
    put(&mut out, 4, &u32::to_le_bytes(dword));
    let seconds = (controller.spec.maintenance.sanitize_time.0 / Nanos::SECOND.0) as u32;
    [8, 12, 16].iter().for_each(|at| put(&mut out, *at, &seconds.to_le_bytes()));
    out.to_vec()
}
