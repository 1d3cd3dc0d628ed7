//! A partition table that covers the whole drive, so that other tools recognize that the drive is in use.
//!
//! Source: UEFI Specification 2.10, section 5.2.3 (protective MBR) and 5.3 (GPT). Strake does not use this table to
//! find its data.

use strake_units::Uuid;

use crate::bytes::put;
use crate::layout::HEAD_RING_OFFSET;

/// Type of the only partition, as text `7a3c1f52-9d0e-4b86-a1f4-53747261b6e5`. The value is random, and only Strake
/// uses it.
pub const PARTITION_TYPE: Uuid = Uuid([
    0x7a, 0x3c, 0x1f, 0x52, 0x9d, 0x0e, 0x4b, 0x86, 0xa1, 0xf4, 0x53, 0x74, 0x72, 0x61, 0xb6, 0xe5,
]);
/// Rows of the partition array and bytes of a row, with the usual values (UEFI 5.3.1 requires at least 16 KiB).
const ENTRIES: u32 = 128;
const ENTRY_BYTES: u32 = 128;
const ARRAY_BYTES: usize = (ENTRIES * ENTRY_BYTES) as usize;
const HEADER_BYTES: u32 = 92;
const PARTITION_NAME: &str = "Strake member";

/// The positions of all parts of the table, in blocks of the device.
struct Table {
    block: usize,
    array_blocks: u64,
    last: u64,
    disk: Uuid,
}

impl Table {
    fn new(device_bytes: u64, block_bytes: u32, disk: Uuid) -> Self {
        let block = block_bytes as usize;
        let array_blocks = (ARRAY_BYTES / block) as u64;
        Self { block, array_blocks, last: device_bytes / u64::from(block_bytes) - 1, disk }
    }

    fn first_usable(&self) -> u64 {
        2 + self.array_blocks
    }

    fn last_usable(&self) -> u64 {
        self.last - self.array_blocks - 1
    }

    /// Returns the partition array, which has one used entry. The partition starts at the head ring and is therefore
    /// aligned.
    fn array(&self) -> Vec<u8> {
        let mut out = vec![0; ARRAY_BYTES];
        let mut partition = self.disk;
        partition.0[15] ^= 1;
        put(&mut out, 0, &guid(PARTITION_TYPE));
        put(&mut out, 16, &guid(partition));
        put(&mut out, 32, &(HEAD_RING_OFFSET / self.block as u64).to_le_bytes());
        put(&mut out, 40, &self.last_usable().to_le_bytes());
        for (i, unit) in PARTITION_NAME.encode_utf16().enumerate() {
            put(&mut out, 56 + 2 * i, &unit.to_le_bytes());
        }
        out
    }

    /// Returns a header for block `own` whose partition array starts at block `array_at` (UEFI 5.3.2, table 5.5).
    fn header(&self, own: u64, other: u64, array_at: u64, array: &[u8]) -> Vec<u8> {
        let mut out = vec![0; self.block];
        put(&mut out, 0, b"EFI PART");
        put(&mut out, 8, &0x0001_0000u32.to_le_bytes());
        put(&mut out, 12, &HEADER_BYTES.to_le_bytes());
        put(&mut out, 24, &own.to_le_bytes());
        put(&mut out, 32, &other.to_le_bytes());
        put(&mut out, 40, &self.first_usable().to_le_bytes());
        put(&mut out, 48, &self.last_usable().to_le_bytes());
        put(&mut out, 56, &guid(self.disk));
        put(&mut out, 72, &array_at.to_le_bytes());
        put(&mut out, 80, &ENTRIES.to_le_bytes());
        put(&mut out, 84, &ENTRY_BYTES.to_le_bytes());
        put(&mut out, 88, &crc32(array).to_le_bytes());
        let crc = crc32(&out[..HEADER_BYTES as usize]);
        put(&mut out, 16, &crc.to_le_bytes());
        out
    }

    /// Returns the protective MBR (UEFI 5.2.3): one partition of type 0xEE over all blocks that a 32-bit count can
    /// address.
    fn mbr(&self) -> Vec<u8> {
        let mut out = vec![0; self.block];
        let blocks = u32::try_from(self.last).unwrap_or(u32::MAX);
        put(&mut out, 446, &[0x00, 0x00, 0x02, 0x00, 0xee, 0xff, 0xff, 0xff]);
        put(&mut out, 454, &1u32.to_le_bytes());
        put(&mut out, 458, &blocks.to_le_bytes());
        put(&mut out, 510, &[0x55, 0xaa]);
        out
    }
}

/// Returns the content of the start of the device: protective MBR, header, partition array. `block_bytes` is the block
/// size of the device, 512 or 4096. The device must have at least [`MEMBER_BYTES_MIN`](crate::MEMBER_BYTES_MIN) bytes.
///
/// # Panics
/// When the device is smaller than the table.
#[must_use]
pub fn protective_head(device_bytes: u64, block_bytes: u32, disk_guid: Uuid) -> Vec<u8> {
    let table = Table::new(device_bytes, block_bytes, disk_guid);
    let array = table.array();
    let mut out = table.mbr();
    out.extend(table.header(1, table.last, 2, &array));
    out.extend(array);
    out
}

/// Returns the first block of [`protective_head`], which indicates a following GPT.
///
/// # Panics
/// The function panics under the condition of [`protective_head`].
#[must_use]
pub(crate) fn protective_mbr(device_bytes: u64, block_bytes: u32) -> Vec<u8> {
    Table::new(device_bytes, block_bytes, Uuid::NIL).mbr()
}

/// Returns the content of the last blocks of the device: partition array, backup header. The arguments are those of
/// [`protective_head`].
///
/// # Panics
/// When the device is smaller than the table.
#[must_use]
pub fn protective_tail(device_bytes: u64, block_bytes: u32, disk_guid: Uuid) -> Vec<u8> {
    let table = Table::new(device_bytes, block_bytes, disk_guid);
    let mut out = table.array();
    let header = table.header(table.last, 1, table.last_usable() + 1, &out);
    out.extend(header);
    out
}

/// Converts an identifier to the byte order of a GPT: the first three fields are little-endian (UEFI appendix A).
pub(crate) fn guid(uuid: Uuid) -> [u8; 16] {
    let mut bytes = uuid.0;
    bytes[0..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    bytes
}

/// Returns the CRC-32 of IEEE 802.3, which UEFI 5.3 requires (labels use CRC-32C instead). The function processes
/// single bytes, because it runs only twice per drive over 16 KiB.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| crc >> 8 ^ CRC32_OF_BYTE[usize::from(crc as u8 ^ *byte)];
    !bytes.iter().fold(u32::MAX, step)
}

/// The contribution of each byte value to the CRC-32.
static CRC32_OF_BYTE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};
