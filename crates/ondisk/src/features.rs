//! Features of an array in its label, which a program must support to write or to read.
//!
//! Bits are assigned permanently. A reserved bit has a name but is not supported: a label with this bit is refused, and
//! the error contains the name.

use std::fmt;

/// `compat`: the label remembers activations, see `Superblock::history`.
pub const COMPAT_HISTORY: u64 = 1;
/// `compat`: since every absent member left, all writers of labels have kept its dirty bitmap.
pub const COMPAT_MEMBER_BITMAPS: u64 = 2;
/// `compat`: in this activation, a member is or was a remote drive, which may execute writes for some seconds after a
/// crash of the daemon. Without this bit in the label of an activation, all members were local.
pub const COMPAT_REMOTE: u64 = 4;
/// `compat`: bits in the write-intent bitmap after a clean shutdown result from a crash, so that parity there may be
/// wrong for blocks with data. Without this bit, such bits belong to an array that was never completely initialized.
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
/// `incompat`: members have bad blocks, which must not be read, see [`crate::bad_blocks`].
pub const INCOMPAT_BAD_BLOCKS: u64 = 1;
/// `incompat`: writes that a crash interrupted may have to be replayed from the redo log, see [`crate::redo`].
pub const INCOMPAT_REDO: u64 = 2;
/// `incompat`: the records for a replay may contain lists of partial writes, see [`crate::partial_write`].
pub const INCOMPAT_PARTIAL_WRITES: u64 = 4;
/// `incompat`: regions are [in doubt](crate::Bitmap::InDoubt), which the operator must accept before the start of the
/// array.
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

/// Describes the supported bits, which are assigned from bit 0 on.
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

/// Bits of one of the three sets of features for messages: their numbers, and their names if any.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    bits: u64,
    names: &'static [(u64, &'static str)],
}

impl Features {
    /// Creates a value of `incompat` bits.
    #[must_use]
    pub const fn incompat(bits: u64) -> Self {
        Self { bits, names: &INCOMPAT_NAMES }
    }

    /// Creates a value of `ro_compat` bits, which have no names.
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
