//! Limits of the driver, each with its reason.

use strake_units::Nanos;

/// Requests of a queue: the number of values of the ten slot bits of a command identifier, except the last, because the
/// identifier ffffh is reserved (Base, section 3.3.3.1).
pub(crate) const DEPTH_MAX: u32 = (1 << SLOT_BITS) - 1;
/// Bits of a command identifier that name a slot. The upper bits count the commands of the slot, so that a late or
/// repeated completion is not mistaken for that of the next command.
pub(crate) const SLOT_BITS: u32 = 10;
/// Entries of a queue pair per request, so that the head doorbell of the completion queue is rarely written.
pub(crate) const ENTRIES_PER_REQUEST: u32 = 2;
/// Maximum number of completions before the head doorbell is written.
pub(crate) const HEAD_BATCH: u16 = 64;
/// Maximum bytes of data of a command, for any controller: a PRP list of one page describes twice as much.
pub(crate) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Blocks of a command (NVM, section 3.2.4: NLB is 16 bits, less one).
pub(crate) const COMMAND_BLOCKS_MAX: u64 = 1 << 16;
/// Maximum bytes of one deallocation: controllers take long for larger ones.
pub(crate) const DEALLOCATE_BYTES_MAX: u64 = 1 << 30;
/// Pages of a queue for PRP lists that cannot be in a table, and for the ranges of deallocations.
pub(crate) const LISTS: u16 = 8;
/// Chunks of a device for data in memory that is not mapped.
pub(crate) const BOUNCES: u16 = 16;
/// Bytes of such a chunk.
pub(crate) const BOUNCE_BYTES: usize = 128 << 10;
/// Entries of the admin queue.
pub(crate) const ADMIN_ENTRIES: u16 = 32;
/// Pairs of I/O queues, one for each core.
pub(crate) const QUEUES_MAX: usize = 256;
/// Bytes of a memory page, as configured in the controller.
pub(crate) const PAGE: usize = 4096;

/// Maximum number of times that a command is sent before its request fails.
pub(crate) const TRIES_MAX: u16 = 3;

/// Interval in which a queue checks the ages of its commands, and the keeper reads the registers of a ready controller.
pub(crate) const SCAN: Nanos = Nanos(500 * Nanos::MILLI.0);
/// Scans after which a command is aborted: 8 s.
pub(crate) const ABORT_SCANS: u16 = 16;
/// Scans after which the controller is reset: 10 s.
pub(crate) const RESET_SCANS: u16 = 20;
/// Scans after which a request that can no longer be executed fails, because the controller is not ready: 26 s.
pub(crate) const HOLD_SCANS: u16 = 52;
/// Time limit for the controller to become not ready (CAP.TO may be less).
pub(crate) const DISABLE_TIME_MAX: Nanos = Nanos(8 * Nanos::SECOND.0);
/// The same limit after a reset of the function, including the reset.
pub(crate) const FUNCTION_RESET_TIME_MAX: Nanos = Nanos(4 * Nanos::SECOND.0);
/// Time limit of the rest of a recovery before requests fail.
const READY_TIME: Nanos = Nanos(4 * Nanos::SECOND.0);
/// Time after which callers fail a device (`strake_block::patience`).
const CALLER_LIMIT: Nanos = strake_block::patience::DEVICE_LIMIT;

const fn scans(count: u16) -> Nanos {
    SCAN.times(count as u64)
}

// The whole recovery fits into the time for which a request is held, and this time fits into the limit of callers.
const _: () = {
    let steps =
        scans(RESET_SCANS).plus(DISABLE_TIME_MAX).plus(FUNCTION_RESET_TIME_MAX).plus(READY_TIME);
    assert!(steps.0 <= scans(HOLD_SCANS).0);
    assert!(scans(HOLD_SCANS).plus(SCAN.times(2)).0 < CALLER_LIMIT.0);
    assert!(ABORT_SCANS < RESET_SCANS);
};

/// Time limit for data cores to leave the registers.
pub(crate) const PARK_TIME_MAX: Nanos = Nanos::SECOND;
/// Time limit of an admin command during the preparation of the controller.
pub(crate) const STEP_TIME_MAX: Nanos = Nanos(5 * Nanos::SECOND.0);
/// Time limit of a command that creates or deletes a queue, or aborts: the same as of a command of a queue.
pub(crate) const ADMIN_TIME_MAX: Nanos = scans(RESET_SCANS);
/// Reads of maintenance commands that a controller may leave without an answer. Each of them keeps an entry of the
/// admin queue, and a chunk of [`BOUNCES`], until the next reset.
pub(crate) const LOST_READS_MAX: usize = 4;
/// Time limit of a log page: the same as the limit of callers.
pub(crate) const LOG_TIME_MAX: Nanos = Nanos(60 * Nanos::SECOND.0);
/// Time limit of a shutdown notification.
pub(crate) const SHUTDOWN_TIME_MAX: Nanos = Nanos(5 * Nanos::SECOND.0);
/// Maximum tries to make a controller ready.
pub(crate) const READY_TRIES: u8 = 3;
/// A controller fails after this number of resets within [`RESET_SPAN`].
pub(crate) const RESETS_MAX: usize = 3;
/// See [`RESETS_MAX`].
pub(crate) const RESET_SPAN: Nanos = Nanos(600 * Nanos::SECOND.0);
/// Interval between two turns of a keeper that waits for its controller.
pub(crate) const TURN: Nanos = Nanos::MILLI;
