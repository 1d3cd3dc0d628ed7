//! Decoding of a label: the checks of its validity and compatibility, and its fields.

use strake_units::{BlockSize, MemberIndex, MemberSet, Name};

use super::{
    AT_AREA_COUNT, AT_AREAS, AT_ARRAY, AT_COMPAT, AT_CONSISTENCY, AT_CONSTANT_COUNT, AT_CONSTANTS,
    AT_COPY, AT_COUNT, AT_CRC, AT_DIGEST, AT_EPOCH, AT_FLAGS, AT_GENERATION, AT_GEOMETRY,
    AT_HISTORY, AT_INCOMPAT, AT_LOGGED, AT_LOGGED_SINCE, AT_MEMBER, AT_MEMBERS, AT_NAME,
    AT_NAME_LEN, AT_OFFSET, AT_PARENT, AT_REPLACEMENTS, AT_RING_SLOT, AT_RO_COMPAT,
    AT_SECOND_GEOMETRY, AT_SLOT, AT_VERSION, Address, FLAG_CLEAN, FLAG_DESTROYED, GENERATION_MAX,
    GeometryRecord, MAGIC, MEMBER_RECORD_BYTES, MemberRecord, RecordedState, Superblock, ring_slot,
};
use crate::areas::{AREAS, Areas, Format};
use crate::bytes::{get, u16_at, u32_at, u64_at, uuid_at};
use crate::consistency::Consistency;
use crate::error::{LabelError, LabelErrorKind, Unusable, Wanted};
use crate::features::{COMPAT_HISTORY, INCOMPAT_KNOWN};
use crate::layout::SLOT_BYTES;
use crate::limits::{MEMBERS_MAX, VERSION};
use crate::lineage::{decode_history, decode_replacements};
use crate::recovery::check_constants;

impl Superblock {
    /// Decodes the label in `bytes`, which was read from `address`.
    ///
    /// # Errors
    /// Any reason not to trust the label; see [`LabelErrorKind`].
    pub fn decode(bytes: &[u8], address: Address) -> Result<Self, LabelError> {
        let Address { copy, ring_slot, .. } = address;
        verify(bytes).map_err(|kind| LabelError { kind, copy, ring_slot, array: None })?;
        let array = Some(uuid_at(bytes, AT_ARRAY));
        let error = |kind| LabelError { kind, copy, ring_slot, array };
        check_features(bytes).map_err(error)?;
        check_address(bytes, address).map_err(error)?;
        Self::decode_fields(bytes).map_err(error)
    }

    /// Decodes the label in `bytes` from an unknown address. The result identifies the content of a drive, and must not
    /// be used for an assembly.
    pub(crate) fn decode_anywhere(bytes: &[u8]) -> Result<Self, LabelErrorKind> {
        verify(bytes)?;
        check_features(bytes)?;
        Self::decode_fields(bytes)
    }

    fn decode_fields(bytes: &[u8]) -> Result<Self, LabelErrorKind> {
        let generation = u64_at(bytes, AT_GENERATION);
        let unusable = |(name, recorded, wanted): Unusable| LabelErrorKind::Field {
            name,
            area: None,
            recorded,
            wanted,
            generation,
        };
        let mut label = Self::decode_shared(bytes).map_err(unusable)?;
        if u16_at(bytes, AT_VERSION) == 2 {
            label.format = label.decode_format(bytes, unusable)?;
        }
        Ok(label)
    }

    /// Decodes the fields that format 2 adds to format 1.
    fn decode_format(
        &self,
        bytes: &[u8],
        unusable: impl Fn(Unusable) -> LabelErrorKind,
    ) -> Result<Format, LabelErrorKind> {
        let (generation, geometry) = (self.generation, &self.geometry);
        check_constants(&bytes[AT_CONSTANTS..AT_AREAS], bytes[AT_CONSTANT_COUNT], generation)?;
        let areas = bytes[AT_AREA_COUNT].into();
        if areas != AREAS as u64 {
            return Err(unusable(("number of areas", areas, Wanted::Exactly(AREAS as u64))));
        }
        if let Some(byte) = bytes[AT_SECOND_GEOMETRY..AT_MEMBERS].iter().find(|byte| **byte != 0) {
            // A second geometry needs an `incompat` bit that this version does not define. The bit is not set here.
            let byte = (*byte).into();
            return Err(unusable(("byte of a second geometry", byte, Wanted::Exactly(0))));
        }
        let data = geometry.member_blocks.saturating_mul(geometry.block_bytes.into());
        let device = self.members[self.slot.at()].bytes;
        let table = &bytes[AT_AREAS..AT_SECOND_GEOMETRY];
        Areas::decode(table, data, device, generation).map(Format::Two)
    }

