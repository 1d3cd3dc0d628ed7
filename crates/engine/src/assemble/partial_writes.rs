//! Recovery of consistent stripes after interrupted small writes, from partial-write records.
//!
//! Each block of such a write is old or new, and one of its words shows which ([`strake_ondisk::partial_write`]).
//! Parities that match the data (both old or both new) determine a lost strip. If they do not suffice, the other
//! parities also determine it, together with the other content of the data as one more unknown. Incomplete writes are
//! completed or reverted: the present data stay, and parity is made to match.

use strake_ondisk::{
    BadList, HEAD_BYTES, PartialWrite, RecordedState, Superblock, WITNESS_BYTES, Witness,
};
use strake_parity::{Code, CodeError, Recovery, encode};
use strake_raid::{Geometry, Role};
use strake_units::{Lba, LbaRange, MemberIndex, StripSet};

use super::recovery::PartialWrites;
use crate::drive::Drive;
use crate::error::{ArrayError, ArrayErrorKind};
use crate::fleet::{Failed, Fleet, Read, Reading, Writing};

/// Alignment of reads of the control plane.
const ALIGN: u64 = 4096;

/// One block of every strip of a stripe, data strips first; `None` for an unreadable block.
type Row<'a> = [Option<&'a [u8]>];

/// The content of the data strips of a row, and its certainty.
#[derive(Debug, PartialEq, Eq)]
struct Agreed {
    /// Content by strip.
    data: Vec<Vec<u8>>,
    /// True if the content of unreadable strips is certain. Otherwise, their content was computed to match the rest.
    sure: bool,
}

/// Determines the content of all data strips of a row, in which strip `written` was being written together with the
/// parities. `new` contains the strips with new content. Returns `None` if more strips are missing than the row has
/// parities.
fn agree(
    code: &Code,
    row: &Row<'_>,
    written: u8,
    new: StripSet,
) -> Result<Option<Agreed>, CodeError> {
    let k = code.data() as u8;
    let is_new = |strip: &u8| new.contains(strip);
    let known = |strip: &u8| row[usize::from(*strip)].is_some();
    let lost: Vec<u8> = (0..k).filter(|strip| !known(strip)).collect();
    let parities: Vec<u8> = (k..row.len() as u8).filter(known).collect();
    let (news, olds): (Vec<u8>, Vec<u8>) = parities.iter().partition(|strip| is_new(strip));
    let with_written = || lost.iter().copied().chain([written]).collect::<Vec<u8>>();
    let solve = |unknown: &[u8], from: &[u8]| recover(code, row, unknown, from);
    if !known(&written) {
        // Either content is acceptable, as long as the parities match it.
        let from = [&news, &olds].into_iter().find(|from| from.len() >= lost.len());
        let sure = from.is_some();
        let from = from.unwrap_or(&parities);
        return Ok(solve(&lost, from)?.map(|data| Agreed { data, sure }));
    }
    let (alike, others) = if is_new(&written) { (&news, &olds) } else { (&olds, &news) };
    if alike.len() >= lost.len() {
        return Ok(solve(&lost, alike)?.map(|data| Agreed { data, sure: true }));
    }
    let whole = if others.len() > lost.len() { solve(&with_written(), others)? } else { None };
    if let Some(mut data) = whole {
        // The solution for this strip is its other content.
        data[usize::from(written)] = row[usize::from(written)].expect("known").to_vec();
        return Ok(Some(Agreed { data, sure: true }));
    }
    Ok(solve(&lost, &parities)?.map(|data| Agreed { data, sure: false }))
}

/// Returns all data strips of a row. Reconstructs the strips in `unknown` from the other strips and the parities in
/// `from`. Returns `None` if there are too few parities.
fn recover(
    code: &Code,
    row: &Row<'_>,
    unknown: &[u8],
    from: &[u8],
) -> Result<Option<Vec<Vec<u8>>>, CodeError> {
    let strips = 0..code.data() as u8;
    let Some(from) = from.get(..unknown.len()) else { return Ok(None) };
    let known: Vec<u8> =
        strips.clone().filter(|s| !unknown.contains(s)).chain(from.iter().copied()).collect();
    let block = |strip: &u8| row[usize::from(*strip)].expect("it is known");
    let sources: Vec<&[u8]> = known.iter().map(block).collect();
    let mut found = vec![vec![0; sources[0].len()]; unknown.len()];
    if !unknown.is_empty() {
        let mut targets: Vec<&mut [u8]> = found.iter_mut().map(Vec::as_mut_slice).collect();
        Recovery::new(code, &known, unknown)?.apply(&sources, &mut targets)?;
    }
    let mut found = unknown.iter().zip(found).collect::<Vec<_>>();
    let data = strips.map(|strip| match found.iter().position(|(of, _)| **of == strip) {
        Some(at) => std::mem::take(&mut found[at].1),
        None => block(&strip).to_vec(),
    });
    Ok(Some(data.collect()))
}

