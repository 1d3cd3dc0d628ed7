//! Every bound of this crate.

use std::time::Duration;

use strake_units::Nanos;

/// How long a target may take to accept a connection and to answer each thing that is said before the first I/O.
pub const SETUP_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a controller may take to become ready or to shut down, whatever it claims.
pub const READY_TIME_MAX: Duration = Duration::from_secs(20);

/// Time between two looks at a controller that is not ready.
pub const READY_POLL: Duration = Duration::from_millis(20);

/// The keep-alive timeout: how long a target waits for a Keep Alive (KATO), in milliseconds.
pub const KEEP_ALIVE_MS: u32 = 3000;

/// Time between two Keep Alive commands: a target that gets one late still gets it in time.
pub const KEEP_ALIVE_EVERY: Duration = Duration::from_millis(KEEP_ALIVE_MS as u64 / 3);

/// How long the answer to one may take.
pub const KEEP_ALIVE_ANSWER_MAX: Duration = Duration::from_millis(KEEP_ALIVE_MS as u64);

/// How many times KATO may go by before a target notices that its host has disconnected, when only Keep Alive restarts
/// the timer, and when any command restarts it (F30; Base, section 3.9, and TP4129).
pub const KEEP_ALIVES_MISSED: u64 = 2;
/// See [`KEEP_ALIVES_MISSED`].
pub const KEEP_ALIVES_MISSED_IN_TRAFFIC: u64 = 3;

/// How long a target may then take to stop what it was doing, when it does not say (CQT).
pub const QUIESCE_UNSENT: Nanos = Nanos(2 * Nanos::SECOND.0);

/// The longest that a change may have to wait after the end of an association: what can be waited for within
/// [`MEMBER_TIME_MAX`], after a target that did not answer for [`ANSWER_TIME_MAX`].
pub const SETTLE_TIME_MAX: Nanos = strake_block::SETTLE_TIME_MAX;

/// How much longer than that requests are held at least: a change that fails is not to be executed by the target
/// afterwards.
pub const SETTLE_MARGIN: Nanos = Nanos::SECOND;

/// How long a command may go without an answer before its association counts as lost.
pub const ANSWER_TIME_MAX: Nanos = Nanos(12 * Nanos::SECOND.0);

/// How long requests are held without an association before they fail, unless the options set another time.
pub const LOSS_TIME: Nanos = Nanos(15 * Nanos::SECOND.0);

/// The least that can be asked for: what a change waits, with a target that does not say how long it takes to stop.
pub const LOSS_TIME_MIN: Nanos = Nanos(12 * Nanos::SECOND.0);

/// How long an array waits for a member before it puts it out of use (`IO_LIMIT_REMOTE` of
/// `strake-engine`).
pub const MEMBER_TIME_MAX: Nanos = Nanos(30 * Nanos::SECOND.0);

/// The most: less than [`MEMBER_TIME_MAX`].
pub const LOSS_TIME_MAX: Nanos = Nanos(24 * Nanos::SECOND.0);

/// Time before the first try to connect again; each further try waits twice as long as the one before.
pub const BACK_OFF_MIN: Duration = Duration::from_millis(100);

/// Longest time between two tries.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(5);

/// Most times that one command is sent whose data came damaged, or whose association was lost.
pub const TRIES_MAX: u8 = 6;

/// Time before a command is sent again that the target refused for now.
pub const RETRY_AFTER: Nanos = Nanos(100 * Nanos::MILLI.0);

/// Time between two looks at deadlines.
pub const TICK: Nanos = Nanos(100 * Nanos::MILLI.0);

/// I/O queues asked for; each core that uses the drive takes one, and so does every look at it.
pub const QUEUES_MAX: u16 = 16;

/// Queues of one drive that are being connected at a time, including those no longer wanted because their association
/// was lost: each takes a thread until its target answers or [`SETUP_TIME_MAX`] is over.
pub const JOINS_MAX: usize = 4 * QUEUES_MAX as usize;

/// Groups of namespaces that a target is asked about, how they are reached: their page fits the least that a target may
/// want a command's data to be (one page of memory).
pub const ACCESS_GROUPS_MAX: u32 = 127;

/// Paths to one drive.
pub const PATHS_MAX: usize = 8;

/// Registrants of a namespace for whom there is room when its reservation is looked at: few hosts share one.
pub const REGISTRANTS_READ: usize = 15;

/// Notices about reservations that are read one after another: a target keeps fewer.
pub const NOTICES_MAX: usize = 256;

/// The most registrants that are read, when there are more.
pub const REGISTRANTS_MAX: usize = 1023;

/// How long a path is used at least before it is left for one that is only better: otherwise every change in what a
/// target says of its paths would reconnect every queue.
pub const STAY_TIME_MIN: Duration = Duration::from_secs(5);

/// How long a path over which a queue was not connected is used only where no other serves better.
pub const POOR_TIME: Duration = Duration::from_secs(60);

/// How long a path that is to be left may still be used by queues that have got no answer.
pub const LEAVE_TIME_MAX: Duration = Duration::from_secs(5);

/// Entries of the admin queue.
pub const ADMIN_ENTRIES: u16 = 32;

/// Most entries of a discovery log that are read.
pub const OFFERS_MAX: u64 = 1024;

/// How long reading a discovery log may take, from the first answer of the controller on.
pub const DISCOVERY_TIME_MAX: Duration = Duration::from_secs(30);

/// Times that a discovery log is read which changes meanwhile.
pub const DISCOVERY_TRIES_MAX: usize = 5;

/// Room for a message of authentication: more than the longest that makes sense.
pub const MESSAGE_ROOM: usize = 4096;

/// Most entries of an I/O queue.
pub const IO_ENTRIES_MAX: u32 = 128;

/// Most requests of one queue at a time: what fits the part of a command identifier that is not its turn.
pub const DEPTH_MAX: u32 = 1024;

/// Bytes of the largest single request; larger than the target takes at once is cut.
pub const IO_BYTES_MAX: u32 = 1 << 20;

/// Most bytes of a namespace: what signed positions in files and devices can say.
pub const BYTES_MAX: u64 = i64::MAX as u64;

/// Blocks of one Read, Write or Write Zeroes (NVM, section 3.2: NLB has 16 bits).
pub const COMMAND_BLOCKS_MAX: u64 = 1 << 16;

/// Most bytes of one deallocation: a command must not take for ever.
pub const DEALLOCATE_BYTES_MAX: u64 = 1 << 30;

/// Zeroes that are written to a target without Write Zeroes, at a time.
pub const ZEROES_BYTES: usize = 128 << 10;

/// Bytes read ahead of what is known to be data: about a dozen answers of 4 KiB for a system call.
pub const INPUT_BYTES: usize = 64 << 10;

/// PDUs of one queue looked at in one poll.
pub const PDUS_PER_POLL: usize = 256;

/// `sendmsg` calls of one queue between two polls.
pub const SENDS_PER_TURN: usize = 8;

const _: () = assert!(LOSS_TIME_MIN.0 <= LOSS_TIME.0 && LOSS_TIME.0 <= LOSS_TIME_MAX.0);
const _: () = assert!(SETTLE_TIME_MAX.0 + SETTLE_MARGIN.0 <= LOSS_TIME_MAX.0);
const _: () = assert!(LOSS_TIME_MAX.0 < MEMBER_TIME_MAX.0);
// A change that gets no answer fails before that: its target is silent, its path finds out, and then it is waited for.
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
