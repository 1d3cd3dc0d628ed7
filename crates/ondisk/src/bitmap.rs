//! Bitmaps, one bit per region, in pages of 4 KiB with two slots each.

use strake_units::{MemberIndex, Uuid};

use crate::bytes::{put, u32_at};
use crate::limits::MEMBERS_MAX;
use crate::slot::{
    PAGE_BYTES, PAGE_HEADER_BYTES, Sequenced, new_page, newest_of, page_sequence, seal_page,
};

/// Bits in one page.
pub const PAGE_BITS: u32 = (PAGE_BYTES - PAGE_HEADER_BYTES) as u32 * 8;
/// Pages of one bitmap.
pub const PAGES_PER_BITMAP: u32 = 2;
/// Most regions of an array.
pub const REGIONS_MAX: u32 = PAGE_BITS * PAGES_PER_BITMAP;

const PAGE_BIT_BYTES: usize = PAGE_BYTES - PAGE_HEADER_BYTES;
const MAGIC: [u8; 4] = *b"SKBM";
const AT_BITMAP: usize = 4;
const AT_PAGE: usize = 5;
const AT_BEHIND: usize = 24;

/// What a bit of a bitmap means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bitmap {
    /// A write may be under way in the region: members may disagree.
    WriteIntent,
    /// The region was written at some time: it holds data.
    Written,
    /// The member of this slot lacks the region, or a part of it: it was written without it, or not rebuilt yet.
    Member(MemberIndex),
    /// A member went out while parity of the region was not known to be right after a crash: blocks of that member may
    /// be recovered wrongly there. Counts with [`INCOMPAT_IN_DOUBT`](crate::INCOMPAT_IN_DOUBT) only.
    InDoubt,
}

impl Bitmap {
    /// The number that stands for the bitmap on disk.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::WriteIntent => 0,
            Self::Written => 1,
            Self::Member(member) => 2 + member.0,
            Self::InDoubt => 2 + MEMBERS_MAX as u8,
        }
    }

    /// The bitmaps of an array of `members` members, in the order of their codes.
    pub fn all(members: usize) -> impl Iterator<Item = Self> {
        let stale = (0..members as u8).map(|slot| Self::Member(MemberIndex(slot)));
        [Self::WriteIntent, Self::Written].into_iter().chain(stale).chain([Self::InDoubt])
    }
}

/// What a bitmap page says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRecord {
    /// Every member that the last complete label called live surely held the page of this sequence, or a newer one: a
    /// member that shows less is an older picture of itself. 0 when that is not known.
    pub held: u64,
    /// What [`Bits::page_bytes`] returns.
    pub bits: Vec<u8>,
}

/// The bytes of a page.
///
/// # Panics
/// When it has more bits than there is room for, or `page` is not below [`PAGES_PER_BITMAP`].
#[must_use]
pub fn encode_page(
    array: Uuid,
    bitmap: Bitmap,
    page: u32,
    content: &Sequenced<PageRecord>,
) -> [u8; PAGE_BYTES] {
    assert!(page < PAGES_PER_BITMAP, "a plane has fewer pages");
    let Sequenced { sequence, record: PageRecord { held, bits } } = content;
    let behind = sequence.checked_sub(*held).filter(|_| *held > 0);
    let behind = behind.and_then(|behind| u32::try_from(behind).ok()).unwrap_or(0);
    let mut out = new_page(MAGIC, array, *sequence);
    out[AT_BITMAP] = bitmap.code();
    out[AT_PAGE] = page as u8;
    put(&mut out, AT_BEHIND, &behind.to_le_bytes());
    put(&mut out, PAGE_HEADER_BYTES, bits);
    seal_page(&mut out);
    out
}

/// What counts of the two slots of a page: `a` is the slot of even sequences, `b` that of odd ones. `None` when neither
/// is sound, or the newest is not [usable](Sequenced::usable): every region of the page counts as set.
#[must_use]
pub fn newest_page(
    a: &[u8],
    b: &[u8],
    array: Uuid,
    bitmap: Bitmap,
    page: u32,
) -> Option<Sequenced<PageRecord>> {
    newest_of([a, b].map(|slot| decode_page(slot, array, bitmap, page)))?.usable()
}

fn decode_page(
    bytes: &[u8],
    array: Uuid,
    bitmap: Bitmap,
    page: u32,
) -> Option<Sequenced<PageRecord>> {
    let sequence = page_sequence(bytes, MAGIC, array)?;
    if bytes[AT_BITMAP] != bitmap.code() || u32::from(bytes[AT_PAGE]) != page {
        return None;
    }
    let behind = u64::from(u32_at(bytes, AT_BEHIND));
    let held = if behind == 0 { 0 } else { sequence.saturating_sub(behind) };
    let bits = bytes[PAGE_HEADER_BYTES..].to_vec();
    Some(Sequenced { sequence, record: PageRecord { held, bits } })
}

/// One bitmap in memory: a bit per region. Bit `r` is bit `r mod 8` (counted from the least significant) of byte
/// `r / 8` of its page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bits {
    regions: u32,
    pages: Vec<u8>,
}

