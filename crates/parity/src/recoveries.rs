//! A cache of prepared recoveries.

use crate::{Code, CodeError, PARITY_MAX, Recovery, STRIPS_MAX};

/// The last requested recoveries of one code, so that a degraded array does not solve the same equations for every
/// stripe.
///
/// The constructor allocates all memory. If the cache is full, a new recovery replaces the least recently used one.
#[derive(Clone, Debug)]
pub struct Recoveries {
    code: Code,
    entries: Vec<Entry>,
    /// For each entry, the masks of the known and the wanted strips, if both lists are in ascending order, as in most
    /// requests. The masks then determine the lists, and are contiguous in memory.
    masks: Vec<Option<(u64, u64)>>,
    capacity: usize,
    /// The number of requests, which determines the age of entries.
    now: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    known: Strips<STRIPS_MAX>,
    want: Strips<PARITY_MAX>,
    used: u64,
    recovery: Recovery,
}

/// A short list of strips, for comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Strips<const N: usize> {
    strips: [u8; N],
    len: u8,
}

impl<const N: usize> Strips<N> {
    /// Returns the list, or `None` if it is longer than any valid list.
    fn new(list: &[u8]) -> Option<Strips<N>> {
        let mut strips = [0; N];
        strips.get_mut(..list.len())?.copy_from_slice(list);
        Some(Strips { strips, len: list.len() as u8 })
    }
}

/// Returns the strips as a mask if they are in ascending order, each below [`STRIPS_MAX`].
fn ascending(strips: &[u8]) -> Option<u64> {
    let mut mask = 0_u64;
    for strip in strips {
        let bit = 1_u64.checked_shl(u32::from(*strip))?;
        // The mask may have no bit at or above this one.
        if mask >= bit {
            return None;
        }
        mask |= bit;
    }
    Some(mask)
}

impl Recoveries {
    /// Returns a cache with space for `capacity` recoveries of `code`, at least one. Each needs about 9 KiB.
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

    /// Returns the recovery that computes `want` from `known`, as [`Recovery::new`] does. A repeated request returns
    /// the cached recovery.
    ///
    /// # Errors
    /// As [`Recovery::new`].
    pub fn get(&mut self, known: &[u8], want: &[u8]) -> Result<&Recovery, CodeError> {
        // Only the first k known strips are used, so that lists with the same first k strips share a recovery.
        let needed = known.get(..self.code.data()).unwrap_or(known);
        let masks = ascending(needed).zip(ascending(want));
        let found = match masks {
            Some(_) => self.masks.iter().position(|known| *known == masks),
            None => self.find(needed, want),
        };
        let index = match found {
            Some(index) => index,
            None => self.add((known, needed), want, masks)?,
        };
        self.now += 1;
        let entry = &mut self.entries[index];
        entry.used = self.now;
        Ok(&entry.recovery)
    }

    /// Returns the entry of these lists.
    fn find(&self, needed: &[u8], want: &[u8]) -> Option<usize> {
        let (known, want) = (Strips::new(needed)?, Strips::new(want)?);
        self.entries.iter().position(|entry| entry.known == known && entry.want == want)
    }

    /// Makes an entry of these lists. Of the known strips, only `needed` is used.
    #[cold]
    fn add(
        &mut self,
        (known, needed): (&[u8], &[u8]),
        want: &[u8],
        masks: Option<(u64, u64)>,
    ) -> Result<usize, CodeError> {
        let (Some(key_known), Some(key_want)) = (Strips::new(needed), Strips::new(want)) else {
            return Err(CodeError::CountMismatch { expected: PARITY_MAX, found: want.len() });
        };
        let recovery = Recovery::new(&self.code, known, want)?;
        Ok(self.place(masks, Entry { known: key_known, want: key_want, used: 0, recovery }))
    }

    /// Adds a new entry. It replaces the oldest one if all are in use.
    fn place(&mut self, masks: Option<(u64, u64)>, entry: Entry) -> usize {
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
