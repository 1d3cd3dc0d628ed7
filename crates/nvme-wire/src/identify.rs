//! The results of Identify (Base, section 5.17; NVM, section 4.1.5).

use crate::bytes::{put, put_text};

/// Bytes of every data structure.
pub const IDENTIFY_BYTES: usize = 4096;

/// An Identify data structure.
pub type Page = [u8; IDENTIFY_BYTES];

/// The CNS values (Base, Figure 273).
pub mod cns {
    /// A namespace.
    pub const NAMESPACE: u8 = 0x00;
    /// The controller.
    pub const CONTROLLER: u8 = 0x01;
    /// The active namespace IDs.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// The identification descriptors of a namespace.
    pub const DESCRIPTORS: u8 = 0x03;
    /// The controller, specific to the command set.
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    /// The allocated namespace IDs of the NVM subsystem, also of namespaces that are attached to no controller.
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
}

/// The type of a controller (Base, Figure 275, CNTRLTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControllerKind {
    /// An I/O controller.
    Io = 1,
    /// A discovery controller.
    Discovery = 2,
}

/// The identify data of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller<'a> {
    /// Up to 20 ASCII characters.
    pub serial: &'a str,
    /// Up to 40 ASCII characters.
    pub model: &'a str,
    /// Up to 8 ASCII characters.
    pub firmware: &'a str,
    /// The controller ID.
    pub id: u16,
    /// The controller type.
    pub kind: ControllerKind,
    /// The subsystem NQN.
    pub nqn: &'a str,
    /// The specification version, as in the property VS.
    pub version: u32,
    /// Largest transfer of a command as a power of two of pages of 4 KiB; 0 for no limit.
    pub transfer_pages_log2: u8,
    /// Maximum commands in flight of a queue.
    pub commands_max: u16,
    /// Supported events, see [`event`](crate::feature::event).
    pub events: u32,
    /// Maximum number of outstanding Asynchronous Event Requests.
    pub event_requests_max: u8,
    /// Entries of the error log.
    pub failures_max: u8,
    /// Maximum number of namespaces, each in an ANA group of its own; 0 for a controller without namespaces.
    pub namespaces_max: u32,
    /// Optional commands, see [`optional`].
    pub commands: u16,
    /// Whether fused Compare and Write of one block is supported.
    pub compare_and_write: bool,
    /// Bitmap of the supported formats of Copy.
    pub copy_formats: u16,
    /// Whether completed writes may need a flush.
    pub write_cache: bool,
    /// Data bytes in a capsule of an I/O queue.
    pub in_capsule_bytes: u32,
    /// Whether Disconnect closes an I/O queue.
    pub disconnects: bool,
}

/// Optional commands of the NVM command set (Base, Figure 275, ONCS).
pub mod optional {
    /// Compare.
    pub const COMPARE: u16 = 1 << 0;
    /// Verify.
    pub const VERIFY: u16 = 1 << 7;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// Reservations.
    pub const RESERVATIONS: u16 = 1 << 5;
    /// Copy.
    pub const COPY: u16 = 1 << 8;
}

