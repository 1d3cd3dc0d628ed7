//! Identify data of a controller and its namespace, with their checks.
//!
//! All values come from outside, so that an impossible value is a [`Reason`] and never an assumption of the data path.

use crate::error::Reason;
use crate::limits::{COMMAND_BLOCKS_MAX, TRANSFER_BYTES_MAX};
use crate::wire::Capabilities;
use std::fmt::Write;
use strake_block::{DeallocateReads, VolatileCache};
use strake_nvme_wire::bytes::{u16_at, u32_at};
use strake_nvme_wire::health::LogPages;
use strake_nvme_wire::identified::{ControllerFacts, NamespaceFacts, uuid_of};
use strake_nvme_wire::identify::{Deallocated, Page, optional};
use strake_units::BlockSize;

/// Properties of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Vendor of the PCI subsystem.
    pub vendor: u16,
    /// Serial number.
    pub serial: String,
    /// Model.
    pub model: String,
    /// Firmware.
    pub firmware: String,
    /// Bytes of the largest transfer that the driver uses.
    pub transfer_bytes: u32,
    /// Maximum bytes of a Write Zeroes; `None` if the controller does not support it.
    pub zeroes_bytes: Option<u64>,
    /// Whether the controller supports deallocation.
    pub deallocates: bool,
    /// Whether the controller supports Verify.
    pub verifies: bool,
    /// Whether completed writes may need a flush.
    pub cache: VolatileCache,
    /// Blocks that the controller writes atomically, also on a power loss (AWUPF).
    pub atomic_blocks: u32,
    /// Maximum number of concurrent Aborts.
    pub aborts: u8,
    /// Whether the controller supports shadow doorbells.
    pub shadow_doorbells: bool,
    /// The supported log pages.
    pub logs: LogPages,
}

/// Whether blocks have protection information, which the controller adds, checks and removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// There is no metadata.
    None,
    /// Eight bytes of type 1.
    Type1,
}

/// Properties of the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The namespace identifier.
    pub nsid: u32,
    /// Capacity in blocks.
    pub blocks: u64,
    /// Size of a block.
    pub block: BlockSize,
    /// Whether blocks are protected.
    pub protection: Protection,
    /// What a read of deallocated blocks returns.
    pub deallocate: DeallocateReads,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Optimal blocks of a write, 0 without a preference.
    pub optimal_blocks: u16,
    nguid: [u8; 16],
    eui64: [u8; 8],
    uuid: [u8; 16],
}

/// The properties of both, as a session has identified them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The controller.
    pub controller: Controller,
    /// The namespace.
    pub namespace: Namespace,
}

/// Whether the controller can be used at all.
///
/// # Errors
/// The field of the capabilities that makes the controller unusable.
pub(crate) fn check_capabilities(cap: Capabilities, bar_bytes: usize) -> Result<(), Reason> {
    if cap.0 == u64::MAX {
        return Err(Reason::NoRegisters);
    }
    if !cap.has_nvm() {
        return Err(Reason::Capabilities("CSS: no NVM command set"));
    }
    if cap.page_min() > crate::limits::PAGE {
        return Err(Reason::Capabilities("MPSMIN: pages above 4 KiB"));
    }
    if cap.entries_max() < 2 {
        return Err(Reason::Capabilities("MQES: queues of one entry"));
    }
    // The doorbells of the admin queue and of one I/O queue must fit.
    if cap.doorbell(4) > bar_bytes {
        return Err(Reason::Capabilities("DSTRD: doorbells outside of the BAR"));
    }
    Ok(())
}

impl Controller {
    /// Checks the Identify data of the controller.
    ///
    /// # Errors
    /// The impossible field.
    pub(crate) fn of(page: &Page) -> Result<Self, Reason> {
        let facts = ControllerFacts::parse(page);
        // SQES, CQES: the smallest entries are in the lower four bits.
        if page[512] & 0xf > 6 || page[512] >> 4 < 6 {
            return Err(Reason::Identify("SQES"));
        }
        if page[513] & 0xf > 4 || page[513] >> 4 < 4 {
            return Err(Reason::Identify("CQES"));
        }
        if facts.serial.is_empty() && facts.model.is_empty() {
            return Err(Reason::Identify("SN, MN"));
        }
        // CNTRLTYPE: 0 is not reported, 1 is an I/O controller.
        if page[111] > 1 {
            return Err(Reason::Identify("CNTRLTYPE"));
        }
        let transfer_bytes = match facts.transfer_pages_log2 {
            0 => TRANSFER_BYTES_MAX,
            log2 => {
                4096_u32.checked_shl(log2.into()).filter(|bytes| *bytes != 0).unwrap_or(u32::MAX)
            }
        };
        let has = |command| facts.commands & command != 0;
        Ok(Self {
            vendor: u16_at(page, 0),
            transfer_bytes: transfer_bytes.min(TRANSFER_BYTES_MAX),
            zeroes_bytes: has(optional::WRITE_ZEROES).then_some(u64::MAX),
            deallocates: has(optional::DATASET_MANAGEMENT),
            verifies: has(optional::VERIFY),
            cache: if facts.write_cache { VolatileCache::Present } else { VolatileCache::Absent },
            atomic_blocks: u32::from(u16_at(page, 528)) + 1,
            aborts: page[258].saturating_add(1),
            // OACS: Doorbell Buffer Config.
            shadow_doorbells: u16_at(page, 256) & 1 << 8 != 0,
            logs: LogPages::of(page),
            serial: facts.serial,
            model: facts.model,
            firmware: facts.firmware,
        })
    }

