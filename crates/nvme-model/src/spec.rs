//! What a controller is like.

use crate::maintenance::MaintenanceSpec;
use strake_units::Nanos;

/// How blocks are protected end to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// There is no metadata.
    None,
    /// Eight bytes of protection information of type 1, behind each block (NVM, section 5.2).
    Type1,
}

/// A namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceSpec {
    /// Blocks.
    pub blocks: u64,
    /// Bytes of a block as a power of two: 9 or 12.
    pub block_log2: u8,
    /// How blocks are protected.
    pub protection: Protection,
    /// Whether writes are refused.
    pub write_protected: bool,
    /// Its globally unique identifier; zero when it has none.
    pub nguid: [u8; 16],
}

impl NamespaceSpec {
    /// An ordinary namespace.
    #[must_use]
    pub const fn new(blocks: u64, block_log2: u8) -> Self {
        Self {
            blocks,
            block_log2,
            protection: Protection::None,
            write_protected: false,
            nguid: [0x5a; 16],
        }
    }
}

/// What a controller is like. Start from [`Spec::new`] and change fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Serial number, up to 20 ASCII characters.
    pub serial: String,
    /// Model, up to 40 ASCII characters.
    pub model: String,
    /// Firmware, up to 8 ASCII characters.
    pub firmware: String,
    /// Entries of the largest queue (MQES, plus one).
    pub entries_max: u16,
    /// The longest time to become ready or not ready, in units of 500 ms (CAP.TO).
    pub ready_units: u8,
    /// Bytes between doorbells as a power of two, of 4 bytes (CAP.DSTRD).
    pub doorbell_stride_log2: u8,
    /// The smallest and only page as a power of two, of 4 KiB (CAP.MPSMIN).
    pub page_min_log2: u8,
    /// Most data of a command as a power of two of pages; 0 for no limit (MDTS).
    pub transfer_pages_log2: u8,
    /// Most pages of a Write Zeroes as a power of two; 0 for no limit (WZSL).
    pub zeroes_pages_log2: u8,
    /// Pairs of I/O queues.
    pub queues_max: u16,
    /// Optional commands (ONCS), see `strake_nvme_wire::identify::optional`.
    pub commands: u16,
    /// Whether completed writes need a flush.
    pub write_cache: bool,
    /// Whether there is Doorbell Buffer Config.
    pub shadow_doorbells: bool,
    /// Blocks that are written as a whole, also over a power loss (AWUPF, plus one).
    pub atomic_blocks: u16,
    /// How long it takes to become ready.
    pub ready_time: Nanos,
    /// How long it takes to become not ready.
    pub disable_time: Nanos,
    /// How long a command of an I/O queue takes.
    pub latency: Nanos,
    /// Maintenance commands.
    pub maintenance: MaintenanceSpec,
    /// The namespaces, numbered from 1.
    pub namespaces: Vec<NamespaceSpec>,
}

impl Spec {
    /// Where a doorbell is from the first on: twice the number of a queue, plus one for its completion queue.
    pub(crate) const fn doorbell_offset(&self, index: usize) -> u64 {
        (index * (4 << self.doorbell_stride_log2)) as u64
    }

    /// Where it is among the registers.
    pub(crate) const fn doorbell(&self, index: usize) -> usize {
        crate::register::offset::DOORBELLS + self.doorbell_offset(index) as usize
    }

    /// An ordinary controller with one namespace of `blocks` blocks of 4096 bytes.
    #[must_use]
    pub fn new(blocks: u64) -> Self {
        use strake_nvme_wire::identify::optional;
        Self {
            serial: "MODEL0001".to_owned(),
            model: "Strake model controller".to_owned(),
            firmware: "1.0".to_owned(),
            entries_max: 1024,
            ready_units: 20,
            doorbell_stride_log2: 0,
            page_min_log2: 0,
            transfer_pages_log2: 5,
            zeroes_pages_log2: 0,
            queues_max: 16,
            commands: optional::VERIFY | optional::DATASET_MANAGEMENT | optional::WRITE_ZEROES,
            write_cache: true,
            shadow_doorbells: false,
            atomic_blocks: 1,
            ready_time: Nanos(0),
            disable_time: Nanos(0),
            latency: Nanos(0),
            maintenance: MaintenanceSpec::default(),
            namespaces: vec![NamespaceSpec::new(blocks, 12)],
        }
    }
}
