//! Status codes of memory-based transports, which `strake-nvme-wire` has no use for (Base, Figures 95 and 97; NVM,
//! Figure 16).

use strake_nvme_wire::Status;

const fn of(code_type: u16, code: u16) -> Status {
    Status::of_word((code_type << 8 | code) << 1)
}

/// An entry of a PRP list, or a PRP, has an offset that is not possible.
pub(crate) const PRP_OFFSET: Status = of(0, 0x13);
/// The completion queue does not exist.
pub(crate) const NO_COMPLETION_QUEUE: Status = of(1, 0x00);
/// The number of the queue is not possible.
pub(crate) const QUEUE_NUMBER: Status = of(1, 0x01);
/// The size of the queue is not possible.
pub(crate) const QUEUE_SIZE: Status = of(1, 0x02);
/// More Aborts than the controller takes.
pub(crate) const ABORT_LIMIT: Status = of(1, 0x03);
/// The slot of firmware does not exist, or is read-only.
pub(crate) const FIRMWARE_SLOT: Status = of(1, 0x06);
/// The image is no image of firmware for this controller.
pub(crate) const FIRMWARE_IMAGE: Status = of(1, 0x07);
/// The firmware is stored, and a reset of the controller activates it.
pub(crate) const FIRMWARE_NEEDS_RESET: Status = of(1, 0x11);
/// Pieces of an image overlap, or are missing.
pub(crate) const FIRMWARE_OVERLAP: Status = of(1, 0x14);
/// The last sanitize operation failed.
pub(crate) const SANITIZE_FAILED: Status = of(0, 0x1c);
/// A sanitize operation is in progress.
pub(crate) const SANITIZE_IN_PROGRESS: Status = of(0, 0x1d);
/// The format does not exist.
pub(crate) const INVALID_FORMAT: Status = of(1, 0x0a);
/// The completion queue still has a submission queue.
pub(crate) const QUEUE_DELETION: Status = of(1, 0x0c);
/// The guard of a block is wrong.
pub(crate) const GUARD: Status = of(2, 0x82);
/// The reference tag of a block is wrong.
pub(crate) const REFERENCE_TAG: Status = of(2, 0x84);
