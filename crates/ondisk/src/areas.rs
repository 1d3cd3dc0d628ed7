//! Areas of format 2: room on every member for what later versions keep there.
//!
//! They follow each other behind the data that the array uses, at the same places on every member:
//!
//! ```text
//! 16 MiB                                                                     end-2 MiB       end
//! | data ........ | float | header log | checksum pages | not used ......... | tail ring .. GPT |
//! ```
//! Nothing reads or writes them yet. What they hold means nothing until the `incompat` bit of the area is set, and a
//! program that does not know that bit refuses the label. So an area may be moved as long as its bit is not set.
//!
//! Of the tail, the 2 MiB in front of those that other programs' signatures are looked for in hold nothing: areas
//! begin to cost room where they need more than that, which is on members of more than about 480 MiB.

use crate::bytes::{get, put, u32_at, u64_at};
use crate::error::{LabelErrorKind, Wanted};
use crate::layout::{AreaLayout, HEAD_BYTES, TAIL_BYTES};
use crate::limits::FOREIGN_TAIL_BYTES;

/// What an area is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AreaKind {
    /// Room for data on their way from one geometry to another.
    Float,
    /// Headers of records: sums and changes of maps.
    HeaderLog,
    /// CRC-32C of each block of the data area.
    Checksums,
}

impl AreaKind {
    /// Every kind, in the order of their places.
    pub const ALL: [Self; AREAS] = [Self::Float, Self::HeaderLog, Self::Checksums];

    /// Its name, as errors say it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Float => "reshape area",
            Self::HeaderLog => "header log",
            Self::Checksums => "checksum pages",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Float => 1,
            Self::HeaderLog => 2,
            Self::Checksums => 3,
        }
    }

    /// Bytes of the area where the array uses `data` bytes of each member, a multiple of 4 KiB.
    ///
    /// The float holds a window of the largest strip at least; the header log is 32 MiB for each TiB; checksums take
    /// 4 bytes of each block of 4 KiB, 992 to a page, and up to half as much again because no page is shared by two
    /// regions.
    #[must_use]
    pub const fn bytes(self, data: u64) -> u64 {
        let (share, least, most) = match self {
            Self::Float => (data / 1024, 1 << 20, 64 << 20),
            Self::HeaderLog => (data / 32_768, 256 << 10, u64::MAX),
            Self::Checksums => (data / 640, 64 << 10, u64::MAX),
        };
        let bytes = if share < least {
            least
        } else if share > most {
            most
        } else {
            share
        };
        bytes.next_multiple_of(ALIGN)
    }
}

/// Kinds of areas.
pub const AREAS: usize = 3;
/// Bytes of the table in a label.
pub(crate) const AREAS_BYTES: usize = AREAS * ROW_BYTES;

const ROW_BYTES: usize = 16;
const ALIGN: u64 = 4096;

/// One area of every member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// What it is for.
    pub kind: AreaKind,
    /// Byte offset from the start of the device.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// The areas of an array of format 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas([Area; AREAS]);

impl Areas {
    /// The areas behind `data` bytes that the array uses of each member.
    #[must_use]
    pub fn behind(data: u64) -> Self {
        let mut offset = (HEAD_BYTES + data).next_multiple_of(ALIGN);
        Self(AreaKind::ALL.map(|kind| {
            let area = Area { kind, offset, bytes: kind.bytes(data) };
            offset += area.bytes;
            area
        }))
    }

    /// Every area, by place.
    pub fn iter(&self) -> impl Iterator<Item = &Area> {
        self.0.iter()
    }

    /// Where the last one ends, in bytes from the start of the device.
    #[must_use]
    pub const fn end(&self) -> u64 {
        let last = &self.0[AREAS - 1];
        last.offset + last.bytes
    }

    pub(crate) fn encode(&self, out: &mut [u8]) {
        for (area, row) in self.0.iter().zip(out.chunks_exact_mut(ROW_BYTES)) {
            row[0] = area.kind.code();
            put(row, 4, &((area.bytes / ALIGN) as u32).to_le_bytes());
            put(row, 8, &area.offset.to_le_bytes());
        }
    }

