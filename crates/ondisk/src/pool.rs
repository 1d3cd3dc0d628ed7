//! The records of a pool of volumes: its header, the blocks of its log, and the headers of its roots.
//!
//! A pool lies on the blocks of an array, not on members: redundancy is that of the array, so there is one copy of each
//! record. The header says where the rest is. A root is an image of the volume map; the log has the changes since then.
//! What images and log records contain is the concern of `strake-volume-map`; here they are bytes.
//!
//! ```text
//! byte 0        header, two slots of 4 KiB (slot of even and of odd sequences)
//! log_at        log, blocks of 4 KiB: the block of sequence s is block s mod n
//! root_at       two places of root_bytes each: 4 KiB of root header, then the image
//! data_at       clusters
//! ```
//!
//! The log ends at the first block that does not continue it. A block that a crashed start left behind this end has the
//! number and the nonce of that start, so it never continues the blocks of a later start.

use std::str::FromStr;

use strake_units::{Name, Uuid};

use crate::bytes::{get, put, u16_at, u32_at, u64_at, uuid_at};
use crate::slot::{Sequenced, newest_of};

/// Bytes of a header slot, of a root header and of a block of the log.
pub const POOL_BLOCK_BYTES: usize = 4096;
/// Bytes in front of the payload of a block of the log.
pub const LOG_HEADER_BYTES: usize = 64;
/// Maximum payload of a block of the log.
pub const LOG_PAYLOAD_MAX: usize = POOL_BLOCK_BYTES - LOG_HEADER_BYTES;
/// Bytes of both header slots.
pub const POOL_HEADER_BYTES: u64 = 2 * POOL_BLOCK_BYTES as u64;

const HEADER_MAGIC: [u8; 8] = *b"STRKPOOL";
const LOG_MAGIC: [u8; 8] = *b"STRKPLOG";
const ROOT_MAGIC: [u8; 8] = *b"STRKPROO";
const VERSION: u16 = 1;

/// Each record begins with its magic and the UUID of the pool, and ends with its CRC-32C at this offset.
const AT_POOL: usize = 8;
const AT_SEQUENCE: usize = 24;

/// Where everything of a pool is, in bytes from the start of the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolHeader {
    /// The identity of the pool.
    pub pool: Uuid,
    /// The name of the pool.
    pub name: Name,
    /// The device of the pool: see [`device_mark`].
    pub device: [u8; 16],
    /// Bytes of the array that the pool uses.
    pub bytes: u64,
    /// Bytes of a block of the array.
    pub block_bytes: u32,
    /// Bytes of a cluster.
    pub cluster_bytes: u32,
    /// Number of clusters.
    pub clusters: u32,
    /// Entries of a leaf of the volume map.
    pub leaf_entries: u16,
    /// Start of the log.
    pub log_at: u64,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// Start of the first place of a root.
    pub root_at: u64,
    /// Bytes of one place of a root.
    pub root_bytes: u64,
    /// Start of the clusters.
    pub data_at: u64,
}

const AT_VERSION: usize = 32;
const AT_INCOMPATIBLE: usize = 34;
const AT_BLOCK: usize = 36;
const AT_CLUSTER: usize = 40;
const AT_CLUSTERS: usize = 44;
const AT_LEAF: usize = 48;
const AT_NAME_BYTES: usize = 50;
const AT_BYTES: usize = 56;
const AT_LOG: usize = 64;
const AT_LOG_BYTES: usize = 72;
const AT_ROOT: usize = 80;
const AT_ROOT_BYTES: usize = 88;
const AT_DATA: usize = 96;
const AT_DEVICE: usize = 104;
const AT_NAME: usize = 128;
const AT_HEADER_CRC: usize = POOL_BLOCK_BYTES - 4;

/// The content of a header slot, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolSlot {
    /// No header.
    Nothing,
    /// A header that is damaged, or whose fields contradict each other: the name of the field.
    Damaged(&'static str),
    /// A header of a later version of the format, or with features that this version does not know.
    Newer {
        /// The version.
        version: u16,
        /// The unknown features.
        features: u16,
    },
    /// A header.
    Header(Sequenced<PoolHeader>),
}

