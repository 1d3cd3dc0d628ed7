//! What somebody else may have on a drive, told from well-known signatures.
//!
//! Offsets and magics are those of the Linux kernel's headers (`include/uapi/linux/magic.h`, `raid/md_p.h`,
//! `fs/*`) and of the formats' own documents, named at each row. It is a courtesy to people about to lose data,
//! not a proof that a drive is empty.

use std::collections::BTreeMap;
use std::fmt;

use crate::bytes::{get, u16_at, u32_at};
use crate::gpt::{PARTITION_TYPE, guid};
use crate::layout::SLOT_BYTES;
use crate::superblock::{MAGIC, Superblock};

/// What was found on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// A member of a Strake array that nobody destroyed; the name when the label could be read.
    Strake(Option<String>),
    /// Something of another program, by its usual name.
    Other(&'static str),
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strake(Some(name)) => write!(f, "a member of Strake array {name}"),
            Self::Strake(None) => f.write_str("a Strake label that this version cannot read"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

/// A magic at a fixed offset from the start of the device.
const FIXED: [(usize, &[u8], &str); 19] = [
    (0, b"XFSB", "an XFS file system"), // fs/xfs/libxfs/xfs_format.h
    (0x1_0040, b"_BHRfS_M", "a btrfs file system"), // fs/btrfs/fs.h
    (0x1018, BCACHE, "a bcache device"), // drivers/md/bcache/bcache_ondisk.h
    (4086, b"SWAPSPACE2", "a swap area"), // include/linux/swap.h
    (4086, b"SWAP-SPACE", "a swap area"), // the version before
    (0, b"LUKS\xba\xbe", "a LUKS container"), // LUKS2 on-disk format, section 2
    (0x4000, b"SKUL\xba\xbe", "a LUKS container"), // its second header
    (0, b"LABELONE", "an LVM2 physical volume"), // lvm2 lib/label/label.h: any of four sectors
    (512, b"LABELONE", "an LVM2 physical volume"),
    (1024, b"LABELONE", "an LVM2 physical volume"),
    (1536, b"LABELONE", "an LVM2 physical volume"),
    (0x8001, b"CD001", "an ISO 9660 image"), // ECMA-119, section 8.4
    (3, b"NTFS    ", "an NTFS file system"), // boot sector, OEM identifier
    (3, b"EXFAT   ", "an exFAT file system"), // exFAT specification, section 3.1
    (54, b"FAT12   ", "a FAT file system"),  // boot sector, file system type
    (54, b"FAT16   ", "a FAT file system"),
    (82, b"FAT32   ", "a FAT file system"),
    (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"), // include/linux/f2fs_fs.h
    (0, b"BITLOCKER", "a BitLocker volume"),
];

const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";

/// Names what the first and the last bytes of a drive (1 MiB each is what it was made for) show, or `None` when
/// nothing known is there. A destroyed Strake array and Strake's own partition table count as nothing.
#[must_use]
pub fn foreign_signature(head: &[u8], tail: &[u8]) -> Option<Foreign> {
    strake(head, tail).or_else(|| other(head, tail).map(Foreign::Other))
}

fn other(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    let fixed = FIXED.iter().find(|(at, magic, _)| has(head, *at, magic)).map(|(_, _, name)| *name);
    fixed
        .or_else(|| ext(head))
        .or_else(|| sectors(head).chain(sectors(tail)).find_map(md))
        .or_else(|| zfs(head).or_else(|| zfs(tail)))
        .or_else(|| firmware_raid(tail))
        .or_else(|| gpt(head, tail))
        .or_else(|| mbr(head))
}

fn has(bytes: &[u8], at: usize, magic: &[u8]) -> bool {
    bytes.get(at..at + magic.len()) == Some(magic)
}

/// Everything that begins at a multiple of 512 bytes from the start of `bytes`, as long as it goes.
fn sectors(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..bytes.len()).step_by(512).map(|at| &bytes[at..]).filter(|rest| rest.len() >= 512)
}

/// ext2, 3 and 4: superblock at 1024 (kernel, Documentation/filesystems/ext4/super.rst).
fn ext(head: &[u8]) -> Option<&'static str> {
    const JOURNAL: u32 = 0x4;
    const EXTENTS_64BIT_FLEX: u32 = 0x40 | 0x80 | 0x200;
    let block = head.get(1024..2048).filter(|block| u16_at(block, 0x38) == 0xef53)?;
    Some(if u32_at(block, 0x60) & EXTENTS_64BIT_FLEX != 0 {
        "an ext4 file system"
    } else if u32_at(block, 0x5c) & JOURNAL != 0 {
        "an ext3 file system"
    } else {
        "an ext2 file system"
    })
}

/// Linux md: magic, then the major version, which is 0 or 1 (include/uapi/linux/raid/md_p.h). Versions 0.90 and 1.0
/// are near the end, 1.1 at the start, 1.2 at 4 KiB.
fn md(sector: &[u8]) -> Option<&'static str> {
    let little = u32_at(sector, 0) == 0xa92b_4efc && u32_at(sector, 4) <= 1;
    let big = get::<4>(sector, 0) == 0xa92b_4efc_u32.to_be_bytes() && get::<3>(sector, 4) == [0; 3];
    (little || big).then_some("a member of a Linux md array")
}

