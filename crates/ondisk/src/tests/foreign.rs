use proptest::prelude::{ProptestConfig, any, proptest};

use super::codecs::{encoded, head as address};
use super::{label, uuid};
use crate::{
    AreaLayout, Copy, FOREIGN_HEAD_BYTES, FOREIGN_TAIL_BYTES, Foreign, Superblock,
    foreign_signature, protective_head, protective_tail, written_over,
};

const HEAD: usize = FOREIGN_HEAD_BYTES as usize;
const TAIL: usize = FOREIGN_TAIL_BYTES as usize;
/// Bytes of the drives in these tests.
const DRIVE: u64 = 64 << 20;

/// A position on a drive.
#[derive(Clone, Copy, Debug)]
enum At {
    Start(usize),
    /// Bytes before the end.
    End(usize),
}
use At::{End, Start};

/// Returns the first and last bytes of a drive of zeroes after the write of `put`.
fn drive(put: &[(At, &[u8])]) -> (Vec<u8>, Vec<u8>) {
    let (mut head, mut tail) = (vec![0; HEAD], vec![0; TAIL]);
    for (at, bytes) in put {
        match at {
            Start(at) => head[*at..at + bytes.len()].copy_from_slice(bytes),
            End(from_end) => tail[TAIL - from_end..][..bytes.len()].copy_from_slice(bytes),
        }
    }
    (head, tail)
}

fn found(put: &[(At, &[u8])]) -> Option<Foreign> {
    let (head, tail) = drive(put);
    foreign_signature(&head, &tail)
}

fn check(put: &[(At, &[u8])], words: &str) {
    let found = found(put);
    let named = found.as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(named.contains(words), "{put:?} is {found:?}, not {words:?}");
    assert!(found.is_some_and(|f| f.is_obstacle()), "{named} is no obstacle");
}

#[test]
fn what_others_left_is_named() {
    let check = |at: At, magic: &[u8], words: &str| check(&[(at, magic)], words);
    check(Start(0), b"XFSB", "XFS");
    check(Start(0x10040), b"_BHRfS_M", "btrfs");
    check(Start(0x400), &0xf2f5_2010_u32.to_le_bytes(), "F2FS");
    check(Start(0x1400), &0xf2f5_2010_u32.to_le_bytes(), "F2FS");
    check(Start(3), b"NTFS    ", "NTFS");
    check(Start(3), b"EXFAT   ", "exFAT");
    check(Start(54), b"FAT16   ", "FAT");
    check(Start(82), b"FAT32   ", "FAT");
    check(Start(4086), b"SWAPSPACE2", "swap");
    check(Start(65_526), b"SWAPSPACE2", "swap");
    check(Start(4086), b"S1SUSPEND", "hibernated");
    check(Start(0x8001), b"CD001", "ISO");
    check(Start(0x8001), b"NSR03", "UDF");
    check(Start(0), b"hsqs", "squashfs");
    check(Start(0x400), &0xe0f5_e1e2_u32.to_le_bytes(), "EROFS");
    check(Start(0x8000), b"JFS1", "JFS");
    check(Start(0x10034), b"ReIsEr2Fs", "ReiserFS");
    check(Start(0), b"LUKS\xba\xbe\0\x01", "LUKS");
    check(Start(0x4000), b"SKUL\xba\xbe\0\x02", "LUKS");
    check(Start(0x20_0000), b"SKUL\xba\xbe\0\x02", "LUKS");
    check(Start(3), b"-FVE-FS-", "BitLocker");
    check(Start(0), b"bluestore block device\n", "BlueStore");
    check(Start(512), b"LABELONE", "LVM2");
    check(Start(1536), b"LABELONE", "LVM2");
    check(
        Start(0x1018),
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        "bcache",
    );
    check(Start(0x10_0000), &0xc001_d00d_u32.to_le_bytes(), "VMFS");
    check(Start(0x20_0000), &0x2fab_f15e_u32.to_le_bytes(), "VMFS");
    check(Start(516), b"!Stra0tis\x86\xff\x02^\x41rh", "Stratis");
    check(Start(1372 + 8192), &0x0001_1954_u32.to_le_bytes(), "UFS");
    check(Start(1372 + 65_536), &0x1954_0119_u32.to_be_bytes(), "UFS");
    check(Start(0), b"QFI\xfb\0\0\0\x03", "QEMU");
}

