//! The bitmaps of the regions in memory, and which of their pages differ from what is on the members.

use strake_ondisk::{
    Bitmap, Bits, PAGE_BYTES, PAGES_PER_BITMAP, PageRecord, Sequenced, encode_page,
};
use strake_units::{MemberIndex, MemberSet, RegionIndex, Uuid};

/// Sequences of the two pages of the write-intent bitmap. Every write to a region that was not marked before makes one
/// of them greater, so they tell an older picture of a drive from the drive, which its label alone does not.
pub(crate) type WriteIntentPages = [u64; 2];

const _: () = assert!(PAGES_PER_BITMAP == 2);

/// Every bitmap of an array: write-intent, written, and what each member lacks.
#[derive(Clone, Debug)]
pub(crate) struct Bitmaps {
    /// In the order of [`Bitmap::all`].
    bits: Vec<Bits>,
    /// Sequence number of the newest copy of each page: all pages of one bitmap, then of the next.
    sequences: Vec<u64>,
    /// By member: the sequences of the write-intent pages that it surely holds, or held when it went out; 0 if that is
    /// unknown.
    held: Vec<WriteIntentPages>,
    /// Members that the last label which every live member has calls live; none when that is not known.
    recorded: MemberSet,
    /// What a member that was live at the last stop surely held.
    before: WriteIntentPages,
    /// Pages whose content changed since they were last written.
    dirty: Vec<bool>,
    any_dirty: bool,
}

impl Bitmaps {
    /// Bitmaps of an array of `members` members, all clear.
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

    /// Where a bitmap is among all of them.
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

    /// Regions in which blocks of members that are out may be recovered wrongly.
    pub(crate) fn in_doubt(&self) -> &Bits {
        self.of(Bitmap::InDoubt)
    }

    /// What `member` lacks.
    pub(crate) fn stale(&self, member: MemberIndex) -> &Bits {
        self.of(Bitmap::Member(member))
    }

    /// Replaces a bitmap with what was found on the members.
    pub(crate) fn load(&mut self, bitmap: Bitmap, bits: Bits) {
        let at = self.at(bitmap);
        self.bits[at] = bits;
    }

    /// Sets the number that the next copy of a page gets.
    pub(crate) fn set_sequence(&mut self, bitmap: Bitmap, page: u32, sequence: u64) {
        let at = self.index(bitmap, page);
        self.sequences[at] = sequence;
    }

    /// Every page was written, to the members in `live` at least.
    pub(crate) fn hold(&mut self, live: MemberSet) {
        let now = [0, 1].map(|page| self.sequences[self.index(Bitmap::WriteIntent, page)]);
        for (slot, held) in self.held.iter_mut().enumerate() {
            if live.contains(slot) {
                *held = now;
            }
        }
    }

    /// Every live member has a label that calls the members in `live` live, and no other.
    pub(crate) fn recorded(&mut self, live: MemberSet) {
        self.recorded = live;
    }

    /// The write-intent pages that every member held which was live at the last stop.
    pub(crate) fn surely_held(&mut self, pages: WriteIntentPages) {
        self.before = pages;
    }

    /// `member` was live at the last stop, and is not here.
    pub(crate) fn left_before(&mut self, member: MemberIndex) {
        self.held[member.at()] = self.before;
    }

    /// What every member holds of a page of the write-intent bitmap that a start may take for one in sync: a label that
    /// calls a member out counts only when every live member has it.
    fn held_by_all(&self, page: u32) -> u64 {
        let held = self.held.iter().enumerate();
        let held = held.filter(|(slot, _)| self.recorded.contains(slot));
        held.map(|(_, pages)| pages[page as usize]).min().unwrap_or(0)
    }

    /// True when a drive with these write-intent pages is older than `member` was when it went out: what was written in
    /// between is on no list of what it lacks.
    pub(crate) fn is_older(&self, member: MemberIndex, pages: WriteIntentPages) -> bool {
        pages.iter().zip(self.held[member.at()]).any(|(page, held)| *page < held)
    }

    /// Sets a bit; true when it was clear.
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

    /// Clears a bit; true when it was set.
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

    /// Changes a bitmap as a whole, and has all of it written.
    pub(crate) fn change(&mut self, bitmap: Bitmap, change: impl FnOnce(&mut Bits)) {
        let at = self.at(bitmap);
        change(&mut self.bits[at]);
        self.rewrite(bitmap);
    }

    /// `member` goes out: from now on it lacks what was being written as well.
    pub(crate) fn leave(&mut self, member: MemberIndex) {
        let write_intent = self.write_intent().clone();
        self.change(Bitmap::Member(member), |stale| stale.join(&write_intent));
    }

    /// Has every page of a bitmap written.
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

    /// Every page that matters is on the members as it is here.
    pub(crate) fn all_written(&mut self) {
        self.dirty.fill(false);
        self.any_dirty = false;
    }

    /// Every page gets the next sequence, so that writing it leaves what was written last alone.
    pub(crate) fn write_again(&mut self) {
        self.sequences.iter_mut().for_each(|sequence| *sequence += 1);
    }

    /// The pages to be written, each under its next sequence. They count as written from here on.
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

    /// A page as it is to be written, and the sequence that says where.
    pub(crate) fn record(&self, array: Uuid, bitmap: Bitmap, page: u32) -> (u64, [u8; PAGE_BYTES]) {
        let sequence = self.sequences[self.index(bitmap, page)];
        let held = if bitmap == Bitmap::WriteIntent { self.held_by_all(page) } else { 0 };
        let record = PageRecord { held, bits: self.of(bitmap).page_bytes(page).to_vec() };
        (sequence, encode_page(array, bitmap, page, &Sequenced { sequence, record }))
    }
}
