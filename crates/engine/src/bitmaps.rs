//! The bitmaps in memory, and the pages that differ from the copies on the members.

use strake_ondisk::{
    Bitmap, Bits, PAGE_BYTES, PAGES_PER_BITMAP, PageRecord, Sequenced, encode_page,
};
use strake_units::{MemberIndex, MemberSet, RegionIndex, Uuid};

/// Sequence numbers of the two pages of the write-intent bitmap. Every first write to a clean region increases one of
/// them. Therefore they distinguish an older snapshot of a drive from the drive; the label alone does not.
pub(crate) type WriteIntentPages = [u64; 2];

const _: () = assert!(PAGES_PER_BITMAP == 2);

/// All bitmaps of an array: write-intent, written regions, and the dirty bitmap of each member.
#[derive(Clone, Debug)]
pub(crate) struct Bitmaps {
    /// The bitmaps in the order of [`Bitmap::all`].
    bits: Vec<Bits>,
    /// Sequence number of the newest copy of each page: all pages of one bitmap, then of the next.
    sequences: Vec<u64>,
    /// For each member, the sequences of the write-intent pages that the member certainly has, or had when it went out;
    /// 0 if unknown.
    held: Vec<WriteIntentPages>,
    /// Members that are live according to the last label on every live member; empty if unknown.
    recorded: MemberSet,
    /// Write-intent pages that every member had that was live at the last stop.
    before: WriteIntentPages,
    /// Pages that changed since their last write.
    dirty: Vec<bool>,
    any_dirty: bool,
}

impl Bitmaps {
    /// Creates empty bitmaps for an array with `members` members.
    pub(crate) fn new(members: usize, regions: u32) -> Self {
        let bitmaps = Bitmap::all(members).count();
        let pages = bitmaps * PAGES_PER_BITMAP as usize;
        Self {
            bits: vec![Bits::new(regions); bitmaps],
            sequences: vec![0; pages],
            held: vec![WriteIntentPages::default(); members],
            recorded: MemberSet::EMPTY,
            before: WriteIntentPages::default(),
            dirty: vec![false; pages],
            any_dirty: false,
        }
    }

    pub(crate) fn members(&self) -> usize {
        self.bits.len() - 3
    }

    fn index(&self, bitmap: Bitmap, page: u32) -> usize {
        self.at(bitmap) * PAGES_PER_BITMAP as usize + page as usize
    }

    /// Index of a bitmap.
    fn at(&self, bitmap: Bitmap) -> usize {
        match bitmap {
            Bitmap::WriteIntent | Bitmap::Written | Bitmap::Member(_) => usize::from(bitmap.code()),
            Bitmap::InDoubt => self.bits.len() - 1,
        }
    }

    pub(crate) fn of(&self, bitmap: Bitmap) -> &Bits {
        &self.bits[self.at(bitmap)]
    }

    pub(crate) fn write_intent(&self) -> &Bits {
        self.of(Bitmap::WriteIntent)
    }

    /// Regions in which blocks of members that are out may be reconstructed wrongly.
    pub(crate) fn in_doubt(&self) -> &Bits {
        self.of(Bitmap::InDoubt)
    }

    /// Regions that `member` lacks.
    pub(crate) fn stale(&self, member: MemberIndex) -> &Bits {
        self.of(Bitmap::Member(member))
    }

    /// Replaces a bitmap by the bitmap that was found on the members.
    pub(crate) fn load(&mut self, bitmap: Bitmap, bits: Bits) {
        let at = self.at(bitmap);
        self.bits[at] = bits;
    }

    /// Sets the sequence number of a page.
    pub(crate) fn set_sequence(&mut self, bitmap: Bitmap, page: u32, sequence: u64) {
        let at = self.index(bitmap, page);
        self.sequences[at] = sequence;
    }

    /// Records that every page was written to all members in `live`.
    pub(crate) fn hold(&mut self, live: MemberSet) {
        let now = [0, 1].map(|page| self.sequences[self.index(Bitmap::WriteIntent, page)]);
        for (slot, held) in self.held.iter_mut().enumerate() {
            if live.contains(slot) {
                *held = now;
            }
        }
    }

    /// Records that every live member has a label whose live members are exactly `live`.
    pub(crate) fn recorded(&mut self, live: MemberSet) {
        self.recorded = live;
    }

    /// Sets the write-intent pages that every member had that was live at the last stop.
    pub(crate) fn surely_held(&mut self, pages: WriteIntentPages) {
        self.before = pages;
    }

