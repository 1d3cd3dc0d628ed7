//! Numbers that several parts of the format share.

/// The newest format version this program writes and reads.
pub const VERSION: u16 = 2;

/// Most members of an array; the label's member table has this many rows.
pub const MEMBERS_MAX: usize = 64;

/// Bytes before a drive's end that show everything known here; Promise's records begin 1.5 MiB before it.
pub const FOREIGN_TAIL_BYTES: u64 = 2 << 20;
