//! Limits of the driver, each with its reason.

use strake_units::Nanos;

/// Requests of a queue: as many as ten bits of a command identifier name, but for the last, because the identifier
/// ffffh is reserved (Base, section 3.3.3.1).
pub(crate) const DEPTH_MAX: u32 = (1 << SLOT_BITS) - 1;
/// Bits of a command identifier that name a slot. Those above count the commands of the slot, so that a late or second
/// completion is not taken for that of the next command.
pub(crate) const SLOT_BITS: u32 = 10;
/// Entries of a queue pair per request, so that the head doorbell of the completion queue can be written seldom.
pub(crate) const ENTRIES_PER_REQUEST: u32 = 2;
/// Completions after which the head doorbell is written at the latest.
pub(crate) const HEAD_BATCH: u16 = 64;
/// Most data of a command, whatever the controller takes: a PRP list of one page describes twice as much.
pub(crate) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Blocks of a command (NVM, section 3.2.4: NLB is 16 bits, less one).
pub(crate) const COMMAND_BLOCKS_MAX: u64 = 1 << 16;
/// Most of one deallocation: controllers spend long on larger ones.
pub(crate) const DEALLOCATE_BYTES_MAX: u64 = 1 << 30;
/// Pages of a queue for PRP lists that cannot lie in a table, and for the ranges of deallocations.
pub(crate) const LISTS: u16 = 8;
/// Chunks of a device for data in memory that is not mapped.
pub(crate) const BOUNCES: u16 = 16;
/// Bytes of such a chunk.
pub(crate) const BOUNCE_BYTES: usize = 128 << 10;
/// Entries of the admin queue.
pub(crate) const ADMIN_ENTRIES: u16 = 32;
/// Pairs of I/O queues, one for each core.
pub(crate) const QUEUES_MAX: usize = 256;
/// Bytes of a page of memory, as the controller is configured.
pub(crate) const PAGE: usize = 4096;

/// How often a command is sent in all before its request fails.
pub(crate) const TRIES_MAX: u16 = 3;

/// Between two looks of a queue at the age of its commands, and of the keeper at the registers of a ready controller.
pub(crate) const SCAN: Nanos = Nanos(500 * Nanos::MILLI.0);
/// Looks after which a command is aborted: 8 s.
pub(crate) const ABORT_SCANS: u16 = 16;
/// Looks after which the controller is reset: 10 s.
pub(crate) const RESET_SCANS: u16 = 20;
/// Looks after which a request fails that can no longer be executed, because the controller is not ready: 26 s.
pub(crate) const HOLD_SCANS: u16 = 52;
/// How long the controller may take to become not ready (CAP.TO may say less).
pub(crate) const DISABLE_TIME_MAX: Nanos = Nanos(8 * Nanos::SECOND.0);
/// How long it may take after a function reset, that reset included.
pub(crate) const FUNCTION_RESET_TIME_MAX: Nanos = Nanos(4 * Nanos::SECOND.0);
/// How long the rest of a recovery takes at most before requests fail.
const READY_TIME: Nanos = Nanos(4 * Nanos::SECOND.0);
/// When callers give up on a device (`strake_block::patience`).
const CALLER_LIMIT: Nanos = strake_block::patience::DEVICE_LIMIT;

const fn scans(count: u16) -> Nanos {
    SCAN.times(count as u64)
}

// The whole recovery fits into the time that a request is held, and that into the time that callers wait.
const _: () = {
    let steps =
        scans(RESET_SCANS).plus(DISABLE_TIME_MAX).plus(FUNCTION_RESET_TIME_MAX).plus(READY_TIME);
    assert!(steps.0 <= scans(HOLD_SCANS).0);
    assert!(scans(HOLD_SCANS).plus(SCAN.times(2)).0 < CALLER_LIMIT.0);
    assert!(ABORT_SCANS < RESET_SCANS);
};

/// How long data cores may take to leave the registers alone.
pub(crate) const PARK_TIME_MAX: Nanos = Nanos::SECOND;
/// How long an admin command may take while the controller is prepared.
pub(crate) const STEP_TIME_MAX: Nanos = Nanos(5 * Nanos::SECOND.0);
/// How long a command may take that creates or deletes a queue, or aborts: as long as one of a queue.
pub(crate) const ADMIN_TIME_MAX: Nanos = scans(RESET_SCANS);
/// How long a log page may take: as long as callers wait for it.
pub(crate) const LOG_TIME_MAX: Nanos = Nanos(60 * Nanos::SECOND.0);
/// How long a shutdown notification may take.
pub(crate) const SHUTDOWN_TIME_MAX: Nanos = Nanos(5 * Nanos::SECOND.0);
/// Tries to make a controller ready.
pub(crate) const READY_TRIES: u8 = 3;
/// So many resets within [`RESET_SPAN`] make a controller fail.
pub(crate) const RESETS_MAX: usize = 3;
/// See [`RESETS_MAX`].
pub(crate) const RESET_SPAN: Nanos = Nanos(600 * Nanos::SECOND.0);
/// Between two turns of a keeper that waits for its controller.
pub(crate) const TURN: Nanos = Nanos::MILLI;