/// The recovery of one partial write.
#[derive(Debug, Default)]
pub(super) struct Remedy {
    /// Writes to members.
    pub(super) writes: Vec<Writing>,
    /// True if the content of lost strips is certain.
    pub(super) sure: bool,
    /// True if parity of the stripe stays unchanged although it may not match.
    pub(super) left: bool,
    written: Written,
}

/// The state of the strip that was being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Written {
    /// None of its blocks is readable.
    #[default]
    Lost,
    /// All its blocks are old.
    Old,
    /// Some or all of its blocks are new.
    New,
}

impl Remedy {
    /// Counts the finding.
    pub(super) fn tell(&self, partial_writes: &mut PartialWrites) {
        match self.written {
            Written::Lost => partial_writes.lost += 1,
            Written::Old => partial_writes.old += 1,
            Written::New => partial_writes.new += 1,
        }
        partial_writes.repaired += u64::from(!self.writes.is_empty());
        partial_writes.unsure += u64::from(!self.sure);
    }
}

/// The blocks of a partial write on a member.
struct Strip {
    bytes: Vec<u8>,
    blocks: Vec<Block>,
}

/// The state of a block of a strip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    /// The block is readable.
    Here,
    /// The block is unreadable, but can be written.
    Unreadable,
    /// The member is not used.
    Unused,
}

/// The context for the recovery of partial writes.
pub(super) struct Site<'a> {
    label: &'a Superblock,
    geometry: &'a Geometry,
    drives: &'a [Option<Drive>],
    bad: &'a BadList,
    code: Code,
}

impl<'a> Site<'a> {
    /// # Errors
    /// If this version cannot compute the parity of the array.
    pub(super) fn new(
        label: &'a Superblock,
        geometry: &'a Geometry,
        drives: &'a [Option<Drive>],
        bad: &'a BadList,
    ) -> Result<Self, ArrayError> {
        let (k, m) = (geometry.data_strips(), geometry.parity_strips());
        let code = Code::new(k.into(), m.into()).map_err(|error| unusable(&error))?;
        Ok(Self { label, geometry, drives, bad, code })
    }

    fn member(&self, partial_write: &PartialWrite, strip: u8) -> MemberIndex {
        let k = self.geometry.data_strips();
        let role = if strip < k {
            Role::Data { strip, copy: 0 }
        } else {
            Role::Parity { index: strip - k }
        };
        self.geometry
            .member(partial_write.stripe, self.geometry.position(partial_write.stripe, role))
    }

    /// True if the blocks of the partial write exist in the array.
    pub(super) fn has(&self, partial_write: &PartialWrite) -> bool {
        let end = u64::from(partial_write.offset) + u64::from(partial_write.blocks);
        let words = self.geometry.block_size().bytes() as usize / WITNESS_BYTES;
        let inside = |witness: &Witness| witness.word.is_none_or(|word| usize::from(word) < words);
        partial_write.witnesses.iter().all(inside)
            && partial_write.stripe.0 < self.geometry.stripes()
            && partial_write.strip < self.geometry.data_strips()
            && partial_write.parities == self.geometry.parity_strips()
            && end <= self.geometry.strip_blocks().into()
    }

    /// Returns the byte offset on every member of the blocks of the partial write.
    fn offset(&self, partial_write: &PartialWrite) -> u64 {
        let at = self.geometry.member_lba(partial_write.stripe, partial_write.offset);
        HEAD_BYTES + at.bytes(self.geometry.block_size())
    }

    /// Returns the read of a strip's blocks of the partial write, in whole pages; `None` if the member is not in sync.
    fn reading(&self, partial_write: &PartialWrite, strip: u8) -> Option<Reading> {
        let member = self.member(partial_write, strip);
        let in_sync = self.label.members[member.at()].state == RecordedState::InSync;
        if !in_sync || self.drives[member.at()].is_none() {
            return None;
        }
        let start = self.offset(partial_write);
        let bytes = u64::from(partial_write.blocks) * u64::from(self.geometry.block_size().bytes());
        let offset = start / ALIGN * ALIGN;
        let until = (start + bytes).next_multiple_of(ALIGN);
        Some(Reading { member, offset, bytes: until - offset })
    }

