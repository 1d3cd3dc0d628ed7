//! Recoveries that were prepared before.

use crate::{Code, CodeError, PARITY_MAX, Recovery, STRIPS_MAX};

/// The recoveries of one code that were last asked for, so that a degraded array does not solve the same
/// equations for every stripe.
///
/// All memory is taken when the value is made. When it is full, the recovery that was asked for longest ago
/// gives way.
#[derive(Clone, Debug)]
pub struct Recoveries {
    code: Code,
    entries: Vec<Entry>,
    /// Of each entry the strips, known and wanted, as masks: what is looked at before the entry is.
    masks: Vec<(u64, u64)>,
    capacity: usize,
    /// Counts requests, so that entries have an age.
    now: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    known: Strips<STRIPS_MAX>,
    want: Strips<PARITY_MAX>,
    used: u64,
    recovery: Recovery,
}

/// A short list of strips, for comparing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Strips<const N: usize> {
    strips: [u8; N],
    len: u8,
}

impl<const N: usize> Strips<N> {
    /// The list, or `None` when it is longer than any that could be meant.
    fn new(list: &[u8]) -> Option<Strips<N>> {
        let mut strips = [0; N];
        strips.get_mut(..list.len())?.copy_from_slice(list);
        Some(Strips { strips, len: list.len() as u8 })
    }
}

/// The strips as a mask. Strips that are none fall on others, which the lists themselves tell apart.
fn mask(strips: &[u8]) -> u64 {
    strips.iter().fold(0, |mask, strip| mask | 1 << (strip % 64))
}

impl Recoveries {
    /// Room for `capacity` recoveries of `code`, at least one: about 9 KiB each.
    #[must_use]
    pub fn new(code: &Code, capacity: usize) -> Recoveries {
        let capacity = capacity.max(1);
        Recoveries {
            code: code.clone(),
            entries: Vec::with_capacity(capacity),
            masks: Vec::with_capacity(capacity),
            capacity,
            now: 0,
        }
    }

    /// The recovery that computes `want` from `known`, as [`Recovery::new`] makes it, from before if it was
    /// asked for before.
    ///
    /// # Errors
    /// As [`Recovery::new`].
    pub fn get(&mut self, known: &[u8], want: &[u8]) -> Result<&Recovery, CodeError> {
        // Only the first k known strips matter, so lists that agree in them share a recovery.
        let needed = known.get(..self.code.data()).unwrap_or(known);
        let (Some(key_known), Some(key_want)) = (Strips::new(needed), Strips::new(want)) else {
            return Err(CodeError::CountMismatch { expected: PARITY_MAX, found: want.len() });
        };
        self.now += 1;
        let masks = (mask(needed), mask(want));
        let same = |e: &Entry| e.known == key_known && e.want == key_want;
        let mut alike = self.masks.iter().zip(&self.entries);
        let found = alike.position(|(m, entry)| *m == masks && same(entry));
        let index = match found {
            Some(index) => index,
            None => {
                let recovery = Recovery::new(&self.code, known, want)?;
                self.place(masks, Entry { known: key_known, want: key_want, used: 0, recovery })
            }
        };
        let entry = &mut self.entries[index];
        entry.used = self.now;
        Ok(&entry.recovery)
    }

    /// Puts a new entry in, over the oldest one when there is no more room.
    fn place(&mut self, masks: (u64, u64), entry: Entry) -> usize {
        if self.entries.len() < self.capacity {
            self.entries.push(entry);
            self.masks.push(masks);
            return self.entries.len() - 1;
        }
        let ages = self.entries.iter().map(|entry| entry.used).enumerate();
        let oldest = ages.min_by_key(|&(_, used)| used).map_or(0, |(index, _)| index);
        self.entries[oldest] = entry;
        self.masks[oldest] = masks;
        oldest
    }
}
