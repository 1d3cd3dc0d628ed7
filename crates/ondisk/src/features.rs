//! Features that a label says its array uses: which a program must know to write, or to read.
//!
//! Bits are given out for good. One that is reserved has a name and is not known: a label with it is refused, by name.

use std::fmt;

/// `compat`: the label remembers activations, see `Superblock::history`.
pub const COMPAT_HISTORY: u64 = 1;
/// `compat`: since every absent member left, all writers of labels have kept its dirty bitmap.
pub const COMPAT_MEMBER_BITMAPS: u64 = 2;
/// `compat`: in this activation a member is, or was, a drive of another machine, which may carry out writes for some
/// seconds after a crash of the daemon. Without it in the label of an activation, all members were of one machine.
pub const COMPAT_REMOTE: u64 = 4;
/// `compat`: what the write-intent bitmap marks after an orderly stop goes back to a crash, so that parity there may be
/// wrong for blocks that hold data. Without it such marks are of an array that has never been initialized.
pub const COMPAT_AFTER_CRASH: u64 = 8;
/// `compat`: the start that began this activation found the array shut down cleanly, with the same members in sync.
pub const COMPAT_CLEAN_START: u64 = 16;
/// `compat` bits known: features that a program may ignore when it reads and when it writes.
pub const COMPAT_KNOWN: u64 = COMPAT_HISTORY
    | COMPAT_MEMBER_BITMAPS
    | COMPAT_REMOTE
    | COMPAT_AFTER_CRASH
    | COMPAT_CLEAN_START;
/// `ro_compat` bits known: features that a program may ignore as long as it does not write.
pub const RO_COMPAT_KNOWN: u64 = 0;
/// `incompat`: members have bad blocks, which must not be read; see [`crate::bad_blocks`].
pub const INCOMPAT_BAD_BLOCKS: u64 = 1;
/// `incompat`: writes that a crash has cut short may have to be done again from the redo log; see [`crate::redo`].
pub const INCOMPAT_REDO: u64 = 2;
/// `incompat`: among the records that have to be carried out are lists of partial writes; see [`crate::partial_write`].
pub const INCOMPAT_PARTIAL_WRITES: u64 = 4;
/// `incompat`: regions are [in doubt](crate::Bitmap::InDoubt), which has to be accepted before the array is started.
pub const INCOMPAT_IN_DOUBT: u64 = 8;
/// `incompat`, reserved: the area of the header log is in use; see [`crate::areas`].
pub const INCOMPAT_HEADER_LOG: u64 = 1 << 4;
/// `incompat`, reserved: the area of checksum pages is in use.
pub const INCOMPAT_CHECKSUMS: u64 = 1 << 5;
/// `incompat`, reserved: the float holds data that have no other place.
pub const INCOMPAT_FLOAT: u64 = 1 << 6;
/// `incompat`, reserved: the label has a second geometry and a front between the two.
pub const INCOMPAT_SECOND_GEOMETRY: u64 = 1 << 7;
/// `incompat` bits known: features that a program must know to read anything.
pub const INCOMPAT_KNOWN: u64 =
    INCOMPAT_BAD_BLOCKS | INCOMPAT_REDO | INCOMPAT_PARTIAL_WRITES | INCOMPAT_IN_DOUBT;

/// Which bits are known, in words; they are given out from bit 0 on.
#[must_use]
pub fn known_bits(known: u64) -> String {
    match known.count_ones() {
        0 => "none".to_owned(),
        count => format!("bits 0 to {}", count - 1),
    }
}

const _: () = assert!((INCOMPAT_KNOWN + 1).is_power_of_two() && RO_COMPAT_KNOWN == 0);

/// Names of `incompat` bits, known and reserved.
const INCOMPAT_NAMES: [(u64, &str); 8] = [
    (INCOMPAT_BAD_BLOCKS, "bad blocks"),
    (INCOMPAT_REDO, "redo log"),
    (INCOMPAT_PARTIAL_WRITES, "partial-write records"),
    (INCOMPAT_IN_DOUBT, "regions in doubt"),
    (INCOMPAT_HEADER_LOG, "header log"),
    (INCOMPAT_CHECKSUMS, "checksum pages"),
    (INCOMPAT_FLOAT, "reshape area"),
    (INCOMPAT_SECOND_GEOMETRY, "second geometry"),
];

/// Bits of one of the three sets of features, for a person: their numbers, and their names where they have one.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    bits: u64,
    names: &'static [(u64, &'static str)],
}

impl Features {
    /// `incompat` bits.
    #[must_use]
    pub const fn incompat(bits: u64) -> Self {
        Self { bits, names: &INCOMPAT_NAMES }
    }

    /// `ro_compat` bits, of which none has a name.
    #[must_use]
    pub const fn ro_compat(bits: u64) -> Self {
        Self { bits, names: &[] }
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = (0..64).filter(|bit| self.bits & 1 << bit != 0);
        for (nth, bit) in set.enumerate() {
            f.write_str(if nth == 0 { "bit " } else { ", bit " })?;
            write!(f, "{bit}")?;
            if let Some((_, name)) = self.names.iter().find(|(named, _)| *named == 1_u64 << bit) {
                write!(f, " ({name})")?;
            }
        }
        Ok(())
    }
}