    /// Returns a strip's blocks of the partial write. `read` is the result of `reading`.
    fn strip(&self, partial_write: &PartialWrite, reading: &Reading, read: &Read) -> Strip {
        let size = u64::from(self.geometry.block_size().bytes());
        let skipped = self.offset(partial_write) - reading.offset;
        let first = self.geometry.member_lba(partial_write.stripe, partial_write.offset);
        let stands = |nth: u64| {
            let at = LbaRange::new(Lba(first.0 + nth), 1);
            if self.bad.within(reading.member, at).next().is_some() {
                Block::Unused
            } else if read.readable[((skipped + nth * size) / ALIGN) as usize] {
                Block::Here
            } else {
                Block::Unreadable
            }
        };
        let bytes = u64::from(partial_write.blocks) * size;
        Strip {
            bytes: read.bytes[skipped as usize..(skipped + bytes) as usize].to_vec(),
            blocks: (0..partial_write.blocks.into()).map(stands).collect(),
        }
    }

    /// Returns the recovery that makes all strips consistent for each of `partial_writes`. All strips are read
    /// concurrently.
    ///
    /// # Errors
    /// If members fail. The error names the members.
    pub(super) fn remedies(
        &self,
        partial_writes: &[PartialWrite],
        fleet: &mut Fleet<'_>,
    ) -> Result<Vec<Remedy>, Failed> {
        let k = self.geometry.data_strips();
        let strips = |partial_write: &PartialWrite| {
            (0..k + partial_write.parities)
                .map(|strip| self.reading(partial_write, strip))
                .collect::<Vec<_>>()
        };
        let wanted: Vec<Vec<Option<Reading>>> = partial_writes.iter().map(strips).collect();
        let readings: Vec<Reading> = wanted.iter().flatten().flatten().copied().collect();
        let found = fleet.read(&readings, "reading blocks that were in flight at the crash")?;
        let mut found = found.iter();
        let mut remedies = Vec::new();
        for (partial_write, wanted) in partial_writes.iter().zip(wanted) {
            let strip = |reading: Option<Reading>| {
                let reading = reading?;
                Some(self.strip(partial_write, &reading, found.next()?))
            };
            let strips: Vec<Option<Strip>> = wanted.into_iter().map(strip).collect();
            let mut remedy = Remedy { sure: true, ..Remedy::default() };
            for block in 0..partial_write.blocks {
                // The codes of arrays are always valid, so this error does not occur.
                self.remedy_row(partial_write, block, &strips, &mut remedy)
                    .map_err(|e| unusable(&e))?;
            }
            remedies.push(remedy);
        }
        Ok(remedies)
    }

    fn remedy_row(
        &self,
        partial_write: &PartialWrite,
        block: u32,
        strips: &[Option<Strip>],
        remedy: &mut Remedy,
    ) -> Result<(), CodeError> {
        let k = self.geometry.data_strips();
        let size = self.geometry.block_size().bytes() as usize;
        let at = block as usize;
        let stands = |strip: &Option<Strip>| strip.as_ref().map(|strip| strip.blocks[at]);
        let here = |strip: &'_ Option<Strip>| stands(strip) == Some(Block::Here);
        let row: Vec<Option<&[u8]>> = strips
            .iter()
            .map(|strip| {
                let bytes = strip.as_ref().filter(|_| here(strip))?;
                Some(&bytes.bytes[at * size..(at + 1) * size])
            })
            .collect();
        let witness = &partial_write.witnesses[at];
        let strip_of = |part| if part == 0 { partial_write.strip } else { k + part - 1 };
        let parts = (0..=partial_write.parities).map(|part| (part, strip_of(part)));
        let holds = |(part, strip): &(u8, u8)| {
            row[usize::from(*strip)].is_some_and(|bytes| witness.is_new(*part, bytes))
        };
        let new: StripSet = parts.filter(holds).map(|(_, strip)| strip).collect();
        if new.contains(partial_write.strip) {
            remedy.written = Written::New;
        } else if row[usize::from(partial_write.strip)].is_some() && remedy.written == Written::Lost
        {
            remedy.written = Written::Old;
        }
        let Some(agreed) = agree(&self.code, &row, partial_write.strip, new)? else {
            (remedy.sure, remedy.left) = (false, true);
            return Ok(());
        };
        remedy.sure &= agreed.sure;
        let data: Vec<&[u8]> = agreed.data.iter().map(Vec::as_slice).collect();
        let mut parity = vec![vec![0; size]; partial_write.parities.into()];
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        encode(&self.code, &data, &mut targets)?;
        let offset = self.offset(partial_write) + (at * size) as u64;
        for (strip, right) in (0..).zip(agreed.data.iter().chain(&parity)) {
            let differs = row[usize::from(strip)].is_some_and(|found| found != right);
            // An unreadable block may be old, and may become readable later.
            let unreadable = stands(&strips[usize::from(strip)]) == Some(Block::Unreadable);
            if differs || unreadable {
                let member = self.member(partial_write, strip);
                remedy.writes.push(Writing { member, offset, bytes: right.clone() });
            }
        }
        Ok(())
    }
}

fn unusable(error: &CodeError) -> ArrayError {
    ArrayError::new(ArrayErrorKind::Usage, error.to_string())
}

#[cfg(test)]
mod tests;
