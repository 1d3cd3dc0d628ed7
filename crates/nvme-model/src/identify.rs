//! What the controller answers to Identify and to Get Log Page (Base, sections 5.17 and 5.16).

use crate::controller::{Controller, Counts};
use crate::fault::Fault;
use crate::maintenance::{firmware_page, revision, sanitize_status, telemetry};
use crate::spec::{NamespaceSpec, Protection, Spec};
use strake_nvme_wire::Status;
use strake_nvme_wire::bytes::{put, put_text};
use strake_nvme_wire::identify::{IDENTIFY_BYTES, Page, active_namespaces, cns};
use strake_nvme_wire::log::{HEALTH_BYTES, Request, changed_namespaces, page};

/// LBA formats of every namespace: metadata bytes and the size of a block as a power of two.
pub(crate) const FORMATS: [(u16, u8); 4] = [(0, 9), (0, 12), (8, 9), (8, 12)];

/// The format of a namespace.
fn format_of(spec: &NamespaceSpec) -> u8 {
    let metadata = if spec.protection == Protection::None { 0 } else { 8 };
    let is = |format: &(u16, u8)| *format == (metadata, spec.block_log2);
    FORMATS.iter().position(is).unwrap_or(0) as u8
}

impl Controller {
    pub(crate) fn identify(&mut self, what: u8, nsid: u32) -> Result<Page, Status> {
        let mut out = match what {
            cns::CONTROLLER => {
                let running = revision(self);
                controller_page(&self.spec, &running, self.namespaces.len() as u32)
            }
            cns::NAMESPACE => {
                let at = (nsid as usize).wrapping_sub(1);
                let namespace = self.namespaces.get(at).and_then(Option::as_ref);
                // A number that is possible and not in use has a page of zeroes.
                namespace.map_or([0; IDENTIFY_BYTES], |namespace| namespace_page(&namespace.spec))
            }
            cns::ACTIVE_NAMESPACES => {
                let numbers =
                    self.namespaces.iter().enumerate().filter(|(_, place)| place.is_some());
                active_namespaces(
                    numbers.map(|(at, _)| at as u32 + 1).filter(|number| *number > nsid),
                )
            }
            cns::ALLOCATED_NAMESPACES if self.spec.maintenance.unattached > 0 => {
                let all = self.namespaces.len() as u32 + self.spec.maintenance.unattached;
                active_namespaces((1..=all).filter(|number| *number > nsid))
            }
            cns::DESCRIPTORS if self.faults.take(Fault::NoDescriptors) => {
                return Err(Status::INTERNAL);
            }
            cns::DESCRIPTORS => {
                let mut out = [0; IDENTIFY_BYTES];
                let at = (nsid as usize).wrapping_sub(1);
                let namespace = self.namespaces.get(at).and_then(Option::as_ref);
                let namespace = namespace.ok_or(Status::INVALID_NAMESPACE)?;
                // NIDT 2: the globally unique identifier.
                put(&mut out, 0, &[2, 16, 0, 0]);
                put(&mut out, 4, &namespace.spec.nguid);
                out
            }
            cns::COMMAND_SET_CONTROLLER => {
                let mut out = [0; IDENTIFY_BYTES];
                out[1] = self.spec.zeroes_pages_log2;
                out
            }
            _ => return Err(Status::INVALID_FIELD),
        };
        if let Some(distort) = &mut self.distort {
            distort(what, &mut out);
        }
        Ok(out)
    }

    /// The log page, as far as it is known.
    pub(crate) fn log_page(&mut self, request: &Request) -> Result<Vec<u8>, Status> {
        match request.page {
            page::ERRORS => {
                let mut out: Vec<u8> =
                    self.errors.iter().flat_map(|failure| failure.bytes()).collect();
                out.resize(crate::admin::ERRORS_KEPT * 64, 0);
                Ok(out)
            }
            page::HEALTH => Ok(health_page(&self.counts).to_vec()),
            page::FIRMWARE => Ok(firmware_page(self).to_vec()),
            page::CHANGED_NAMESPACES => {
                let changed = std::mem::take(&mut self.changed);
                Ok(changed_namespaces(changed).to_vec())
            }
            0x07 | 0x08 => telemetry(self, request),
            0x81 => Ok(sanitize_status(self)),
            _ => Err(Status::INVALID_LOG_PAGE),
        }
    }
}

