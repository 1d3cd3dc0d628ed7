//! The damage: its position and its bytes.

use std::fmt;

use strake_ondisk::{REDO_HEADER_BYTES, RedoRecord, decode_redo, redo_ring};

use super::super::area::{Area, areas};
use super::super::image::Image;
use super::super::record::Record;
use crate::rng::Rng;

/// The kind of bytes that overwrite a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Garbage {
    Random,
    Zeroes,
    Ones,
    /// Bytes from elsewhere on some member.
    Elsewhere,
    /// The bytes of another member at the same offset.
    Neighbour,
    /// The bytes at the start of the history.
    Old,
    /// One flipped bit.
    BitFlip,
}

impl Garbage {
    const ALL: [Self; 7] = [
        Self::Random,
        Self::Zeroes,
        Self::Ones,
        Self::Elsewhere,
        Self::Neighbour,
        Self::Old,
        Self::BitFlip,
    ];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Zeroes => "zeroes",
            Self::Ones => "ones",
            Self::Elsewhere => "elsewhere",
            Self::Neighbour => "neighbour",
            Self::Old => "old",
            Self::BitFlip => "bit_flip",
        }
    }
}

/// A damaged piece of a member.
pub(super) struct Wound {
    pub(super) member: usize,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) area: Area,
    pub(super) kind: Garbage,
    /// Records of the redo log that overlap the damage.
    pub(super) records: Vec<RedoRecord>,
}

impl Wound {
    /// Draws a damage of one of the present members.
    pub(super) fn draw(record: &Record, images: &[Image], absent: u64, rng: &mut Rng) -> Self {
        let here: Vec<usize> = (0..images.len()).filter(|at| absent & 1 << at == 0).collect();
        let member = rng.pick(&here);
        let ranges = areas(record);
        let (_, range) = rng.pick(&ranges);
        // 4 KiB, aligned or not, or one block.
        let (len, align) = rng.pick(&[(4096, 4096), (4096, 512), (512, 512)]);
        let offset = place(&images[member], range, (len, align), rng);
        let holds = |(_, (from, to)): &&(Area, (u64, u64))| offset < *to && offset + len > *from;
        let area = ranges[..ranges.len() - 1].iter().find(holds).map_or(Area::Other, |(a, _)| *a);
        let kind = rng.pick(&Garbage::ALL);
        let mut bytes = vec![0; len as usize];
        match kind {
            Garbage::Random => {
                bytes.chunks_mut(16).for_each(|part| part.copy_from_slice(&rng.bytes16()));
            }
            Garbage::Zeroes => {}
            Garbage::Ones => bytes.fill(0xff),
            Garbage::Elsewhere => {
                let (_, range) = rng.pick(&ranges);
                let other = &images[rng.pick(&here)];
                other.read(place(other, range, (len, 512), rng), &mut bytes);
            }
            Garbage::Neighbour => images[rng.pick(&here)].read(offset, &mut bytes),
            Garbage::Old => record.base[member].read(offset, &mut bytes),
            Garbage::BitFlip => {
                images[member].read(offset, &mut bytes);
                bytes[rng.below(len) as usize] ^= 1 << rng.below(8);
            }
        }
        let records = records(record, &images[member], member, (offset, offset + len));
        Self { member, offset, bytes, area, kind, records }
    }

    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// The records in a member's redo log whose header or content overlaps a range of bytes.
fn records(
    record: &Record,
    image: &Image,
    member: usize,
    (from, to): (u64, u64),
) -> Vec<RedoRecord> {
    let (start, bytes) = redo_ring(0, 1);
    if to <= start || from >= start + bytes {
        return Vec::new();
    }
    let size = record.geometry.block_size();
    let mut found = Vec::new();
    for offset in (start..to.min(start + bytes)).step_by(REDO_HEADER_BYTES) {
        let mut header = [0; REDO_HEADER_BYTES];
        image.read(offset, &mut header);
        let Some(redo) = decode_redo(&header, offset) else { continue };
        let own = redo.parts().iter().find(|part| part.slot.at() == member);
        let payload = own.map_or(0, |part| u64::from(part.blocks) << size.shift());
        if offset + REDO_HEADER_BYTES as u64 + payload > from {
            found.push(redo);
        }
    }
    found
}

impl fmt::Display for Wound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes at {} of member {} ({}) hold {}",
            self.bytes.len(),
            self.offset,
            self.member,
            self.area.word(),
            self.kind.word()
        )
    }
}

/// A position in `range`, mostly one with data.
fn place(image: &Image, (from, to): (u64, u64), (len, align): (u64, u64), rng: &mut Rng) -> u64 {
    let most = to - len;
    let any = from + rng.below((most - from) / align + 1) * align;
    if rng.one_in(4) {
        return any;
    }
    let data = image.data_within(any, to).or_else(|| image.data_within(from, to));
    let Some((start, end)) = data else { return any };
    let within = start + rng.below((end - start).div_ceil(align)) * align;
    within.min(most)
}
