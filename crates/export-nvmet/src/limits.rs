//! Every limit of this crate, and the relations between the limits.

use strake_block::buf::SEGMENTS_MAX;
use strake_export_net::PoolSizes;
use strake_nvme_wire::nvm::{RANGE_BYTES, RANGES_MAX, SOURCE_BYTES};
use strake_units::Nanos;

/// Time limit from the start of a connection to the end of its Connect command.
pub const HANDSHAKE_TIME_MAX: Nanos = Nanos(10 * Nanos::SECOND.0);

/// Time limit of the TLS handshake, from its first byte; a part of the limit above.
pub const TLS_TIME_MAX: Nanos = Nanos(5 * Nanos::SECOND.0);

/// Time for which a failed handshake still counts against its address. A peer that violates the protocol and reconnects
/// gets 16 attempts per second.
pub const FAILED_HANDSHAKE_TIME: Nanos = Nanos::SECOND;

/// Time limit for a closing connection to accept the bytes that are due to it.
pub const LINGER_TIME_MAX: Nanos = Nanos(2 * Nanos::SECOND.0);

/// Time for which commands wait for the next device of a namespace whose array is restarted. Hosts time out after 30 s
/// (Linux, `nvme_core.io_timeout`); a pause of that length would hide an array that does not return.
pub const PAUSE_TIME_MAX: Nanos = Nanos::SECOND;

/// Time for which the removal of an export or the stop of the target waits for I/O in flight.
pub const DRAIN_SECONDS_MAX: u64 = 60;

/// Longest keep-alive timeout that a host may request, in milliseconds.
pub const KEEP_ALIVE_MS_MAX: u32 = 120_000;

/// Concurrent connections of all hosts.
pub const CONNECTIONS_MAX: u32 = 1024;

/// Concurrent connections of one subsystem, so that other subsystems have room.
pub const CONNECTIONS_PER_EXPORT_MAX: u32 = 512;

/// Concurrent connections of one host to one subsystem: a controller with all its queues, and a second one while the
/// queues of the first one are being closed.
pub const CONNECTIONS_PER_HOST_MAX: u32 = 2 * (QUEUES_MAX as u32 + 1);

/// Connections of one host to all subsystems together.
pub const CONNECTIONS_OF_HOST_MAX: u32 = CONNECTIONS_MAX / 4;

/// Connections whose handshakes are not complete.
pub const CANDIDATES_MAX: usize = 64;

/// The limit of such connections from one address, so that one peer cannot exclude others.
pub const CANDIDATES_PER_ADDRESS_MAX: usize = 16;

/// Connections to discovery, which requires no authentication; the limit leaves room for authenticated hosts.
pub const DISCOVERY_CONNECTIONS_MAX: usize = 32;

/// The limit of such connections from one address.
pub const DISCOVERY_CONNECTIONS_PER_ADDRESS_MAX: usize = 8;

/// Discovery log pages that are kept, each at most [`EXPORTS_MAX`] + [`REFERRALS_MAX`] + 1 entries of 1 KiB.
pub const DISCOVERY_PAGES_MAX: usize = DISCOVERY_CONNECTIONS_MAX;

/// Keep-alive timeout of a discovery connection whose host requests none.
pub const VISIT_SILENCE_MAX: Nanos = Nanos(120 * Nanos::SECOND.0);

/// Pairs of address and reason whose rejected hosts are reported one by one; all others are reported together.
pub const REJECTION_PLACES_MAX: usize = 32;

/// Time between two reports of the same address and reason.
pub const REJECTIONS_REPORTED_EVERY: Nanos = Nanos(600 * Nanos::SECOND.0);

/// Other discovery services to which hosts are referred.
pub const REFERRALS_MAX: usize = 64;

/// Subsystems of one target.
pub const EXPORTS_MAX: usize = 256;

/// Namespaces of one subsystem. Each I/O queue has a queue of each device.
pub const NAMESPACES_MAX: u32 = 32;

/// Hosts on the list of one subsystem.
pub const HOSTS_MAX: usize = 256;

/// Commands of a host before it has authenticated. An authentication takes five.
pub const COMMANDS_BEFORE_PROOF: u16 = 16;

