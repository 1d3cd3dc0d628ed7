//! The limits of this crate, and their dependencies.

use strake_block::buf::SEGMENTS_MAX;
use strake_export_net::PoolSizes;
use strake_units::Nanos;

/// Largest payload of one request in bytes. The protocol recommends 2^25 as the limit against denial of service
/// (section "Size constraints").
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Time limit of a client from its connection to the end of its negotiation.
pub const HANDSHAKE_TIME_MAX: Nanos = Nanos(10 * Nanos::SECOND.0);

/// Time limit for a closing connection to accept replies that are already due. The wait for completions of the device
/// has no limit here, because the device owns their buffers.
pub const LINGER_TIME_MAX: Nanos = Nanos(2 * Nanos::SECOND.0);

/// Time limit in seconds of the wait for I/O in flight when an export is removed or the server is stopped.
pub const DRAIN_SECONDS_MAX: u64 = 60;

/// Maximum number of options that one client may send.
pub const OPTIONS_MAX: u32 = 64;

/// Maximum size of option data that is parsed. The longest name (4096) and many information requests fit.
pub const OPTION_BYTES_MAX: usize = 16 << 10;

/// Bytes of longer options that are skipped during one negotiation before the client is disconnected.
pub const SKIPPED_BYTES_MAX: u64 = 1 << 20;

/// Maximum number of clients at a time, negotiating or served.
pub const CONNECTIONS_MAX: u32 = 64;

/// Maximum number of clients of one export at a time.
pub const CONNECTIONS_PER_EXPORT_MAX: u32 = 16;

/// Maximum number of exports of one server. With [`crate::wire::STRING_BYTES_MAX`] it limits the answer to
/// `NBD_OPT_LIST`.
pub const EXPORTS_MAX: usize = 256;

/// Longest description of an export in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 256;

/// Maximum number of requests of one connection, from the arrival of the header to the end of the reply.
pub const REQUESTS_MAX: usize = 128;

/// I/Os of one connection in its device queue.
pub const QUEUE_DEPTH: u32 = 128;

/// Maximum number of requests of one connection that start in one turn, so that other connections make progress.
pub const REQUESTS_PER_TURN: usize = 64;

/// Bytes of payload received by one connection in one turn, plus or minus a piece.
pub const PAYLOAD_BYTES_PER_TURN: usize = 1 << 20;

/// Number of bytes that are read before it is known whether they are payload: a burst of request headers, or the
/// longest option that is parsed.
pub const INPUT_BYTES: usize = OPTION_BYTES_MAX + crate::wire::OPTION_HEADER_BYTES;

/// Bytes of a small buffer; requests up to this size take one.
pub const SMALL_BYTES: usize = 16 << 10;

/// Small buffers of a connection.
pub const SMALL_BUFFERS: usize = 64;

/// Bytes of a large buffer; a [`PIECE_BYTES_MAX`] I/O takes several.
pub const LARGE_BYTES: usize = 256 << 10;

/// Large buffers of a connection.
pub const LARGE_BUFFERS: usize = 28;

/// The buffers of a connection.
pub const POOLS: PoolSizes = PoolSizes {
    small_bytes: SMALL_BYTES,
    small_buffers: SMALL_BUFFERS,
    large_bytes: LARGE_BYTES,
    large_buffers: LARGE_BUFFERS,
};

/// Memory of one connection for data, in bytes.
pub const BUFFER_BYTES: usize = SMALL_BYTES * SMALL_BUFFERS + LARGE_BYTES * LARGE_BUFFERS;

/// Largest read or write handed to a device, in bytes: what one scatter list of large buffers holds.
pub const PIECE_BYTES_MAX: u32 = (LARGE_BYTES * SEGMENTS_MAX) as u32;

/// Largest range of one deallocation or zeroing handed to a device, in bytes. These I/Os carry no data, so the data
/// limit of a device does not apply. This limit bounds the duration of a single I/O.
pub const EFFECT_BYTES_MAX: u64 = 64 << 20;

/// Maximum size in bytes of a read that is completely in memory before its first byte is sent, if the protocol permits
/// only one piece per reply. Longer reads are sent while the rest is still being read, and an error in the middle then
/// ends the connection (section "Request types", `NBD_CMD_READ`, "Simple replies").
pub const HELD_BYTES_MAX: u32 = 4 << 20;

/// Maximum number of replies, or parts of replies, that wait to be sent: one per buffer and one per request.
pub const REPLIES_MAX: usize = SMALL_BUFFERS + LARGE_BUFFERS + REQUESTS_MAX + 1;

/// Descriptors in one answer to `NBD_CMD_BLOCK_STATUS`. The protocol allows 2^20; clients ask again.
pub const EXTENTS_PER_REPLY: usize = 256;

const _: () = assert!(BUFFER_BYTES == 8 << 20);
const _: () = assert!(HELD_BYTES_MAX as usize <= LARGE_BYTES * LARGE_BUFFERS);
const _: () = assert!(PIECE_BYTES_MAX <= HELD_BYTES_MAX);
const _: () = assert!(SMALL_BYTES <= LARGE_BYTES);
const _: () = assert!(
    crate::wire::allocation::PREFIX_BYTES
        + crate::wire::allocation::DESCRIPTOR_BYTES * EXTENTS_PER_REPLY
        <= SMALL_BYTES
);
const _: () = assert!(INPUT_BYTES >= crate::wire::REQUEST_BYTES);
const _: () = assert!(OPTION_BYTES_MAX > crate::wire::STRING_BYTES_MAX + 8);