impl Bits {
    /// A bitmap for `regions` regions, all clear.
    ///
    /// # Panics
    /// With more than [`REGIONS_MAX`] regions, which no geometry has.
    #[must_use]
    pub fn new(regions: u32) -> Self {
        assert!(regions <= REGIONS_MAX, "a plane has at most {REGIONS_MAX} regions");
        Self { regions, pages: vec![0; PAGES_PER_BITMAP as usize * PAGE_BIT_BYTES] }
    }

    /// A bitmap for `regions` regions from the bits of its pages in order; `None` stands for a lost page, whose
    /// regions are all set. Pages not given are lost.
    #[must_use]
    pub fn from_pages(regions: u32, pages: &[Option<Vec<u8>>]) -> Self {
        let mut bits = Self::new(regions);
        for page in 0..PAGES_PER_BITMAP {
            match pages.get(page as usize) {
                Some(Some(bytes)) => bits.set_page(page, bytes),
                Some(None) | None => bits.fill_page(page),
            }
        }
        bits
    }

    /// Number of regions.
    #[must_use]
    pub const fn regions(&self) -> u32 {
        self.regions
    }

    /// Sets the region's bit.
    ///
    /// # Panics
    /// When there is no such region.
    pub fn set(&mut self, region: u32) {
        let (byte, mask) = self.place(region);
        self.pages[byte] |= mask;
    }

    /// Clears the region's bit.
    ///
    /// # Panics
    /// When there is no such region.
    pub fn clear(&mut self, region: u32) {
        let (byte, mask) = self.place(region);
        self.pages[byte] &= !mask;
    }

    /// The region's bit.
    ///
    /// # Panics
    /// When there is no such region.
    #[must_use]
    pub fn get(&self, region: u32) -> bool {
        let (byte, mask) = self.place(region);
        self.pages[byte] & mask != 0
    }

    /// Sets every bit that is set in `other`.
    ///
    /// # Panics
    /// When the bitmaps are of different arrays.
    pub fn join(&mut self, other: &Self) {
        assert_eq!(self.regions, other.regions, "planes of one array are equally long");
        self.used_mut().iter_mut().zip(other.used()).for_each(|(own, other)| *own |= other);
    }

    /// Clears every bit that is set in `other`.
    ///
    /// # Panics
    /// When the bitmaps are of different arrays.
    pub fn remove(&mut self, other: &Self) {
        assert_eq!(self.regions, other.regions, "planes of one array are equally long");
        self.used_mut().iter_mut().zip(other.used()).for_each(|(own, other)| *own &= !other);
    }

    /// Sets every bit.
    pub fn fill(&mut self) {
        (0..PAGES_PER_BITMAP).for_each(|page| self.fill_page(page));
    }

    /// The regions whose bit is set, in order.
    pub fn iter_ones(&self) -> impl Iterator<Item = u32> + '_ {
        let set = self.used().iter().enumerate().filter(|(_, byte)| **byte != 0);
        set.flat_map(|(at, byte)| {
            (0..8u32).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at as u32 * 8 + bit)
        })
    }

    /// Number of regions whose bit is set.
    #[must_use]
    pub fn count_ones(&self) -> u32 {
        self.used().iter().map(|byte| byte.count_ones()).sum()
    }

    /// The bits of one page, for [`encode_page`].
    ///
    /// # Panics
    /// When `page` is not below [`PAGES_PER_BITMAP`].
    #[must_use]
    pub fn page_bytes(&self, page: u32) -> &[u8] {
        &self.pages[page_range(page)]
    }

    /// Replaces the bits of one page with those read from a drive. Bits past the last region are dropped, and
    /// missing bytes count as clear.
    ///
    /// # Panics
    /// When `page` is not below [`PAGES_PER_BITMAP`].
    pub fn set_page(&mut self, page: u32, bits: &[u8]) {
        let own = &mut self.pages[page_range(page)];
        own.fill(0);
        let len = bits.len().min(own.len());
        own[..len].copy_from_slice(&bits[..len]);
        self.drop_excess();
    }

    /// Sets every bit of one page: what is known about it was lost.
    ///
    /// # Panics
    /// When `page` is not below [`PAGES_PER_BITMAP`].
    pub fn fill_page(&mut self, page: u32) {
        self.pages[page_range(page)].fill(0xff);
        self.drop_excess();
    }

    /// The bytes that have a region. Those behind them are clear.
    fn used(&self) -> &[u8] {
        &self.pages[..self.regions.div_ceil(8) as usize]
    }

    fn used_mut(&mut self) -> &mut [u8] {
        &mut self.pages[..self.regions.div_ceil(8) as usize]
    }

    fn drop_excess(&mut self) {
        let whole = self.regions as usize / 8;
        let Some(rest) = self.pages.get_mut(whole..) else { return };
        if let Some((partial, beyond)) = rest.split_first_mut() {
            *partial &= (1u8 << (self.regions % 8)) - 1;
            beyond.fill(0);
        }
    }

    fn place(&self, region: u32) -> (usize, u8) {
        assert!(region < self.regions, "region {region} of {} does not exist", self.regions);
        (region as usize / 8, 1 << (region % 8))
    }
}

fn page_range(page: u32) -> std::ops::Range<usize> {
    let start = page as usize * PAGE_BIT_BYTES;
    start..start + PAGE_BIT_BYTES
}
