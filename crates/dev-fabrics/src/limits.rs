//! Every limit of this crate.

use std::time::Duration;

use strake_units::Nanos;

/// Time limit for a target to accept a connection, and for each response before the first I/O.
pub const SETUP_TIME_MAX: Duration = Duration::from_secs(10);

/// Time limit for a controller to become ready or to shut down, regardless of the value that it reports.
pub const READY_TIME_MAX: Duration = Duration::from_secs(20);

/// Interval of polls of a controller that is not ready.
pub const READY_POLL: Duration = Duration::from_millis(20);

/// The keep-alive timeout (KATO), in milliseconds.
pub const KEEP_ALIVE_MS: u32 = 3000;

/// Interval of Keep Alive commands. It leaves room for a late command within the timeout.
pub const KEEP_ALIVE_EVERY: Duration = Duration::from_millis(KEEP_ALIVE_MS as u64 / 3);

/// Time limit for the completion of a Keep Alive.
pub const KEEP_ALIVE_ANSWER_MAX: Duration = Duration::from_millis(KEEP_ALIVE_MS as u64);

/// Multiples of KATO until a target detects that its host has disconnected, if only Keep Alive restarts the timer, and
/// if any command restarts it (F30; Base, section 3.9, and TP4129).
pub const KEEP_ALIVES_MISSED: u64 = 2;
/// See [`KEEP_ALIVES_MISSED`].
pub const KEEP_ALIVES_MISSED_IN_TRAFFIC: u64 = 3;

/// Time that a target may then take to quiesce, if it does not report one (CQT).
pub const QUIESCE_UNSENT: Nanos = Nanos(2 * Nanos::SECOND.0);

/// Longest time that a change may have to wait after the end of an association. It must fit [`MEMBER_TIME_MAX`]
/// together with [`ANSWER_TIME_MAX`] of a silent target.
pub const SETTLE_TIME_MAX: Nanos = strake_block::SETTLE_TIME_MAX;

/// Additional time for which requests are held at least, so that the target does not execute a change after the change
/// has failed.
pub const SETTLE_MARGIN: Nanos = Nanos::SECOND;

/// Time limit for the completion of a command; then its association counts as lost.
pub const ANSWER_TIME_MAX: Nanos = Nanos(12 * Nanos::SECOND.0);

/// Time for which requests are held without an association before they fail, unless the options set another time.
pub const LOSS_TIME: Nanos = Nanos(15 * Nanos::SECOND.0);

/// Lower limit of that option: the time that a change waits with a target that does not report its quiesce time.
pub const LOSS_TIME_MIN: Nanos = Nanos(12 * Nanos::SECOND.0);

/// Time after which an array takes an unresponsive member out of use (`IO_LIMIT_REMOTE` of `strake-engine`).
pub const MEMBER_TIME_MAX: Nanos = Nanos(30 * Nanos::SECOND.0);

/// Upper limit of the loss time: less than [`MEMBER_TIME_MAX`].
pub const LOSS_TIME_MAX: Nanos = Nanos(24 * Nanos::SECOND.0);

/// Time before the first reconnect attempt; each further attempt waits twice as long as the one before.
pub const BACK_OFF_MIN: Duration = Duration::from_millis(100);

/// Longest time between two attempts.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(5);

/// Most attempts of one command whose data was damaged, or whose association was lost.
pub const TRIES_MAX: u8 = 6;

/// Time before a command that the target rejected temporarily is sent again.
pub const RETRY_AFTER: Nanos = Nanos(100 * Nanos::MILLI.0);

/// Interval of deadline checks.
pub const TICK: Nanos = Nanos(100 * Nanos::MILLI.0);

/// The number of I/O queues to request; each core that uses the drive takes one, and so does every probe of the drive.
pub const QUEUES_MAX: u16 = 16;

/// Queues of one drive that are being connected at a time, including those whose association was lost meanwhile: each
/// uses a thread until its target answers or [`SETUP_TIME_MAX`] has passed.
pub const JOINS_MAX: usize = 4 * QUEUES_MAX as usize;

/// ANA groups that are read from a target: their page fits the smallest transfer limit that a target may have (one page
/// of memory).
pub const ACCESS_GROUPS_MAX: u32 = 127;

/// Paths to one drive.
pub const PATHS_MAX: usize = 8;

