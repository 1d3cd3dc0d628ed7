//! The label: the description of the array on one member, 4096 bytes.
//!
//! The label has the formats 1 and 2. The constants below define the offsets. `docs/on-disk.md` contains a readable
//! table.

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
/// Format 2, here and below: the numbers of recorded constants and areas.
const AT_CONSTANT_COUNT: usize = 777;
const AT_AREA_COUNT: usize = 778;
const AT_CONSTANTS: usize = 784;
const AT_AREAS: usize = 896;
/// Space for a second geometry, the boundary between the two geometries, and staged blocks. All bytes are 0 as long as
/// no second geometry exists.
const AT_SECOND_GEOMETRY: usize = 944;
const AT_MEMBERS: usize = 1000;
const MEMBER_RECORD_BYTES: usize = 48;
const AT_DIGEST: usize = 4076;
const AT_CRC: usize = 4092;

/// The maximum generation. It has 7 bytes, because an array writes a generation at most a few times per second.
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

/// The state of a member that a label records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordedState {
    /// The member contains all its data.
    InSync,
    /// The member contains its data below `recovered_stripes`.
    Rebuilding,
    /// The member failed and is no longer written.
    Faulty,
    /// The member was not present.
    Missing,
}

impl RecordedState {
    /// True if the array writes the member. The member must then have every label.
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
    /// The state of the member.
    pub state: RecordedState,
    /// The generation with which the member last became in sync; 0 if it never was in sync.
    pub in_sync_generation: u64,
    /// For a rebuilding member, the number of valid stripes from the start. They were flushed before this record was
    /// written.
    pub recovered_stripes: u64,
    /// A generation that the member certainly had when it went out, so that an older snapshot of the drive is
    /// recognized. 0 if the member did not go out after it was last in sync or added. A rebuild does not change it.
    /// Below 2^56.
    pub held_generation: u64,
    /// Bytes of the device.
    pub bytes: u64,
}

/// The recorded geometry of the array. This crate does not interpret it; the crate `raid` defines its meaning.
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

/// The description of the array on one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The array.
    pub array: Uuid,
    /// The array's name.
    pub name: Name,
    /// The revision of the format. It does not change until the array is converted.
    pub format: Format,
    /// The member that holds this label.
    pub member: Uuid,
    /// That member's slot.
    pub slot: MemberIndex,
    /// The number of label updates of the array, counted from 1.
    pub generation: u64,
    /// Random identifier of this activation of the array.
    pub epoch: Uuid,
    /// The activation that this one continues; nil for the first activation.
    pub parent_epoch: Uuid,
    /// The array's geometry.
    pub geometry: GeometryRecord,
    /// True after a clean shutdown: no write was in progress.
    pub clean: bool,
    /// True if the array was destroyed.
    pub destroyed: bool,
    /// All members, by slot; at most [`MEMBERS_MAX`].
    pub members: Vec<MemberRecord>,
    /// The last activations in ascending order, with the current one at the end; at most [`HISTORY_MAX`]. They are
    /// recorded only with [`COMPAT_HISTORY`].
    pub history: Vec<Activation>,
    /// Replacements that are being filled while their members still serve; at most [`REPLACEMENTS_MAX`].
    pub replacements: Vec<ReplacementRecord>,
    /// The consistency mode, which defines the behaviour after a crash.
    pub consistency: Consistency,
    /// Members for which the redo log recorded every write to their stripes since they were last in sync. In mode
    /// [`Consistency::Strict`] these are all members, because every write is then recorded.
    pub logged: MemberSet,
    /// Records of older generations are ignored: their writes are complete, and later writes that are not in the redo
    /// log may have replaced their data. 0 if no member is [`logged`](Self::logged).
    pub logged_since: u64,
    /// Features that a program may ignore. A write drops the unknown bits.
    pub compat: u64,
    /// Features that only readers may ignore; see [`Superblock::is_read_only`].
    pub ro_compat: u64,
    /// Features that no program may ignore.
    pub incompat: u64,
}

/// The address that a label is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The ring.
    pub copy: Copy,
    /// The slot in that ring, below [`RING_SLOTS`].
    pub ring_slot: u8,
    /// Byte offset on the device, if the reader knows it.
    pub offset: Option<u64>,
}

impl Superblock {
    /// Returns the bytes of this label for the slot at `slot_offset` (bytes from the start of the device) of `copy`.
    ///
    /// # Panics
    /// The function panics with more than [`MEMBERS_MAX`] members, which no geometry has, or with more activations or
    /// replacements than the label has space for.
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

    /// True if the label uses unknown `ro_compat` features: the array may be read, but neither the array nor its labels
    /// may be written.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.ro_compat & !RO_COMPAT_KNOWN != 0
    }

    /// Records which writes the redo log contains in the consistency mode of the label; see [`logged`](Self::logged)
    /// and [`logged_since`](Self::logged_since).
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

    /// True if the per-member dirty bitmaps record the regions that each absent member lacks. Otherwise each absent
    /// member lacks all regions.
    #[must_use]
    pub const fn keeps_member_bitmaps(&self) -> bool {
        self.compat & COMPAT_MEMBER_BITMAPS != 0
    }

    /// Returns the record of the member that has this label.
    #[must_use]
    pub fn own_record(&self) -> Option<&MemberRecord> {
        self.members.get(self.slot.at()).filter(|record| record.uuid == self.member)
    }

    /// Returns true if `member` is live in this label.
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

/// Returns the ring slot of a generation.
const fn ring_slot(generation: u64) -> u8 {
    (generation % RING_SLOTS) as u8
}
