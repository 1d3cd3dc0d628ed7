//! The label: one array's description as one member holds it, 4096 bytes.
//!
//! Formats 1 and 2. Offsets are the constants below; the table for people is in `docs/on-disk.md`.

mod decode;

use strake_units::{MemberIndex, MemberSet, Name, Uuid};

use crate::areas::{AREAS, AREAS_BYTES, Format};
use crate::bytes::put;
use crate::consistency::Consistency;
use crate::features::{
    COMPAT_HISTORY, COMPAT_KNOWN, COMPAT_MEMBER_BITMAPS, INCOMPAT_PARTIAL_WRITES, INCOMPAT_REDO,
    RO_COMPAT_KNOWN,
};
use crate::layout::{Copy, RING_SLOTS, SLOT_BYTES};
use crate::limits::MEMBERS_MAX;
use crate::lineage::{
    Activation, HISTORY_BYTES, HISTORY_MAX, REPLACEMENTS_BYTES, REPLACEMENTS_MAX,
    ReplacementRecord, encode_history, encode_replacements,
};
use crate::recovery::{CONSTANTS, CONSTANTS_BYTES, encode_constants};

/// The first eight bytes of every label.
pub const MAGIC: [u8; 8] = *b"STRAKESB";
const AT_VERSION: usize = 8;
const AT_COPY: usize = 10;
const AT_RING_SLOT: usize = 11;
const AT_OFFSET: usize = 16;
const AT_COMPAT: usize = 24;
const AT_RO_COMPAT: usize = 32;
const AT_INCOMPAT: usize = 40;
const AT_ARRAY: usize = 48;
const AT_MEMBER: usize = 64;
const AT_EPOCH: usize = 80;
const AT_PARENT: usize = 96;
const AT_GENERATION: usize = 112;
const AT_SLOT: usize = 120;
const AT_FLAGS: usize = 121;
const AT_COUNT: usize = 122;
const AT_NAME_LEN: usize = 123;
const AT_NAME: usize = 128;
const AT_GEOMETRY: usize = 192;
const AT_HISTORY: usize = 224;
const AT_REPLACEMENTS: usize = 624;
const AT_LOGGED: usize = 760;
const AT_LOGGED_SINCE: usize = 768;
const AT_CONSISTENCY: usize = 776;
/// Format 2, here and below: how many constants and areas are recorded.
const AT_CONSTANT_COUNT: usize = 777;
const AT_AREA_COUNT: usize = 778;
const AT_CONSTANTS: usize = 784;
const AT_AREAS: usize = 896;
/// Room for a second geometry, the front between the two and what is staged; zeroes until there is one.
const AT_SECOND_GEOMETRY: usize = 944;
const AT_MEMBERS: usize = 1000;
const MEMBER_RECORD_BYTES: usize = 48;
const AT_DIGEST: usize = 4076;
const AT_CRC: usize = 4092;

/// The greatest generation: 7 bytes, because a generation is written a few times a second at most.
const GENERATION_MAX: u64 = (1 << 56) - 1;

const FLAG_CLEAN: u8 = 1;
const FLAG_DESTROYED: u8 = 2;

const _: () = assert!(AT_MEMBERS + MEMBERS_MAX * MEMBER_RECORD_BYTES <= AT_DIGEST);
const _: () = assert!(AT_HISTORY + HISTORY_BYTES <= AT_REPLACEMENTS);
const _: () = assert!(AT_REPLACEMENTS + REPLACEMENTS_BYTES <= AT_LOGGED);
const _: () = assert!(AT_CONSISTENCY < AT_CONSTANT_COUNT && AT_AREA_COUNT < AT_CONSTANTS);
const _: () = assert!(AT_CONSTANTS + CONSTANTS_BYTES <= AT_AREAS);
const _: () = assert!(AT_AREAS + AREAS_BYTES <= AT_SECOND_GEOMETRY);
const _: () = assert!(AT_SECOND_GEOMETRY < AT_MEMBERS);
const _: () = assert!(AT_NAME + strake_units::name::NAME_BYTES_MAX <= AT_GEOMETRY);

/// What a label says the state of a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordedState {
    /// It holds everything it should.
    InSync,
    /// It holds what it should below its `recovered_stripes`.
    Rebuilding,
    /// It failed and is no longer written.
    Faulty,
    /// It was not there.
    Missing,
}

impl RecordedState {
    /// True when the member is written, and so must hold every label.
    #[must_use]
    pub const fn is_live(self) -> bool {
        match self {
            Self::InSync | Self::Rebuilding => true,
            Self::Faulty | Self::Missing => false,
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::InSync => 1,
            Self::Rebuilding => 2,
            Self::Faulty => 3,
            Self::Missing => 4,
        }
    }
}

