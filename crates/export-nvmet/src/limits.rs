//! Every bound of this crate, and how they depend on each other.

use strake_block::buf::SEGMENTS_MAX;
use strake_export_net::PoolSizes;
use strake_nvme_wire::nvm::{RANGE_BYTES, RANGES_MAX, SOURCE_BYTES};
use strake_units::Nanos;

/// How long a host may take from connecting to the end of its Connect command.
pub const HANDSHAKE_TIME_MAX: Nanos = Nanos(10 * Nanos::SECOND.0);

/// How long it may take of that to agree on TLS, from its first byte.
pub const TLS_TIME_MAX: Nanos = Nanos(5 * Nanos::SECOND.0);

/// How long a connection whose handshake came to nothing counts on for its address: one that breaks the protocol and
/// comes again gets as far 16 times a second.
pub const FAILED_HANDSHAKE_TIME: Nanos = Nanos::SECOND;

/// How long a connection that is being closed may take to accept what is due to it already.
pub const LINGER_TIME_MAX: Nanos = Nanos(2 * Nanos::SECOND.0);

/// How long commands wait for the next device of a namespace whose array is stopped and started again at once. Hosts
/// give up after 30 s (Linux, `nvme_core.io_timeout`); a pause that long would hide an array that does not come back.
pub const PAUSE_TIME_MAX: Nanos = Nanos::SECOND;

/// How long removing an export or stopping the target waits for the device to complete what is in flight.
pub const DRAIN_SECONDS_MAX: u64 = 60;

/// Longest time between two signs of life that a host may ask for, in milliseconds.
pub const KEEP_ALIVE_MS_MAX: u32 = 120_000;

/// Connections at a time, of all hosts.
pub const CONNECTIONS_MAX: u32 = 1024;

/// Connections of one subsystem at a time: others have room beside it.
pub const CONNECTIONS_PER_EXPORT_MAX: u32 = 512;

/// Connections of one host to one subsystem at a time: a controller with all its queues, and another while those of the
/// one before it are still on their way out.
pub const CONNECTIONS_PER_HOST_MAX: u32 = 2 * (QUEUES_MAX as u32 + 1);

/// Connections of one host to all subsystems together.
pub const CONNECTIONS_OF_HOST_MAX: u32 = CONNECTIONS_MAX / 4;

/// Connections whose hosts are not believed yet.
pub const CANDIDATES_MAX: usize = 64;

/// The same from one address: one that only ever begins keeps no other out.
pub const CANDIDATES_PER_ADDRESS_MAX: usize = 16;

/// Connections to discovery: it asks for no proof, and must leave places to hosts that gave one.
pub const DISCOVERY_CONNECTIONS_MAX: usize = 32;

/// The same from one address.
pub const DISCOVERY_CONNECTIONS_PER_ADDRESS_MAX: usize = 8;

/// How long a connection to discovery may be silent whose host asked for no other time.
pub const VISIT_SILENCE_MAX: Nanos = Nanos(120 * Nanos::SECOND.0);

/// Pairs of address and reason whose rejected hosts are reported one by one; all others are reported together.
pub const REJECTION_PLACES_MAX: usize = 32;

/// Time between two reports of the same address and reason.
pub const REJECTIONS_REPORTED_EVERY: Nanos = Nanos(600 * Nanos::SECOND.0);

/// Other discovery services that hosts are referred to.
pub const REFERRALS_MAX: usize = 64;

/// Subsystems of one target.
pub const EXPORTS_MAX: usize = 256;

/// Namespaces of one subsystem. Each I/O queue has a queue of each device.
pub const NAMESPACES_MAX: u32 = 32;

/// Hosts on the list of one subsystem.
pub const HOSTS_MAX: usize = 256;

/// Commands of a host before it has proven who it is. An authentication takes five.
pub const COMMANDS_BEFORE_PROOF: u16 = 16;

/// Most room that a host may offer for a message of authentication, in bytes.
pub const MESSAGE_ROOM_MAX: u32 = 8 << 10;

/// I/O queues of one controller; each is a connection. A controller keeps all its queues in one word.
pub const QUEUES_MAX: u16 = u32::BITS as u16 - 1;

/// Entries of an admin queue. The least that the specification allows is enough.
pub const ADMIN_ENTRIES: u16 = 32;

/// Entries of an I/O queue.
pub const IO_ENTRIES: u16 = 128;

/// Requests for events that a controller keeps.
pub const EVENT_REQUESTS_MAX: u8 = 4;

/// Commands that failed which a controller remembers.
pub const FAILURES_MAX: u8 = 64;

