//! Members of other programs' RAID arrays, most of which write to the drive's end.

use super::{ends, has, last_sectors, sectors};
use crate::bytes::{get, u16_at, u32_at};

pub(super) fn find(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    sectors(head)
        .chain(sectors(tail))
        .find_map(md)
        .or_else(|| last_sectors(tail, 8192).find_map(drbd))
        .or_else(|| firmware(head, tail))
}

/// Linux md: magic, then the major version, which is 0 or 1 (include/uapi/linux/raid/md_p.h). Versions 0.90 and 1.0
/// are near the end, 1.1 at the start, 1.2 at 4 KiB; 0.90 is in the byte order of the machine that made it.
fn md(sector: &[u8]) -> Option<&'static str> {
    const MAGIC: u32 = 0xa92b_4efc;
    let little = u32_at(sector, 0) == MAGIC && u32_at(sector, 4) <= 1;
    let big = get::<4>(sector, 0) == MAGIC.to_be_bytes() && get::<3>(sector, 4) == [0; 3];
    (little || big).then_some("a member of a Linux md array")
}

/// DRBD's internal meta data, 4 KiB before the end rounded down to 4 KiB: big-endian magics of versions 8.3, 8.4 and 9
/// (drbd_int.h, struct `meta_data_on_disk`), behind seven 64-bit fields and the flags.
fn drbd(sector: &[u8]) -> Option<&'static str> {
    let magic = u32::from_be_bytes(get(sector, 60));
    (0x8374_026b..=0x8374_026d).contains(&magic).then_some("a DRBD device")
}

/// RAID of mainboards and host adapters.
fn firmware(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    // Intel, in the last but one block of 512 or 4096 bytes (mdadm, super-intel.c).
    if ends(tail, 1024, INTEL) || ends(tail, 8192, INTEL) {
        return Some("a member of an Intel firmware RAID array");
    }
    // SNIA DDF 2.0, section 6: the anchor in the last block, and where adapters keep it beside another structure.
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

/// HighPoint 37x near the start, 45x eleven sectors before the end (dmraid, hpt37x.h and hpt45x.h).
fn highpoint(head: &[u8], tail: &[u8]) -> bool {
    let is = |bytes: &[u8], at| {
        [0x5a78_16f0_u32, 0x5a78_16f3, 0x5a78_16fd].iter().any(|m| has(bytes, at, &m.to_le_bytes()))
    };
    is(head, 9 * 512 + 32) || tail.len().checked_sub(11 * 512).is_some_and(|at| is(tail, at))
}

/// Silicon Image Medley: magic at 0x60, and a sum over what is before 0x13e that comes to nothing (dmraid, sil.h).
fn silicon(sector: &[u8]) -> bool {
    let sum = || (0..160).fold(0u16, |sum, word| sum.wrapping_add(u16_at(sector, word * 2)));
    u32_at(sector, 0x60) == 0x2f00_0000 && sum() == 0
}

/// VIA: a boot-sector magic at the wrong end, and the sum of 50 bytes behind them (dmraid, via.h).
fn via(sector: &[u8]) -> bool {
    let sum = sector[..50].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    u16_at(sector, 0) == 0xaa55 && sector[2] <= 2 && sum == sector[50]
}

/// JMicron: two letters, and 64 words whose sum is 0 or 1 (dmraid, jm.h).
fn jmicron(sector: &[u8]) -> bool {
    let sum = (0..64).fold(0u16, |sum, word| sum.wrapping_add(u16_at(sector, word * 2)));
    sector.starts_with(b"JM") && sum <= 1
}
