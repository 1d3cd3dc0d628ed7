//! Limits of tables, waits and retries.

use std::time::Duration;

/// Maximum number of arrays. Each array needs memory for stripes in progress on every core.
pub const ARRAYS_MAX: usize = 64;

/// Maximum number of exports.
pub const EXPORTS_MAX: usize = 256;

/// Maximum number of hosts that must authenticate.
pub const HOSTS_MAX: usize = 256;

/// Longest time in which replaced secrets and keys of a host are accepted: 30 days.
pub const KEEP_OLD_SECONDS_MAX: u64 = 30 * 24 * 3600;

/// Maximum number of referrals.
pub const REFERRALS_MAX: usize = strake_export_nvmet::limits::REFERRALS_MAX;

/// Maximum number of spares. Each spare is open.
pub const SPARES_MAX: usize = 64;

/// Maximum number of remote drives. Each remote drive has a connection and a thread.
pub const REMOTES_MAX: usize = 256;

/// Time before the second attempt to connect a recorded remote drive. Each further attempt waits twice as long.
pub const REMOTE_RETRY_MIN: Duration = Duration::from_secs(1);

/// Maximum time between two attempts.
pub const REMOTE_RETRY_MAX: Duration = Duration::from_secs(30);

/// Number of events in memory for lists. Older events are in the file until it is rotated.
pub const EVENTS_KEPT: usize = 4096;

/// Size at which the file of events is rotated and replaces the previous file, so that both files are bounded.
pub const EVENTS_FILE_BYTES: u64 = 4 << 20;

/// Maximum length of a field of an event in bytes. Longer texts are truncated.
pub const EVENT_TEXT_BYTES: usize = 2000;

/// Time between two attempts to write events to a state directory that refuses them.
pub const EVENTS_RETRY: Duration = Duration::from_secs(1);

/// Maximum wait of a stop for the file of events.
pub const EVENTS_STOP: Duration = Duration::from_secs(2);

/// Size at which a file of the audit log is full, in bytes.
pub const AUDIT_FILE_BYTES_MAX: u64 = 8 << 20;

/// Maximum size of all full files of the audit log together, in bytes: at least 20,000 commands, and usually several
/// hundred thousand.
pub const AUDIT_BYTES_MAX: u64 = 256 << 20;

/// Maximum length of a text of an audit entry in bytes. Longer texts are truncated.
pub const AUDIT_TEXT_BYTES_MAX: usize = 1000;

/// Maximum number of entries of the audit log that wait for a state directory that refuses writes.
pub const AUDIT_PENDING_MAX: usize = 4096;

/// Maximum number of entries in one answer. With texts of maximum length, the answer fits into one message.
pub const AUDIT_LIST_MAX: usize = 500;

/// Maximum wait of a stop for the last entries of the audit log. A state directory that does not answer must not block
/// the stop.
pub const AUDIT_STOP: Duration = Duration::from_secs(1);

/// Minimum time between two entries about denied calls of a user.
pub const AUDIT_DENIALS_EVERY: Duration = Duration::from_secs(60);

/// Maximum number of users whose denied calls are counted at a time.
pub const AUDIT_DENIED_USERS_MAX: usize = 256;

/// Maximum wait of a stop for pending deliveries of hooks. It suffices for an available receiver; the shutdown of a
/// host must not wait for an unavailable one.
pub const HOOKS_STOP: Duration = Duration::from_secs(5);

/// Time until a record that a member refused is written again.
pub const RECORD_RETRY: Duration = Duration::from_secs(15);

/// Time limit of a member for a read of its record, and for a write of a new record.
pub const RECORD_LIMIT: Duration = Duration::from_secs(5);

/// Maximum wait of a command for another command on the same array or drive.
pub const RESERVE_WAIT: Duration = Duration::from_secs(60);

/// Bytes of a member that are zeroed at a time before an array grows. A slow drive completes this well within the time
/// limit of one operation.
pub const GROWTH_STEP_BYTES: u64 = 256 << 20;

/// Maximum wait for client requests in progress before an array is stopped for a growth.
pub const GROWTH_DRAIN: Duration = Duration::from_secs(20);

/// Maximum number of shown ranges of lost blocks. The first ranges are shown, and the message reports the truncation.
pub const BAD_RANGES_MAX: usize = 64;

/// Maximum number of invalid fields of a member's record that its event names.
pub const INVALID_FIELDS_MAX: usize = 8;

/// Maximum number of characters of such a field and the reason, because a drive may contain any text.
pub const INVALID_FIELD_CHARS_MAX: usize = 300;

/// Maximum bytes of a telemetry log.
pub const TELEMETRY_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of reads of a telemetry log that changes during the reads.
pub const TELEMETRY_TRIES: u32 = 3;

/// Time limit of the reads of a telemetry log. A drive may need seconds to capture its state.
pub const TELEMETRY_LIMIT: Duration = Duration::from_secs(300);

/// Time limit of a drive to accept a sanitize operation, which it then executes on its own.
pub const SANITIZE_START_LIMIT: Duration = Duration::from_secs(60);

/// Time between two reads of the progress of sanitize operations.
pub const SANITIZE_EVERY: Duration = Duration::from_secs(5);