    /// Decodes the fields of both formats into a label of format 1.
    fn decode_shared(bytes: &[u8]) -> Result<Self, Unusable> {
        let flags = bytes[AT_FLAGS];
        if flags & !(FLAG_CLEAN | FLAG_DESTROYED) != 0 {
            return Err(("flags", flags.into(), Wanted::Known("1 and 2")));
        }
        let geometry = GeometryRecord::decode(bytes);
        if BlockSize::from_bytes(geometry.block_bytes).is_none() {
            let recorded = geometry.block_bytes.into();
            return Err(("block bytes", recorded, Wanted::Known("512 and 4096")));
        }
        let count = member_count(bytes, &geometry)?;
        let generation = u64_at(bytes, AT_GENERATION);
        if generation > GENERATION_MAX {
            return Err(("generation", generation, Wanted::AtMost(GENERATION_MAX)));
        }
        let slot = MemberIndex(bytes[AT_SLOT]);
        if slot.at() >= count {
            return Err(("slot", slot.0.into(), Wanted::AtMost(count as u64 - 1)));
        }
        let rows = bytes[AT_MEMBERS..].chunks_exact(MEMBER_RECORD_BYTES).take(count);
        let history = match u64_at(bytes, AT_COMPAT) & COMPAT_HISTORY {
            0 => Vec::new(),
            _ => decode_history(&bytes[AT_HISTORY..AT_REPLACEMENTS])?,
        };
        let mode = bytes[AT_CONSISTENCY];
        let consistency = Consistency::from_code(mode);
        Ok(Self {
            array: uuid_at(bytes, AT_ARRAY),
            name: decode_name(bytes)?,
            format: Format::One,
            member: uuid_at(bytes, AT_MEMBER),
            slot,
            generation,
            epoch: uuid_at(bytes, AT_EPOCH),
            parent_epoch: uuid_at(bytes, AT_PARENT),
            geometry,
            clean: flags & FLAG_CLEAN != 0,
            destroyed: flags & FLAG_DESTROYED != 0,
            members: rows.map(MemberRecord::decode).collect::<Result<_, _>>()?,
            history,
            replacements: decode_replacements(&bytes[AT_REPLACEMENTS..AT_LOGGED], count)?,
            consistency: consistency.ok_or((
                "consistency mode",
                mode.into(),
                Wanted::Known("0 to 3"),
            ))?,
            logged: MemberSet::from_bits(u64_at(bytes, AT_LOGGED)),
            logged_since: u64_at(bytes, AT_LOGGED_SINCE),
            compat: u64_at(bytes, AT_COMPAT),
            ro_compat: u64_at(bytes, AT_RO_COMPAT),
            incompat: u64_at(bytes, AT_INCOMPAT),
        })
    }
}

impl RecordedState {
    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::InSync),
            2 => Some(Self::Rebuilding),
            3 => Some(Self::Faulty),
            4 => Some(Self::Missing),
            _ => None,
        }
    }
}

impl MemberRecord {
    fn decode(row: &[u8]) -> Result<Self, Unusable> {
        let state = RecordedState::from_code(row[16]);
        Ok(Self {
            uuid: uuid_at(row, 0),
            state: state.ok_or(("state of a member", row[16].into(), Wanted::Known("1 to 4")))?,
            in_sync_generation: u64_at(row, 24),
            recovered_stripes: u64_at(row, 32),
            held_generation: u64_at(row, 17) & GENERATION_MAX,
            bytes: u64_at(row, 40),
        })
    }
}

