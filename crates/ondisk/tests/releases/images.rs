//! Labels of every format, and of formats to come, with what a program of today and those before it make of them.

use strake_ondisk::{AREAS, Address, AreaKind, Copy, Features, Superblock, recovery};

/// Byte offset of the slot that all labels are encoded for: the head ring's for generation 71.
const OFFSET: u64 = (64 << 10) + 7 * 4096;
const AT_VERSION: usize = 8;
const AT_COMPAT: usize = 24;
const AT_RO_COMPAT: usize = 32;
const AT_INCOMPAT: usize = 40;
const AT_FLAGS: usize = 121;
const AT_NAME_LEN: usize = 123;
const AT_GEOMETRY: usize = 192;
const AT_HISTORY: usize = 224;
const AT_REPLACEMENTS: usize = 624;
const AT_CONSISTENCY: usize = 776;
const AT_COUNTS: usize = 777;
const AT_CONSTANTS: usize = 784;
const AT_AREAS: usize = 896;
const AREA_ROW_BYTES: usize = 16;
const AT_SECOND_GEOMETRY: usize = 944;
const AT_MEMBERS: usize = 1000;
const AT_DIGEST: usize = 4076;
const AT_CRC: usize = 4092;

/// Format 1 with a history.
pub const LABEL_1: &[u8] = include_bytes!("../golden/label-1-history.bin");
/// Format 2.
pub const LABEL_2: &[u8] = include_bytes!("../golden/label-2.bin");

/// The golden images of labels: what is in them, and their bytes.
pub const GOLDEN: [(&str, &[u8]); 5] = [
    ("format 1", include_bytes!("../golden/label-1.bin")),
    ("format 1 with a history", LABEL_1),
    ("format 1 with all its features", include_bytes!("../golden/label-1-features.bin")),
    ("format 2", LABEL_2),
    ("format 2 with all features of format 1", include_bytes!("../golden/label-2-features.bin")),
];

/// A program of before: the newest format and the `incompat` bits that it knows. In all of them a label is refused by
/// the one or the other, in this order.
pub struct Program {
    pub name: &'static str,
    format: u16,
    incompat: u64,
}

/// The programs that wrote format 1, by what they added.
pub const BEFORE: [Program; 5] = [
    Program { name: "Format 1, no `incompat` bits", format: 1, incompat: 0 },
    Program { name: "bit 0", format: 1, incompat: 0b1 },
    Program { name: "bits 0, 1", format: 1, incompat: 0b11 },
    Program { name: "bits 0 to 2", format: 1, incompat: 0b111 },
    Program { name: "bits 0 to 3", format: 1, incompat: 0b1111 },
];

impl Program {
    /// What it makes of a label that is sound.
    pub fn outcome(&self, label: &[u8]) -> String {
        let version =
            u16::from_le_bytes(label[AT_VERSION..AT_VERSION + 2].try_into().expect("two"));
        let bits =
            u64::from_le_bytes(label[AT_INCOMPAT..AT_INCOMPAT + 8].try_into().expect("eight"));
        let unknown = bits & !self.incompat;
        if version > self.format {
            format!("refused: format {version}, not {}", self.format)
        } else if unknown != 0 {
            format!("refused: `incompat` {}", Features::incompat(unknown))
        } else {
            "opens".to_owned()
        }
    }
}

/// One label, and what it stands for.
pub struct Image {
    /// What is recorded in it.
    pub what: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// `label` with other bytes at `at`, whose digest and CRC are right.
pub fn sealed(label: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut out = label.to_vec();
    out[at..at + bytes.len()].copy_from_slice(bytes);
    let digest = blake3::hash(&out[..AT_DIGEST]);
    out[AT_DIGEST..AT_CRC].copy_from_slice(&digest.as_bytes()[..16]);
    let crc = crc32c::crc32c(&out[..AT_CRC]);
    out[AT_CRC..].copy_from_slice(&crc.to_le_bytes());
    out
}

fn image(what: impl Into<String>, label: &[u8], at: usize, bytes: &[u8]) -> Image {
    Image { what: what.into(), bytes: sealed(label, at, bytes) }
}

/// What a program makes of a label on every member of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Opens,
    /// With the words that say why.
    Refused(String),
    /// It is no label, so that an older one counts, or the other ring.
    Passed(String),
}

/// Whether a label that was decoded is understood, and why not.
pub type Understood = fn(&Superblock) -> Result<(), String>;

impl Outcome {
    pub fn of(bytes: &[u8], understood: Understood) -> Self {
        let address = Address { copy: Copy::Head, ring_slot: 7, offset: Some(OFFSET) };
        let label = match Superblock::decode(bytes, address) {
            Ok(label) => label,
            Err(error) => {
                let said = error.to_string();
                let why = said.split_once(" ring ").map_or(said.as_str(), |(_, why)| why);
                let why = without_advice(why);
                return if error.kind.is_unknown() {
                    Self::Refused(why)
                } else {
                    Self::Passed(why)
                };
            }
        };
        match understood(&label) {
            Ok(()) => Self::Opens,
            Err(why) => {
                let why = why.split_once(": its label ").map_or(why.as_str(), |(_, why)| why);
                Self::Refused(without_advice(why))
            }
        }
    }
}

fn without_advice(why: &str) -> String {
    why.strip_suffix("; use the version that wrote it").unwrap_or(why).to_owned()
}

/// Bits of `incompat` with a name that is reserved.
const RESERVED: [u32; 4] = [4, 5, 6, 7];