/// One row of the member table, 48 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// The member in this slot.
    pub uuid: Uuid,
    /// Its state.
    pub state: RecordedState,
    /// The generation with which it last became in sync; 0 when it never was.
    pub in_sync_generation: u64,
    /// While rebuilding: stripes from the start that it holds already, flushed before this was written.
    pub recovered_stripes: u64,
    /// A generation that it surely held when it went out, so that an older picture of it is recognized; 0 when it did
    /// not go out since it was last in sync or put in. Kept while it is rebuilt. Below 2^56.
    pub held_generation: u64,
    /// Bytes of the device.
    pub bytes: u64,
}

/// The array's geometry as recorded. This crate passes it on; what it means is known to `raid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeometryRecord {
    /// Code of the RAID level.
    pub level: u8,
    /// Parity strips per stripe, or copies.
    pub parity: u8,
    /// Members of the array.
    pub members: u8,
    /// Members of one group.
    pub group_width: u8,
    /// Bytes of a strip.
    pub strip_bytes: u32,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// Identifier of the function from blocks to members.
    pub layout: u16,
    /// Blocks used on each member.
    pub member_blocks: u64,
    /// Stripes in one write-intent region.
    pub region_stripes: u64,
}

/// An array's description as one member holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The array.
    pub array: Uuid,
    /// The array's name.
    pub name: Name,
    /// The revision of the format, which a label keeps until the array is converted.
    pub format: Format,
    /// The member that holds this label.
    pub member: Uuid,
    /// That member's slot.
    pub slot: MemberIndex,
    /// Counts label updates of the array, from 1.
    pub generation: u64,
    /// Random identifier of this activation of the array.
    pub epoch: Uuid,
    /// The activation it continued from; nil for the first.
    pub parent_epoch: Uuid,
    /// The array's geometry.
    pub geometry: GeometryRecord,
    /// True after an orderly stop: no write was under way.
    pub clean: bool,
    /// True when the array was deleted.
    pub destroyed: bool,
    /// Every member, by slot. At most [`MEMBERS_MAX`].
    pub members: Vec<MemberRecord>,
    /// The last activations, oldest first, the current one last; at most [`HISTORY_MAX`].
    /// Recorded with [`COMPAT_HISTORY`] only.
    pub history: Vec<Activation>,
    /// Drives being filled while the members they shall replace serve; at most
    /// [`REPLACEMENTS_MAX`].
    pub replacements: Vec<ReplacementRecord>,
    /// How writes are made safe against crashes.
    pub consistency: Consistency,
    /// Members to whose stripes no write is or has been under way since they were last in sync that is not
    /// in the redo log. All of them in mode [`Consistency::Strict`]: then this is so of every write.
    pub logged: MemberSet,
    /// Records of older generations do not count: what they say is done, and may have been overtaken by what is in no
    /// log. 0 when no member is [`logged`](Self::logged).
    pub logged_since: u64,
    /// Features that may be ignored. Bits this program does not know are dropped when it writes.
    pub compat: u64,
    /// Features that may be ignored by readers only; see [`Superblock::is_read_only`].
    pub ro_compat: u64,
    /// Features that may not be ignored.
    pub incompat: u64,
}

/// The place a label is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The ring.
    pub copy: Copy,
    /// The slot in that ring, below [`RING_SLOTS`].
    pub ring_slot: u8,
    /// Byte offset on the device, when the reader knows it.
    pub offset: Option<u64>,
}

impl Superblock {
    /// The bytes of this label for the slot at `slot_offset` (bytes from the device's start) of `copy`.
    ///
    /// # Panics
    /// With more than [`MEMBERS_MAX`] members, which no geometry has, or more activations or replacements than there
    /// is room for.
    #[must_use]
    pub fn encode(&self, copy: Copy, slot_offset: u64) -> [u8; SLOT_BYTES] {
        assert!(self.members.len() <= MEMBERS_MAX, "the member table has {MEMBERS_MAX} rows");
        assert!(self.history.len() <= HISTORY_MAX && self.replacements.len() <= REPLACEMENTS_MAX);
        let mut out = [0; SLOT_BYTES];
        put(&mut out, 0, &MAGIC);
        put(&mut out, AT_VERSION, &self.format.version().to_le_bytes());
        out[AT_COPY] = copy.code();
        out[AT_RING_SLOT] = ring_slot(self.generation);
        put(&mut out, AT_OFFSET, &slot_offset.to_le_bytes());
        self.encode_identity(&mut out);
        self.geometry.encode(&mut out);
        if self.compat & COMPAT_HISTORY != 0 {
            encode_history(&self.history, &mut out[AT_HISTORY..AT_REPLACEMENTS]);
        }
        encode_replacements(&self.replacements, &mut out[AT_REPLACEMENTS..AT_LOGGED]);
        put(&mut out, AT_LOGGED, &self.logged.bits().to_le_bytes());
        put(&mut out, AT_LOGGED_SINCE, &self.logged_since.to_le_bytes());
        out[AT_CONSISTENCY] = self.consistency.code();
        self.encode_format(&mut out);
        for (i, member) in self.members.iter().enumerate() {
            member.encode(&mut out[AT_MEMBERS + i * MEMBER_RECORD_BYTES..]);
        }
        let digest = blake3::hash(&out[..AT_DIGEST]);
        put(&mut out, AT_DIGEST, &digest.as_bytes()[..16]);
        let crc = crc32c::crc32c(&out[..AT_CRC]);
        put(&mut out, AT_CRC, &crc.to_le_bytes());
        out
    }