/// ZFS: uberblocks of at least 1 KiB in the second half of each 256 KiB label (include/sys/uberblock_impl.h), in
/// either byte order. The label at the end is aligned to 256 KiB, so multiples of 1 KiB find it too.
fn zfs(bytes: &[u8]) -> Option<&'static str> {
    let magic = 0x00ba_b10c_u64;
    sectors(bytes)
        .map(|sector| get::<8>(sector, 0))
        .any(|word| word == magic.to_le_bytes() || word == magic.to_be_bytes())
        .then_some("a ZFS label")
}

/// Firmware RAID: Intel's anchor in the last but one sector, the DDF anchor in the last (SNIA DDF 2.0, section 6).
fn firmware_raid(tail: &[u8]) -> Option<&'static str> {
    let from_end = |bytes: usize| tail.len().checked_sub(bytes);
    let intel = from_end(1024).is_some_and(|at| has(tail, at, b"Intel Raid ISM Cfg Sig. "));
    let ddf = from_end(512).is_some_and(|at| has(tail, at, b"\xde\x11\xde\x11"));
    (intel || ddf).then_some("a member of a firmware RAID array")
}

/// A GPT at block 1 or in the last block, unless it is the one [`crate::gpt`] writes and nothing was added to it.
fn gpt(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    const NAME: &str = "a partition table (GPT)";
    let mut ours = false;
    for block in [512, 4096] {
        if has(head, block, b"EFI PART") {
            let rows = head.get(2 * block..2 * block + 16384)?;
            let claimed = rows[..16] == guid(PARTITION_TYPE);
            if !claimed || rows[128..].iter().any(|byte| *byte != 0) {
                return Some(NAME);
            }
            ours = true;
        }
    }
    let last = |block| tail.len().checked_sub(block).is_some_and(|at| has(tail, at, b"EFI PART"));
    let backup = last(512) || last(4096);
    (backup && !ours && !backup_is_ours(tail)).then_some(NAME)
}

/// Whether the backup table's first partition is of our type. It may be all that is left of ours.
fn backup_is_ours(tail: &[u8]) -> bool {
    [512, 4096].into_iter().any(|block| {
        let at = tail.len().checked_sub(16384 + block);
        at.is_some_and(|at| has(tail, at, &guid(PARTITION_TYPE)))
    })
}

/// An MBR with a partition that is not the protective one (UEFI 5.2).
fn mbr(head: &[u8]) -> Option<&'static str> {
    let sector = head.get(..512).filter(|sector| sector[510..] == [0x55, 0xaa])?;
    let foreign = sector[446..510].chunks_exact(16).any(|row| row[4] != 0 && row[4] != 0xee);
    foreign.then_some("a partition table (MBR)")
}

/// Strake's own labels. For each array the newest label decides, so a destroyed array is not found.
fn strake(head: &[u8], tail: &[u8]) -> Option<Foreign> {
    let mut newest: BTreeMap<_, Superblock> = BTreeMap::new();
    for sector in sectors(head).chain(sectors(tail)).filter(|sector| sector.starts_with(&MAGIC)) {
        let Some(record) = sector.get(..SLOT_BYTES) else { continue };
        match Superblock::decode_anywhere(record) {
            Ok(label) => {
                let best = newest.entry(label.array).or_insert_with(|| label.clone());
                if best.generation < label.generation {
                    *best = label;
                }
            }
            Err(error) if error.is_unknown() => return Some(Foreign::Strake(None)),
            Err(_) => {}
        }
    }
    let label = newest.into_values().find(|label| !label.destroyed)?;
    Some(Foreign::Strake(Some(label.name.to_string())))
}
