//! Making the strips of a stripe agree where small writes were in progress, from their partial-write records.
//!
//! Each block of such a write is old or new, and one of its words says which ([`strake_ondisk::partial_write`]).
//! Parities that are as new as the data say what a lost strip held. If there are too few of them, those that are not
//! say it together with the data's other content, which is one more unknown. Whatever was written only in part is taken
//! back or completed: the data that is there stays, and parity is made to fit.

use strake_ondisk::{
    BadList, HEAD_BYTES, PartialWrite, RecordedState, Superblock, WITNESS_BYTES, Witness,
};
use strake_parity::{Code, CodeError, Recovery, encode};
use strake_raid::{Geometry, Role};
use strake_units::{Lba, LbaRange, MemberIndex, StripSet};

use super::recovery::PartialWrites;
use crate::create::Drive;
use crate::error::{ArrayError, ArrayErrorKind};
use crate::fleet::{Failed, Fleet, Read, Reading, Writing};

/// Reads of the control plane begin and end at multiples of this.
const ALIGN: u64 = 4096;

/// One block of every strip of a stripe, data first; `None` where it cannot be read.
type Row<'a> = [Option<&'a [u8]>];

/// What the data strips of a row hold, and how that is known.
#[derive(Debug, PartialEq, Eq)]
struct Agreed {
    /// By strip.
    data: Vec<Vec<u8>>,
    /// What could not be read is what it was. Otherwise it is calculated to agree with the rest.
    sure: bool,
}

/// Finds what all data strips of a row hold of which strip `written` was being written, with the parities. `new` are
/// the strips that hold what was to be written. `None` when more is missing than there is parity.
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
        // Either content will do, as long as parities agree about it.
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
        // What was solved for is its other content.
        data[usize::from(written)] = row[usize::from(written)].expect("known").to_vec();
        return Ok(Some(Agreed { data, sure: true }));
    }
    Ok(solve(&lost, &parities)?.map(|data| Agreed { data, sure: false }))
}

/// All data strips of a row, those in `unknown` from the others and the parities in `from`; `None` when there are too
/// few of those.
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

/// What is to be done about one partial write.
#[derive(Debug, Default)]
pub(super) struct Remedy {
    /// What members have to be given.
    pub(super) writes: Vec<Writing>,
    /// What is lost of the stripe is certain to be what it was.
    pub(super) sure: bool,
    /// Parity of the stripe is left as it is, though it is unknown whether it fits.
    pub(super) left: bool,
    written: Written,
}

/// What was found of the strip that was being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Written {
    /// Nothing, in any of its blocks.
    #[default]
    Lost,
    /// What it held before.
    Old,
    /// Some of what was to be written, or all of it.
    New,
}

impl Remedy {
    /// Counts what was found.
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

/// What a member has of the blocks of a partial write.
struct Strip {
    bytes: Vec<u8>,
    blocks: Vec<Block>,
}

/// How a block of a strip stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    /// It can be read.
    Here,
    /// It cannot, but written.
    Unreadable,
    /// What is there is not used.
    Unused,
}

/// Where partial writes are looked at.
pub(super) struct Site<'a> {
    label: &'a Superblock,
    geometry: &'a Geometry,
    drives: &'a [Option<Drive>],
    bad: &'a BadList,
    code: Code,
}

impl<'a> Site<'a> {
    /// # Errors
    /// When no program of this version can compute such parity.
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

    /// True when the array has what the partial write is about.
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

    /// Byte offset on every member of what the partial write is about.
    fn offset(&self, partial_write: &PartialWrite) -> u64 {
        let at = self.geometry.member_lba(partial_write.stripe, partial_write.offset);
        HEAD_BYTES + at.bytes(self.geometry.block_size())
    }

    /// Where the partial write's blocks of a strip are, in whole pages; `None` when the member that has them is not in
    /// sync.
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

    /// The partial write's blocks of a strip, of which `read` is what `reading` found.
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

    /// What has to be done so that all strips agree where each of `partial_writes` was to write. All strips are
    /// read at once.
    ///
    /// # Errors
    /// When members cannot be read at all: they are named.
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
                // Codes of arrays can be computed with, so this does not happen.
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
            // What cannot be read may be old, and be read one day.
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