/// Returns the mark of a device in the headers of its pool, from the identity of the device. Blocks of an array that
/// was never written may have the header of a pool of an earlier array on the same drives.
#[must_use]
pub fn device_mark(identity: &str) -> [u8; 16] {
    get(blake3::hash(identity.as_bytes()).as_bytes(), 0)
}

/// Returns the bytes of a header.
#[must_use]
pub fn encode_pool_header(header: &PoolHeader, sequence: u64) -> [u8; POOL_BLOCK_BYTES] {
    let mut out = begin(HEADER_MAGIC, header.pool, sequence);
    put(&mut out, AT_VERSION, &VERSION.to_le_bytes());
    put(&mut out, AT_BLOCK, &header.block_bytes.to_le_bytes());
    put(&mut out, AT_CLUSTER, &header.cluster_bytes.to_le_bytes());
    put(&mut out, AT_CLUSTERS, &header.clusters.to_le_bytes());
    put(&mut out, AT_LEAF, &header.leaf_entries.to_le_bytes());
    let name = header.name.as_str().as_bytes();
    put(&mut out, AT_NAME_BYTES, &(name.len() as u16).to_le_bytes());
    put(&mut out, AT_BYTES, &header.bytes.to_le_bytes());
    put(&mut out, AT_LOG, &header.log_at.to_le_bytes());
    put(&mut out, AT_LOG_BYTES, &header.log_bytes.to_le_bytes());
    put(&mut out, AT_ROOT, &header.root_at.to_le_bytes());
    put(&mut out, AT_ROOT_BYTES, &header.root_bytes.to_le_bytes());
    put(&mut out, AT_DATA, &header.data_at.to_le_bytes());
    put(&mut out, AT_DEVICE, &header.device);
    put(&mut out, AT_NAME, name);
    seal(&mut out, AT_HEADER_CRC);
    out
}

/// Reads a header slot.
#[must_use]
pub fn decode_pool_header(bytes: &[u8]) -> PoolSlot {
    if bytes.len() != POOL_BLOCK_BYTES || bytes[..8] != HEADER_MAGIC {
        return PoolSlot::Nothing;
    }
    if !is_sealed(bytes, AT_HEADER_CRC) {
        return PoolSlot::Damaged("crc");
    }
    let (version, features) = (u16_at(bytes, AT_VERSION), u16_at(bytes, AT_INCOMPATIBLE));
    if version != VERSION || features != 0 {
        return PoolSlot::Newer { version, features };
    }
    let length = usize::from(u16_at(bytes, AT_NAME_BYTES));
    let text = bytes.get(AT_NAME..AT_NAME + length).and_then(|name| std::str::from_utf8(name).ok());
    let Some(name) = text.and_then(|text| Name::from_str(text).ok()) else {
        return PoolSlot::Damaged("name");
    };
    let header = PoolHeader {
        pool: uuid_at(bytes, AT_POOL),
        name,
        device: get(bytes, AT_DEVICE),
        bytes: u64_at(bytes, AT_BYTES),
        block_bytes: u32_at(bytes, AT_BLOCK),
        cluster_bytes: u32_at(bytes, AT_CLUSTER),
        clusters: u32_at(bytes, AT_CLUSTERS),
        leaf_entries: u16_at(bytes, AT_LEAF),
        log_at: u64_at(bytes, AT_LOG),
        log_bytes: u64_at(bytes, AT_LOG_BYTES),
        root_at: u64_at(bytes, AT_ROOT),
        root_bytes: u64_at(bytes, AT_ROOT_BYTES),
        data_at: u64_at(bytes, AT_DATA),
    };
    match header.wrong_field() {
        Some(field) => PoolSlot::Damaged(field),
        None => {
            PoolSlot::Header(Sequenced { sequence: u64_at(bytes, AT_SEQUENCE), record: header })
        }
    }
}

/// Returns the header that counts of the two slots, or what the slots contain instead. A slot of a later version
/// decides even beside an intact slot: the intact one may be older.
#[must_use]
pub fn newest_pool_header([even, odd]: [PoolSlot; 2]) -> PoolSlot {
    for slot in [&even, &odd] {
        if matches!(slot, PoolSlot::Newer { .. }) {
            return slot.clone();
        }
    }
    let header = |slot: &PoolSlot| match slot {
        PoolSlot::Header(header) => Some(header.clone()),
        PoolSlot::Nothing | PoolSlot::Damaged(_) | PoolSlot::Newer { .. } => None,
    };
    let newest = newest_of([header(&even), header(&odd)]).and_then(Sequenced::usable);
    match (newest, even, odd) {
        (Some(newest), ..) => PoolSlot::Header(newest),
        (None, PoolSlot::Nothing, PoolSlot::Nothing) => PoolSlot::Nothing,
        (None, PoolSlot::Damaged(field), _) | (None, _, PoolSlot::Damaged(field)) => {
            PoolSlot::Damaged(field)
        }
        (None, ..) => PoolSlot::Damaged("sequence"),
    }
}