    fn encode_format(&self, out: &mut [u8]) {
        let Format::Two(areas) = &self.format else { return };
        out[AT_CONSTANT_COUNT] = CONSTANTS.len() as u8;
        out[AT_AREA_COUNT] = AREAS as u8;
        encode_constants(&mut out[AT_CONSTANTS..AT_AREAS]);
        areas.encode(&mut out[AT_AREAS..AT_SECOND_GEOMETRY]);
    }

    fn encode_identity(&self, out: &mut [u8]) {
        put(out, AT_COMPAT, &(self.compat & COMPAT_KNOWN).to_le_bytes());
        put(out, AT_RO_COMPAT, &self.ro_compat.to_le_bytes());
        put(out, AT_INCOMPAT, &self.incompat.to_le_bytes());
        put(out, AT_ARRAY, &self.array.0);
        put(out, AT_MEMBER, &self.member.0);
        put(out, AT_EPOCH, &self.epoch.0);
        put(out, AT_PARENT, &self.parent_epoch.0);
        put(out, AT_GENERATION, &self.generation.to_le_bytes());
        out[AT_SLOT] = self.slot.0;
        out[AT_FLAGS] =
            (u8::from(self.clean) * FLAG_CLEAN) | (u8::from(self.destroyed) * FLAG_DESTROYED);
        out[AT_COUNT] = self.members.len() as u8;
        out[AT_NAME_LEN] = self.name.as_str().len() as u8;
        put(out, AT_NAME, self.name.as_str().as_bytes());
    }

    /// True when the label uses `ro_compat` features this program does not know: the array may be read and must
    /// not be written, and no label may be written either.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.ro_compat & !RO_COMPAT_KNOWN != 0
    }

    /// Says which writes are in the redo log in the mode that the label names; see [`logged`](Self::logged) and
    /// [`logged_since`](Self::logged_since).
    pub fn note_logged(&mut self, logged: MemberSet, since: u64) {
        (self.logged, self.logged_since) = (logged, since);
        self.incompat &= !(INCOMPAT_REDO | INCOMPAT_PARTIAL_WRITES);
        if !logged.is_empty() {
            self.incompat |= INCOMPAT_REDO;
            if self.consistency == Consistency::Strict {
                self.incompat |= INCOMPAT_PARTIAL_WRITES;
            }
        }
    }

    /// True when the per-member dirty bitmaps say what every absent member lacks. Otherwise each of them lacks
    /// everything.
    #[must_use]
    pub const fn keeps_member_bitmaps(&self) -> bool {
        self.compat & COMPAT_MEMBER_BITMAPS != 0
    }

    /// The row of the member that holds this label.
    #[must_use]
    pub fn own_record(&self) -> Option<&MemberRecord> {
        self.members.get(self.slot.at()).filter(|record| record.uuid == self.member)
    }

    /// Whether this label calls `member` live.
    #[must_use]
    pub fn calls_live(&self, member: Uuid) -> bool {
        self.members.iter().any(|record| record.uuid == member && record.state.is_live())
    }
}

impl MemberRecord {
    fn encode(&self, out: &mut [u8]) {
        put(out, 0, &self.uuid.0);
        out[16] = self.state.code();
        put(out, 17, &self.held_generation.to_le_bytes()[..7]);
        put(out, 24, &self.in_sync_generation.to_le_bytes());
        put(out, 32, &self.recovered_stripes.to_le_bytes());
        put(out, 40, &self.bytes.to_le_bytes());
    }
}

impl GeometryRecord {
    fn encode(&self, out: &mut [u8]) {
        let out = &mut out[AT_GEOMETRY..];
        put(out, 0, &[self.level, self.parity, self.members, self.group_width]);
        put(out, 4, &self.strip_bytes.to_le_bytes());
        put(out, 8, &self.block_bytes.to_le_bytes());
        put(out, 12, &self.layout.to_le_bytes());
        put(out, 16, &self.member_blocks.to_le_bytes());
        put(out, 24, &self.region_stripes.to_le_bytes());
    }
}

/// The ring slot of a generation.
const fn ring_slot(generation: u64) -> u8 {
    (generation % RING_SLOTS) as u8
}