#[test]
fn raid_members_of_every_kind_are_named() {
    let check = |at: At, magic: &[u8], words: &str| check(&[(at, magic)], words);
    let md = |order: fn(u32) -> [u8; 4], major| [order(0xa92b_4efc), order(major)].concat();
    let (md0, md1) = (md(u32::to_le_bytes, 0), md(u32::to_le_bytes, 1));
    let md0_big = md(u32::to_be_bytes, 0);
    // The superblock of version 0.90 is 64 to 128 KiB before the end, at a multiple of 64 KiB.
    for from_end in [65_536, 65_536 + 512, 131_072] {
        check(End(from_end), &md0, "Linux md");
        check(End(from_end), &md0_big, "Linux md");
    }
    for at in [End(8192), End(8192 + 3584), Start(0), Start(4096)] {
        check(at, &md1, "Linux md");
    }
    // ZFS has four labels of 256 KiB, with uberblocks in the second half of each label.
    for label in [Start(0), Start(256 << 10), End(512 << 10), End(256 << 10)] {
        let at = match label {
            Start(at) => Start(at + (129 << 10)),
            End(at) => End(at - (129 << 10)),
        };
        check(at, &0x00ba_b10c_u64.to_le_bytes(), "ZFS");
        check(at, &0x00ba_b10c_u64.to_be_bytes(), "ZFS");
    }
    check(End(1024), b"Intel Raid ISM Cfg Sig. 1.3.00", "Intel");
    check(End(8192), b"Intel Raid ISM Cfg Sig. 1.3.00", "Intel");
    check(End(512), b"\xde\x11\xde\x11", "DDF");
    check(End(512), b"\x11\xde\x11\xde", "DDF");
    check(End(4096 - 60), &0x8374_026d_u32.to_be_bytes(), "DRBD");
    check(End(4096 + 512 - 60), &0x8374_026b_u32.to_be_bytes(), "DRBD");
    check(End(3087 * 512), b"Promise Technology, Inc.", "firmware RAID");
    check(End(1024), b"NVIDIA  ", "firmware RAID");
    check(End(512), b"$XIDE$", "firmware RAID");
    check(Start(0), b"SPDKRAID", "SPDK");
}

#[test]
fn records_without_a_long_magic_must_make_sense() {
    let ext = |compat: u32, incompat: u32| {
        let mut block = [0; 1024];
        block[0x38..0x3a].copy_from_slice(&[0x53, 0xef]);
        block[0x5c..0x60].copy_from_slice(&compat.to_le_bytes());
        block[0x60..0x64].copy_from_slice(&incompat.to_le_bytes());
        block
    };
    check(&[(Start(1024), &ext(0, 0x2))], "ext2");
    check(&[(Start(1024), &ext(0x4, 0x2))], "ext3");
    check(&[(Start(1024), &ext(0x4, 0x42))], "ext4");
    check(&[(Start(1024), &ext(0, 0x8))], "journal");
    let nilfs = [2, 0, 0, 0, 0, 0, 0x34, 0x34, 0x18, 0x01];
    check(&[(Start(1024), &nilfs)], "NILFS2");
    check(&[(End(4096), &nilfs)], "NILFS2");
    assert_eq!(found(&[(Start(1024), &[3, 0, 0, 0, 0, 0, 0x34, 0x34, 0x18, 1])]), None);
    let mut minix = [0; 32];
    minix[..6].copy_from_slice(&[0x40, 0x15, 0, 0, 1, 0]);
    minix[16..18].copy_from_slice(&[0x8f, 0x13]);
    check(&[(Start(1024), &minix)], "Minix");
    minix[..2].copy_from_slice(&[0, 0]);
    assert_eq!(found(&[(Start(1024), &minix)]), None, "a file system without inodes");
    assert_eq!(found(&[(Start(54), b"FAT99")]), None);
    assert_eq!(found(&[(Start(1), b"XFSB")]), None, "at another place it means nothing");
}

#[test]
fn partition_tables_of_others_are_named() {
    check(&[(Start(512), b"EFI PART")], "GPT");
    check(&[(Start(4096), b"EFI PART")], "GPT");
    check(&[(End(512), b"EFI PART")], "GPT");
    check(&[(End(4096), b"EFI PART")], "GPT");
    let mbr = |kind: u8| {
        let mut sector = [0; 512];
        sector[446 + 16 + 4] = kind;
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        sector
    };
    check(&[(Start(0), &mbr(0x83))], "MBR");
    check(&[(Start(0), &mbr(0xee))], "lost GPT");
    check(&[(Start(0), &mbr(0))], "boot sector");
    check(&[(Start(0), b"ER\x02\0"), (Start(512), b"PM\0\0")], "Apple");
    check(&[(Start(508), &[0xda, 0xbe, 0xda, 0xbe])], "Sun");
    check(&[(Start(0), b"\x0b\xe5\xa9\x41")], "SGI");
    let bsd = 0x8256_4557_u32.to_le_bytes();
    check(&[(Start(512), &bsd), (Start(512 + 132), &bsd)], "BSD");
    assert_eq!(found(&[]), None);
    assert_eq!(foreign_signature(&[], &[]), None);
}

