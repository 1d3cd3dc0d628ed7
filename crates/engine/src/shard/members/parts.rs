//! The state of parts that small writes and degraded reads have in common.
//!
//! A part in progress has one of three states. First: its device has it under the part's own token; it is in
//! `unpromoted`. Second: it was promoted while its device had it under this token; it is in `ordinary`, and the token
//! is in `promoted`. Third: a member could not accept it immediately; it is in `ordinary`, and has the token of an
//! ordinary I/O. Only ordinary I/Os are abandoned. Therefore a completion that arrives after the end of its write or
//! read is in `promoted`, or is an I/O for which nothing waits.

use strake_block::Token;
use strake_units::Set;
use strake_units::set::{IndexOf, Kind};

use super::{Failed, PartIo, Sent};

/// Parts of one small write or degraded read.
pub(in crate::shard) type PartSet = Set<OfParts>;

/// The kind of a [`PartSet`]. It has no values: a part is a `u8`.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) enum OfParts {}

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

/// The parts of one small write or degraded read that are in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::shard) struct Out {
    /// Parts that devices have under the parts' own tokens.
    unpromoted: PartSet,
    /// Parts that are ordinary I/Os. No part is in both sets.
    ordinary: PartSet,
}

impl Out {
    /// Records that a part was sent.
    #[inline]
    pub(in crate::shard) fn sent(&mut self, part: u8, sent: Sent) {
        match sent {
            Sent::Direct => self.unpromoted.insert(part),
            Sent::Ordinary => self.ordinary.insert(part),
        }
    }

    /// Records the completion of a part. Returns true if no part is in progress.
    #[inline]
    pub(in crate::shard) fn back(&mut self, part: u8) -> bool {
        self.unpromoted.remove(part);
        self.ordinary.remove(part);
        (self.unpromoted | self.ordinary).is_empty()
    }

    /// Returns the parts that devices have under the parts' own tokens and that were not promoted.
    #[inline]
    pub(in crate::shard) fn unpromoted(&self) -> PartSet {
        self.unpromoted
    }

    /// Records that all parts in progress are ordinary I/Os.
    pub(in crate::shard) fn promote(&mut self) {
        self.ordinary |= self.unpromoted;
        self.unpromoted = PartSet::EMPTY;
    }
}

/// Rare information about parts, stored outside the entries of a table.
#[derive(Default)]
pub(in crate::shard) struct Strays {
    /// Failed parts of all entries.
    failed: Vec<(PartIo, Failed)>,
    /// Parts that were promoted while a device had them: the token of the part, and the ordinary I/O.
    promoted: Vec<(Token, u32)>,
}

impl Strays {
    /// Records the failure of a part.
    pub(in crate::shard) fn fail(&mut self, io: PartIo, failed: Failed) {
        self.failed.push((io, failed));
    }

    /// Removes and returns the failed parts of entry `number` with their errors.
    pub(in crate::shard) fn take_failed(
        &mut self,
        number: u32,
    ) -> impl Iterator<Item = (u8, Failed)> + '_ {
        let failed = self.failed.extract_if(.., move |(io, _)| io.number == number);
        failed.map(|(io, failed)| (io.part, failed))
    }

    /// Returns the failed parts of writes or reads that still have outstanding parts.
    pub(in crate::shard) fn failed(&self) -> impl Iterator<Item = Failed> + '_ {
        self.failed.iter().map(|(_, failed)| *failed)
    }

    /// Records that a part became an ordinary I/O while its device had it.
    pub(in crate::shard) fn promote(&mut self, promoted: (Token, u32)) {
        self.promoted.push(promoted);
    }

    /// Removes and returns the ordinary I/O of the promoted part with this token. Callers check this first for every
    /// part, because generations repeat after 2^30 phases of an entry.
    #[inline]
    pub(in crate::shard) fn take_promoted(&mut self, token: Token) -> Option<u32> {
        if self.promoted.is_empty() {
            return None;
        }
        let at = self.promoted.iter().position(|(promoted, _)| *promoted == token)?;
        Some(self.promoted.swap_remove(at).1)
    }
}
