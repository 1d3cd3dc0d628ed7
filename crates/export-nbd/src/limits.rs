//! Every bound of this crate, and how they depend on each other.

use strake_block::buf::SEGMENTS_MAX;
use strake_export_net::PoolSizes;
use strake_units::Nanos;

/// Largest payload of one request in bytes. The protocol calls 2^25 the size that is no denial of service yet
/// (section "Size constraints").
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// How long a client may take from connecting to the end of its negotiation.
pub const HANDSHAKE_TIME_MAX: Nanos = Nanos(10 * Nanos::SECOND.0);

/// How long a connection that is being closed may take to accept replies that are already due. Completions of
/// the device are waited for without a limit here: their buffers cannot be given up.
pub const LINGER_TIME_MAX: Nanos = Nanos(2 * Nanos::SECOND.0);

/// How long removing an export or stopping the server waits for the device to complete what is in flight.
pub const DRAIN_SECONDS_MAX: u64 = 60;

/// Options one client may send.
pub const OPTIONS_MAX: u32 = 64;

/// Longest option data that is looked at. The longest name (4096) and many information requests fit.
pub const OPTION_BYTES_MAX: usize = 16 << 10;

/// Bytes of longer options that are skipped during one negotiation before the client is disconnected.
pub const SKIPPED_BYTES_MAX: u64 = 1 << 20;

/// Clients at a time, negotiating or served.
pub const CONNECTIONS_MAX: u32 = 64;

/// Clients of one export at a time.
pub const CONNECTIONS_PER_EXPORT_MAX: u32 = 16;

/// Exports of one server. With [`crate::wire::STRING_BYTES_MAX`] it bounds the answer to `NBD_OPT_LIST`.
pub const EXPORTS_MAX: usize = 256;

/// Longest description of an export in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 256;

/// Requests of one connection between the arrival of the header and the departure of the reply.
pub const REQUESTS_MAX: usize = 128;

/// I/Os of one connection in its device queue.
pub const QUEUE_DEPTH: u32 = 128;

/// Requests of one connection begun in one turn, so that its neighbours get theirs.
pub const REQUESTS_PER_TURN: usize = 64;

/// Bytes of payload received by one connection in one turn, plus or minus a piece.
pub const PAYLOAD_BYTES_PER_TURN: usize = 1 << 20;

/// Bytes read ahead of what is known to be payload: room for a burst of request headers, and for the longest option
/// that is looked at.
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

/// Largest range of one deallocation or zeroing handed to a device, in bytes. They carry no data, so a
/// device's limit on data does not apply; this one keeps a single I/O from taking for ever.
pub const EFFECT_BYTES_MAX: u64 = 64 << 20;

/// Largest read, in bytes, of which everything is in memory before its first byte is sent where the protocol
/// lets a reply have only one piece. Longer ones are sent while the rest is still being read, and an error in
/// the middle then ends the connection (section "Request types", `NBD_CMD_READ`, "Simple replies").
pub const HELD_BYTES_MAX: u32 = 4 << 20;

/// Replies, or parts of them, that wait to be sent: one per buffer and one per request.
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
