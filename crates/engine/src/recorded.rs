//! Properties of this program in labels, and the check that this program supports a label.
//!
//! Constants of other crates are compared with the table in `strake_ondisk::recovery` at compile time. Recovery depends
//! on these constants, so a program with another value must not open an array of a program with these values. After a
//! change of a constant, the program compiles only if the table has the new value. Labels with the old value are then
//! refused with the name of the constant.

use strake_ondisk::recovery::{BAND_BYTES, FIELD_POLYNOMIAL, PARITY_FACTORS, SETTLE_MS};
use strake_ondisk::{Features, Format, GeometryRecord, Superblock, features};
use strake_raid::{Geometry, GeometrySpec, LAYOUT_ID, Level, Regions};
use strake_units::{BlockSize, Nanos};

use crate::error::ArrayError;

const _: () = assert!(strake_raid::BAND_BYTES_MAX == BAND_BYTES);
const _: () = assert!(strake_parity::FIELD_POLYNOMIAL as u32 == FIELD_POLYNOMIAL);
const _: () = assert!(strake_parity::PARITY_FACTORS == PARITY_FACTORS);
const _: () = assert!(strake_block::SETTLE_TIME_MAX.0 == SETTLE_MS as u64 * Nanos::MILLI.0);
const _: () = assert!(strake_raid::MEMBERS_MAX == strake_ondisk::MEMBERS_MAX);
const _: () = assert!(strake_raid::REGIONS_MAX == strake_ondisk::REGIONS_MAX as u64);

/// Returns the record of `geometry` for a label.
pub(crate) fn record_of(geometry: &Geometry) -> GeometryRecord {
    GeometryRecord {
        level: geometry.level().code(),
        parity: geometry.level().parity_strips(),
        members: geometry.members() as u8,
        group_width: geometry.width(),
        strip_bytes: geometry.strip_bytes(),
        block_bytes: geometry.block_size().bytes(),
        layout: LAYOUT_ID,
        member_blocks: geometry.member_blocks_used(),
        region_stripes: Regions::new(geometry).stripes_per_region(),
    }
}

/// Returns the geometry of the array of `label`, if this version can open the array.
///
/// # Errors
/// If the label has features or a geometry that this version does not support. The text names the field, the value in
/// the label, and the value of this version.
pub fn understood(label: &Superblock) -> Result<Geometry, ArrayError> {
    if label.is_read_only() {
        let unknown = label.ro_compat & !features::RO_COMPAT_KNOWN;
        let known = features::known_bits(features::RO_COMPAT_KNOWN);
        return Err(ArrayError::refused(format!(
            "array {}: its label uses ro_compat {}; this version supports {known} and opens no array read-only; use \
             the version that wrote it",
            label.name,
            Features::ro_compat(unknown)
        )));
    }
    geometry_of(label)
}

/// Returns the geometry of the array of `label`.
///
/// # Errors
/// The errors of [`understood`], except errors about features.
pub fn geometry_of(label: &Superblock) -> Result<Geometry, ArrayError> {
    let record = &label.geometry;
    let unknown = |what: String| {
        let name = &label.name;
        ArrayError::refused(format!(
            "array {name}: its label has {what}; use the version that wrote it"
        ))
    };
    let differs = |field: &str, recorded: u64, expected: u64| {
        unknown(format!("the value {recorded} for \"{field}\"; this version supports {expected}"))
    };
    if record.layout != LAYOUT_ID {
        return Err(differs("layout", record.layout.into(), LAYOUT_ID.into()));
    }
    let level = Level::from_code(record.level, record.parity).ok_or_else(|| {
        let (level, parity) = (record.level, record.parity);
        unknown(format!(
            "the value {level} for \"level\" with {parity} parities; this version supports levels 0, 1 and \
             10 without parity; 5 and 50 with 1 parity; 6 and 60 with 2; 73 and 70 with 3; 100 with 4 to 32"
        ))
    })?;
    let block_size = BlockSize::from_bytes(record.block_bytes).ok_or_else(|| {
        let bytes = record.block_bytes;
        let what =
            format!("the value {bytes} for \"block bytes\"; this version supports 512 and 4096");
        unknown(what)
    })?;
    let geometry = Geometry::new(&GeometrySpec {
        level,
        members: usize::from(record.members),
        group_size: level.is_grouped().then_some(record.group_width),
        strip_bytes: record.strip_bytes,
        block_size,
        member_blocks: record.member_blocks,
    })
    .map_err(|error| unknown(format!("a geometry that this version does not support: {error}")))?;
    if label.format == Format::One {
        return Ok(geometry);
    }
    // These fields are derived from the other fields. Recovery computes the derived values, but the records on the
    // members match the label. All programs that wrote format 1 computed the same values.
    let own = record_of(&geometry);
    let computed = [
        ("group width", record.group_width.into(), own.group_width.into()),
        ("blocks used on each member", record.member_blocks, own.member_blocks),
        ("stripes in a region", record.region_stripes, own.region_stripes),
    ];
    match computed.into_iter().find(|(_, recorded, own)| recorded != own) {
        Some((field, recorded, own)) => Err(differs(field, recorded, own)),
        None => Ok(geometry),
    }
}