/// Hosts that are registrants of one namespace: far more than clusters have.
pub const REGISTRANTS_MAX: usize = 256;

/// The same under one NQN: identifiers are what a host says, so that one of them could leave no room for others.
pub const REGISTRANTS_PER_NAME_MAX: usize = REGISTRANTS_MAX / 16;

/// Commands about reservations of one I/O queue that are being executed: each may have to be written down.
pub const RESERVATIONS_ASKED_MAX: usize = 8;

/// Commands about reservations of one host that wait their turn: those of several queues, and of queues that are gone.
pub const RESERVATIONS_WAITING_MAX: usize = 64;

/// What a controller remembers to tell its host of reservations.
pub const NOTICES_MAX: usize = 32;

/// Bytes asked of the kernel for what a connection receives and for what it sends: a queue that is full of large
/// commands. What the kernel begins with is a sixteenth of that, and it grows with what was sent in a round trip.
pub const SOCKET_BYTES: usize = 2 << 20;

/// PDUs of one connection looked at in one turn, so that its neighbours get theirs.
pub const PDUS_PER_TURN: usize = 128;

/// Bytes of data received by one connection in one turn, plus or minus a PDU.
pub const DATA_BYTES_PER_TURN: usize = 1 << 20;

/// Bytes of a large command's data received at once, and in one turn, from a host that is not ahead of us: the kernel
/// holds the socket while it copies them out, and a host whose sending is paced (BBR) sends less meanwhile. Less than a
/// segment of loopback, which is 64 KiB (docs/decisions/0023).
pub const PIECE_BYTES_MAX: usize = 48 << 10;

/// Bytes read ahead of what is known to be data: room for a burst of commands, also with data in their capsules.
pub const INPUT_BYTES: usize = 64 << 10;

/// Data that fits a command capsule of an I/O queue. That of an admin queue is the same by specification (TCP, section
/// 3.3.2 "Capsules and Data Transfer").
pub const IN_CAPSULE_BYTES: u32 = 8 << 10;

/// Most data of one command in bytes (MDTS). A device that takes less at once is not exported.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// Data of one H2CData PDU in bytes (MAXH2CDATA).
pub const H2C_BYTES_MAX: u32 = 128 << 10;

/// Most bytes of one Write Zeroes (WZSL) and of one deallocation handed to the device: one I/O must not take for ever.
pub const EFFECT_BYTES_MAX: u64 = 64 << 20;

/// Blocks of one Dataset Management, in one range or in all: 8 to 64 GiB, by the size of a block, which take seconds. A
/// recommendation (DMRSL, DMSL): more is executed too, for hosts that do not ask what the limit is.
pub const DATASET_BLOCKS_MAX: u32 = 1 << 24;

/// Bytes of one Copy (MCL, and MSSRL as far as it can say so much): it takes a second or two on slow drives.
pub const COPY_BYTES_MAX: u64 = 64 << 20;

/// Bytes that a Copy reads and writes at a time, and of the buffer that an I/O queue has for its Copies, of which it
/// executes one after another: they take none of what other commands use.
pub const COPY_PIECE_BYTES: u64 = 256 << 10;

/// Bytes of data for the host that completions wait for together, where success needs one. One command may have more:
/// its completion waits for that data alone, and no other does.
pub const OWED_BEHIND_MAX: usize = 128 << 10;

/// Bytes of a small buffer; commands of up to this size take one.
pub const SMALL_BYTES: usize = 16 << 10;

/// Small buffers that belong to one I/O queue: one for each command. So a command with its data in the capsule never
/// waits for memory, and never delays later commands whose completion would free memory.
pub const SMALL_BUFFERS: usize = IO_ENTRIES as usize;

/// Bytes of a large buffer.
pub const LARGE_BYTES: usize = 256 << 10;

/// Large buffers of an I/O queue's own: what a Compare of the largest size needs, so that whatever others hold, every
/// command finds its memory in the end.
pub const LARGE_BUFFERS: usize = 2 * SEGMENTS_MAX;

/// Large buffers of an admin queue: one command of the largest size.
pub const ADMIN_LARGE_BUFFERS: usize = SEGMENTS_MAX;

/// What a data core lends to the I/O queues of one address, to those of one host half of it.
pub const STOCK: PoolSizes = PoolSizes {
    small_bytes: SMALL_BYTES,
    small_buffers: 512,
    large_bytes: LARGE_BYTES,
    large_buffers: 64,
};

/// The buffers of an I/O queue's own, which take memory only while the core lends it none.
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
