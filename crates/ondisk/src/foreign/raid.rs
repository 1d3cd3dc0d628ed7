//! Members of RAID arrays of other programs, most of which write to the end of a drive.

use super::{ends, has, last_sectors, sectors};
use crate::bytes::{get, u16_at, u32_at};

pub(super) fn find(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    sectors(head)
        .chain(sectors(tail))
        .find_map(md)
        .or_else(|| last_sectors(tail, 8192).find_map(drbd))
        .or_else(|| firmware(head, tail))
}

/// Linux md: the magic, then the major version, which is 0 or 1 (include/uapi/linux/raid/md_p.h). Versions 0.90 and 1.0
/// are near the end, 1.1 is at the start, and 1.2 is at 4 KiB. Version 0.90 has the byte order of the host that created
/// it.
fn md(sector: &[u8]) -> Option<&'static str> {
    const MAGIC: u32 = 0xa92b_4efc;
    let little = u32_at(sector, 0) == MAGIC && u32_at(sector, 4) <= 1;
    let big = get::<4>(sector, 0) == MAGIC.to_be_bytes() && get::<3>(sector, 4) == [0; 3];
    (little || big).then_some("a member of a Linux md array")
}

/// DRBD: the internal meta data are 4 KiB before the end, rounded down to 4 KiB. They have the big-endian magics of
/// versions 8.3, 8.4 and 9 (drbd_int.h, struct `meta_data_on_disk`), after seven 64-bit fields and the flags.
fn drbd(sector: &[u8]) -> Option<&'static str> {
    let magic = u32::from_be_bytes(get(sector, 60));
    (0x8374_026b..=0x8374_026d).contains(&magic).then_some("a DRBD device")
}

/// RAID of mainboards and host adapters.
fn firmware(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    // Intel: the magic is in the second to last block of 512 or 4096 bytes (mdadm, super-intel.c).
    if ends(tail, 1024, INTEL) || ends(tail, 8192, INTEL) {
        return Some("a member of an Intel firmware RAID array");
    }
    // SNIA DDF 2.0, section 6: the anchor is in the last block, or at the offset of adapters that have another
    // structure in the last block.
    let ddf = [512, 4096, 257 * 512].into_iter().any(|from_end| {
        ends(tail, from_end, b"\xde\x11\xde\x11") || ends(tail, from_end, b"\x11\xde\x11\xde")
    });
    if ddf {
        return Some("a member of a DDF firmware RAID array");
    }
    let other = ends(tail, 512, b"$XIDE$")
        || ends(tail, 1024, b"NVIDIA")
        || ends(tail, 512, &0x37fc_4d1e_u32.to_be_bytes())
        || sectors(tail).any(|sector| sector.starts_with(b"Promise Technology, Inc."))
        || highpoint(head, tail)
        || last_sectors(tail, 512).any(|sector| silicon(sector) || via(sector) || jmicron(sector));
    other.then_some("a member of a firmware RAID array")
}

const INTEL: &[u8] = b"Intel Raid ISM Cfg Sig. ";

/// HighPoint: the magic of 37x is near the start, that of 45x is eleven sectors before the end (dmraid, hpt37x.h and
/// hpt45x.h).
fn highpoint(head: &[u8], tail: &[u8]) -> bool {
    let is = |bytes: &[u8], at| {
        [0x5a78_16f0_u32, 0x5a78_16f3, 0x5a78_16fd].iter().any(|m| has(bytes, at, &m.to_le_bytes()))
    };
    is(head, 9 * 512 + 32) || tail.len().checked_sub(11 * 512).is_some_and(|at| is(tail, at))
}

/// Silicon Image Medley: a magic at 0x60, and words before 0x140 whose sum is 0 (dmraid, sil.h).
fn silicon(sector: &[u8]) -> bool {
    let sum = || (0..160).fold(0u16, |sum, word| sum.wrapping_add(u16_at(sector, word * 2)));
    u32_at(sector, 0x60) == 0x2f00_0000 && sum() == 0
}

/// VIA: the magic of a boot sector at the start, and the sum of the first 50 bytes after them (dmraid, via.h).
fn via(sector: &[u8]) -> bool {
    let sum = sector[..50].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    u16_at(sector, 0) == 0xaa55 && sector[2] <= 2 && sum == sector[50]
}

/// JMicron: two letters, and 64 words whose sum is 0 or 1 (dmraid, jm.h).
fn jmicron(sector: &[u8]) -> bool {
    let sum = (0..64).fold(0u16, |sum, word| sum.wrapping_add(u16_at(sector, word * 2)));
    sector.starts_with(b"JM") && sum <= 1
}
