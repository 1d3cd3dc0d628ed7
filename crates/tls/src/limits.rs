//! Every bound of this crate.

/// Bytes in front of every record: its type, a version that means nothing, its length (RFC 8446, section 5.1).
pub const HEADER_BYTES: usize = 5;

/// Most data of one record (RFC 8446, section 5.1).
pub const DATA_BYTES_MAX: usize = 1 << 14;

/// Most bytes behind a header (RFC 8446, section 5.2).
pub const BODY_BYTES_MAX: usize = DATA_BYTES_MAX + 256;

/// Bytes that a record takes besides its data: the header, the type of what is inside, and the tag.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + 16;

/// Most bytes of a handshake from either side: those of ours have some 700, others' with many groups and names a few
/// thousand.
pub const HANDSHAKE_BYTES_MAX: usize = 1 << 15;

/// Identities that are looked at; more are ignored. A host has two for each cipher suite.
pub const IDENTITIES_MAX: usize = 8;

/// The largest credit of a peer, in data records. Each data record adds one; whatever holds no data costs some.
pub const CREDIT_MAX: usize = 2048;

/// Data records that a control record costs, a record without data. A KeyUpdate takes some 15 microseconds, as much as
/// twenty small data records.
pub const CONTROL_RECORD_PRICE: usize = 192;

/// Data records that a further message of a record costs, such as a session ticket. OpenSSL may also return once more
/// after a KeyUpdate, which then costs 256 in all.
pub const MESSAGE_PRICE: usize = 64;

/// Records that one turn of a connection decrypts. Sixteen full records hold 256 KiB; sixteen small ones cost some 10
/// microseconds.
pub const RECORDS_PER_TURN: usize = 16;

/// Reads of the socket in one turn of a connection, for a peer whose records come in small pieces.
pub const READS_PER_TURN: usize = 16;

/// Records that are sealed before they are sent together.
pub const RECORDS_PER_SEND: usize = 4;

/// Bytes received ahead: some records.
pub const INPUT_BYTES: usize = 4 * (HEADER_BYTES + BODY_BYTES_MAX);

/// Bytes to be sent: the records of data, and some that announce other keys.
pub const OUTPUT_BYTES: usize = RECORDS_PER_SEND * (DATA_BYTES_MAX + OVERHEAD_BYTES) + 1024;

/// Blocks of 16 bytes that are sealed with one key: 2^24.5 full records (RFC 8446, section 5.5), rounded down.
pub const BLOCKS_PER_KEY_MAX: u64 = 1 << 34;

/// Bytes read ahead behind data that fills the room for what is read ahead: the end of a PDU and the next header.
pub const AHEAD_BYTES_MIN: usize = 512;

/// Slices handed to one `sendmsg`. The kernel takes up to 1024 (UIO_MAXIOV); more than this saves nothing.
pub const SLICES_PER_SEND: usize = 128;
