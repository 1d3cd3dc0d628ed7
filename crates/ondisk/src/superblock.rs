//! The label: one array's description as one member holds it, 4096 bytes.
//!
//! Format 1. Offsets are the constants below; the table for people is in `docs/on-disk.md`.

use strake_units::{BlockSize, MemberIndex, Name, Uuid};

use crate::bytes::{get, put, u16_at, u32_at, u64_at, uuid_at};
use crate::consistency::Consistency;
use crate::error::{LabelError, LabelErrorKind};
use crate::layout::{Copy, HEAD_RING_OFFSET, MEMBERS_MAX, RING_SLOTS, SLOT_BYTES};
use crate::lineage::{
    Activation, HISTORY_BYTES, HISTORY_MAX, REPLACEMENTS_BYTES, REPLACEMENTS_MAX,
    ReplacementRecord, decode_history, decode_replacements, encode_history, encode_replacements,
};

/// The first eight bytes of every label.
pub const MAGIC: [u8; 8] = *b"STRAKESB";
/// The format version this program writes and reads.
pub const VERSION: u16 = 1;
/// `compat`: the label remembers activations, see [`Superblock::history`].
pub const COMPAT_HISTORY: u64 = 1;
/// `compat`: since every absent member left, whoever wrote labels has kept its stale plane.
pub const COMPAT_STALE_PLANES: u64 = 2;
/// `compat`: in this activation a member is, or was, a drive of another machine, which may carry out writes for some
/// seconds after a crash of the daemon. Without it in the label of an activation, all members were of one machine.
pub const COMPAT_REMOTE: u64 = 4;
/// `compat`: what the intent plane marks after an orderly stop goes back to a crash, so that parity there may be wrong
/// for blocks that hold data. Without it such marks are of an array that has never been initialized.
pub const COMPAT_AFTER_CRASH: u64 = 8;
/// `compat` bits known: features that a program may ignore when it reads and when it writes.
pub const COMPAT_KNOWN: u64 =
    COMPAT_HISTORY | COMPAT_STALE_PLANES | COMPAT_REMOTE | COMPAT_AFTER_CRASH;
/// `ro_compat` bits known: features that a program may ignore as long as it does not write.
pub const RO_COMPAT_KNOWN: u64 = 0;
/// `incompat`: members have bad blocks, which must not be read; see [`crate::bad_blocks`].
pub const INCOMPAT_BAD_BLOCKS: u64 = 1;
/// `incompat`: writes that a crash has cut short may have to be done again from the redo log; see [`crate::redo`].
pub const INCOMPAT_REDO: u64 = 2;
/// `incompat`: among the records that have to be carried out are lists of intents; see [`crate::intent`].
pub const INCOMPAT_INTENTS: u64 = 4;
/// `incompat`: regions are [in doubt](crate::Plane::InDoubt), which has to be accepted before the array is started.
pub const INCOMPAT_IN_DOUBT: u64 = 8;
/// `incompat` bits known: features that a program must know to read anything.
pub const INCOMPAT_KNOWN: u64 =
    INCOMPAT_BAD_BLOCKS | INCOMPAT_REDO | INCOMPAT_INTENTS | INCOMPAT_IN_DOUBT;

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
const AT_MEMBERS: usize = 1000;
const MEMBER_RECORD_BYTES: usize = 48;
const AT_DIGEST: usize = 4076;
const AT_CRC: usize = 4092;

/// 7 bytes: a generation is written a few times a second at most.
const HELD_GENERATION_MASK: u64 = (1 << 56) - 1;

const FLAG_CLEAN: u8 = 1;
const FLAG_DESTROYED: u8 = 2;