impl Controller<'_> {
    /// The Identify Controller data structure (Base, Figure 275). Fields with only one permitted value for a controller
    /// of several hosts over TCP are set here.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut out = [0; IDENTIFY_BYTES];
        put_text(&mut out, (4, 20), self.serial, b' ');
        put_text(&mut out, (24, 40), self.model, b' ');
        put_text(&mut out, (64, 8), self.firmware, b' ');
        // CMIC: the subsystem may have several controllers.
        out[76] = 1 << 1;
        if self.namespaces_max > 0 {
            self.put_access(&mut out);
        }
        out[77] = self.transfer_pages_log2;
        put(&mut out, 78, &self.id.to_le_bytes());
        put(&mut out, 80, &self.version.to_le_bytes());
        // OAES.
        put(&mut out, 92, &self.events.to_le_bytes());
        // CTRATT: 128-bit host identifiers.
        put(&mut out, 96, &1_u32.to_le_bytes());
        out[111] = self.kind as u8;
        // ACL, AERL: less one.
        out[258] = 3;
        out[259] = self.event_requests_max - 1;
        // FRMW: one slot, read-only. LPA: the page of supported commands exists, and reads may have an offset.
        out[260] = 1 << 1 | 1;
        out[261] = 1 << 2 | u8::from(self.kind == ControllerKind::Io) << 1;
        // ELPE: less one.
        out[262] = self.failures_max - 1;
        // KAS: the keep-alive timer counts units of 100 ms.
        put(&mut out, 320, &1_u16.to_le_bytes());
        // SQES, CQES.
        out[512] = 0x66;
        out[513] = 0x44;
        put(&mut out, 514, &self.commands_max.to_le_bytes());
        // NN, MNAN.
        put(&mut out, 516, &self.namespaces_max.to_le_bytes());
        put(&mut out, 540, &self.namespaces_max.to_le_bytes());
        put(&mut out, 520, &self.commands.to_le_bytes());
        // FUSES. ACWU: one block; the field is zero-based.
        put(&mut out, 522, &u16::from(self.compare_and_write).to_le_bytes());
        // VWC: present, and a flush names one namespace.
        out[525] = if self.write_cache { 0b101 } else { 0b100 };
        // OCFS.
        put(&mut out, 534, &self.copy_formats.to_le_bytes());
        // SGLS: no alignment requirement, offsets in the capsule, and transport data blocks.
        put(&mut out, 536, &(1_u32 | 1 << 20 | 1 << 21).to_le_bytes());
        put_text(&mut out, (768, 256), self.nqn, 0);
        // IOCCSZ, IORCSZ: in units of 16 bytes. MSDBD: one descriptor.
        put(&mut out, 1792, &((64 + self.in_capsule_bytes) / 16).to_le_bytes());
        put(&mut out, 1796, &1_u32.to_le_bytes());
        out[1803] = 1;
        // OFCS: Disconnect.
        put(&mut out, 1804, &u16::from(self.disconnects).to_le_bytes());
        out
    }

    /// Sets the fields of ANA reporting.
    fn put_access(&self, out: &mut Page) {
        // CMIC: ANA reporting is supported.
        out[76] |= 1 << 3;
        // ANATT: the maximum transition time in seconds. ANACAP: the reported states, and that a namespace stays in its
        // group.
        out[342] = 10;
        out[343] = 1 | 1 << 2 | 1 << 6;
        // ANAGRPMAX, NANAGRPID.
        put(out, 344, &self.namespaces_max.to_le_bytes());
        put(out, 348, &self.namespaces_max.to_le_bytes());
    }
}

/// Limits specific to the command set (NVM, Figure 102); 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandSetLimits {
    /// Largest Verify as a power of two of pages of 4 KiB (VSL).
    pub verify_pages_log2: u8,
    /// Largest Write Zeroes as a power of two of pages of 4 KiB (WZSL).
    pub zeroes_pages_log2: u8,
    /// Ranges of a Dataset Management (DMRL).
    pub dataset_ranges: u8,
    /// Blocks of one range (DMRSL).
    pub dataset_range_blocks: u32,
    /// Blocks of all ranges (DMSL).
    pub dataset_blocks: u64,
}

impl CommandSetLimits {
    /// The Identify data structure.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut out = [0; IDENTIFY_BYTES];
        out[0] = self.verify_pages_log2;
        out[1] = self.zeroes_pages_log2;
        out[3] = self.dataset_ranges;
        put(&mut out, 4, &self.dataset_range_blocks.to_le_bytes());
        put(&mut out, 8, &self.dataset_blocks.to_le_bytes());
        out
    }
}

/// The content of deallocated blocks (NVM, Figure 97, DLFEAT).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deallocated {
    /// Unspecified.
    Unspecified = 0,
    /// Zeroes.
    Zeroes = 1,
}

/// The limits of one Copy (NVM, Figure 97).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyLimits {
    /// Source ranges, 1 to 256 (MSRC).
    pub sources: u16,
    /// Blocks of one source range (MSSRL).
    pub source_blocks: u16,
    /// Blocks of all source ranges (MCL).
    pub blocks: u32,
}