#[test]
fn our_own_table_is_no_obstacle_until_a_partition_is_added() {
    for block in [512, 4096] {
        let table = protective_head(DRIVE, block, uuid(9));
        let backup = protective_tail(DRIVE, block, uuid(9));
        let (first, last) = ((Start(0), &table[..]), (End(backup.len()), &backup[..]));
        assert_eq!(found(&[first, last]), None);
        assert_eq!(found(&[first]), None, "the backup is gone");
        assert_eq!(found(&[last]), None, "only the backup is left");
        let at = block as usize;
        let torn = [&table[..at], &vec![0; at][..], &table[2 * at..]].concat();
        assert_eq!(found(&[(Start(0), &torn), last]), None, "its header is gone");
        let mut two = table.clone();
        two[2 * at + 128..][..16].copy_from_slice(&[0xaf; 16]);
        check(&[(Start(0), &two), last], "GPT");
        let mut hybrid = table.clone();
        hybrid[446 + 16 + 4] = 0x83;
        check(&[(Start(0), &hybrid), last], "MBR");
    }
}

/// Returns a drive of Strake with `labels` in the rings `copies`.
fn member(labels: &[Superblock], copies: &[Copy]) -> (Vec<u8>, Vec<u8>) {
    let (table, backup) =
        (protective_head(DRIVE, 512, uuid(9)), protective_tail(DRIVE, 512, uuid(9)));
    let (mut head, mut tail) = drive(&[(Start(0), &table), (End(backup.len()), &backup)]);
    let layout = AreaLayout::of(DRIVE).unwrap();
    for copy in copies {
        for label in labels {
            let offset = layout.slot_offset(*copy, label.generation);
            let bytes = label.encode(*copy, offset);
            match copy {
                Copy::Head => head[offset as usize..][..4096].copy_from_slice(&bytes),
                Copy::Tail => {
                    tail[TAIL - (DRIVE - offset) as usize..][..4096].copy_from_slice(&bytes)
                }
            }
        }
    }
    (head, tail)
}

#[test]
fn our_own_labels_are_named_wherever_they_are_left() {
    let check = |labels: &[Superblock], copies: &[Copy], want: &Foreign| {
        let (head, tail) = member(labels, copies);
        assert_eq!(foreign_signature(&head, &tail).as_ref(), Some(want), "{copies:?}");
    };
    let used = label(6, 7);
    let gone = Superblock { destroyed: true, generation: 8, ..label(6, 7) };
    let other = Superblock { array: uuid(0x77), name: "vault".parse().unwrap(), ..gone.clone() };
    let newer = Superblock { incompat: 0x10, ..used.clone() };
    let tank = |f: fn(String) -> Foreign| f("tank".to_owned());
    for copies in [&[Copy::Head][..], &[Copy::Tail], &[Copy::Head, Copy::Tail]] {
        check(std::slice::from_ref(&used), copies, &tank(Foreign::Strake));
        check(&[used.clone(), gone.clone()], copies, &tank(Foreign::Destroyed));
        check(&[used.clone(), other.clone()], copies, &tank(Foreign::Strake));
        check(std::slice::from_ref(&newer), copies, &Foreign::StrakeUnknown);
    }
    assert!(!tank(Foreign::Destroyed).is_obstacle());
    let text = tank(Foreign::Destroyed).to_string();
    assert_eq!(text, "a member of the destroyed Strake array tank");
}

/// F24: every copy of a label is corrupt. The drive was once a member. Its array is unknown, and the message names no
/// array.
#[test]
fn f24_labels_that_are_all_damaged_make_a_drive_foreign() {
    let (mut head, mut tail) = member(&[label(6, 7)], &[Copy::Head, Copy::Tail]);
    let at = address(7).offset.unwrap() as usize;
    head[at + 700] ^= 1;
    tail[TAIL - (512 << 10) + 7 * 4096 + 700] ^= 1;
    assert_eq!(foreign_signature(&head, &tail), Some(Foreign::StrakeDamaged));
    assert!(Foreign::StrakeDamaged.is_obstacle());
}

