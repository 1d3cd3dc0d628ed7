//! What the tokens of I/Os at members' queues name.
//!
//! ```text
//!  63 62 61                             32 31                              0
//!  kind | turn: counts reuse of the place | place: of an I/O, a direct read, or a part of something
//! ```

use strake_block::Token;

use super::super::{recovered, small};
use super::{PartIo, Whole};

/// Parts have this many bits of the place; what they are a part of has the rest.
const PART_BITS: u32 = 6;

const KIND_SHIFT: u32 = 62;
const READ_PART: u64 = 1;
const DIRECT: u64 = 2;
const WRITE_PART: u64 = 3;

/// Turns come back to zero after this one.
pub(super) const TURN_MAX: u32 = u32::MAX >> 2;

const _: () = assert!(small::PARTS_MAX <= 1 << PART_BITS, "every part has its number");
const _: () = assert!(recovered::STRIPS_MAX <= 1 << PART_BITS, "every part has its number");

/// What a token names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// An I/O with a place among those in flight.
    Inflight { place: u32, turn: u32 },
    /// A direct read.
    Direct { place: u32, turn: u32 },
    /// A part that has no other place.
    Part { io: PartIo, turn: u32 },
}

impl Named {
    /// The token.
    #[inline]
    pub(super) fn token(self) -> Token {
        let (kind, turn, place) = match self {
            Self::Inflight { place, turn } => (0, turn, place),
            Self::Direct { place, turn } => (DIRECT, turn, place),
            Self::Part { io, turn } => {
                let kind = match io.whole {
                    Whole::Write => WRITE_PART,
                    Whole::Read => READ_PART,
                };
                (kind, turn, io.number << PART_BITS | u32::from(io.part))
            }
        };
        Token(kind << KIND_SHIFT | u64::from(turn & TURN_MAX) << 32 | u64::from(place))
    }

    /// What `token` names.
    #[inline]
    pub(super) fn of(token: Token) -> Self {
        let turn = (token.0 >> 32) as u32 & TURN_MAX;
        let place = token.0 as u32;
        match token.0 >> KIND_SHIFT {
            DIRECT => Self::Direct { place, turn },
            WRITE_PART => Self::part(Whole::Write, place, turn),
            READ_PART => Self::part(Whole::Read, place, turn),
            _ => Self::Inflight { place, turn },
        }
    }
}

impl Named {
    #[inline]
    const fn part(whole: Whole, place: u32, turn: u32) -> Self {
        let part = (place & ((1 << PART_BITS) - 1)) as u8;
        Self::Part { io: PartIo { whole, number: place >> PART_BITS, part }, turn }
    }
}

/// The turn after `turn`.
#[inline]
pub(crate) const fn next(turn: u32) -> u32 {
    turn.wrapping_add(1) & TURN_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_what_it_was_made_of() {
        for turn in [0, 1, 77, TURN_MAX] {
            for place in [0, 5, 511, u32::MAX >> PART_BITS] {
                let part = |whole, parts: usize| {
                    let io = PartIo { whole, number: place, part: (parts - 1) as u8 };
                    Named::Part { io, turn }
                };
                let kinds = [
                    Named::Inflight { place, turn },
                    Named::Direct { place, turn },
                    part(Whole::Write, small::PARTS_MAX),
                    part(Whole::Read, recovered::STRIPS_MAX),
                ];
                for named in kinds {
                    assert_eq!(Named::of(named.token()), named);
                }
            }
        }
        assert_eq!(next(TURN_MAX), 0);
    }
}
