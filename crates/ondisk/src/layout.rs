//! Where things are on a member: head area, data area, tail area.
//!
//! ```text
//! 0        64 KiB      320 KiB  1 MiB             6 MiB      16 MiB          end-4 MiB   end-512 KiB      end
//! | GPT .. | head ring | unused | bitmap pages .. | redo log | data ........ | reserved | tail ring .. GPT |
//! ```
//! The end is the device's size rounded down to 4 KiB, except for the backup GPT, which UEFI wants in the very
//! last blocks.

use crate::bad_blocks::BAD_SLOT_BYTES;
use crate::bitmap::{Bitmap, PAGES_PER_BITMAP};
use crate::config_record::CONFIG_SLOT_BYTES;
use crate::limits::MEMBERS_MAX;
use crate::slot::{PAGE_BYTES, Slots};

/// Bytes of one ring slot, and of one label.
pub const SLOT_BYTES: usize = 4096;
/// Slots in one ring. A label of generation `g` is in slot `g mod 64`.
pub const RING_SLOTS: u64 = 64;
/// Bytes in front of the data area.
pub const HEAD_BYTES: u64 = 16 << 20;
/// Bytes behind the data area, counted from the device's end rounded down to 4 KiB.
pub const TAIL_BYTES: u64 = 4 << 20;
/// Bytes of the smallest device that can be a member: both areas and 1 MiB of data.
pub const MEMBER_BYTES_MIN: u64 = HEAD_BYTES + TAIL_BYTES + (1 << 20);

/// Bytes of one ring.
pub const RING_BYTES: u64 = RING_SLOTS * SLOT_BYTES as u64;
/// Where the head ring begins, in bytes from the device's start. Within the first MiB, which is what tools read
/// to see what is on a device.
pub const HEAD_RING_OFFSET: u64 = 64 << 10;
/// Where the tail ring begins, in bytes before the device's end rounded down to 4 KiB.
pub const TAIL_RING_FROM_END: u64 = 512 << 10;
/// Where the bitmap pages begin, in bytes from the device's start.
pub const BITMAP_OFFSET: u64 = 1 << 20;
/// Bitmaps for which there is room before the rest of the head, which is reserved: write-intent, written, one for each
/// member, and what is in doubt.
pub const BITMAPS_MAX: u64 = 3 + MEMBERS_MAX as u64;

/// Bytes of one bitmap: its pages, each with two slots.
pub const BITMAP_BYTES: u64 = PAGES_PER_BITMAP as u64 * 2 * PAGE_BYTES as u64;
/// Where the record of the control plane begins, in bytes from the device's start.
pub const CONFIG_OFFSET: u64 = 4 << 20;

/// Where the list of bad blocks begins, in bytes from the device's start: two slots.
pub const BAD_BLOCKS_OFFSET: u64 = 5 << 20;

/// Where the redo log begins, in bytes from the device's start.
pub const LOG_OFFSET: u64 = 6 << 20;
/// Bytes of the redo log: the rest of the head.
pub const LOG_BYTES: u64 = HEAD_BYTES - LOG_OFFSET;

const ALIGN: u64 = 4096;
const CONFIG: Slots = Slots::pair(CONFIG_OFFSET, CONFIG_SLOT_BYTES);
const BAD_BLOCKS: Slots = Slots::pair(BAD_BLOCKS_OFFSET, BAD_SLOT_BYTES as usize);

const _: () = assert!(HEAD_RING_OFFSET + RING_BYTES <= BITMAP_OFFSET);
const _: () = assert!(BITMAP_OFFSET + BITMAPS_MAX * BITMAP_BYTES <= CONFIG_OFFSET);
const _: () = assert!(CONFIG_OFFSET + CONFIG.range().1 <= BAD_BLOCKS_OFFSET);
const _: () = assert!(BAD_BLOCKS_OFFSET + BAD_BLOCKS.range().1 <= LOG_OFFSET);
const _: () = assert!(TAIL_RING_FROM_END <= TAIL_BYTES);
// The backup GPT is at most 5 blocks of 4 KiB and must not reach into the ring.
const _: () = assert!(TAIL_RING_FROM_END - RING_BYTES >= 5 * ALIGN);

