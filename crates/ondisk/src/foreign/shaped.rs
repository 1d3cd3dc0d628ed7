//! Formats with a magic that is too short, or at no fixed offset. More fields of the record are checked.

use super::{has, last_sectors, sectors};
use crate::bytes::{get, u16_at, u32_at};

pub(super) fn find(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    ext(head)
        .or_else(|| nilfs(head, tail))
        .or_else(|| minix(head))
        .or_else(|| hfs(head))
        .or_else(|| ufs(head))
        .or_else(|| zfs(head).or_else(|| zfs(tail)))
        .or_else(|| fat(head))
}

/// ext2, 3 and 4: superblock at 1024 (kernel, Documentation/filesystems/ext4/super.rst).
fn ext(head: &[u8]) -> Option<&'static str> {
    const COMPAT_JOURNAL: u32 = 0x4;
    const INCOMPAT_JOURNAL_DEVICE: u32 = 0x8;
    const INCOMPAT_EXTENTS_64BIT_FLEX: u32 = 0x40 | 0x80 | 0x200;
    let block = head.get(1024..2048).filter(|block| u16_at(block, 0x38) == 0xef53)?;
    let (compat, incompat) = (u32_at(block, 0x5c), u32_at(block, 0x60));
    Some(if incompat & INCOMPAT_JOURNAL_DEVICE != 0 {
        "the journal of an ext file system"
    } else if incompat & INCOMPAT_EXTENTS_64BIT_FLEX != 0 {
        "an ext4 file system"
    } else if compat & COMPAT_JOURNAL != 0 {
        "an ext3 file system"
    } else {
        "an ext2 file system"
    })
}

/// NILFS2: superblocks at 1024 and in the last 4 KiB (include/uapi/linux/nilfs2_ondisk.h). They have revision 2, magic
/// 0x3434, and the number of bytes of the checksum, which is at most one block.
fn nilfs(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    let looks = |block: &[u8]| {
        let covered = u16_at(block, 8);
        u32_at(block, 0) == 2 && u16_at(block, 6) == 0x3434 && (1..=1024).contains(&covered)
    };
    let first = head.get(1024..1536).is_some_and(looks);
    (first || last_sectors(tail, 8192).any(looks)).then_some("a NILFS2 file system")
}

/// Minix 1, 2 and 3 (include/uapi/linux/minix_fs.h): a superblock at 1024 with one bit of the inode map for every
/// inode.
fn minix(head: &[u8]) -> Option<&'static str> {
    let block = head.get(1024..1056)?;
    let old = matches!(u16_at(block, 16), 0x137f | 0x138f | 0x2468 | 0x2478)
        && enough(u32::from(u16_at(block, 0)), u16_at(block, 4))
        && u16_at(block, 10) == 0;
    let new = u16_at(block, 24) == 0x4d5a
        && enough(u32_at(block, 0), u16_at(block, 6))
        && u16_at(block, 12) == 0;
    (old || new).then_some("a Minix file system")
}

/// Returns true if `inodes` is not 0 and `blocks`, of at most 4 KiB each, have a bit for each inode.
fn enough(inodes: u32, blocks: u16) -> bool {
    inodes > 0 && u64::from(inodes) <= u64::from(blocks) * 8 * 4096
}

/// HFS, not HFS+ (Inside Macintosh, Files, 2-60): "BD", and allocation blocks of a multiple of 512 bytes.
fn hfs(head: &[u8]) -> Option<&'static str> {
    let block = head.get(1024..1536).filter(|block| block.starts_with(b"BD"))?;
    let bytes = u32::from_be_bytes(get(block, 20));
    (bytes > 0 && bytes.is_multiple_of(512)).then_some("an HFS file system")
}

/// UFS 1 and 2 (fs/ufs/ufs_fs.h): the magic is 1372 bytes into a superblock at one of four places.
fn ufs(head: &[u8]) -> Option<&'static str> {
    let magics = [0x0001_1954_u32, 0x1954_0119, 0x0019_5612, 0x0009_5014, 0x0061_2195, 0x0523_1994];
    let places = [0, 8192, 65_536, 262_144].map(|at: usize| at + 1372);
    let found = places.into_iter().any(|at| {
        magics.iter().any(|m| has(head, at, &m.to_le_bytes()) || has(head, at, &m.to_be_bytes()))
    });
    found.then_some("a UFS file system")
}

/// ZFS: uberblocks of at least 1 KiB in the second half of each of the four 256 KiB labels, two labels at each end
/// (include/sys/uberblock_impl.h), in any byte order. The labels at the end are aligned to 256 KiB, so that a search at
/// multiples of 512 bytes also finds them.
fn zfs(bytes: &[u8]) -> Option<&'static str> {
    let magic = 0x00ba_b10c_u64;
    sectors(bytes)
        .map(|sector| get::<8>(sector, 0))
        .any(|word| word == magic.to_le_bytes() || word == magic.to_be_bytes())
        .then_some("a ZFS label")
}

/// FAT without the name of the file system: a boot sector with valid parameters (Microsoft, FAT32 File System
/// Specification 1.03, "Boot Sector and BPB").
fn fat(head: &[u8]) -> Option<&'static str> {
    let boot = head.get(..512).filter(|boot| boot[510..] == [0x55, 0xaa])?;
    let jump = boot[0] == 0xe9 || (boot[0] == 0xeb && boot[2] == 0x90);
    let sector = u16_at(boot, 11);
    let parameters = sector.is_power_of_two()
        && (512..=4096).contains(&sector)
        && boot[13].is_power_of_two()
        && u16_at(boot, 14) > 0
        && (1..=2).contains(&boot[16])
        && (boot[21] == 0xf0 || boot[21] >= 0xf8);
    (jump && parameters).then_some("a FAT file system")
}
