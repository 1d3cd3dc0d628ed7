//! Formats that have a magic of at least three bytes at a fixed offset.
//!
//! Offsets and magics are from the headers of the Linux kernel and from the documents of the formats, which each row
//! names.

use super::has;

/// A byte offset from the start of the device, the magic at this offset, and the name of the format.
type Row = (usize, &'static [u8], &'static str);

/// Formats that contain data of other drives or of other formats.
const CONTAINERS: [Row; 40] = [
    (0, b"LUKS\xba\xbe", LUKS), // LUKS2 on-disk format 1.0, section 2.1
    // The second header of LUKS2 is at one of the offsets of section 2.2. It counts if the first header was wiped.
    (0x4000, b"SKUL\xba\xbe", LUKS),
    (0x8000, b"SKUL\xba\xbe", LUKS),
    (0x1_0000, b"SKUL\xba\xbe", LUKS),
    (0x2_0000, b"SKUL\xba\xbe", LUKS),
    (0x4_0000, b"SKUL\xba\xbe", LUKS),
    (0x8_0000, b"SKUL\xba\xbe", LUKS),
    (0x10_0000, b"SKUL\xba\xbe", LUKS),
    (0x20_0000, b"SKUL\xba\xbe", LUKS),
    (3, b"-FVE-FS-", BITLOCKER), // [MS-FVE] volume header
    (160, BITLOCKER_GUID, BITLOCKER),
    (424, BITLOCKER_GUID, BITLOCKER), // BitLocker To Go, after a FAT boot sector
    (0, b"LABELONE", LVM2),           // lvm2 lib/label/label.h: any of four sectors
    (512, b"LABELONE", LVM2),
    (1024, b"LABELONE", LVM2),
    (1536, b"LABELONE", LVM2),
    (0, b"HM\x01\0", "an LVM1 physical volume"), // lvm2 lib/format1/disk-rep.h
    (0, b"HM\x02\0", "an LVM1 physical volume"),
    (0x1018, BCACHE, "a bcache device"), // drivers/md/bcache/bcache_ondisk.h
    (0x1018, BCACHEFS, "a bcachefs file system"), // fs/bcachefs/bcachefs_format.h
    (0, b"bluestore block device", "a Ceph BlueStore device"), // ceph src/os/bluestore/BlueStore.cc
    (0x10_0000, b"\x0d\xd0\x01\xc0", "a VMFS volume"), // libvmfs, vmfs_volume.h
    (0x20_0000, b"\x5e\xf1\xab\x2f", "a VMFS file system"), // libvmfs, vmfs_fs.h
    (516, STRATIS, "a Stratis device"),  // stratisd, static header in sectors 1 and 9
    (4612, STRATIS, "a Stratis device"),
    (0, b"dmvdo001", "a VDO volume"), // drivers/md/dm-vdo/encodings.c
    (0, b"verity\0\0", "a dm-verity hash device"), // cryptsetup, verity superblock
    (0, b"integrt\0", "a dm-integrity device"), // drivers/md/dm-integrity.c
    (0, b"SnAp", "a device-mapper snapshot store"), // drivers/md/dm-snap-persistent.c
    (0, b"SPDKRAID", "a member of an SPDK RAID"), // spdk module/bdev/raid/bdev_raid.h
    (0, b"SPDKBLOB", "an SPDK blobstore"), // spdk lib/blob/blobstore.h
    (32, b"ORCLDISK", "an Oracle ASM disk"), // oracleasm driver, disk label
    (0, b"QFI\xfb", "a QEMU disk image"), // qemu docs/interop/qcow2.txt
    (0, b"KDMV", "a VMware disk image"), // VMware Virtual Disk Format 5.0
    (0, b"vhdxfile", "a Hyper-V disk image"), // [MS-VHDX] 2.2.1
    (0, b"conectix", "a Virtual PC disk image"), // VHD Image Format Specification
    (64, b"\x7f\x10\xda\xbe", "a VirtualBox disk image"), // VirtualBox VDICore.h
    (0, b"UBI#", "a UBI device"),     // drivers/mtd/ubi/ubi-media.h
    (0xc00, b"PRIVHEAD", "a Windows dynamic disk"), // block/partitions/ldm.h
    (4096, b"SPB5", "a Novell storage pool"), // NSS pool superblock
];