    /// The table at the start of `bytes` in a label of `generation`, of an array that uses `data` bytes of a member of
    /// `device` bytes.
    pub(crate) fn decode(
        bytes: &[u8],
        data: u64,
        device: u64,
        generation: u64,
    ) -> Result<Self, LabelErrorKind> {
        let limit = device.saturating_sub(FOREIGN_TAIL_BYTES) / ALIGN * ALIGN;
        let mut areas = Self::behind(0);
        let mut free = HEAD_BYTES.saturating_add(data);
        for (area, row) in areas.0.iter_mut().zip(bytes.chunks_exact(ROW_BYTES)) {
            let kind = area.kind;
            let wrong = |name, recorded, wanted| {
                let area = Some(kind);
                Err(LabelErrorKind::Field { name, area, recorded, wanted, generation })
            };
            let [code, reserved @ ..]: [u8; 4] = get(row, 0);
            if code != kind.code() {
                return wrong("kind", code.into(), Wanted::Exactly(kind.code().into()));
            }
            if let Some(byte) = reserved.into_iter().find(|byte| *byte != 0) {
                return wrong("reserved byte", byte.into(), Wanted::Exactly(0));
            }
            area.offset = u64_at(row, 8);
            area.bytes = u64::from(u32_at(row, 4)) * ALIGN;
            if area.offset < free {
                return wrong("offset", area.offset, Wanted::AtLeast(free));
            }
            if !area.offset.is_multiple_of(ALIGN) {
                return wrong("offset", area.offset, Wanted::Known("multiples of 4096"));
            }
            if area.bytes == 0 {
                return wrong("size", 0, Wanted::AtLeast(ALIGN));
            }
            free = area.offset.saturating_add(area.bytes);
            if free > limit {
                return wrong("end", free, Wanted::AtMost(limit));
            }
        }
        Ok(areas)
    }
}

/// Which revision of the format an array has, and what it records with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Constants are not recorded, and there are no areas.
    One,
    /// Both are.
    Two(Areas),
}

impl Format {
    /// Format 2 of an array that uses `data` bytes of each member.
    #[must_use]
    pub fn two(data: u64) -> Self {
        Self::Two(Areas::behind(data))
    }

    /// The same format where the array uses `data` bytes of each member.
    #[must_use]
    pub fn resized(self, data: u64) -> Self {
        match self {
            Self::One => Self::One,
            Self::Two(_) => Self::two(data),
        }
    }

    /// Its number.
    #[must_use]
    pub const fn version(self) -> u16 {
        match self {
            Self::One => 1,
            Self::Two(_) => 2,
        }
    }

    /// Bytes of the smallest device that can be a member of the array, which uses `data` bytes of each: with room for
    /// these, and for the areas where they are recorded.
    #[must_use]
    pub const fn least_device_bytes(self, data: u64) -> u64 {
        let least = HEAD_BYTES + data.next_multiple_of(ALIGN) + TAIL_BYTES;
        match self {
            Self::Two(areas) if areas.end() + FOREIGN_TAIL_BYTES > least => {
                areas.end() + FOREIGN_TAIL_BYTES
            }
            Self::One | Self::Two(_) => least,
        }
    }

    /// Bytes of a member that data can have in this format, a multiple of 4 KiB: what is left behind the areas.
    #[must_use]
    pub const fn data_bytes(self, layout: &AreaLayout) -> u64 {
        match self {
            Self::One => layout.data_bytes(),
            Self::Two(_) => data_bytes_of_2(layout),
        }
    }
}

/// Bytes of a member that data can have in format 2, a multiple of 4 KiB.
#[must_use]
pub const fn data_bytes_of_2(layout: &AreaLayout) -> u64 {
    let (tail, tail_bytes) = layout.tail_range();
    let room = tail + tail_bytes - FOREIGN_TAIL_BYTES - HEAD_BYTES;
    // The largest that leaves room for its areas: they never shrink when data grow.
    let (mut fits, mut too_many) = (0, layout.data_bytes() / ALIGN + 1);
    while too_many - fits > 1 {
        let middle = fits.midpoint(too_many);
        if middle * ALIGN + areas_bytes(middle * ALIGN) <= room {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    fits * ALIGN
}

/// Bytes of all areas behind `data` bytes.
const fn areas_bytes(data: u64) -> u64 {
    AreaKind::Float.bytes(data) + AreaKind::HeaderLog.bytes(data) + AreaKind::Checksums.bytes(data)
}
