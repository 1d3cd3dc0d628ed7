//! The tokens of I/Os in the queues of members.
//!
//! ```text
//!  63 62 61                             32 31                              0
//!  kind | turn: counts reuse of the place | place: of an I/O, a direct read, or a part of something
//! ```

use strake_block::Token;
use strake_raid::PARTS_MAX;

/// Number of bits for the part. The remaining bits of the place identify the write or read.
const PART_BITS: u32 = 6;

const KIND_SHIFT: u32 = 62;
const READ_PART: u64 = 1;
const DIRECT: u64 = 2;
const WRITE_PART: u64 = 3;

/// The bit that only the kinds of parts have, and the bit that distinguishes them.
const PART: u64 = 1;
const OF_WRITE: u64 = 2;

/// The operation to which a part belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// A small write.
    Write,
    /// A degraded read.
    Read,
}

/// Identifies an I/O of a small write or of a degraded read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartIo {
    pub(crate) whole: Whole,
    /// The index of the write or read in its table.
    pub(crate) number: u32,
    pub(crate) part: u8,
}

/// The generation after this value is 0.
pub(super) const GENERATION_MAX: u32 = u32::MAX >> 2;

/// Number of parts that a token can distinguish.
pub(crate) const PARTS_NAMED_MAX: usize = 1 << PART_BITS;

const _: () = assert!(PARTS_MAX <= PARTS_NAMED_MAX, "every part has its number");

/// The object that a token names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// An ordinary I/O.
    Inflight { place: u32, generation: u32 },
    /// A direct read.
    Direct { place: u32, generation: u32 },
    /// An unpromoted part.
    Part { io: PartIo, generation: u32 },
}

impl Named {
    /// Returns the token.
    #[inline]
    pub(super) fn token(self) -> Token {
        let (kind, generation, place) = match self {
            Self::Inflight { place, generation } => (0, generation, place),
            Self::Direct { place, generation } => (DIRECT, generation, place),
            Self::Part { io, generation } => {
                let kind = match io.whole {
                    Whole::Write => WRITE_PART,
                    Whole::Read => READ_PART,
                };
                (kind, generation, io.number << PART_BITS | u32::from(io.part))
            }
        };
        Token(kind << KIND_SHIFT | u64::from(generation & GENERATION_MAX) << 32 | u64::from(place))
    }

    /// Returns the object that `token` names. The bits of the kind are tested one by one, because a table of four jumps
    /// would cost more.
    #[inline(always)]
    pub(super) fn of(token: Token) -> Self {
        let generation = (token.0 >> 32) as u32 & GENERATION_MAX;
        let place = token.0 as u32;
        if is_part(token) {
            let (io, generation) = part_of(token);
            return Self::Part { io, generation };
        }
        match token.0 >> KIND_SHIFT {
            DIRECT => Self::Direct { place, generation },
            _ => Self::Inflight { place, generation },
        }
    }
}

/// True if `token` names a part.
#[inline(always)]
pub(super) const fn is_part(token: Token) -> bool {
    token.0 & PART << KIND_SHIFT != 0
}

/// Returns the part that `token` names, and its generation.
#[inline(always)]
pub(super) const fn part_of(token: Token) -> (PartIo, u32) {
    let place = token.0 as u32;
    let write = token.0 & OF_WRITE << KIND_SHIFT != 0;
    let whole = if write { Whole::Write } else { Whole::Read };
    let part = (place & ((1 << PART_BITS) - 1)) as u8;
    let io = PartIo { whole, number: place >> PART_BITS, part };
    (io, (token.0 >> 32) as u32 & GENERATION_MAX)
}

/// Returns the generation after `generation`.
#[inline]
pub(crate) const fn next(generation: u32) -> u32 {
    generation.wrapping_add(1) & GENERATION_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_what_it_was_made_of() {
        for generation in [0, 1, 77, GENERATION_MAX] {
            for place in [0, 5, 511, u32::MAX >> PART_BITS] {
                let part = |whole, parts: usize| {
                    let io = PartIo { whole, number: place, part: (parts - 1) as u8 };
                    Named::Part { io, generation }
                };
                let kinds = [
                    Named::Inflight { place, generation },
                    Named::Direct { place, generation },
                    part(Whole::Write, PARTS_NAMED_MAX),
                    part(Whole::Read, PARTS_NAMED_MAX),
                ];
                for named in kinds {
                    assert_eq!(Named::of(named.token()), named);
                }
            }
        }
        assert_eq!(next(GENERATION_MAX), 0);
    }
}