    /// Applies limits that are only in the Identify data of the command set.
    pub(crate) fn limit(&mut self, page: &Page) {
        let most = strake_nvme_wire::identified::zeroes_bytes_max(page).unwrap_or(u64::MAX);
        self.zeroes_bytes = self.zeroes_bytes.map(|bytes| bytes.min(most));
    }
}

impl Namespace {
    /// Checks the Identify data of a namespace.
    ///
    /// # Errors
    /// The impossible field, or the unsupported format.
    pub(crate) fn of(page: &Page, nsid: u32, controller: &Controller) -> Result<Self, Reason> {
        let facts = NamespaceFacts::parse(page);
        if facts.blocks == 0 {
            return Err(Reason::Identify("NSZE"));
        }
        let format =
            Reason::Format { block_log2: facts.block_log2, metadata_bytes: facts.metadata_bytes };
        let bytes = 1_u32.checked_shl(facts.block_log2.into()).unwrap_or(0);
        let Some(block) = BlockSize::from_bytes(bytes) else { return Err(format) };
        if facts.blocks.checked_mul(bytes.into()).is_none_or(|bytes| bytes > i64::MAX as u64) {
            return Err(Reason::Identify("NSZE"));
        }
        // DPS: the type, and whether the information is the first eight bytes of the metadata.
        let protection = match (facts.metadata_bytes, page[29] & 0b111) {
            (0, 0) => Protection::None,
            (8, 1) => Protection::Type1,
            _ => return Err(format),
        };
        let deallocate = match (controller.deallocates, facts.deallocated) {
            (false, _) => DeallocateReads::Unsupported,
            (true, Deallocated::Zeroes) => DeallocateReads::Zeroes,
            (true, Deallocated::Unspecified) => DeallocateReads::Unspecified,
        };
        if controller.transfer_bytes < block.bytes() {
            return Err(Reason::Identify("MDTS"));
        }
        Ok(Self {
            nsid,
            blocks: facts.blocks,
            block,
            protection,
            deallocate,
            read_only: facts.write_protected,
            optimal_blocks: facts.optimal_blocks,
            nguid: facts.nguid,
            eui64: facts.eui64,
            uuid: [0; 16],
        })
    }

    /// Whether the namespace has a UUID.
    pub(crate) fn has_uuid(&self) -> bool {
        self.uuid != [0; 16]
    }

    /// Records the identifier list of the namespace.
    pub(crate) fn identify(&mut self, page: &Page) {
        self.uuid = uuid_of(page).unwrap_or_default();
    }
}

/// The first active namespace. Of a controller with several namespaces, only this one is used.
pub(crate) fn first_namespace(page: &Page) -> Result<u32, Reason> {
    match u32_at(page, 0) {
        0 => Err(Reason::NoNamespace),
        u32::MAX => Err(Reason::Identify("active namespaces")),
        nsid => Ok(nsid),
    }
}

impl Facts {
    /// The identity of the namespace, as the kernel's driver shows it in `wwid`, so that a drive keeps its identity
    /// when its driver changes (Linux, `wwid_show` in drivers/nvme/host/sysfs.c).
    #[must_use]
    pub fn identity(&self) -> String {
        let Self { controller, namespace } = self;
        if namespace.has_uuid() {
            let uuid = hex(&namespace.uuid);
            let parts = [&uuid[..8], &uuid[8..12], &uuid[12..16], &uuid[16..20], &uuid[20..]];
            return format!("wwid:uuid.{}", parts.join("-"));
        }
        if namespace.nguid != [0; 16] {
            return format!("wwid:eui.{}", hex(&namespace.nguid));
        }
        if namespace.eui64 != [0; 8] {
            return format!("wwid:eui.{}", hex(&namespace.eui64));
        }
        let (serial, model) = (hex(controller.serial.as_bytes()), hex(controller.model.as_bytes()));
        format!("wwid:nvme.{:04x}-{serial}-{model}-{:08x}", controller.vendor, namespace.nsid)
    }

    /// Returns the same facts with new identify data of the namespace; the identifiers are not read again.
    pub(crate) fn with(&self, namespace: Namespace) -> Self {
        let namespace = Namespace { uuid: self.namespace.uuid, ..namespace };
        Self { controller: self.controller.clone(), namespace }
    }

    /// Blocks of one Write Zeroes; `None` if the driver must send zeroes as data.
    pub(crate) fn zeroes_blocks(&self) -> Option<u64> {
        let shift = self.namespace.block.shift();
        self.controller.zeroes_bytes.map(|bytes| (bytes >> shift).clamp(1, COMMAND_BLOCKS_MAX))
    }

    /// Whether this is the same drive and namespace as `earlier`, in all properties that requests depend on.
    pub(crate) fn continues(&self, earlier: &Self) -> bool {
        let (is, was) = (&self.namespace, &earlier.namespace);
        self.controller.serial == earlier.controller.serial
            && self.controller.model == earlier.controller.model
            && self.identity() == earlier.identity()
            && is.block == was.block
            && is.protection == was.protection
            && is.blocks >= was.blocks
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