impl PoolHeader {
    /// Returns the first field that contradicts the others. The areas must be in order and must not overlap, so that no
    /// write to one damages another.
    #[must_use]
    pub fn wrong_field(&self) -> Option<&'static str> {
        let block = POOL_BLOCK_BYTES as u64;
        let cluster = u64::from(self.cluster_bytes);
        let is_block = matches!(self.block_bytes, 512 | 4096);
        let is_cluster = cluster >= block
            && cluster.is_multiple_of(block)
            && cluster.is_multiple_of(u64::from(self.block_bytes.max(1)));
        let log_end = self.log_at.checked_add(self.log_bytes);
        let root_end =
            self.root_bytes.checked_mul(2).and_then(|bytes| self.root_at.checked_add(bytes));
        let data_end = cluster
            .checked_mul(u64::from(self.clusters))
            .and_then(|bytes| self.data_at.checked_add(bytes));
        let aligned = |at: u64| at.is_multiple_of(block);
        let checks = [
            ("block_bytes", is_block),
            ("cluster_bytes", is_cluster),
            ("clusters", self.clusters > 0),
            ("leaf_entries", self.leaf_entries > 0),
            ("log_at", self.log_at >= POOL_HEADER_BYTES && aligned(self.log_at)),
            ("log_bytes", self.log_bytes >= 2 * block && aligned(self.log_bytes)),
            ("root_at", aligned(self.root_at) && log_end.is_some_and(|end| end <= self.root_at)),
            ("root_bytes", self.root_bytes >= 2 * block && aligned(self.root_bytes)),
            ("data_at", aligned(self.data_at) && root_end.is_some_and(|end| end <= self.data_at)),
            ("bytes", data_end.is_some_and(|end| end <= self.bytes)),
        ];
        checks.into_iter().find(|(_, is_right)| !is_right).map(|(name, _)| name)
    }

    /// Number of blocks of the log.
    #[must_use]
    pub fn log_blocks(&self) -> u64 {
        self.log_bytes / POOL_BLOCK_BYTES as u64
    }
}

/// The start of a pool that wrote a block of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStart {
    /// The number of the start.
    pub number: u32,
    /// The nonce of the start.
    pub nonce: u64,
}

/// A block of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBlock<'a> {
    /// The sequence of the block.
    pub sequence: u64,
    /// The start that wrote the block.
    pub start: LogStart,
    /// True if the block is the first of a write. The payload then begins with a record.
    pub is_first: bool,
    /// Bytes of records. A record may continue in the next block of the same write.
    pub payload: &'a [u8],
}

const AT_LOG_START: usize = 32;
const AT_LOG_FLAGS: usize = 36;
const AT_LOG_PAYLOAD: usize = 38;
const AT_LOG_NONCE: usize = 40;
const AT_LOG_CRC: usize = 60;
const FLAG_FIRST: u16 = 1;

/// Writes a block of the log to `out`, which has 4 KiB. The unused end is zero.
///
/// # Panics
/// If the payload or `out` has a wrong length.
pub fn encode_log_block(pool: Uuid, block: &LogBlock<'_>, out: &mut [u8]) {
    assert!(block.payload.len() <= LOG_PAYLOAD_MAX, "a block has 4032 bytes of payload");
    out.fill(0);
    put(out, 0, &LOG_MAGIC);
    put(out, AT_POOL, &pool.0);
    put(out, AT_SEQUENCE, &block.sequence.to_le_bytes());
    put(out, AT_LOG_START, &block.start.number.to_le_bytes());
    put(out, AT_LOG_FLAGS, &(if block.is_first { FLAG_FIRST } else { 0 }).to_le_bytes());
    put(out, AT_LOG_PAYLOAD, &(block.payload.len() as u16).to_le_bytes());
    put(out, AT_LOG_NONCE, &block.start.nonce.to_le_bytes());
    put(out, LOG_HEADER_BYTES, block.payload);
    let crc = crc_around(out, AT_LOG_CRC);
    put(out, AT_LOG_CRC, &crc.to_le_bytes());
}