/// File systems, swap and journals.
const CONTENTS: [Row; 70] = [
    (0, b"XFSB", "an XFS file system"), // fs/xfs/libxfs/xfs_format.h
    (0, b"\xfe\xed\xba\xbe", "an XFS log"), // fs/xfs/libxfs/xfs_log_format.h
    (0x1_0040, b"_BHRfS_M", "a btrfs file system"), // fs/btrfs/fs.h
    (0x400, b"\x10\x20\xf5\xf2", F2FS), // include/linux/f2fs_fs.h
    (0x1400, b"\x10\x20\xf5\xf2", F2FS), // the second superblock of F2FS
    (3, b"NTFS    ", "an NTFS file system"), // boot sector, OEM identifier
    (3, b"EXFAT   ", "an exFAT file system"), // exFAT specification, section 3.1
    (3, b"ReFS\0", "a ReFS file system"), // boot sector, OEM identifier
    (54, b"FAT12   ", FAT),             // boot sector, file system type
    (54, b"FAT16   ", FAT),
    (54, b"FAT     ", FAT),
    (54, b"MSDOS   ", FAT),
    (82, b"FAT32   ", FAT),
    (82, b"MSWIN4", FAT),
    // The magic is in the last bytes of the first page, for any page size: include/linux/swap.h.
    (4086, b"SWAPSPACE2", SWAP),
    (8182, b"SWAPSPACE2", SWAP),
    (16_374, b"SWAPSPACE2", SWAP),
    (32_758, b"SWAPSPACE2", SWAP),
    (65_526, b"SWAPSPACE2", SWAP),
    (4086, b"SWAP-SPACE", SWAP),
    (8182, b"SWAP-SPACE", SWAP),
    (4086, b"S1SUSPEND", SUSPENDED), // kernel/power/swap.c
    (4086, b"S2SUSPEND", SUSPENDED),
    (4086, b"ULSUSPEND", SUSPENDED),
    (4086, b"LINHIB0001", SUSPENDED),
    (0x8001, b"CD001", "an ISO 9660 image"), // ECMA-119, section 8.4
    (0x8009, b"CDROM", "a High Sierra image"),
    (0x8001, b"BEA01", UDF), // ECMA-167, 2/9: volume recognition sequence
    (0x8001, b"NSR02", UDF),
    (0x8001, b"NSR03", UDF),
    (0x8001, b"BOOT2", UDF),
    (0x8001, b"TEA01", UDF),
    (0x8001, b"CDW02", UDF),
    (0, b"hsqs", "a squashfs image"), // fs/squashfs/squashfs_fs.h
    (0, b"sqsh", "a squashfs image"),
    (0x400, b"\xe2\xe1\xf5\xe0", "an EROFS image"), // fs/erofs/erofs_fs.h
    (0, b"\x45\x3d\xcd\x28", CRAMFS),               // include/uapi/linux/cramfs_fs.h
    (0, b"\x28\xcd\x3d\x45", CRAMFS),
    (512, b"\x45\x3d\xcd\x28", CRAMFS),
    (0, b"-rom1fs-", "a romfs image"), // include/uapi/linux/romfs_fs.h
    (0, b"\xce\xfa\xad\x1b", "a BFS file system"), // include/uapi/linux/bfs_fs.h
    (0x8000, b"JFS1", "a JFS file system"), // fs/jfs/jfs_superblock.h
    (0x1_0034, b"ReIsErFs", REISER),   // reiserfsprogs, reiserfs_fs.h
    (0x1_0034, b"ReIsEr2Fs", REISER),
    (0x1_0034, b"ReIsEr3Fs", REISER),
    (0x2034, b"ReIsErFs", REISER),
    (0x2014, b"ReIsErFs", REISER),
    (0x1_0000, b"ReIsEr4", "a Reiser4 file system"),
    (0x1_0000, b"\x01\x16\x19\x70\0\0\0\x01", "a GFS2 file system"), // include/uapi/linux/gfs2_ondisk.h
    (0x400, b"OCFSV2", OCFS2), // fs/ocfs2/ocfs2_fs.h: block 2 of any block size
    (0x800, b"OCFSV2", OCFS2),
    (0x1000, b"OCFSV2", OCFS2),
    (0x2000, b"OCFSV2", OCFS2),
    (8, b"OracleCFS", "an OCFS file system"),
    (32, b"NXSB", "an APFS container"), // Apple File System Reference, nx_superblock_t
    (0x400, b"H+\0\x04", HFS),          // TN1150, volume header
    (0x400, b"HX\0\x05", HFS),
    (0x2000, b"\x49\xe8\x95\xf9", "an HPFS file system"), // fs/hpfs/hpfs.h
    (0x400, b"\xf5\xfc\x01\xa5", "a VxFS file system"),   // fs/freevxfs/vxfs.h
    (0x2000, b"\xa5\x01\xfc\xf5", "a VxFS file system"),
    (0x20, b"BFS1", BEFS), // fs/befs/befs_fs_types.h
    (0x20, b"1SFB", BEFS),
    (0x220, b"BFS1", BEFS),
    (0x220, b"1SFB", BEFS),
    (0, b"SFOZ", "a zonefs device"),            // fs/zonefs/zonefs.h
    (0, b"\x31\x18\x10\x06", "a UBIFS device"), // fs/ubifs/ubifs-media.h
    (0, b"\xf8\x18\x7e\x18", "a System V file system"), // fs/sysv, first block of SCO EAFS
    (0x3f8, b"\x2b\x55\x44", "a XENIX file system"), // include/linux/sysv_fs.h
    (0x5f8, b"\x20\x7e\x18\xfd", "a System V file system"), // s_magic of the superblock at 1 KiB
    (0x5f8, b"\xfd\x18\x7e\x20", "a System V file system"),
];

const LUKS: &str = "a LUKS container";
const LVM2: &str = "an LVM2 physical volume";
const BITLOCKER: &str = "a BitLocker volume";
const FAT: &str = "a FAT file system";
const F2FS: &str = "an F2FS file system";
const SWAP: &str = "a swap area";
const SUSPENDED: &str = "a swap area with a hibernated system";
const UDF: &str = "a UDF file system";
const CRAMFS: &str = "a cramfs image";
const REISER: &str = "a ReiserFS file system";
const OCFS2: &str = "an OCFS2 file system";
const HFS: &str = "an HFS+ file system";
const BEFS: &str = "a BeFS file system";

const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
const BITLOCKER_GUID: &[u8] = b"\x3b\xd6\x67\x49\x29\x2e\xd8\x4a\x83\x99\xf6\xa3\x39\xe3\xd0\x01";
const STRATIS: &[u8] = b"!Stra0tis\x86\xff\x02^\x41rh";

pub(super) fn find(head: &[u8]) -> Option<&'static str> {
    let mut rows = CONTAINERS.iter().chain(&CONTENTS);
    rows.find(|(at, magic, _)| has(head, *at, magic)).map(|(_, _, name)| *name)
}
