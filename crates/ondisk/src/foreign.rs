//! Foreign data on a drive, recognized by well-known signatures.
//!
//! The check protects operators from accidental loss of data. It does not prove that a drive is empty.
//! `docs/decisions/0010-own-signatures.md` records why Strake has its own table instead of libblkid. A test creates
//! real signatures with the real tools and compares the results with those of libblkid.

mod fixed;
mod partition;
mod raid;
mod shaped;

use std::collections::BTreeMap;
use std::fmt;

use crate::gpt::protective_mbr;
use crate::layout::{
    AreaLayout, BITMAP_BYTES, BITMAP_OFFSET, BITMAPS_MAX, Copy, HEAD_BYTES, RING_SLOTS, SLOT_BYTES,
    TAIL_BYTES,
};
use crate::limits::FOREIGN_TAIL_BYTES;
use crate::superblock::{MAGIC, Superblock};

/// Bytes from the start of a drive that contain all known signatures. The signature of VMFS is at 2 MiB, and all others
/// are before it.
pub const FOREIGN_HEAD_BYTES: u64 = (2 << 20) + 4096;

// An erasure of these bytes changes no data of an array.
const _: () = assert!(FOREIGN_HEAD_BYTES <= HEAD_BYTES && FOREIGN_TAIL_BYTES <= TAIL_BYTES);

/// The content found on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// A member of the Strake array with this name, which was not destroyed.
    Strake(String),
    /// A valid Strake label of an unknown format.
    StrakeUnknown,
    /// Strake labels, none of which is valid.
    StrakeDamaged,
    /// A member of the Strake array with this name, which was destroyed. An undelete is possible until the drive is
    /// written.
    Destroyed(String),
    /// Data of another program, with the usual name of the format.
    Other(&'static str),
}