/// Which of the two rings of a member a label is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Copy {
    /// The ring in front of the data area, written first.
    Head,
    /// The ring behind the data area, written second.
    Tail,
}

impl Copy {
    /// The byte that stands for the copy in a label's self-address.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Head => 0,
            Self::Tail => 1,
        }
    }
}

impl std::fmt::Display for Copy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Head => "head",
            Self::Tail => "tail",
        })
    }
}

/// The areas of one member, derived from its size alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaLayout {
    /// The device's bytes, rounded down to 4 KiB.
    end: u64,
}

impl AreaLayout {
    /// The areas of a device of `device_bytes`, or `None` when it is smaller than [`MEMBER_BYTES_MIN`].
    #[must_use]
    pub const fn of(device_bytes: u64) -> Option<Self> {
        if device_bytes < MEMBER_BYTES_MIN {
            return None;
        }
        Some(Self { end: device_bytes & !(ALIGN - 1) })
    }

    /// Byte offset of the slot for a label of `generation`.
    #[must_use]
    pub const fn slot_offset(&self, copy: Copy, generation: u64) -> u64 {
        self.ring(copy).at(generation)
    }

    /// Byte offset and bytes of a whole ring.
    #[must_use]
    pub const fn ring_range(&self, copy: Copy) -> (u64, u64) {
        self.ring(copy).range()
    }

    const fn ring(&self, copy: Copy) -> Slots {
        let offset = match copy {
            Copy::Head => HEAD_RING_OFFSET,
            Copy::Tail => self.end - TAIL_RING_FROM_END,
        };
        Slots { offset, bytes: SLOT_BYTES as u64, count: RING_SLOTS }
    }

    /// Byte offset and bytes of everything behind the data area, up to the device's end rounded down to 4 KiB.
    #[must_use]
    pub const fn tail_range(&self) -> (u64, u64) {
        (self.end - TAIL_BYTES, TAIL_BYTES)
    }

    /// Byte offset of the slot for `page` of `bitmap` at `sequence`.
    ///
    /// # Panics
    /// When `page` is not below [`PAGES_PER_BITMAP`].
    #[must_use]
    pub const fn bitmap_page_offset(&self, bitmap: Bitmap, page: u32, sequence: u64) -> u64 {
        assert!(page < PAGES_PER_BITMAP, "a plane has fewer pages");
        let pair = bitmap.code() as u64 * PAGES_PER_BITMAP as u64 + page as u64;
        Slots::pair(BITMAP_OFFSET + pair * 2 * PAGE_BYTES as u64, PAGE_BYTES).at(sequence)
    }

    /// Byte offset of the slot for a record of the control plane at `sequence`.
    #[must_use]
    pub const fn config_offset(&self, sequence: u64) -> u64 {
        CONFIG.at(sequence)
    }

    /// Byte offset of the slot for a list of bad blocks at `sequence`.
    #[must_use]
    pub const fn bad_blocks_offset(&self, sequence: u64) -> u64 {
        BAD_BLOCKS.at(sequence)
    }

    /// Byte offset and bytes of the areas of which the highest sequence on any member counts: bitmap pages, record of
    /// the control plane, bad blocks. Whatever another life of the drive left there must go before it joins an array.
    #[must_use]
    pub const fn notes_ranges(&self) -> [(u64, u64); 3] {
        [(BITMAP_OFFSET, BITMAPS_MAX * BITMAP_BYTES), CONFIG.range(), BAD_BLOCKS.range()]
    }

    /// Byte offset of the data area.
    #[must_use]
    pub const fn data_offset(&self) -> u64 {
        HEAD_BYTES
    }

    /// Bytes of the data area, a multiple of 4 KiB. In format 2 data and [areas](crate::areas) share them.
    #[must_use]
    pub const fn data_bytes(&self) -> u64 {
        self.end - HEAD_BYTES - TAIL_BYTES
    }
}
