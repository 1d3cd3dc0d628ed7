//! What tables of small writes and of degraded reads know alike about parts.
//!
//! A part is out in one of three ways. Its device has it under the part's own token: in `out` alone. It was
//! promoted, and its device still has it under that token: also in `ordinary`, and the token is in `promoted`. Or a
//! member could not take it at once: also in `ordinary`, under the token of an ordinary I/O. Only ordinary ones are
//! given up, so whatever comes back after what it was a part of has ended is in `promoted`, or comes back as an I/O
//! that nothing waits for.

use strake_block::Token;
use strake_units::Set;
use strake_units::set::{IndexOf, Kind};

use super::members::{Failed, PartIo, Sent};

/// Parts of one small write or degraded read.
pub(super) type PartSet = Set<OfParts>;

/// The kind of a [`PartSet`]. It has no values: a part is a `u8`.
#[derive(Clone, Copy, Debug)]
pub(super) enum OfParts {}

impl Kind for OfParts {
    type Index = u8;

    #[inline]
    fn index(bit: u8) -> u8 {
        bit
    }
}

impl IndexOf<OfParts> for u8 {
    #[inline]
    fn bit(self) -> u32 {
        self.into()
    }
}

/// Which parts of one small write or degraded read are out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Out {
    /// Parts that are not back.
    out: PartSet,
    /// Those of them that are ordinary I/Os.
    ordinary: PartSet,
}

impl Out {
    /// A part is under way.
    #[inline]
    pub(super) fn sent(&mut self, part: u8, sent: Sent) {
        self.out.insert(part);
        if sent == Sent::Ordinary {
            self.ordinary.insert(part);
        }
    }

    /// A part is no longer out. True when none is.
    #[inline]
    pub(super) fn back(&mut self, part: u8) -> bool {
        self.out.remove(part);
        self.ordinary.remove(part);
        self.out.is_empty()
    }

    /// Parts that devices have under their own tokens and that were not promoted.
    #[inline]
    pub(super) fn unpromoted(&self) -> PartSet {
        self.out - self.ordinary
    }

    /// All of them are ordinary I/Os from now on.
    pub(super) fn promote(&mut self) {
        self.ordinary = self.out;
    }
}

/// What is known of parts beside the places of a table: few have it.
#[derive(Default)]
pub(super) struct Strays {
    /// Parts that failed, of all places.
    failed: Vec<(PartIo, Failed)>,
    /// Parts that were made ordinary I/Os while a device had them, by the tokens that these have; and the I/Os.
    promoted: Vec<(Token, u32)>,
}

impl Strays {
    /// A part has failed.
    pub(super) fn fail(&mut self, io: PartIo, failed: Failed) {
        self.failed.push((io, failed));
    }

    /// The parts of place `number` that failed, and how.
    pub(super) fn take_failed(&mut self, number: u32) -> impl Iterator<Item = (u8, Failed)> + '_ {
        let failed = self.failed.extract_if(.., move |(io, _)| io.number == number);
        failed.map(|(io, failed)| (io.part, failed))
    }

    /// The parts that failed and were not taken yet, because others of the same whole are outstanding.
    pub(super) fn failed(&self) -> impl Iterator<Item = Failed> + '_ {
        self.failed.iter().map(|(_, failed)| *failed)
    }

    /// A part became an ordinary I/O while its device had it.
    pub(super) fn promote(&mut self, promoted: (Token, u32)) {
        self.promoted.push(promoted);
    }

    /// The ordinary I/O that the part with this token became. To be asked before anything else about a part: after 2^30
    /// phases of a place its turns come again.
    #[inline]
    pub(super) fn take_promoted(&mut self, token: Token) -> Option<u32> {
        if self.promoted.is_empty() {
            return None;
        }
        let at = self.promoted.iter().position(|(promoted, _)| *promoted == token)?;
        Some(self.promoted.swap_remove(at).1)
    }
}