/// Largest buffer that a host may offer for an authentication message, in bytes.
pub const MESSAGE_ROOM_MAX: u32 = 8 << 10;

/// I/O queues of one controller; each is a connection. A controller has one bit for each queue in a 32-bit word.
pub const QUEUES_MAX: u16 = u32::BITS as u16 - 1;

/// Entries of an admin queue: the minimum of the specification.
pub const ADMIN_ENTRIES: u16 = 32;

/// Entries of an I/O queue.
pub const IO_ENTRIES: u16 = 128;

/// Outstanding Asynchronous Event Requests of a controller.
pub const EVENT_REQUESTS_MAX: u8 = 4;

/// Entries of the error log of a controller.
pub const FAILURES_MAX: u8 = 64;

/// Registrants of one namespace: far more than clusters have.
pub const REGISTRANTS_MAX: usize = 256;

/// Registrants under one NQN. Host identifiers are not authenticated, so one host could otherwise use up all entries.
pub const REGISTRANTS_PER_NAME_MAX: usize = REGISTRANTS_MAX / 16;

/// Reservation commands of one I/O queue that are in progress: each may require a write of the record.
pub const RESERVATIONS_ASKED_MAX: usize = 8;

/// Waiting reservation commands of one host, from all its queues, including closed queues.
pub const RESERVATIONS_WAITING_MAX: usize = 64;

/// Reservation notices that a controller keeps for its host.
pub const NOTICES_MAX: usize = 32;

/// Socket buffer sizes for each direction: a queue that is full of large commands. The kernel starts with a sixteenth
/// of this size and grows the buffer with the data sent per round trip.
pub const SOCKET_BYTES: usize = 2 << 20;

/// PDUs of one connection that are processed in one turn, so that other connections get their share.
pub const PDUS_PER_TURN: usize = 128;

/// Bytes of data received by one connection in one turn, plus or minus one PDU.
pub const DATA_BYTES_PER_TURN: usize = 1 << 20;

/// Bytes of a large command's data that are received at once, and in one turn, from a host that is not ahead of the
/// controller. The kernel locks the socket during the copy, and a host whose sending is paced (BBR) sends less
/// meanwhile. The value is less than a segment of loopback, which is 64 KiB (docs/decisions/0023).
pub const PIECE_BYTES_MAX: usize = 48 << 10;

/// Bytes of the receive buffer, used for bytes that are not yet known to be data: room for a burst of commands, also
/// with data in their capsules.
pub const INPUT_BYTES: usize = 64 << 10;

/// Data bytes in a command capsule of an I/O queue. The specification sets the same value for an admin queue (TCP,
/// section 3.3.2 "Capsules and Data Transfer").
pub const IN_CAPSULE_BYTES: u32 = 8 << 10;

/// Largest data of one command in bytes (MDTS). A device with a smaller limit is not exported.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// Data of one H2CData PDU in bytes (MAXH2CDATA).
pub const H2C_BYTES_MAX: u32 = 128 << 10;

/// Largest Write Zeroes (WZSL), and largest deallocation submitted to the device, in bytes; this bounds the time of one
/// I/O.
pub const EFFECT_BYTES_MAX: u64 = 64 << 20;

/// The queues of one host on a core start a Write Zeroes or a deallocation at a namespace only while fewer bytes of
/// such commands are in flight there. A capsule of 64 bytes orders [`EFFECT_BYTES_MAX`], so a queue could otherwise put
/// 8 GiB before the I/O of other hosts. Other commands need buffers, whose number is limited for each host.
pub const EFFECT_BYTES_OF_HOST_MAX: u64 = EFFECT_BYTES_MAX;

/// Blocks of one Dataset Management, in one range or in all: 8 to 64 GiB, depending on the block size, which take
/// seconds. This is a recommendation (DMRSL, DMSL): larger commands are executed too, for hosts that do not read the
/// limit.
pub const DATASET_BLOCKS_MAX: u32 = 1 << 24;

/// Bytes of one Copy (MCL, and MSSRL as far as its width permits). A Copy of this size takes one or two seconds on slow
/// drives.
pub const COPY_BYTES_MAX: u64 = 64 << 20;

/// Bytes that a Copy reads and writes at a time, and size of the buffer of an I/O queue for its Copies. The Copies of a
/// device run one after another and use no buffers of other commands.
pub const COPY_PIECE_BYTES: u64 = 256 << 10;