impl GeometryRecord {
    fn decode(bytes: &[u8]) -> Self {
        let bytes = &bytes[AT_GEOMETRY..];
        let [level, parity, members, group_width] = get(bytes, 0);
        Self {
            level,
            parity,
            members,
            group_width,
            strip_bytes: u32_at(bytes, 4),
            block_bytes: u32_at(bytes, 8),
            layout: u16_at(bytes, 12),
            member_blocks: u64_at(bytes, 16),
            region_stripes: u64_at(bytes, 24),
        }
    }
}

fn member_count(bytes: &[u8], geometry: &GeometryRecord) -> Result<usize, Unusable> {
    let count = bytes[AT_COUNT];
    let wanted = if count == 0 {
        Wanted::AtLeast(1)
    } else if usize::from(count) > MEMBERS_MAX {
        Wanted::AtMost(MEMBERS_MAX as u64)
    } else if count != geometry.members {
        Wanted::Exactly(geometry.members.into())
    } else {
        return Ok(count.into());
    };
    Err(("members", count.into(), wanted))
}

/// Checks that the bytes are unchanged. The magic, the digest and the CRC have the same offsets in every version of the
/// format, so that a newer label differs from a damaged one.
fn verify(bytes: &[u8]) -> Result<(), LabelErrorKind> {
    if bytes.len() != SLOT_BYTES {
        return Err(LabelErrorKind::Truncated { bytes: bytes.len() });
    }
    if bytes[..8] != MAGIC {
        let blank = bytes == [0; SLOT_BYTES];
        return Err(if blank { LabelErrorKind::Blank } else { LabelErrorKind::NotALabel });
    }
    if crc32c::crc32c(&bytes[..AT_CRC]) != u32_at(bytes, AT_CRC) {
        return Err(LabelErrorKind::Checksum);
    }
    if blake3::hash(&bytes[..AT_DIGEST]).as_bytes()[..16] != bytes[AT_DIGEST..AT_DIGEST + 16] {
        return Err(LabelErrorKind::Digest);
    }
    Ok(())
}

fn check_features(bytes: &[u8]) -> Result<(), LabelErrorKind> {
    let version = u16_at(bytes, AT_VERSION);
    if version == 0 || version > VERSION {
        return Err(LabelErrorKind::Version(version));
    }
    let unknown = u64_at(bytes, AT_INCOMPAT) & !INCOMPAT_KNOWN;
    if unknown != 0 {
        let generation = u64_at(bytes, AT_GENERATION);
        return Err(LabelErrorKind::Incompatible { unknown, generation });
    }
    Ok(())
}

fn check_address(bytes: &[u8], address: Address) -> Result<(), LabelErrorKind> {
    let meant_for = u64_at(bytes, AT_OFFSET);
    let here = bytes[AT_COPY] == address.copy.code()
        && bytes[AT_RING_SLOT] == address.ring_slot
        && ring_slot(u64_at(bytes, AT_GENERATION)) == address.ring_slot
        && address.offset.is_none_or(|offset| offset == meant_for);
    if here { Ok(()) } else { Err(LabelErrorKind::Misdirected { meant_for }) }
}

fn decode_name(bytes: &[u8]) -> Result<Name, Unusable> {
    const MOST: usize = strake_units::name::NAME_BYTES_MAX;
    let length = usize::from(bytes[AT_NAME_LEN]);
    if length == 0 || length > MOST {
        let wanted = if length == 0 { Wanted::AtLeast(1) } else { Wanted::AtMost(MOST as u64) };
        return Err(("bytes of the name", length as u64, wanted));
    }
    let name = &bytes[AT_NAME..AT_NAME + length];
    let parsed = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
    parsed.ok_or_else(|| {
        // A name starts with a letter or digit. The first byte is therefore the invalid one if every byte is a
        // permitted character.
        let odd = name.iter().find(|b| !(b.is_ascii_alphanumeric() || b"._-".contains(b)));
        let byte = *odd.unwrap_or(&name[0]);
        (
            "byte of the name",
            byte.into(),
            Wanted::Known("letters, digits and . _ - behind the first"),
        )
    })
}
