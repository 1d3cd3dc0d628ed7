//! Bounds of everything that is kept, waits or repeats.

use std::time::Duration;

/// Most arrays of one daemon: each costs memory for stripes in flight on every core.
pub const ARRAYS_MAX: usize = 64;

/// Most exports of one daemon.
pub const EXPORTS_MAX: usize = 256;

/// Most hosts that have to prove who they are.
pub const HOSTS_MAX: usize = 256;

/// Most other discovery services that hosts are referred to.
pub const REFERRALS_MAX: usize = strake_export_nvmet::limits::REFERRALS_MAX;

/// Most spares of one daemon; each is held open.
pub const SPARES_MAX: usize = 64;

/// Most drives of other machines of one daemon; each is a connection and a thread.
pub const REMOTES_MAX: usize = 256;

/// Time before the second try to connect to a recorded drive of another machine; each further try waits twice as long.
pub const REMOTE_RETRY_MIN: Duration = Duration::from_secs(1);

/// Longest time between two tries.
pub const REMOTE_RETRY_MAX: Duration = Duration::from_secs(30);

/// Events kept to be listed; older ones are in the file until it is rotated.
pub const EVENTS_KEPT: usize = 4096;

/// Size at which the file of events becomes the old one, which replaces the one before: the two are bounded together.
pub const EVENTS_FILE_BYTES: u64 = 4 << 20;

/// Longest text of one field of an event, in bytes; longer ones are cut.
pub const EVENT_TEXT_BYTES: usize = 2000;

/// Time between two tries to write events to a state directory that refuses them.
pub const EVENTS_RETRY: Duration = Duration::from_secs(1);

/// How long a stop waits for events to reach the file.
pub const EVENTS_STOP: Duration = Duration::from_secs(2);

/// How long a stop waits for hooks to deliver what they still have. Enough for a receiver that is up; a machine that
/// goes down must not wait for one that is not.
pub const HOOKS_STOP: Duration = Duration::from_secs(5);

/// Time after which a record that a member refused is written again.
pub const RECORD_RETRY: Duration = Duration::from_secs(15);

/// How long a member has to take a record, twice: to show what it knows, and to store what is new.
pub const RECORD_LIMIT: Duration = Duration::from_secs(5);

/// How long a command waits for another one that works on the same array or drive.
pub const RESERVE_WAIT: Duration = Duration::from_secs(60);

/// Bytes of a member that are made zeroes at a time before an array grows: a slow drive does so many well within the
/// time that one operation has.
pub const GROWTH_STEP_BYTES: u64 = 256 << 20;

/// How long a command waits for what clients have in flight before an array is stopped to be made larger.
pub const GROWTH_DRAIN: Duration = Duration::from_secs(20);

/// Ranges of lost blocks that an array is shown with, the first ones; the message says so.
pub const BAD_RANGES_MAX: usize = 64;

/// Invalid fields of a record on a member that its event names.
pub const INVALID_FIELDS_MAX: usize = 8;

/// Characters with which such a field and the reason are named: a drive may hold any text.
pub const INVALID_FIELD_CHARS_MAX: usize = 300;

/// Seconds between scheduled scrubs, at least.
pub const SCRUB_EVERY_MIN_S: u64 = 3600;

/// Microseconds between two records of where a scrub stands, while it goes on: what is lost by a crash is looked at
/// again.
pub const SCRUB_KEEP_EVERY_US: u64 = 5_000_000;

/// How long a drive may take to be opened, and to show its label, when an array is started or a command names it. Two
/// of them fit well into the 20 seconds after which an array serves without a drive that does not answer.
pub const LOOK_LIMIT: Duration = Duration::from_secs(8);

/// How long upkeep waits for a drive that may have come back: what it does for the rest of the array comes after.
pub const GLANCE_LIMIT: Duration = Duration::from_secs(2);

/// How often a member that hung is taken back without a command within [`RETURN_WINDOW`]. A drive that hangs again and
/// again costs a rebuild each time, and needs the operator's attention.
pub const RETURNS_MAX: usize = 3;

/// The time over which those are counted.
pub const RETURN_WINDOW: Duration = Duration::from_secs(3600);

/// Time between two looks at a drive that has not answered everything yet.
pub const RETURN_RETRY: Duration = Duration::from_secs(1);

/// How long a command waits for drives that it no longer uses to be closed.
pub const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// How long a stop may take as a whole, from the end of the last call: service managers kill after 90 seconds, and
/// `strake daemon stop` waits for 45.
pub const STOP_LIMIT: Duration = Duration::from_secs(30);

/// How much of that may pass until what members do not know yet is recorded on them.
pub const STOP_RECORD_LIMIT: Duration = Duration::from_secs(12);

/// How long an array that is unloaded has to stop before the command answers without it.
pub const UNLOAD_LIMIT: Duration = Duration::from_secs(30);

/// Time between two attempts of the daemon's own to open a PCI device that could not be opened: each resets the device.
pub const PCI_RETRY: Duration = Duration::from_secs(10);

/// Most drives of one daemon that are taken from the kernel; each is taken again by a thread.
pub const TAKEN_MAX: usize = 256;

/// How long a drive has to be bound to vfio-pci and to become ready, or to be given back, when a command asks for it. A
/// controller may take 30 seconds to become ready.
pub const BIND_LIMIT: Duration = Duration::from_secs(60);

/// How often arrays are looked for once they are later than the assemble timeout, and drives that could not be taken
/// again at the start.
pub const RETRY_EVERY: Duration = Duration::from_secs(15);

/// For how many rounds of upkeep the block device of a taken drive that returned is held back from arrays: about 6 s.
/// Other programs look at a drive that appears, and a drive that is open cannot be taken.
pub const HELD_ROUNDS: u32 = 15;

/// How long a start waits for drives to be taken again before it looks for arrays.
pub const TAKE_AGAIN_LIMIT: Duration = Duration::from_secs(5);

/// How often a drive that is bound already is opened at a start before that is a failure.
pub const TAKE_AGAIN_TRIES: usize = 20;

/// Time between two such tries.
pub const TAKE_AGAIN_RETRY: Duration = Duration::from_millis(100);

/// How long the light of a slot may take to be switched before it is left to itself: firmware may take seconds.
pub const LIGHT_LIMIT: Duration = Duration::from_secs(5);

/// How long an LED may take until it shows what was written to it: an NPEM command has a second to complete.
pub const LIGHT_SETTLE: Duration = Duration::from_secs(4);

/// How often lights are compared with what they should show although nothing has changed: a drive that is plugged in
/// again, or its firmware, may have switched them.
pub const LIGHTS_EVERY: Duration = Duration::from_secs(60);

/// Most findings of scrubs that are recorded of an array, beside those of the current scrub.
pub const FINDINGS_MAX: usize = 1024;

/// Most ranges of bytes of an array that are recorded as suspect.
pub const SUSPECT_RANGES_MAX: usize = 256;