/// Bytes of data behind which completions are queued together, if the host needs completions. The data of one command
/// may exceed this limit: then only its own completion waits for this data.
pub const OWED_BEHIND_MAX: usize = 128 << 10;

/// Bytes of a small buffer; commands of up to this size take one.
pub const SMALL_BYTES: usize = 16 << 10;

/// Small buffers of one I/O queue: one for each command. So a command with its data in the capsule never waits for
/// memory, and never delays later commands whose completion would free memory.
pub const SMALL_BUFFERS: usize = IO_ENTRIES as usize;

/// Bytes of a large buffer.
pub const LARGE_BYTES: usize = 256 << 10;

/// Large buffers of one I/O queue: enough for a Compare of the largest size, so that every command eventually gets
/// memory, independently of other queues.
pub const LARGE_BUFFERS: usize = 2 * SEGMENTS_MAX;

/// Large buffers of an admin queue: one command of the largest size.
pub const ADMIN_LARGE_BUFFERS: usize = SEGMENTS_MAX;

/// The pool of a data core for the I/O queues of one address; the queues of one host may use half of it.
pub const STOCK: PoolSizes = PoolSizes {
    small_bytes: SMALL_BYTES,
    small_buffers: 512,
    large_bytes: LARGE_BYTES,
    large_buffers: 64,
};

/// The own buffers of an I/O queue, which use memory only when the pool of the core is exhausted.
pub const IO_POOLS: PoolSizes = PoolSizes {
    small_bytes: SMALL_BYTES,
    small_buffers: SMALL_BUFFERS,
    large_bytes: LARGE_BYTES,
    large_buffers: LARGE_BUFFERS,
};

/// The buffers of an admin queue.
pub const ADMIN_POOLS: PoolSizes = PoolSizes {
    small_bytes: SMALL_BYTES,
    small_buffers: ADMIN_ENTRIES as usize,
    large_bytes: LARGE_BYTES,
    large_buffers: ADMIN_LARGE_BUFFERS,
};

const _: () = assert!(TRANSFER_BYTES_MAX as usize == LARGE_BYTES * SEGMENTS_MAX);
const _: () = assert!(LARGE_BUFFERS >= 2 * SEGMENTS_MAX);
const _: () = assert!(IN_CAPSULE_BYTES as usize <= SMALL_BYTES);
const _: () = assert!(SMALL_BYTES >= RANGES_MAX * SOURCE_BYTES && SOURCE_BYTES >= RANGE_BYTES);
const _: () = assert!(IN_CAPSULE_BYTES as usize >= RANGES_MAX * SOURCE_BYTES);
const _: () = assert!(INPUT_BYTES >= strake_nvme_tcp::pdu::HEADER_BYTES_MAX * 2);
const _: () = assert!(CONNECTIONS_PER_HOST_MAX < CONNECTIONS_PER_EXPORT_MAX);
const _: () = assert!(CANDIDATES_PER_ADDRESS_MAX < CANDIDATES_MAX);
const _: () = assert!(DISCOVERY_CONNECTIONS_PER_ADDRESS_MAX < DISCOVERY_CONNECTIONS_MAX);
const _: () = assert!(CANDIDATES_MAX + DISCOVERY_CONNECTIONS_MAX < CONNECTIONS_MAX as usize / 2);
const _: () = assert!(TLS_TIME_MAX.0 < HANDSHAKE_TIME_MAX.0);
const _: () = assert!(RESERVATIONS_ASKED_MAX <= RESERVATIONS_WAITING_MAX);
const _: () = assert!(NOTICES_MAX <= u8::MAX as usize);
const _: () = assert!(CONNECTIONS_PER_HOST_MAX <= CONNECTIONS_OF_HOST_MAX);
const _: () = assert!(CONNECTIONS_PER_EXPORT_MAX < CONNECTIONS_MAX);
const _: () = assert!(strake_nvme_auth::MESSAGE_BYTES_MAX <= IN_CAPSULE_BYTES as usize);
const _: () =
    assert!(INPUT_BYTES > IN_CAPSULE_BYTES as usize + strake_nvme_tcp::pdu::HEADER_BYTES_MAX * 2);