/// Registrants that the first read of a reservation has room for: few hosts share a namespace.
pub const REGISTRANTS_READ: usize = 15;

/// Reservation notices that are read in sequence: a target keeps fewer.
pub const NOTICES_MAX: usize = 256;

/// Most registrants that are read if there are more.
pub const REGISTRANTS_MAX: usize = 1023;

/// Minimum time before a path is replaced by a better one: otherwise every ANA change would reconnect every queue.
pub const STAY_TIME_MIN: Duration = Duration::from_secs(5);

/// Time for which a path that failed to connect a queue is used only if no other path is better.
pub const POOR_TIME: Duration = Duration::from_secs(60);

/// Time for which queues with outstanding commands may still use a path that is being removed.
pub const LEAVE_TIME_MAX: Duration = Duration::from_secs(5);

/// Entries of the admin queue.
pub const ADMIN_ENTRIES: u16 = 32;

/// Most entries that are read from a discovery log.
pub const OFFERS_MAX: u64 = 1024;

/// Time limit for reading a discovery log, from the first response of the controller.
pub const DISCOVERY_TIME_MAX: Duration = Duration::from_secs(30);

/// Most reads of a discovery log that changes meanwhile.
pub const DISCOVERY_TRIES_MAX: usize = 5;

/// Buffer size for an authentication message: more than the longest valid one.
pub const MESSAGE_ROOM: usize = 4096;

/// Largest number of entries of an I/O queue.
pub const IO_ENTRIES_MAX: u32 = 128;

/// Most requests of one queue at a time: the part of a CID that is not the turn counter.
pub const DEPTH_MAX: u32 = 1024;

/// Largest request in bytes; a request above the transfer limit of the target is split.
pub const IO_BYTES_MAX: u32 = 1 << 20;

/// Largest namespace in bytes: the range of signed offsets in files and devices.
pub const BYTES_MAX: u64 = i64::MAX as u64;

/// Blocks of one Read, Write or Write Zeroes (NVM, section 3.2: NLB has 16 bits).
pub const COMMAND_BLOCKS_MAX: u64 = 1 << 16;

/// Largest deallocation in bytes; this bounds the time of one command.
pub const DEALLOCATE_BYTES_MAX: u64 = 1 << 30;

/// Bytes of zeroes that are written at a time to a target without Write Zeroes.
pub const ZEROES_BYTES: usize = 128 << 10;

/// Bytes of the receive buffer, used for bytes that are not yet known to be data: about a dozen reads of 4 KiB per
/// system call.
pub const INPUT_BYTES: usize = 64 << 10;

/// PDUs of one queue that are processed in one poll.
pub const PDUS_PER_POLL: usize = 256;

/// `sendmsg` calls of one queue between two polls.
pub const SENDS_PER_TURN: usize = 8;

const _: () = assert!(LOSS_TIME_MIN.0 <= LOSS_TIME.0 && LOSS_TIME.0 <= LOSS_TIME_MAX.0);
const _: () = assert!(SETTLE_TIME_MAX.0 + SETTLE_MARGIN.0 <= LOSS_TIME_MAX.0);
const _: () = assert!(LOSS_TIME_MAX.0 < MEMBER_TIME_MAX.0);
// A change fails before that time if its target is silent, its path is lost, and the settle time passes.
const _: () = assert!(
    ANSWER_TIME_MAX.0 + KEEP_ALIVE_MS as u64 * Nanos::MILLI.0 + SETTLE_TIME_MAX.0 + SETTLE_MARGIN.0
        < MEMBER_TIME_MAX.0
);
const _: () = assert!(
    KEEP_ALIVES_MISSED_IN_TRAFFIC * KEEP_ALIVE_MS as u64 * Nanos::MILLI.0
        + QUIESCE_UNSENT.0
        + SETTLE_MARGIN.0
        <= LOSS_TIME_MIN.0
);
const _: () =
    assert!(strake_tls::limits::AHEAD_BYTES_MIN >= strake_nvme_tcp::pdu::HEADER_BYTES_MAX * 2);
const _: () = assert!(strake_tls::limits::AHEAD_BYTES_MIN < INPUT_BYTES);
const _: () = assert!(MESSAGE_ROOM >= strake_nvme_auth::MESSAGE_BYTES_MAX);