/// Number of consecutive reads of the progress of a sanitize operation without an answer, after which its state is
/// unknown: at least a minute.
pub const SANITIZE_SILENT_READS: u32 = 12;

/// Time limit of a firmware update. Two fifths of it are for the transfer of the image; the last piece, and the commit,
/// have limits of their own.
pub const FIRMWARE_LIMIT: Duration = Duration::from_secs(600);

/// Maximum time for which a member may stop executing commands during an activation of firmware. I/O is aborted after 8
/// seconds.
pub const FIRMWARE_PAUSE_MS_MAX: u32 = 5000;

/// Minimum number of seconds between scheduled scrubs.
pub const SCRUB_EVERY_MIN_S: u64 = 3600;

/// Microseconds between two records of the position of a running scrub. After a crash, regions since the last record
/// are scrubbed again.
pub const SCRUB_KEEP_EVERY_US: u64 = 5_000_000;

/// Time limit to open a drive, and to read its label, at the start of an array or for a command. Two such limits fit
/// into the 20 seconds after which an array serves without an unresponsive drive.
pub const LOOK_LIMIT: Duration = Duration::from_secs(8);

/// Maximum wait of upkeep for a drive that may have returned, because other work for the array follows.
pub const GLANCE_LIMIT: Duration = Duration::from_secs(2);

/// Maximum number of automatic re-adds of an unresponsive member within [`RETURN_WINDOW`]. A drive that repeatedly
/// becomes unresponsive causes a rebuild each time, and needs the operator's attention.
pub const RETURNS_MAX: usize = 3;

/// The time in which automatic re-adds are counted.
pub const RETURN_WINDOW: Duration = Duration::from_secs(3600);

/// Time between two checks of a drive with outstanding requests.
pub const RETURN_RETRY: Duration = Duration::from_secs(1);

/// Maximum wait of a command for the close of unused drives.
pub const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Time limit of a whole stop, from the end of the last call. Service managers kill a daemon after 90 seconds, and
/// `strake daemon stop` waits for 45 seconds.
pub const STOP_LIMIT: Duration = Duration::from_secs(30);

/// The part of this time for writes of pending records to members.
pub const STOP_RECORD_LIMIT: Duration = Duration::from_secs(12);

/// Time limit of the stop of an unloaded array before the command answers.
pub const UNLOAD_LIMIT: Duration = Duration::from_secs(30);

/// Time between two automatic attempts to open a PCI device. Each attempt resets the device.
pub const PCI_RETRY: Duration = Duration::from_secs(10);

/// Maximum number of drives that are taken from the kernel. After a restart, a thread takes each drive again.
pub const TAKEN_MAX: usize = 256;

/// Time limit of a command to bind a drive to vfio-pci until the drive is ready, or to return it. A controller may need
/// 30 seconds to become ready.
pub const BIND_LIMIT: Duration = Duration::from_secs(60);

/// Interval of the search for arrays after the assemble timeout, and of attempts to take drives again that failed at
/// the start.
pub const RETRY_EVERY: Duration = Duration::from_secs(15);

/// Number of rounds of upkeep in which arrays must not use the block device of a returned taken drive, about 6 s. Other
/// programs may open a new drive, and an open drive cannot be taken.
pub const HELD_ROUNDS: u32 = 15;

/// Maximum wait of a start for taken drives before the search for arrays.
pub const TAKE_AGAIN_LIMIT: Duration = Duration::from_secs(5);

/// Maximum number of attempts to open a bound drive at a start.
pub const TAKE_AGAIN_TRIES: usize = 20;

/// Time between two such attempts.
pub const TAKE_AGAIN_RETRY: Duration = Duration::from_millis(100);

/// Time limit to switch the LED of a slot. Firmware may need seconds.
pub const LIGHT_LIMIT: Duration = Duration::from_secs(5);

/// Time until an LED must show the written state. An NPEM command has a second to complete.
pub const LIGHT_SETTLE: Duration = Duration::from_secs(4);

/// Interval in which LEDs are compared with their intended states without a change, because a replugged drive or its
/// firmware may have switched them.
pub const LIGHTS_EVERY: Duration = Duration::from_secs(60);

/// Time limit of the search for a pool on an array.
pub const POOL_FIND_LIMIT: Duration = Duration::from_secs(20);

/// Time limit to create a pool, or to read the map of a pool at a start.
pub const POOL_OPEN_LIMIT: Duration = Duration::from_secs(120);

/// Time limit of an answer of a pool. An answer about a snapshot waits for the I/O before it.
pub const POOL_ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Time limit of the last root of a pool that stops. Without this root, the next start reads more of the log.
pub const POOL_STOP_LIMIT: Duration = Duration::from_secs(10);

/// Interval in which the states of pools are read for metrics and events.
pub const POOL_WATCH_EVERY: Duration = Duration::from_secs(5);

/// Maximum number of snapshots of one request.
pub const SNAPSHOTS_MAX: usize = 1000;

/// Most findings of scrubs that are recorded of an array, beside those of the current scrub.
pub const FINDINGS_MAX: usize = 1024;

/// Most ranges of bytes of an array that are recorded as suspect.
pub const SUSPECT_RANGES_MAX: usize = 256;