/// A bit of each set of features, in a label of the newest format.
pub fn feature(at: usize, bit: u32) -> Vec<u8> {
    let before = u64::from_le_bytes(LABEL_2[at..at + 8].try_into().expect("eight bytes"));
    sealed(LABEL_2, at, &(before | 1 << bit).to_le_bytes())
}

/// The sets: their names, places, and the bits that a program of today does not know and has no name for.
pub const UNKNOWN: [(&str, usize, std::ops::Range<u32>); 3] = [
    ("compat", AT_COMPAT, 4..64),
    ("ro_compat", AT_RO_COMPAT, 0..64),
    ("incompat", AT_INCOMPAT, 8..64),
];

/// Labels that are damaged, so that they count as none.
pub fn damaged() -> Vec<Image> {
    let mut torn = LABEL_2.to_vec();
    torn[2048..].copy_from_slice(&LABEL_1[2048..]);
    let elsewhere = sealed(LABEL_2, 16, &0_u64.to_le_bytes());
    vec![
        Image { what: "format 2, torn".into(), bytes: torn },
        Image { what: "format 2, truncated".into(), bytes: LABEL_2[..2048].to_vec() },
        Image { what: "format 2, written to another offset".into(), bytes: elsewhere },
    ]
}

/// Sound labels that are refused, but for unknown bits, of which there is one for each bit.
pub fn refused() -> Vec<Image> {
    let mut all = Vec::new();
    for version in [0_u16, 3, u16::MAX] {
        all.push(image(format!("format {version}"), LABEL_2, AT_VERSION, &version.to_le_bytes()));
    }
    for bit in RESERVED {
        let what = format!("format 2, `incompat` bit {bit}");
        all.push(Image { what, bytes: feature(AT_INCOMPAT, bit) });
    }
    for (nth, (name, value)) in recovery::CONSTANTS.iter().enumerate() {
        let what = format!("format 2, \"{name}\" {} instead of {value}", u64::from(*value) + 1);
        all.push(image(what, LABEL_2, AT_CONSTANTS + nth * 4, &(value + 1).to_le_bytes()));
    }
    let more = recovery::CONSTANTS.len() as u8 + 1;
    all.push(image("format 2, one constant too many", LABEL_2, AT_COUNTS, &[more]));
    all.extend(areas());
    let what = "format 2, a second geometry without `incompat` bit 7";
    all.push(image(what, LABEL_2, AT_SECOND_GEOMETRY, &[6]));
    all.extend(fields());
    all
}

/// Fields that both formats have, with values that no program of today knows.
fn fields() -> Vec<Image> {
    let mut all = Vec::new();
    for (format, label) in [(1, LABEL_1), (2, LABEL_2)] {
        let mut bad = |what: &str, at: usize, bytes: &[u8]| {
            all.push(image(format!("format {format}, {what}"), label, at, bytes));
        };
        bad("unknown flag", AT_FLAGS, &[0x80]);
        bad("unknown consistency mode", AT_CONSISTENCY, &[4]);
        bad("unknown state of a member", AT_MEMBERS + 16, &[5]);
        bad("name of 64 bytes", AT_NAME_LEN, &[64]);
        bad("17 activations", AT_HISTORY, &[17]);
        bad("5 replacements", AT_REPLACEMENTS, &[5]);
    }
    all
}

/// Geometries that no program of today knows, which opening the array detects.
pub fn geometries() -> Vec<Image> {
    let mut all = Vec::new();
    for (format, label) in [(1, LABEL_1), (2, LABEL_2)] {
        let mut bad = |what: &str, at: usize, bytes: &[u8]| {
            all.push(image(format!("format {format}, {what}"), label, AT_GEOMETRY + at, bytes));
        };
        bad("unknown layout", 12, &[2, 0]);
        bad("unknown level", 0, &[99]);
        bad("strips of 12 288 bytes", 4, &12_288_u32.to_le_bytes());
    }
    let mut bad = |what: &str, at: usize, bytes: &[u8]| {
        all.push(image(format!("format 2, {what}"), LABEL_2, AT_GEOMETRY + at, bytes));
    };
    bad("wrong number of stripes in a region", 24, &900_u64.to_le_bytes());
    bad("wrong group width", 3, &[4]);
    bad("incomplete last strip of a member", 16, &1_869_999_999_u64.to_le_bytes());
    all
}

/// Tables of areas that cannot be.
fn areas() -> Vec<Image> {
    let mut all =
        vec![image("format 2, one area too few", LABEL_2, AT_COUNTS + 1, &[AREAS as u8 - 1])];
    for (nth, kind) in AreaKind::ALL.iter().enumerate() {
        let (row, name) = (AT_AREAS + nth * AREA_ROW_BYTES, kind.name());
        let mut bad = |what: String, at: usize, bytes: &[u8]| {
            all.push(image(format!("format 2, {what}"), LABEL_2, row + at, bytes));
        };
        bad(format!("unknown kind of the {name}"), 0, &[9]);
        bad(format!("{name} of size 0"), 4, &[0; 4]);
        bad(
            format!("{name} that starts before the end of the data"),
            8,
            &(32_u64 << 20).to_le_bytes(),
        );
        bad(
            format!("{name} that ends after the end of the device"),
            8,
            &(1_u64 << 50).to_le_bytes(),
        );
        bad(format!("{name} that is not aligned to 4 KiB"), 8, &((1_u64 << 45) + 1).to_le_bytes());
    }
    all
}