fn controller_page(spec: &Spec, revision: &str, namespaces: u32) -> Page {
    let maintenance = &spec.maintenance;
    let mut out = [0; IDENTIFY_BYTES];
    put_text(&mut out, (4, 20), &spec.serial, b' ');
    put_text(&mut out, (24, 40), &spec.model, b' ');
    put_text(&mut out, (64, 8), revision, b' ');
    out[77] = spec.transfer_pages_log2;
    put(&mut out, 80, &0x0002_0000_u32.to_le_bytes());
    // OAES: namespace attributes.
    put(&mut out, 92, &(1_u32 << 8).to_le_bytes());
    // CNTRLTYPE: I/O.
    out[111] = 1;
    put(&mut out, 270, &maintenance.firmware_pause.to_le_bytes());
    // OACS: Format, firmware, Namespace Management, and Doorbell Buffer Config.
    let manages = u16::from(maintenance.unattached > 0) << 3;
    let commands = 1_u16 << 1 | 1 << 2 | manages | u16::from(spec.shadow_doorbells) << 8;
    put(&mut out, 256, &commands.to_le_bytes());
    // ACL, AERL: less one.
    (out[258], out[259]) = (3, 3);
    out[260] = maintenance.firmware_slots;
    // LPA: offsets of log pages, and telemetry.
    out[261] = 1 << 2 | u8::from(maintenance.telemetry.is_some()) << 3;
    out[262] = crate::admin::ERRORS_KEPT as u8 - 1;
    out[319] = maintenance.firmware_granularity;
    put(&mut out, 328, &maintenance.sanitize_actions.to_le_bytes());
    out[524] = maintenance.format_attributes;
    (out[512], out[513]) = (0x66, 0x44);
    put(&mut out, 516, &namespaces.to_le_bytes());
    put(&mut out, 520, &spec.commands.to_le_bytes());
    out[525] = u8::from(spec.write_cache);
    let atomic = spec.atomic_blocks - 1;
    put(&mut out, 526, &atomic.to_le_bytes());
    put(&mut out, 528, &atomic.to_le_bytes());
    out
}

fn health_page(counts: &Counts) -> [u8; HEALTH_BYTES] {
    let mut out = [0; HEALTH_BYTES];
    out[0] = counts.critical_warning;
    // 38 degrees Celsius.
    put(&mut out, 1, &311_u16.to_le_bytes());
    (out[3], out[4]) = (100, 10);
    let values = [
        (64, counts.reads),
        (80, counts.writes),
        (112, counts.power_cycles),
        (144, counts.unsafe_shutdowns),
        (160, counts.media_errors),
        (176, counts.errors),
    ];
    values.iter().for_each(|(at, value)| put(&mut out, *at, &value.to_le_bytes()));
    out
}

fn namespace_page(spec: &NamespaceSpec) -> Page {
    let mut out = [0; IDENTIFY_BYTES];
    [0, 8, 16].iter().for_each(|at| put(&mut out, *at, &spec.blocks.to_le_bytes()));
    out[25] = FORMATS.len() as u8 - 1;
    out[26] = format_of(spec);
    if spec.protection == Protection::Type1 {
        // DPC and DPS: type 1, behind no other metadata.
        (out[28], out[29]) = (1, 1);
    }
    // DLFEAT: zeroes.
    out[33] = 1;
    put(&mut out, 104, &spec.nguid);
    out[99] = u8::from(spec.write_protected);
    for (at, (metadata, size)) in FORMATS.iter().enumerate() {
        put(&mut out, 128 + at * 4, &metadata.to_le_bytes());
        out[130 + at * 4] = *size;
    }
    out
}
