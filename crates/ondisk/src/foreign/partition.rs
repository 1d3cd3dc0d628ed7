//! Partition tables, except the table that [`crate::gpt`] writes.

use super::{ends, has};
use crate::bytes::get;
use crate::gpt::{PARTITION_TYPE, guid};

const GPT: &str = "a partition table (GPT)";
const MBR: &str = "a partition table (MBR)";
const GPT_MAGIC: &[u8] = b"EFI PART";

/// The block sizes of drives.
const BLOCKS: [usize; 2] = [512, 4096];
/// Bytes of the usual partition array, which has 128 rows.
const ARRAY_BYTES: usize = 128 * ROW_BYTES;
const ROW_BYTES: usize = 128;

/// The kind of GPT at an end of a drive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gpt {
    Absent,
    Ours,
    Foreign,
}

pub(super) fn find(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    let (first, last) = (primary(head), backup(tail));
    match (first, last) {
        (Gpt::Foreign, _) | (Gpt::Absent, Gpt::Foreign) => return Some(GPT),
        // A foreign backup with a primary table of Strake is older than that table and no longer valid.
        (Gpt::Ours, Gpt::Foreign | Gpt::Absent | Gpt::Ours)
        | (Gpt::Absent, Gpt::Absent | Gpt::Ours) => {}
    }
    let ours = first == Gpt::Ours || last == Gpt::Ours;
    mbr(head, ours).or_else(|| elder(head))
}

/// Returns true if one of the ends has the table of Strake.
pub(super) fn is_claimed(head: &[u8], tail: &[u8]) -> bool {
    primary(head) == Gpt::Ours || backup(tail) == Gpt::Ours
}

/// Returns the kind of the table at block 1 (UEFI 5.3.2). A table of Strake has one row, with the type of Strake.
fn primary(head: &[u8]) -> Gpt {
    let tables = BLOCKS.into_iter().filter(|block| has(head, *block, GPT_MAGIC));
    tables.map(|block| whose(head, 2 * block)).fold(Gpt::Absent, worst)
}

/// Returns the kind of the table in the last block. The rows of this table are before it.
fn backup(tail: &[u8]) -> Gpt {
    let tables = BLOCKS.into_iter().filter(|block| ends(tail, *block, GPT_MAGIC));
    let rows = tables.map(|block| tail.len().checked_sub(block + ARRAY_BYTES));
    rows.map(|at| at.map_or(Gpt::Foreign, |at| whose(tail, at))).fold(Gpt::Absent, worst)
}

fn whose(bytes: &[u8], rows_at: usize) -> Gpt {
    let Some(rows) = bytes.get(rows_at..rows_at + ARRAY_BYTES) else { return Gpt::Foreign };
    let only = rows[ROW_BYTES..].iter().all(|byte| *byte == 0);
    if only && rows.starts_with(&guid(PARTITION_TYPE)) { Gpt::Ours } else { Gpt::Foreign }
}

fn worst(a: Gpt, b: Gpt) -> Gpt {
    match (a, b) {
        (Gpt::Foreign, _) | (_, Gpt::Foreign) => Gpt::Foreign,
        (Gpt::Ours, _) | (_, Gpt::Ours) => Gpt::Ours,
        (Gpt::Absent, Gpt::Absent) => Gpt::Absent,
    }
}

/// Returns the name of an MBR (UEFI 5.2). With a GPT of Strake, only an MBR with other partitions (a hybrid MBR)
/// counts. Otherwise any MBR counts: a protective MBR belongs to a damaged GPT, and an MBR without partitions is a boot
/// sector or the identifier of a disk.
fn mbr(head: &[u8], ours: bool) -> Option<&'static str> {
    let sector = head.get(..512).filter(|sector| sector[510..] == [0x55, 0xaa])?;
    let rows = || sector[446..510].chunks_exact(16);
    if rows().any(|row| row[4] != 0 && row[4] != 0xee) {
        return Some(MBR);
    }
    if ours {
        return None;
    }
    let protective = rows().any(|row| row[4] == 0xee);
    Some(if protective { "the protective MBR of a lost GPT" } else { "a boot sector" })
}

/// Returns the name of a partition table of another computer system.
fn elder(head: &[u8]) -> Option<&'static str> {
    // A driver descriptor, then partition map entries from the next block (Inside Macintosh, Devices, 3-12).
    if has(head, 0, b"ER")
        && BLOCKS.into_iter().chain([1024, 2048]).any(|at| has(head, at, b"PM\0\0"))
    {
        return Some("a partition table (Apple)");
    }
    // block/partitions/sun.c: a magic, and words whose XOR is 0.
    let sun = head.get(..512).is_some_and(|sector| {
        let words = sector.chunks_exact(2);
        sector[508..510] == [0xda, 0xbe]
            && words.fold(0, |sum, word| sum ^ u16::from_be_bytes(get(word, 0))) == 0
    });
    let bsd = [0, 64, 512].into_iter().any(|at| {
        let magic = 0x8256_4557_u32.to_le_bytes();
        has(head, at, &magic) && has(head, at + 132, &magic)
    });
    let row = [
        (sun, "a partition table (Sun)"),
        (bsd, "a BSD disk label"), // block/partitions/msdos.c
        (has(head, 0, b"\x0b\xe5\xa9\x41"), "a partition table (SGI)"), // block/partitions/sgi.c
        (has(head, 0, b"\xc9\xc2\xd4\xc1"), "an AIX disk label"), // block/partitions/aix.c
        (has(head, 8192, b"\xe5\xd6\xd3\xf1"), "a mainframe volume label"), // block/partitions/ibm.c, EBCDIC VOL1
    ];
    row.into_iter().find(|(found, _)| *found).map(|(_, name)| name)
}
