//! Areas of format 2: space on every member for records of later versions.
//!
//! The areas are adjacent and start after the used data, at the same offsets on every member:
//!
//! ```text
//! 16 MiB                                                                     end-2 MiB       end
//! | data ........ | float | header log | checksum pages | not used ......... | tail ring .. GPT |
//! ```
//! No version reads or writes the areas yet. Their content is undefined until the `incompat` bit of the area is set,
//! and a program that does not support this bit refuses the label. Therefore an area may be moved as long as its bit is
//! not set.
//!
//! In the tail, the 2 MiB before the blocks with signatures of other programs are unused, so areas may occupy them.
//! Areas reduce the space for data only if they need more, which is the case on members of more than about 480 MiB.

use crate::bytes::{get, put, u32_at, u64_at};
use crate::error::{LabelErrorKind, Wanted};
use crate::layout::{AreaLayout, HEAD_BYTES, TAIL_BYTES};
use crate::limits::FOREIGN_TAIL_BYTES;

/// The purpose of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AreaKind {
    /// Space for data that a reshape moves between two geometries.
    Float,
    /// Headers of records: sums and changes of maps.
    HeaderLog,
    /// CRC-32C of each block of the data area.
    Checksums,
}

impl AreaKind {
    /// Every kind in the order of the areas.
    pub const ALL: [Self; AREAS] = [Self::Float, Self::HeaderLog, Self::Checksums];

    /// Returns the name of the area in errors.
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

    /// Returns the bytes of the area if the array uses `data` bytes of each member, a multiple of 4 KiB.
    ///
    /// The float contains at least a window of the largest strip. The header log has 32 MiB for each TiB. Checksums
    /// need 4 bytes for each block of 4 KiB, 992 in a page, and up to 50 % more, because two regions never share a
    /// page.
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
    /// The purpose of the area.
    pub kind: AreaKind,
    /// Byte offset from the start of the device.
    pub offset: u64,
    /// Bytes of the area.
    pub bytes: u64,
}

/// The areas of an array of format 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas([Area; AREAS]);

impl Areas {
    /// Returns the areas after `data` used bytes of each member.
    #[must_use]
    pub fn behind(data: u64) -> Self {
        let mut offset = (HEAD_BYTES + data).next_multiple_of(ALIGN);
        Self(AreaKind::ALL.map(|kind| {
            let area = Area { kind, offset, bytes: kind.bytes(data) };
            offset += area.bytes;
            area
        }))
    }

    /// Returns every area, by offset.
    pub fn iter(&self) -> impl Iterator<Item = &Area> {
        self.0.iter()
    }

    /// Returns the end of the last area, in bytes from the start of the device.
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

    /// Decodes the table at the start of `bytes` in a label of `generation`, of an array that uses `data` bytes of a
    /// member with `device` bytes.
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

/// The format version of an array, with the recorded areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Format 1, which records no constants and no areas.
    One,
    /// Format 2, which records constants and areas.
    Two(Areas),
}

impl Format {
    /// Returns format 2 of an array that uses `data` bytes of each member.
    #[must_use]
    pub fn two(data: u64) -> Self {
        Self::Two(Areas::behind(data))
    }

    /// Returns the same format of an array that uses `data` bytes of each member.
    #[must_use]
    pub fn resized(self, data: u64) -> Self {
        match self {
            Self::One => Self::One,
            Self::Two(_) => Self::two(data),
        }
    }

    /// Returns the version number.
    #[must_use]
    pub const fn version(self) -> u16 {
        match self {
            Self::One => 1,
            Self::Two(_) => 2,
        }
    }

    /// Returns the minimum bytes of a member's device for an array that uses `data` bytes of each member, including
    /// space for recorded areas.
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

    /// Returns the bytes of a member that are available for data in this format, a multiple of 4 KiB.
    #[must_use]
    pub const fn data_bytes(self, layout: &AreaLayout) -> u64 {
        match self {
            Self::One => layout.data_bytes(),
            Self::Two(_) => data_bytes_of_2(layout),
        }
    }
}

/// Returns the bytes of a member that are available for data in format 2, a multiple of 4 KiB.
#[must_use]
pub const fn data_bytes_of_2(layout: &AreaLayout) -> u64 {
    let (tail, tail_bytes) = layout.tail_range();
    let room = tail + tail_bytes - FOREIGN_TAIL_BYTES - HEAD_BYTES;
    // The largest size that leaves space for its areas. The areas never shrink when the data grow, so a binary search
    // is correct.
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

/// Returns the bytes of all areas after `data` bytes.
const fn areas_bytes(data: u64) -> u64 {
    AreaKind::Float.bytes(data) + AreaKind::HeaderLog.bytes(data) + AreaKind::Checksums.bytes(data)
}
