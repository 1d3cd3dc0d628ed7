//! Foreign data on a drive, recognized by well-known signatures.
//!
//! The check is a courtesy to people about to lose data, not a proof that a drive is empty. Why Strake keeps its own
//! table instead of calling libblkid is recorded in `docs/decisions/0010-own-signatures.md`; a test makes the real
//! thing with the real tools and compares the answers with libblkid's.

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

/// Bytes from a drive's start that show everything known here: VMFS is at 2 MiB, everything else before it.
pub const FOREIGN_HEAD_BYTES: u64 = (2 << 20) + 4096;

// Erasing these bytes touches no data of an array.
const _: () = assert!(FOREIGN_HEAD_BYTES <= HEAD_BYTES && FOREIGN_TAIL_BYTES <= TAIL_BYTES);

/// What was found on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// A member of the Strake array of this name, which was not destroyed.
    Strake(String),
    /// A sound Strake label of a format this program does not know.
    StrakeUnknown,
    /// Strake labels, none of which is sound.
    StrakeDamaged,
    /// A member of the Strake array of this name, which was destroyed and can be brought back until the drive is
    /// written.
    Destroyed(String),
    /// Something of another program, by its usual name.
    Other(&'static str),
}

impl Foreign {
    /// True unless it is something its owner has given up: what is on the drive may be needed, and the drive may be
    /// taken only on explicit request.
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

/// Names what the first and the last bytes of a drive ([`FOREIGN_HEAD_BYTES`] and [`FOREIGN_TAIL_BYTES`] show all
/// there is to find; a smaller drive is given whole, twice) hold, or `None` when nothing known is there. Strake's own
/// partition table counts as nothing.
///
/// What is in use is named before what is given up: a destroyed array's label only when there is nothing else.
#[must_use]
pub fn foreign_signature(head: &[u8], tail: &[u8]) -> Option<Foreign> {
    OnDrive::read(head, tail).named()
}

/// Everything known that is on a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnDrive {
    /// The newest label of each Strake array, in the order of the arrays' identities. It may be anywhere, so it tells
    /// whose the drive was and is never assembled from.
    pub labels: Vec<Superblock>,
    /// A sound label of a format this program does not know is there.
    pub unknown: bool,
    /// Labels that are not sound are there.
    pub damaged: bool,
    /// Strake's own partition table is there, at one end at least.
    pub claimed: bool,
    /// Something of another program, by its usual name.
    pub other: Option<&'static str>,
}

impl OnDrive {
    /// What is in the first and last bytes of a drive; arguments as in [`foreign_signature`].
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

    /// The one thing of it to name: a label in use, something of another program, then what is left of labels.
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

/// What other software has put on a member of `device_bytes` since it was labelled: labels lie in two rings, and many a
/// tool writes beside them. `block_bytes` is the device's block size; the other arguments are as in
/// [`foreign_signature`]. Nothing that an array writes by itself counts, and neither does Strake's own partition table:
/// valid or not, what is in the bitmap area and in ring slots that begin as a label does is passed over, since the data
/// of clients decides bits there. The answer is therefore only a sign; its absence proves nothing.
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
        // It may have outlived the table it protects.
        head[..mbr.len()].fill(0);
    }
    let bitmaps_end = (BITMAP_OFFSET + BITMAPS_MAX * BITMAP_BYTES).min(head.len() as u64);
    head.get_mut(BITMAP_OFFSET as usize..bitmaps_end as usize)?.fill(0);
    let tail_at = device_bytes.checked_sub(tail.len() as u64)?;
    blank_labels(&mut head, layout.ring_range(Copy::Head).0);
    blank_labels(&mut tail, layout.ring_range(Copy::Tail).0.checked_sub(tail_at)?);
    other(&head, &tail)
}

/// Whether Strake's own partition table is in the last blocks of a drive; `tail` is its last 64 KiB or more.
#[must_use]
pub fn is_claimed_behind(tail: &[u8]) -> bool {
    partition::is_claimed(&[], tail)
}

/// Empties the slots of the ring at `at` that begin as a label does.
fn blank_labels(bytes: &mut [u8], at: u64) {
    let ring = bytes.get_mut(at as usize..).unwrap_or_default();
    let slots = ring.chunks_exact_mut(SLOT_BYTES).take(RING_SLOTS as usize);
    slots.filter(|slot| slot.starts_with(&MAGIC)).for_each(|slot| slot.fill(0));
}

/// Containers come before what they may contain, partition tables last: a file system's boot sector looks like one.
fn other(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    raid::find(head, tail)
        .or_else(|| fixed::find(head))
        .or_else(|| shaped::find(head, tail))
        .or_else(|| partition::find(head, tail))
}

fn has(bytes: &[u8], at: usize, magic: &[u8]) -> bool {
    at.checked_add(magic.len()).is_some_and(|end| bytes.get(at..end) == Some(magic))
}

/// Whether `magic` stands `from_end` bytes before the drive's end.
fn ends(tail: &[u8], from_end: usize, magic: &[u8]) -> bool {
    tail.len().checked_sub(from_end).is_some_and(|at| has(tail, at, magic))
}

/// Everything that begins at a multiple of 512 bytes from the start of `bytes`, as long as it goes.
fn sectors(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..bytes.len()).step_by(512).map(|at| &bytes[at..]).filter(|rest| rest.len() >= 512)
}

/// Sectors that begin in the last `bytes` bytes of the drive.
fn last_sectors(tail: &[u8], bytes: usize) -> impl Iterator<Item = &[u8]> {
    sectors(&tail[tail.len().saturating_sub(bytes)..])
}