const _: () = assert!(AT_MEMBERS + MEMBERS_MAX * MEMBER_RECORD_BYTES <= AT_DIGEST);
const _: () = assert!(AT_HISTORY + HISTORY_BYTES <= AT_REPLACEMENTS);
const _: () = assert!(AT_REPLACEMENTS + REPLACEMENTS_BYTES <= AT_LOGGED);
const _: () = assert!(AT_CONSISTENCY < AT_MEMBERS);
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
    /// A generation that it surely held when it went out, so that an older picture of it is told from it; 0 when it
    /// did not go out since it was last in sync or put in. Kept while it is rebuilt. Below 2^56.
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
    /// True when somebody deleted the array.
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
    /// Members, as a mask, to whose stripes no write is or has been under way since they were last in sync that is not
    /// in the redo log. All of them in mode [`Consistency::Strict`]: then this is so of every write.
    pub logged: u64,
    /// Records of older generations do not count: what they say is done, and may have been overtaken by what is in no
    /// log. 0 when nobody is [`logged`](Self::logged).
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
        put(&mut out, AT_VERSION, &VERSION.to_le_bytes());
        out[AT_COPY] = copy.code();
        out[AT_RING_SLOT] = ring_slot(self.generation);
        put(&mut out, AT_OFFSET, &slot_offset.to_le_bytes());
        self.encode_identity(&mut out);
        self.geometry.encode(&mut out);
        if self.compat & COMPAT_HISTORY != 0 {
            encode_history(&self.history, &mut out[AT_HISTORY..AT_REPLACEMENTS]);
        }
        encode_replacements(&self.replacements, &mut out[AT_REPLACEMENTS..AT_LOGGED]);
        put(&mut out, AT_LOGGED, &self.logged.to_le_bytes());
        put(&mut out, AT_LOGGED_SINCE, &self.logged_since.to_le_bytes());
        out[AT_CONSISTENCY] = self.consistency.code();
        for (i, member) in self.members.iter().enumerate() {
            member.encode(&mut out[AT_MEMBERS + i * MEMBER_RECORD_BYTES..]);
        }
        let digest = blake3::hash(&out[..AT_DIGEST]);
        put(&mut out, AT_DIGEST, &digest.as_bytes()[..16]);
        let crc = crc32c::crc32c(&out[..AT_CRC]);
        put(&mut out, AT_CRC, &crc.to_le_bytes());
        out
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

    /// The label in `bytes`, read from `address`.
    ///
    /// # Errors
    /// Anything that keeps the label from being trusted; see [`LabelErrorKind`].
    pub fn decode(bytes: &[u8], address: Address) -> Result<Self, LabelError> {
        let error = |kind| LabelError { kind, copy: address.copy, ring_slot: address.ring_slot };
        verify(bytes).map_err(error)?;
        check_features(bytes).map_err(error)?;
        check_address(bytes, address).map_err(error)?;
        Self::decode_fields(bytes).map_err(|field| error(LabelErrorKind::Malformed(field)))
    }

    /// The label in `bytes`, wherever it may come from: for telling what is on a drive, never for assembly.
    pub(crate) fn decode_anywhere(bytes: &[u8]) -> Result<Self, LabelErrorKind> {
        verify(bytes)?;
        check_features(bytes)?;
        Self::decode_fields(bytes).map_err(LabelErrorKind::Malformed)
    }

    fn decode_fields(bytes: &[u8]) -> Result<Self, &'static str> {
        let flags = bytes[AT_FLAGS];
        if flags & !(FLAG_CLEAN | FLAG_DESTROYED) != 0 {
            return Err("flags");
        }
        let geometry = GeometryRecord::decode(bytes);
        if BlockSize::from_bytes(geometry.block_bytes).is_none() {
            return Err("block size");
        }
        let count = usize::from(bytes[AT_COUNT]);
        if count == 0 || count > MEMBERS_MAX || count != usize::from(geometry.members) {
            return Err("member count");
        }
        let slot = MemberIndex(bytes[AT_SLOT]);
        if slot.at() >= count {
            return Err("slot");
        }
        let rows = bytes[AT_MEMBERS..].chunks_exact(MEMBER_RECORD_BYTES).take(count);
        let history = match u64_at(bytes, AT_COMPAT) & COMPAT_HISTORY {
            0 => Vec::new(),
            _ => decode_history(&bytes[AT_HISTORY..AT_REPLACEMENTS]).ok_or("history")?,
        };
        let replacements = decode_replacements(&bytes[AT_REPLACEMENTS..AT_LOGGED], count);
        let consistency = Consistency::from_code(bytes[AT_CONSISTENCY]);
        Ok(Self {
            array: uuid_at(bytes, AT_ARRAY),
            name: decode_name(bytes).ok_or("name")?,
            member: uuid_at(bytes, AT_MEMBER),
            slot,
            generation: u64_at(bytes, AT_GENERATION),
            epoch: uuid_at(bytes, AT_EPOCH),
            parent_epoch: uuid_at(bytes, AT_PARENT),
            geometry,
            clean: flags & FLAG_CLEAN != 0,
            destroyed: flags & FLAG_DESTROYED != 0,
            members: rows.map(MemberRecord::decode).collect::<Option<_>>().ok_or("member state")?,
            history,
            replacements: replacements.ok_or("replacements")?,
            consistency: consistency.ok_or("consistency mode")?,
            logged: u64_at(bytes, AT_LOGGED),
            logged_since: u64_at(bytes, AT_LOGGED_SINCE),
            compat: u64_at(bytes, AT_COMPAT),
            ro_compat: u64_at(bytes, AT_RO_COMPAT),
            incompat: u64_at(bytes, AT_INCOMPAT),
        })
    }

    /// True when the label uses `ro_compat` features this program does not know: the array may be read and must
    /// not be written, and no label may be written either.
    #[must_use]
    pub const fn is_read_only(&self) -> bool {
        self.ro_compat & !RO_COMPAT_KNOWN != 0
    }

    /// Says which writes are in the redo log in the mode that the label names; see [`logged`](Self::logged) and
    /// [`logged_since`](Self::logged_since).
    pub fn note_logged(&mut self, logged: u64, since: u64) {
        (self.logged, self.logged_since) = (logged, since);
        self.incompat &= !(INCOMPAT_REDO | INCOMPAT_INTENTS);
        if logged != 0 {
            self.incompat |= INCOMPAT_REDO;
            if self.consistency == Consistency::Strict {
                self.incompat |= INCOMPAT_INTENTS;
            }
        }
    }

    /// True when the stale planes say what every absent member lacks. Otherwise each of them lacks everything.
    #[must_use]
    pub const fn keeps_stale_planes(&self) -> bool {
        self.compat & COMPAT_STALE_PLANES != 0
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

    fn decode(row: &[u8]) -> Option<Self> {
        Some(Self {
            uuid: uuid_at(row, 0),
            state: RecordedState::from_code(row[16])?,
            in_sync_generation: u64_at(row, 24),
            recovered_stripes: u64_at(row, 32),
            held_generation: u64_at(row, 17) & HELD_GENERATION_MASK,
            bytes: u64_at(row, 40),
        })
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

/// The ring slot of a generation.
const fn ring_slot(generation: u64) -> u8 {
    (generation % RING_SLOTS) as u8
}

/// Checks that the bytes are those somebody wrote. Magic, digest and CRC keep their places in every version of the
/// format, so that a newer label is told from a damaged one.
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
    if version != VERSION {
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

fn decode_name(bytes: &[u8]) -> Option<Name> {
    let name = bytes[AT_NAME..AT_GEOMETRY].get(..usize::from(bytes[AT_NAME_LEN]))?;
    std::str::from_utf8(name).ok()?.parse().ok()
}

/// What a ring holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingScan {
    /// The valid label of the highest generation; `None` as well when `refused` is set.
    pub newest: Option<Superblock>,
    /// Valid labels.
    pub valid: u32,
    /// Slots that hold something which is not a valid label of this slot.
    pub damaged: u32,
    /// A sound label that this program does not understand and that is not known to be older than every label
    /// it does. While there is one, no older label may be used instead.
    pub refused: Option<LabelError>,
}

/// What the slots of a ring hold, in their order: `ring` is what
/// [`AreaLayout::ring_range`](crate::AreaLayout::ring_range) covers.
///
/// The self-address is checked against the copy and the slot, and in the head ring, whose place does not depend on
/// the device, against the byte offset too. A short `ring` is scanned as far as it goes.
pub fn ring_labels(
    ring: &[u8],
    copy: Copy,
) -> impl Iterator<Item = Result<Superblock, LabelError>> {
    let slots = ring.chunks(SLOT_BYTES).take(RING_SLOTS as usize).enumerate();
    slots.map(move |(slot, bytes)| {
        let offset = match copy {
            Copy::Head => Some(HEAD_RING_OFFSET + (slot * SLOT_BYTES) as u64),
            Copy::Tail => None,
        };
        Superblock::decode(bytes, Address { copy, ring_slot: slot as u8, offset })
    })
}

/// Scans a ring, as [`ring_labels`] does, for what counts.
#[must_use]
pub fn newest(ring: &[u8], copy: Copy) -> RingScan {
    let mut scan = RingScan::default();
    ring_labels(ring, copy).for_each(|slot| scan.add(slot));
    scan.prefer_refusal();
    scan
}

impl RingScan {
    fn add(&mut self, slot: Result<Superblock, LabelError>) {
        match slot {
            Ok(label) => {
                self.valid += 1;
                let is_newer = |best: &Option<Superblock>| {
                    best.as_ref().is_none_or(|best| best.generation < label.generation)
                };
                if is_newer(&self.newest) {
                    self.newest = Some(label);
                }
            }
            Err(error) if error.kind.is_unknown() => {
                if error.kind.generation() > self.refused.and_then(|best| best.kind.generation()) {
                    self.refused = Some(error);
                }
            }
            Err(error) => self.damaged += u32::from(error.kind != LabelErrorKind::Blank),
        }
    }

    /// Drops whichever of newest label and refused label is the older.
    fn prefer_refusal(&mut self) {
        let Some(refused) = self.refused.and_then(|e| e.kind.generation()) else { return };
        if self.newest.as_ref().is_some_and(|label| label.generation > refused) {
            self.refused = None;
        } else {
            self.newest = None;
        }
    }
}
