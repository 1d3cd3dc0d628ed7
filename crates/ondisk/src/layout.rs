//! The positions of the areas of a member: head area, data area, tail area.
//!
//! ```text
//! 0        64 KiB      320 KiB  1 MiB             6 MiB      16 MiB          end-4 MiB   end-512 KiB      end
//! | GPT .. | head ring | unused | bitmap pages .. | redo log | data ........ | reserved | tail ring .. GPT |
//! ```
//! The end is the size of the device, rounded down to 4 KiB. Only the backup GPT is outside, because UEFI requires it
//! in the last blocks.

use crate::bad_blocks::BAD_SLOT_BYTES;
use crate::bitmap::{Bitmap, PAGES_PER_BITMAP};
use crate::config_record::CONFIG_SLOT_BYTES;
use crate::limits::MEMBERS_MAX;
use crate::slot::{PAGE_BYTES, Slots};

/// Bytes of one ring slot, and of one label.
pub const SLOT_BYTES: usize = 4096;
/// Slots in one ring. A label of generation `g` is in slot `g mod 64`.
pub const RING_SLOTS: u64 = 64;
/// Bytes before the data area.
pub const HEAD_BYTES: u64 = 16 << 20;
/// Bytes after the data area, up to the end of the device, rounded down to 4 KiB.
pub const TAIL_BYTES: u64 = 4 << 20;
/// Bytes of the smallest device that can be a member: both areas and 1 MiB of data.
pub const MEMBER_BYTES_MIN: u64 = HEAD_BYTES + TAIL_BYTES + (1 << 20);

/// Bytes of one ring.
pub const RING_BYTES: u64 = RING_SLOTS * SLOT_BYTES as u64;
/// Offset of the head ring, in bytes from the start of the device. The head ring is within the first MiB, which tools
/// read to identify the content of a device.
pub const HEAD_RING_OFFSET: u64 = 64 << 10;
/// Offset of the tail ring, in bytes before the end of the device, rounded down to 4 KiB.
pub const TAIL_RING_FROM_END: u64 = 512 << 10;
/// Offset of the bitmap pages, in bytes from the start of the device.
pub const BITMAP_OFFSET: u64 = 1 << 20;
/// Maximum number of bitmaps: the write-intent bitmap, the bitmap of written regions, one bitmap per member, and the
/// bitmap of regions in doubt. The rest of the head is reserved.
pub const BITMAPS_MAX: u64 = 3 + MEMBERS_MAX as u64;

/// Bytes of one bitmap: its pages, each with two slots.
pub const BITMAP_BYTES: u64 = PAGES_PER_BITMAP as u64 * 2 * PAGE_BYTES as u64;
/// Offset of the record of the control plane, in bytes from the start of the device.
pub const CONFIG_OFFSET: u64 = 4 << 20;

/// Offset of the bad block list, in bytes from the start of the device. It has two slots.
pub const BAD_BLOCKS_OFFSET: u64 = 5 << 20;

/// Offset of the redo log, in bytes from the start of the device.
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
// The backup GPT has at most 5 blocks of 4 KiB, and must not overlap the ring.
const _: () = assert!(TAIL_RING_FROM_END - RING_BYTES >= 5 * ALIGN);

/// The ring of a member that contains a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Copy {
    /// The ring before the data area. It is written first.
    Head,
    /// The ring after the data area. It is written second.
    Tail,
}

impl Copy {
    /// Returns the code of the copy in the self-address of a label.
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

/// The areas of one member. They depend only on the size of the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaLayout {
    /// The bytes of the device, rounded down to 4 KiB.
    end: u64,
}

impl AreaLayout {
    /// Returns the areas of a device of `device_bytes`, or `None` if the device is smaller than [`MEMBER_BYTES_MIN`].
    #[must_use]
    pub const fn of(device_bytes: u64) -> Option<Self> {
        if device_bytes < MEMBER_BYTES_MIN {
            return None;
        }
        Some(Self { end: device_bytes & !(ALIGN - 1) })
    }

    /// Returns the byte offset of the slot for a label of `generation`.
    #[must_use]
    pub const fn slot_offset(&self, copy: Copy, generation: u64) -> u64 {
        self.ring(copy).at(generation)
    }

    /// Returns the byte offset and the bytes of a whole ring.
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

    /// Returns the byte offset and the bytes of the area after the data area, up to the end of the device, rounded down
    /// to 4 KiB.
    #[must_use]
    pub const fn tail_range(&self) -> (u64, u64) {
        (self.end - TAIL_BYTES, TAIL_BYTES)
    }

    /// Returns the byte offset of the slot for `page` of `bitmap` at `sequence`.
    ///
    /// # Panics
    /// The function panics if `page` is not below [`PAGES_PER_BITMAP`].
    #[must_use]
    pub const fn bitmap_page_offset(&self, bitmap: Bitmap, page: u32, sequence: u64) -> u64 {
        assert!(page < PAGES_PER_BITMAP, "a plane has fewer pages");
        let pair = bitmap.code() as u64 * PAGES_PER_BITMAP as u64 + page as u64;
        Slots::pair(BITMAP_OFFSET + pair * 2 * PAGE_BYTES as u64, PAGE_BYTES).at(sequence)
    }

    /// Returns the byte offset of the slot for a record of the control plane at `sequence`.
    #[must_use]
    pub const fn config_offset(&self, sequence: u64) -> u64 {
        CONFIG.at(sequence)
    }

    /// Returns the byte offset of the slot for a bad block list at `sequence`.
    #[must_use]
    pub const fn bad_blocks_offset(&self, sequence: u64) -> u64 {
        BAD_BLOCKS.at(sequence)
    }

    /// Returns the byte offsets and the bytes of the areas in which the highest sequence of all members counts: bitmap
    /// pages, record of the control plane, bad block list. Old content of these areas must be erased before a drive is
    /// added to an array.
    #[must_use]
    pub const fn notes_ranges(&self) -> [(u64, u64); 3] {
        [(BITMAP_OFFSET, BITMAPS_MAX * BITMAP_BYTES), CONFIG.range(), BAD_BLOCKS.range()]
    }

    /// Returns the byte offset of the data area.
    #[must_use]
    pub const fn data_offset(&self) -> u64 {
        HEAD_BYTES
    }

    /// Returns the bytes of the data area, a multiple of 4 KiB. In format 2, these bytes contain the data and the
    /// [areas](crate::areas).
    #[must_use]
    pub const fn data_bytes(&self) -> u64 {
        self.end - HEAD_BYTES - TAIL_BYTES
    }
}
