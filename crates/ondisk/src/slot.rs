//! Records with sequences in slots: the slot of a record, the record that counts, and the seal of a page.
//!
//! The record of sequence `s` is in slot `s mod n` of `n`: bitmap pages, lists of bad blocks and the record of the
//! control plane have two slots, labels have 64. Writing a record leaves the `n - 1` before it alone, so a write that
//! is cut short loses none of them. A record in a slot that is not its own was written to the wrong place and counts
//! as damaged. The sound record of the highest sequence counts, of all slots and of all members in sync, because the
//! newer slot of one member may be damaged. The next record gets the sequence after it.
//!
//! No array reaches the sequences above [`SEQUENCE_MAX`] by writing. A record with such a sequence is not usable, and
//! for what data depend on, neither is the record in the other slot, because it is not known to be the newest. So every
//! sequence that a start goes on from can be counted up without a check.

use strake_units::Uuid;

use crate::bytes::{get, put, u32_at, u64_at};

/// Adjacent slots of equal size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    /// Byte offset of the first slot.
    pub(crate) offset: u64,
    /// Bytes of each slot.
    pub(crate) bytes: u64,
    /// Number of slots.
    pub(crate) count: u64,
}

impl Slots {
    /// Two slots of `bytes` bytes at byte offset `offset`.
    pub(crate) const fn pair(offset: u64, bytes: usize) -> Self {
        Self { offset, bytes: bytes as u64, count: 2 }
    }

    /// Byte offset of the slot for the record of `sequence`.
    pub(crate) const fn at(self, sequence: u64) -> u64 {
        self.offset + sequence % self.count * self.bytes
    }

    /// Byte offset and bytes of all slots.
    pub(crate) const fn range(self) -> (u64, u64) {
        (self.offset, self.count * self.bytes)
    }
}

/// A record and its sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequenced<T> {
    /// The sequence.
    pub sequence: u64,
    /// The record.
    pub record: T,
}

/// The greatest sequence of a usable record. A million records a second reach it in 292,000 years.
pub const SEQUENCE_MAX: u64 = u64::MAX / 2;

impl<T> Sequenced<T> {
    /// Returns the record if it is usable. A record with a sequence greater than [`SEQUENCE_MAX`] has no successor.
    #[must_use]
    pub fn usable(self) -> Option<Self> {
        (self.sequence <= SEQUENCE_MAX).then_some(self)
    }

    /// Returns the sequence of the next record, which is written to another slot.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.sequence + 1
    }
}

/// Returns the newer of two records by `sequence`; `known` if both are equally new.
pub fn newer<T, S: Ord>(
    known: Option<T>,
    found: Option<T>,
    sequence: impl Fn(&T) -> S,
) -> Option<T> {
    match (known, found) {
        (Some(known), Some(found)) if sequence(&found) > sequence(&known) => Some(found),
        (known, found) => known.or(found),
    }
}

/// Returns the newest record of the two slots of even and odd sequences; `None` means a slot without a valid record.
/// The caller checks that it is [usable](Sequenced::usable).
#[must_use]
pub fn newest_of<T>([even, odd]: [Option<Sequenced<T>>; 2]) -> Option<Sequenced<T>> {
    let even = even.filter(|record| record.sequence % 2 == 0);
    let odd = odd.filter(|record| record.sequence % 2 == 1);
    newer(even, odd, |record| record.sequence)
}

/// Bytes of one page, header included.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of a page's header: magic, 4 bytes of its kind, half of the array's UUID, sequence, 4 bytes of its kind, CRC.
pub(crate) const PAGE_HEADER_BYTES: usize = 32;

const AT_ARRAY: usize = 8;
const AT_SEQUENCE: usize = 16;
const AT_CRC: usize = 28;

/// Creates a page without content, which the caller must seal.
pub(crate) fn new_page(magic: [u8; 4], array: Uuid, sequence: u64) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    put(&mut page, 0, &magic);
    put(&mut page, AT_ARRAY, &array.0[..8]);
    put(&mut page, AT_SEQUENCE, &sequence.to_le_bytes());
    page
}

/// Seals a complete page.
pub(crate) fn seal_page(page: &mut [u8; PAGE_BYTES]) {
    let crc = page_crc(page);
    put(page, AT_CRC, &crc.to_le_bytes());
}

/// Returns the sequence of a valid page of `array`.
pub(crate) fn page_sequence(page: &[u8], magic: [u8; 4], array: Uuid) -> Option<u64> {
    let sound = page.len() == PAGE_BYTES
        && page[..4] == magic
        && page_crc(page) == u32_at(page, AT_CRC)
        && get::<8>(page, AT_ARRAY) == array.0[..8];
    sound.then(|| u64_at(page, AT_SEQUENCE))
}

/// Returns the CRC-32C of a page without the CRC field.
fn page_crc(page: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&page[..AT_CRC]), &page[PAGE_HEADER_BYTES..])
}