/// The identify data of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Size in blocks.
    pub blocks: u64,
    /// Bytes of a block as a power of two.
    pub block_log2: u8,
    /// The content of deallocated blocks.
    pub deallocated: Deallocated,
    /// Whether writes are rejected.
    pub write_protected: bool,
    /// Preferred size and alignment of writes in blocks; 0 for no preference.
    pub optimal_blocks: u16,
    /// The limits of one Copy.
    pub copy: CopyLimits,
    /// The ANA group.
    pub group: u32,
    /// The reservation capabilities, see [`capabilities`](crate::reservation::capabilities).
    pub reservations: u8,
    /// The NGUID, see [`nguid_of`].
    pub nguid: [u8; 16],
    /// The instance of its device, see [`NamespaceFacts::instance`](crate::identified::NamespaceFacts::instance).
    pub instance: [u8; 16],
}

/// The prefix of the vendor-specific bytes of a Strake namespace (NVM, Figure 97, bytes 384 to 4095). The instance of
/// its device follows.
pub(crate) const INSTANCE_MARK: [u8; 16] = *b"Strake instance:";
/// The offset of the prefix.
pub(crate) const INSTANCE_AT: usize = 384;

impl Namespace {
    /// The Identify Namespace data structure (NVM, Figure 97).
    #[must_use]
    pub fn page(&self) -> Page {
        let mut out = [0; IDENTIFY_BYTES];
        for at in [0, 8, 16] {
            put(&mut out, at, &self.blocks.to_le_bytes());
        }
        out[33] = self.deallocated as u8;
        // NMIC: several controllers may be attached.
        out[30] = 1;
        // RESCAP.
        out[31] = self.reservations;
        if let Some(last) = self.optimal_blocks.checked_sub(1) {
            // NSFEAT: the following fields are set. NPWG, NPWA, NOWS: less one.
            out[24] = 1 << 4;
            for at in [64, 66, 72] {
                put(&mut out, at, &last.to_le_bytes());
            }
        }
        // MSSRL, MCL; MSRC: less one.
        put(&mut out, 74, &self.copy.source_blocks.to_le_bytes());
        put(&mut out, 76, &self.copy.blocks.to_le_bytes());
        out[80] = self.copy.sources.saturating_sub(1) as u8;
        // ANAGRPID.
        put(&mut out, 92, &self.group.to_le_bytes());
        out[99] = u8::from(self.write_protected);
        put(&mut out, 104, &self.nguid);
        // The first and only LBA format: LBADS.
        out[130] = self.block_log2;
        put(&mut out, INSTANCE_AT, &INSTANCE_MARK);
        put(&mut out, INSTANCE_AT + INSTANCE_MARK.len(), &self.instance);
        out
    }
}

/// The list of active namespace IDs in ascending order, at most 1024.
#[must_use]
pub fn active_namespaces(numbers: impl IntoIterator<Item = u32>) -> Page {
    let mut out = [0; IDENTIFY_BYTES];
    for (place, number) in numbers.into_iter().take(IDENTIFY_BYTES / 4).enumerate() {
        put(&mut out, place * 4, &number.to_le_bytes());
    }
    out
}

/// The NGUID of a namespace with this UUID: the bytes of the UUID. Bytes 8 to 10 of an NGUID are an OUI (NVM, Figure
/// 97). Byte 8 is changed to an OUI of the kind "locally administered, individual" (IEEE 802, section 8.2), which no
/// vendor owns.
#[must_use]
pub const fn nguid_of(uuid: &[u8; 16]) -> [u8; 16] {
    let mut nguid = *uuid;
    nguid[8] = nguid[8] & !1 | 1 << 1;
    nguid
}

/// The namespace identification descriptors: the UUID, and the NGUID that is derived from it (Base, Figure 277).
#[must_use]
pub fn descriptors(uuid: &[u8; 16]) -> Page {
    let mut out = [0; IDENTIFY_BYTES];
    put(&mut out, 0, &[3, 16, 0, 0]);
    put(&mut out, 4, uuid);
    put(&mut out, 20, &[2, 16, 0, 0]);
    put(&mut out, 24, &nguid_of(uuid));
    // The command set: NVM.
    put(&mut out, 40, &[4, 1, 0, 0, 0]);
    out
}
