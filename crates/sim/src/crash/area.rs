//! The areas of a member.

use strake_ondisk::{AreaLayout, Copy};

use super::record::{Record, stripes};

/// The use of a part of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Area {
    Label,
    Bitmap,
    Config,
    BadBlocks,
    Log,
    Data,
    /// Partition tables, reserved space, and data that no check reads.
    Other,
}

impl Area {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Label => "label",
            Self::Bitmap => "bitmap",
            Self::Config => "config",
            Self::BadBlocks => "bad_blocks",
            Self::Log => "log",
            Self::Data => "data",
            Self::Other => "other",
        }
    }
}

/// The areas of a member, and last the whole member.
pub(super) fn areas(record: &Record) -> Vec<(Area, (u64, u64))> {
    let bytes = record.case.disk_spec().bytes;
    let layout = AreaLayout::of(bytes).expect("the drive is large enough for a member");
    let range = |(start, bytes): (u64, u64)| (start, start + bytes);
    let [bitmap, config, bad] = layout.notes_ranges().map(range);
    let geometry = &record.geometry;
    let rows = stripes(geometry.strip_bytes().into()).div_ceil(geometry.groups() as u64)
        * u64::from(geometry.strip_bytes());
    let head = range(layout.ring_range(Copy::Head));
    let tail = range(layout.ring_range(Copy::Tail));
    vec![
        (Area::Label, head),
        (Area::Label, tail),
        (Area::Bitmap, bitmap),
        (Area::Config, config),
        (Area::BadBlocks, bad),
        (Area::Log, range(strake_ondisk::redo_ring(0, 1))),
        (Area::Data, (layout.data_offset(), layout.data_offset() + rows)),
        (Area::Data, (layout.data_offset(), layout.data_offset() + rows)),
        (Area::Other, (0, bytes)),
    ]
}

/// The area that contains a byte of a member.
pub(super) fn area_of(record: &Record, offset: u64) -> Area {
    let areas = areas(record);
    let holds = |(_, (from, to)): &&(Area, (u64, u64))| (*from..*to).contains(&offset);
    areas.iter().find(holds).map_or(Area::Other, |(area, _)| *area)
}
