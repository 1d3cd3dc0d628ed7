//! Registers (Base, section 3.1.3).

use crate::spec::Spec;

/// Where registers are, in bytes.
pub mod offset {
    /// Controller Capabilities, 64 bits.
    pub const CAP: usize = 0x00;
    /// Version.
    pub const VS: usize = 0x08;
    /// Controller Configuration.
    pub const CC: usize = 0x14;
    /// Controller Status.
    pub const CSTS: usize = 0x1c;
    /// Admin Queue Attributes.
    pub const AQA: usize = 0x24;
    /// Admin Submission Queue Base Address, 64 bits.
    pub const ASQ: usize = 0x28;
    /// Admin Completion Queue Base Address, 64 bits.
    pub const ACQ: usize = 0x30;
    /// The first doorbell.
    pub const DOORBELLS: usize = 0x1000;
}

/// Bits of Controller Status.
pub mod csts {
    /// Ready.
    pub const RDY: u32 = 1 << 0;
    /// Controller Fatal Status.
    pub const CFS: u32 = 1 << 1;
    /// Shutdown Status: complete.
    pub const SHUTDOWN_COMPLETE: u32 = 0b10 << 2;
    /// NVM Subsystem Reset Occurred; a one that is written clears it.
    pub const NSSRO: u32 = 1 << 4;
}

/// Bits of Controller Configuration.
pub(crate) mod cc {
    /// Enable.
    pub(crate) const EN: u32 = 1 << 0;
    /// Shutdown Notification: normal or abrupt.
    pub(crate) const SHN: u32 = 0b11 << 14;
    /// Memory page size, entry sizes and arbitration with the only values that the model supports: pages of 4 KiB,
    /// entries of 64 and 16 bytes, round robin, the NVM command set.
    pub(crate) const FORMAT: u32 = 6 << 16 | 4 << 20;
    /// The bits of that.
    pub(crate) const FORMAT_MASK: u32 = 0x00ff_3ff0;
}

/// Controller Capabilities.
pub(crate) fn capabilities(spec: &Spec) -> u64 {
    let entries = u64::from(spec.entries_max - 1);
    // CQR: queues are contiguous. CSS: the NVM command set.
    entries
        | 1 << 16
        | u64::from(spec.ready_units) << 24
        | u64::from(spec.doorbell_stride_log2) << 32
        | 1 << 37
        | u64::from(spec.page_min_log2) << 48
        | u64::from(spec.page_min_log2) << 52
}