/// Reads a block of the log of a pool. `None` if the bytes are no such block.
#[must_use]
pub fn decode_log_block(bytes: &[u8], pool: Uuid) -> Option<LogBlock<'_>> {
    let is_block = bytes.len() == POOL_BLOCK_BYTES
        && bytes[..8] == LOG_MAGIC
        && get::<16>(bytes, AT_POOL) == pool.0
        && crc_around(bytes, AT_LOG_CRC) == u32_at(bytes, AT_LOG_CRC);
    if !is_block {
        return None;
    }
    let length = usize::from(u16_at(bytes, AT_LOG_PAYLOAD));
    let payload = bytes.get(LOG_HEADER_BYTES..LOG_HEADER_BYTES + length)?;
    let start =
        LogStart { number: u32_at(bytes, AT_LOG_START), nonce: u64_at(bytes, AT_LOG_NONCE) };
    let is_first = u16_at(bytes, AT_LOG_FLAGS) & FLAG_FIRST != 0;
    Some(LogBlock { sequence: u64_at(bytes, AT_SEQUENCE), start, is_first, payload })
}

/// The header of a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootHeader {
    /// The sequence of the image.
    pub sequence: u64,
    /// Bytes of the image.
    pub bytes: u64,
    /// CRC-32C of the image.
    pub image_crc: u32,
    /// Sequence of the block of the log from which the image is replayed.
    pub log_from: u64,
}

const AT_ROOT_IMAGE: usize = 32;
const AT_ROOT_LOG: usize = 40;
const AT_ROOT_IMAGE_CRC: usize = 48;
const AT_ROOT_CRC: usize = POOL_BLOCK_BYTES - 4;

/// Returns the bytes of the header of a root.
#[must_use]
pub fn encode_root_header(pool: Uuid, root: &RootHeader) -> [u8; POOL_BLOCK_BYTES] {
    let mut out = begin(ROOT_MAGIC, pool, root.sequence);
    put(&mut out, AT_ROOT_IMAGE, &root.bytes.to_le_bytes());
    put(&mut out, AT_ROOT_LOG, &root.log_from.to_le_bytes());
    put(&mut out, AT_ROOT_IMAGE_CRC, &root.image_crc.to_le_bytes());
    seal(&mut out, AT_ROOT_CRC);
    out
}

/// Reads the header of a root of a pool. `None` if the bytes are no such header.
#[must_use]
pub fn decode_root_header(bytes: &[u8], pool: Uuid) -> Option<RootHeader> {
    let is_root = bytes.len() == POOL_BLOCK_BYTES
        && bytes[..8] == ROOT_MAGIC
        && get::<16>(bytes, AT_POOL) == pool.0
        && is_sealed(bytes, AT_ROOT_CRC);
    is_root.then(|| RootHeader {
        sequence: u64_at(bytes, AT_SEQUENCE),
        bytes: u64_at(bytes, AT_ROOT_IMAGE),
        image_crc: u32_at(bytes, AT_ROOT_IMAGE_CRC),
        log_from: u64_at(bytes, AT_ROOT_LOG),
    })
}

fn begin(magic: [u8; 8], pool: Uuid, sequence: u64) -> [u8; POOL_BLOCK_BYTES] {
    let mut out = [0; POOL_BLOCK_BYTES];
    put(&mut out, 0, &magic);
    put(&mut out, AT_POOL, &pool.0);
    put(&mut out, AT_SEQUENCE, &sequence.to_le_bytes());
    out
}

fn seal(out: &mut [u8; POOL_BLOCK_BYTES], at: usize) {
    let crc = crc_around(out, at);
    put(out, at, &crc.to_le_bytes());
}

fn is_sealed(bytes: &[u8], at: usize) -> bool {
    crc_around(bytes, at) == u32_at(bytes, at)
}

/// Returns the CRC-32C of the bytes without the four at `at`.
fn crc_around(bytes: &[u8], at: usize) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..at]), &bytes[at + 4..])
}