#[test]
fn what_came_after_a_destroyed_array_counts() {
    let gone = Superblock { destroyed: true, ..label(6, 7) };
    let (mut head, tail) = member(&[gone], &[Copy::Head]);
    head[..4].copy_from_slice(b"XFSB");
    assert_eq!(foreign_signature(&head, &tail), Some(Foreign::Other("an XFS file system")));
}

/// Magics with further checks of their records.
const LOOKED_INTO: [(usize, &[u8]); 8] = [
    (0, b"STRAKESB"),
    (512, b"EFI PART"),
    (0x438, b"\x53\xef"),
    (0x400, b"BD"),
    (0, b"\xfc\x4e\x2b\xa9"),
    (510, b"\x55\xaa"),
    (0, b"ER"),
    (0x410, b"\x8f\x13"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn no_bytes_make_naming_panic(
        seed in any::<u64>(),
        head in 0usize..70_000,
        tail in 0usize..9000,
        magics in any::<[(u8, u16, bool); 3]>(),
    ) {
        let mut state = seed | 1;
        let mut noise = |len: usize| -> Vec<u8> {
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            };
            (0..len).map(|_| next()).collect()
        };
        let (mut head, mut tail) = (noise(head), noise(tail));
        for (which, at, at_end) in magics {
            let (place, magic) = LOOKED_INTO[usize::from(which) % LOOKED_INTO.len()];
            let bytes = if at_end { &mut tail } else { &mut head };
            let at = if at % 2 == 0 { place } else { usize::from(at) };
            if let Some(room) = bytes.get_mut(at..at + magic.len()) {
                room.copy_from_slice(magic);
            }
        }
        let name = foreign_signature(&head, &tail).map(|found| found.to_string());
        assert!(name.is_none_or(|name| !name.is_empty()));
    }
}

#[test]
fn a_label_of_another_place_still_names_the_array() {
    // A copy of the start of a member at another offset has labels with wrong offsets, which the assembly refuses.
    let moved = encoded(&label(6, 7));
    check(&[(Start(8192), &moved)], "a member of Strake array tank");
}

/// Returns the result of `written_over` for data that was written over a member whose labels still exist.
fn over_member(put: &[(At, &[u8])]) -> Option<&'static str> {
    let (mut head, mut tail) = member(&[label(6, 7), label(6, 64)], &[Copy::Head, Copy::Tail]);
    for (at, bytes) in put {
        match at {
            Start(at) => head[*at..at + bytes.len()].copy_from_slice(bytes),
            End(from_end) => tail[TAIL - from_end..][..bytes.len()].copy_from_slice(bytes),
        }
    }
    written_over(&head, &tail, DRIVE, 512)
}

#[test]
fn what_was_made_over_a_member_is_named_beside_its_labels() {
    let check = |put: &[(At, &[u8])], words: &str| {
        let found = over_member(put);
        assert!(found.is_some_and(|found| found.contains(words)), "{put:?}: {found:?}");
    };
    check(&[(Start(0), b"XFSB")], "XFS");
    check(&[(Start(512), &[0; 16_384]), (Start(4096), b"\xfc\x4e\x2b\xa9\x01\0\0\0")], "md");
    check(&[(End(4096), b"\xfc\x4e\x2b\xa9\x01\0\0\0")], "md");
    // The first label slot has the offset of the superblock of btrfs. No label of Strake is left in this slot.
    check(&[(Start(0x10000), &[0; 4096]), (Start(0x10040), b"_BHRfS_M")], "btrfs");
}

#[test]
fn what_the_array_itself_writes_is_never_taken_for_foreign_content() {
    assert_eq!(over_member(&[]), None, "our own labels and partition table");
    // A tool that wipes a GPT may leave the MBR before it.
    assert_eq!(over_member(&[(Start(512), &[0; 16_896]), (End(16_896), &[0; 16_896])]), None);
    // The regions that hosts write determine bits of a bitmap page, and an operator chooses the name in a label.
    let md = b"\xfc\x4e\x2b\xa9\x01\0\0\0";
    assert_eq!(over_member(&[(Start((1 << 20) + 512), md)]), None);
    assert_eq!(over_member(&[(Start(2 << 20), b"\x5e\xf1\xab\x2f")]), None);
    assert_eq!(over_member(&[(Start(0x10040), b"_BHRfS_M")]), None, "in the first label slot");
    assert_eq!(over_member(&[(End((512 << 10) - 512), md)]), None, "in the first tail slot");
}
