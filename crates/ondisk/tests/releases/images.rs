//! Labels of every format, and of formats to come, with what a program of today makes of them.

use std::fmt::Write as _;

use strake_ondisk::{AREAS, Address, AreaKind, Copy, Features, Superblock, recovery};

/// Where the table is in the document.
pub const DOCUMENT: &str = "docs/on-disk.md";
pub const BEGIN: &str = "<!-- releases: written by cargo xtask formats -->\n";
pub const END: &str = "<!-- releases: end -->\n";

/// Byte offset of the slot that all labels are encoded for: the head ring's for generation 71.
const OFFSET: u64 = (64 << 10) + 7 * 4096;
const AT_VERSION: usize = 8;
const AT_COMPAT: usize = 24;
const AT_RO_COMPAT: usize = 32;
const AT_INCOMPAT: usize = 40;
const AT_FLAGS: usize = 121;
const AT_COUNTS: usize = 784;
const AT_CONSTANTS: usize = 792;
const AT_AREAS: usize = 896;
const AREA_ROW_BYTES: usize = 16;
const AT_SECOND_GEOMETRY: usize = 944;
const AT_DIGEST: usize = 4076;
const AT_CRC: usize = 4092;

/// Format 1, as it was released.
pub const LABEL_1: &[u8] = include_bytes!("../golden/label-1.bin");
/// Format 1 with a history.
pub const LABEL_1_HISTORY: &[u8] = include_bytes!("../golden/label-1-history.bin");
/// Format 2.
pub const LABEL_2: &[u8] = include_bytes!("../golden/label-2.bin");

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

impl Outcome {
    pub fn of(bytes: &[u8]) -> Self {
        let address = Address { copy: Copy::Head, ring_slot: 7, offset: Some(OFFSET) };
        match Superblock::decode(bytes, address) {
            // As `crates/engine/src/assemble.rs` does: nothing opens read-only yet.
            Ok(label) if label.is_read_only() => {
                let bits = Features::ro_compat(label.ro_compat);
                Self::Refused(format!("uses ro_compat {bits}"))
            }
            Ok(_) => Self::Opens,
            Err(error) => {
                let said = error.to_string();
                let why = said.split_once(" ring ").map_or(said.as_str(), |(_, why)| why);
                let why = why.split(';').next().unwrap_or(why);
                let why = why.split(", not known").next().unwrap_or(why).to_owned();
                if error.kind.is_unknown() { Self::Refused(why) } else { Self::Passed(why) }
            }
        }
    }
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

/// Every image but those of unknown bits, of which there is one for each bit.
pub fn images() -> Vec<Image> {
    let mut all = vec![
        image("format 1, without history", LABEL_1, 0, &[]),
        image("format 1", LABEL_1_HISTORY, 0, &[]),
        image("format 2", LABEL_2, 0, &[]),
    ];
    for version in [0_u16, 3, u16::MAX] {
        all.push(image(format!("format {version}"), LABEL_2, AT_VERSION, &version.to_le_bytes()));
    }
    for bit in RESERVED {
        let what = format!("format 2, `incompat` bit {bit}");
        all.push(Image { what, bytes: feature(AT_INCOMPAT, bit) });
    }
    for (nth, (name, value)) in recovery::CONSTANTS.iter().enumerate() {
        let what = format!("format 2, {name} {} instead of {value}", value * 2);
        all.push(image(what, LABEL_2, AT_CONSTANTS + nth * 4, &(value * 2).to_le_bytes()));
    }
    let more = recovery::CONSTANTS.len() as u8 + 1;
    all.push(image("format 2, one constant more", LABEL_2, AT_COUNTS, &[more]));
    all.extend(areas());
    all.push(image(
        "format 2, a second geometry without its bit",
        LABEL_2,
        AT_SECOND_GEOMETRY,
        &[6],
    ));
    all.push(image("format 1, an unknown flag", LABEL_1_HISTORY, AT_FLAGS, &[0x80]));
    let mut torn = LABEL_2.to_vec();
    torn[2048..].copy_from_slice(&LABEL_1[2048..]);
    all.push(Image { what: "format 2, torn".into(), bytes: torn });
    all.push(Image { what: "format 2, cut short".into(), bytes: LABEL_2[..2048].to_vec() });
    all
}

/// Tables of areas that cannot be.
fn areas() -> Vec<Image> {
    let mut all = vec![image("format 2, an area less", LABEL_2, AT_COUNTS + 1, &[AREAS as u8 - 1])];
    for (nth, kind) in AreaKind::ALL.iter().enumerate() {
        let (row, name) = (AT_AREAS + nth * AREA_ROW_BYTES, kind.name());
        let mut bad = |what: &str, at: usize, bytes: &[u8]| {
            all.push(image(format!("format 2, {name}: {what}"), LABEL_2, row + at, bytes));
        };
        bad("another kind", 0, &[9]);
        bad("no bytes", 4, &[0; 4]);
        bad("in the data", 8, &(32_u64 << 20).to_le_bytes());
        bad("behind the end", 8, &(1_u64 << 50).to_le_bytes());
        bad("not at a block", 8, &((1_u64 << 45) + 1).to_le_bytes());
    }
    all
}

/// What becomes of a set of bits that no program knows, each by itself: all of them the same, but for the bit's number.
fn unknown_rows(out: &mut String) {
    for (name, at, bits) in UNKNOWN {
        let (first, last) = (bits.start, bits.end - 1);
        let outcome = |bit: u32| match Outcome::of(&feature(at, bit)) {
            Outcome::Refused(why) => {
                assert!(why.ends_with(&format!("bit {bit}")), "{name} bit {bit}: {why}");
                format!("refused: {}", why.replace(&format!("bit {bit}"), "bit N"))
            }
            other => said(&other),
        };
        let outcomes: Vec<String> = bits.map(outcome).collect();
        assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]), "{name}: {outcomes:?}");
        writeln!(out, "| format 2, `{name}` bit N, {first} to {last} | {} |", outcomes[0])
            .expect("a string");
    }
}

fn said(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Opens => "opens".to_owned(),
        Outcome::Refused(why) => format!("refused: {why}"),
        Outcome::Passed(why) => format!("no label: {why}; the newest sound one counts"),
    }
}

/// The table, as the document has it.
pub fn table() -> String {
    let mut out = String::from("| The label says | This version |\n| --- | --- |\n");
    for image in images() {
        writeln!(out, "| {} | {} |", image.what, said(&Outcome::of(&image.bytes)))
            .expect("a string");
    }
    unknown_rows(&mut out);
    out
}