impl Foreign {
    /// True except for a destroyed array. The content may be needed, and the drive may be used only after an explicit
    /// request.
    #[must_use]
    pub const fn is_obstacle(&self) -> bool {
        match self {
            Self::Strake(_) | Self::StrakeUnknown | Self::StrakeDamaged | Self::Other(_) => true,
            Self::Destroyed(_) => false,
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strake(name) => write!(f, "a member of Strake array {name}"),
            Self::StrakeUnknown => f.write_str("a Strake label that this version cannot read"),
            Self::StrakeDamaged => f.write_str("damaged Strake labels"),
            Self::Destroyed(name) => write!(f, "a member of the destroyed Strake array {name}"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

/// Identifies the content of the first and the last bytes of a drive, or returns `None` if the content is not known.
/// [`FOREIGN_HEAD_BYTES`] and [`FOREIGN_TAIL_BYTES`] are sufficient; for a smaller drive, both arguments are the whole
/// drive. The partition table of Strake does not count.
///
/// Content in use has precedence: the label of a destroyed array is returned only if no other content is found.
#[must_use]
pub fn foreign_signature(head: &[u8], tail: &[u8]) -> Option<Foreign> {
    OnDrive::read(head, tail).named()
}

/// All known content of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnDrive {
    /// The newest label of each Strake array, in the order of the identifiers of the arrays. The address of such a
    /// label is arbitrary. The label therefore only identifies the array of the drive, and no array is assembled from
    /// it.
    pub labels: Vec<Superblock>,
    /// True if the drive has a valid label of an unknown format.
    pub unknown: bool,
    /// True if the drive has labels that are not valid.
    pub damaged: bool,
    /// True if at least one end of the drive has the partition table of Strake.
    pub claimed: bool,
    /// The usual name of a format of another program.
    pub other: Option<&'static str>,
}

impl OnDrive {
    /// Reads the content of the first and last bytes of a drive; the arguments are those of [`foreign_signature`].
    #[must_use]
    pub fn read(head: &[u8], tail: &[u8]) -> Self {
        let mut found = Self {
            claimed: partition::is_claimed(head, tail),
            other: other(head, tail),
            ..Self::default()
        };
        let mut newest: BTreeMap<_, Superblock> = BTreeMap::new();
        for sector in sectors(head).chain(sectors(tail)).filter(|sector| sector.starts_with(&MAGIC))
        {
            let Some(record) = sector.get(..SLOT_BYTES) else { continue };
            match Superblock::decode_anywhere(record) {
                Ok(label) => {
                    let best = newest.entry(label.array).or_insert_with(|| label.clone());
                    if best.generation < label.generation {
                        *best = label;
                    }
                }
                Err(error) => {
                    found.unknown |= error.is_unknown();
                    found.damaged |= !error.is_unknown();
                }
            }
        }
        found.labels = newest.into_values().collect();
        found
    }

    /// Returns the content with the highest precedence: a label in use or of an unknown format, damaged labels, data of
    /// another program, then a label of a destroyed array.
    #[must_use]
    pub fn named(&self) -> Option<Foreign> {
        let name = |destroyed| {
            let of_kind = self.labels.iter().find(|label| label.destroyed == destroyed);
            of_kind.map(|label| label.name.to_string())
        };
        let unknown = self.unknown.then_some(Foreign::StrakeUnknown);
        let living = unknown.or_else(|| name(false).map(Foreign::Strake));
        let damaged = (self.damaged && self.labels.is_empty()).then_some(Foreign::StrakeDamaged);
        let other = self.other.map(Foreign::Other);
        living.or(damaged).or(other).or_else(|| name(true).map(Foreign::Destroyed))
    }
}

/// Returns the data that other software wrote on a member of `device_bytes` after the labels: the labels are in two
/// rings, and many tools write only other blocks. `block_bytes` is the block size of the device; the other arguments
/// are those of [`foreign_signature`]. Data that an array writes itself and the partition table of Strake do not count.
/// The bitmap area and ring slots that start with the magic of a label are ignored, even if they are not valid, because
/// the data of hosts determines bits there. A result is therefore only an indication, and `None` proves nothing.
#[must_use]
pub fn written_over(
    head: &[u8],
    tail: &[u8],
    device_bytes: u64,
    block_bytes: u32,
) -> Option<&'static str> {
    let layout = AreaLayout::of(device_bytes)?;
    let (mut head, mut tail) = (head.to_vec(), tail.to_vec());
    let mbr = protective_mbr(device_bytes, block_bytes);
    if head.starts_with(&mbr) {
        // The MBR can exist without the table that it protects.
        head[..mbr.len()].fill(0);
    }
    let bitmaps_end = (BITMAP_OFFSET + BITMAPS_MAX * BITMAP_BYTES).min(head.len() as u64);
    head.get_mut(BITMAP_OFFSET as usize..bitmaps_end as usize)?.fill(0);
    let tail_at = device_bytes.checked_sub(tail.len() as u64)?;
    blank_labels(&mut head, layout.ring_range(Copy::Head).0);
    blank_labels(&mut tail, layout.ring_range(Copy::Tail).0.checked_sub(tail_at)?);
    other(&head, &tail)
}

/// Returns true if the last blocks of a drive contain the partition table of Strake; `tail` is the last 64 KiB or more
/// of the drive.
#[must_use]
pub fn is_claimed_behind(tail: &[u8]) -> bool {
    partition::is_claimed(&[], tail)
}

/// Clears the slots of the ring at `at` that start with the magic of a label.
fn blank_labels(bytes: &mut [u8], at: u64) {
    let ring = bytes.get_mut(at as usize..).unwrap_or_default();
    let slots = ring.chunks_exact_mut(SLOT_BYTES).take(RING_SLOTS as usize);
    slots.filter(|slot| slot.starts_with(&MAGIC)).for_each(|slot| slot.fill(0));
}

/// Searches for containers before the formats that they may contain, and for partition tables last, because the boot
/// sector of a file system looks like a partition table.
fn other(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    raid::find(head, tail)
        .or_else(|| fixed::find(head))
        .or_else(|| shaped::find(head, tail))
        .or_else(|| partition::find(head, tail))
}

fn has(bytes: &[u8], at: usize, magic: &[u8]) -> bool {
    at.checked_add(magic.len()).is_some_and(|end| bytes.get(at..end) == Some(magic))
}

/// Returns true if `magic` is `from_end` bytes before the end of the drive.
fn ends(tail: &[u8], from_end: usize, magic: &[u8]) -> bool {
    tail.len().checked_sub(from_end).is_some_and(|at| has(tail, at, magic))
}

/// Returns the rest of `bytes` from each multiple of 512 bytes, as long as at least 512 bytes remain.
fn sectors(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..bytes.len()).step_by(512).map(|at| &bytes[at..]).filter(|rest| rest.len() >= 512)
}

/// Returns the sectors that start in the last `bytes` bytes of the drive.
fn last_sectors(tail: &[u8], bytes: usize) -> impl Iterator<Item = &[u8]> {
    sectors(&tail[tail.len().saturating_sub(bytes)..])
}