    /// Records that `member` was live at the last stop and is missing now.
    pub(crate) fn left_before(&mut self, member: MemberIndex) {
        self.held[member.at()] = self.before;
    }

    /// The sequence of a page of the write-intent bitmap that every member has which a start may treat as in sync. A
    /// label that calls a member out counts only if every live member has this label.
    fn held_by_all(&self, page: u32) -> u64 {
        let held = self.held.iter().enumerate();
        let held = held.filter(|(slot, _)| self.recorded.contains(slot));
        held.map(|(_, pages)| pages[page as usize]).min().unwrap_or(0)
    }

    /// True if a drive with these write-intent pages is older than `member` was when it went out. The dirty bitmap of
    /// the member then lacks some writes.
    pub(crate) fn is_older(&self, member: MemberIndex, pages: WriteIntentPages) -> bool {
        pages.iter().zip(self.held[member.at()]).any(|(page, held)| *page < held)
    }

    /// Sets a bit. Returns true if the bit was clear.
    pub(crate) fn set(&mut self, bitmap: Bitmap, region: RegionIndex) -> bool {
        let at = self.at(bitmap);
        let bits = &mut self.bits[at];
        let clear = !bits.get(region.0);
        if clear {
            bits.set(region.0);
            self.touch(bitmap, region.0 / strake_ondisk::PAGE_BITS);
        }
        clear
    }

    /// Clears a bit. Returns true if the bit was set.
    pub(crate) fn clear(&mut self, bitmap: Bitmap, region: RegionIndex) -> bool {
        let at = self.at(bitmap);
        let bits = &mut self.bits[at];
        let set = bits.get(region.0);
        if set {
            bits.clear(region.0);
            self.touch(bitmap, region.0 / strake_ondisk::PAGE_BITS);
        }
        set
    }

    /// Changes a whole bitmap, and marks all its pages for writing.
    pub(crate) fn change(&mut self, bitmap: Bitmap, change: impl FnOnce(&mut Bits)) {
        let at = self.at(bitmap);
        change(&mut self.bits[at]);
        self.rewrite(bitmap);
    }

    /// Marks the regions of writes in progress in the dirty bitmap of `member`, because the member goes out.
    pub(crate) fn leave(&mut self, member: MemberIndex) {
        let write_intent = self.write_intent().clone();
        self.change(Bitmap::Member(member), |stale| stale.join(&write_intent));
    }

    /// Marks every page of a bitmap for writing.
    pub(crate) fn rewrite(&mut self, bitmap: Bitmap) {
        (0..PAGES_PER_BITMAP).for_each(|page| self.touch(bitmap, page));
    }

    fn touch(&mut self, bitmap: Bitmap, page: u32) {
        let at = self.index(bitmap, page);
        self.dirty[at] = true;
        self.any_dirty = true;
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.any_dirty
    }

    /// Records that the members have all relevant pages as in memory.
    pub(crate) fn all_written(&mut self) {
        self.dirty.fill(false);
        self.any_dirty = false;
    }

    /// Advances the sequence of every page, so that the next write of a page does not overwrite its last copy.
    pub(crate) fn write_again(&mut self) {
        self.sequences.iter_mut().for_each(|sequence| *sequence += 1);
    }

    /// Returns the pages to write, and advances their sequences. The pages count as written from now on.
    pub(crate) fn take_dirty(&mut self) -> Vec<(Bitmap, u32)> {
        let mut pages = Vec::new();
        for bitmap in Bitmap::all(self.members()) {
            for page in 0..PAGES_PER_BITMAP {
                let at = self.index(bitmap, page);
                if std::mem::take(&mut self.dirty[at]) {
                    self.sequences[at] += 1;
                    pages.push((bitmap, page));
                }
            }
        }
        self.any_dirty = false;
        pages
    }

    /// Encodes a page. Returns the sequence, which selects the location, and the page.
    pub(crate) fn record(&self, array: Uuid, bitmap: Bitmap, page: u32) -> (u64, [u8; PAGE_BYTES]) {
        let sequence = self.sequences[self.index(bitmap, page)];
        let held = if bitmap == Bitmap::WriteIntent { self.held_by_all(page) } else { 0 };
        let record = PageRecord { held, bits: self.of(bitmap).page_bytes(page).to_vec() };
        (sequence, encode_page(array, bitmap, page, &Sequenced { sequence, record }))
    }
}
