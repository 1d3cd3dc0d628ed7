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

/// The meaning of a bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bitmap {
    /// A write may be in progress in the region, so members may be inconsistent.
    WriteIntent,
    /// The region was written at some time, and contains data.
    Written,
    /// The member of this slot lacks the region or a part of it: the region was written without the member, or is not
    /// rebuilt yet.
    Member(MemberIndex),
    /// A member went out before the resync of the region after a crash, so blocks of this member may be reconstructed
    /// wrongly. The bitmap is valid only with [`INCOMPAT_IN_DOUBT`](crate::INCOMPAT_IN_DOUBT).
    InDoubt,
}

impl Bitmap {
    /// Returns the number of the bitmap on disk.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::WriteIntent => 0,
            Self::Written => 1,
            Self::Member(member) => 2 + member.0,
            Self::InDoubt => 2 + MEMBERS_MAX as u8,
        }
    }

    /// Returns the bitmaps of an array with `members` members, in the order of their codes.
    pub fn all(members: usize) -> impl Iterator<Item = Self> {
        let stale = (0..members as u8).map(|slot| Self::Member(MemberIndex(slot)));
        [Self::WriteIntent, Self::Written].into_iter().chain(stale).chain([Self::InDoubt])
    }
}

/// The content of a bitmap page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRecord {
    /// Every member that is live in the last complete label certainly had the page with this sequence, or a newer one.
    /// A member with an older page is an older snapshot of the member. 0 if unknown.
    pub held: u64,
    /// The bytes from [`Bits::page_bytes`].
    pub bits: Vec<u8>,
}

/// Encodes a page.
///
/// # Panics
/// If there are too many bits, or `page` is not below [`PAGES_PER_BITMAP`].
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

/// Returns the newest of the two slots of a page: `a` is the slot of even sequences, `b` the slot of odd sequences.
/// Returns `None` if no slot is valid, or the newest is not [usable](Sequenced::usable). Every region of the page then
/// counts as set.
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
    /// Creates an empty bitmap for `regions` regions.
    ///
    /// # Panics
    /// If there are more than [`REGIONS_MAX`] regions, which no geometry has.
    #[must_use]
    pub fn new(regions: u32) -> Self {
        assert!(regions <= REGIONS_MAX, "a plane has at most {REGIONS_MAX} regions");
        Self { regions, pages: vec![0; PAGES_PER_BITMAP as usize * PAGE_BIT_BYTES] }
    }

    /// Creates a bitmap for `regions` regions from its pages in order. `None` means a lost page, whose regions are all
    /// set. Missing pages count as lost.
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
    /// If there is no such region.
    pub fn set(&mut self, region: u32) {
        let (byte, mask) = self.place(region);
        self.pages[byte] |= mask;
    }

    /// Clears the region's bit.
    ///
    /// # Panics
    /// If there is no such region.
    pub fn clear(&mut self, region: u32) {
        let (byte, mask) = self.place(region);
        self.pages[byte] &= !mask;
    }

    /// Returns the bit of the region.
    ///
    /// # Panics
    /// If there is no such region.
    #[must_use]
    pub fn get(&self, region: u32) -> bool {
        let (byte, mask) = self.place(region);
        self.pages[byte] & mask != 0
    }

    /// Sets every bit that is set in `other`.
    ///
    /// # Panics
    /// If the bitmaps have different numbers of regions.
    pub fn join(&mut self, other: &Self) {
        assert_eq!(self.regions, other.regions, "planes of one array are equally long");
        self.used_mut().iter_mut().zip(other.used()).for_each(|(own, other)| *own |= other);
    }

    /// Clears every bit that is set in `other`.
    ///
    /// # Panics
    /// If the bitmaps have different numbers of regions.
    pub fn remove(&mut self, other: &Self) {
        assert_eq!(self.regions, other.regions, "planes of one array are equally long");
        self.used_mut().iter_mut().zip(other.used()).for_each(|(own, other)| *own &= !other);
    }

    /// Sets every bit.
    pub fn fill(&mut self) {
        (0..PAGES_PER_BITMAP).for_each(|page| self.fill_page(page));
    }

    /// Returns the regions with set bits, in order.
    pub fn iter_ones(&self) -> impl Iterator<Item = u32> + '_ {
        let set = self.used().iter().enumerate().filter(|(_, byte)| **byte != 0);
        set.flat_map(|(at, byte)| {
            (0..8u32).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at as u32 * 8 + bit)
        })
    }

    /// Returns the number of regions with set bits.
    #[must_use]
    pub fn count_ones(&self) -> u32 {
        self.used().iter().map(|byte| byte.count_ones()).sum()
    }

    /// Returns the bits of one page, for [`encode_page`].
    ///
    /// # Panics
    /// If `page` is not below [`PAGES_PER_BITMAP`].
    #[must_use]
    pub fn page_bytes(&self, page: u32) -> &[u8] {
        &self.pages[page_range(page)]
    }

    /// Replaces the bits of one page by bits from a drive. Bits after the last region are dropped, and missing bytes
    /// count as clear.
    ///
    /// # Panics
    /// If `page` is not below [`PAGES_PER_BITMAP`].
    pub fn set_page(&mut self, page: u32, bits: &[u8]) {
        let own = &mut self.pages[page_range(page)];
        own.fill(0);
        let len = bits.len().min(own.len());
        own[..len].copy_from_slice(&bits[..len]);
        self.drop_excess();
    }

    /// Sets every bit of one lost page.
    ///
    /// # Panics
    /// If `page` is not below [`PAGES_PER_BITMAP`].
    pub fn fill_page(&mut self, page: u32) {
        self.pages[page_range(page)].fill(0xff);
        self.drop_excess();
    }

    /// Returns the bytes with regions. All later bytes are clear.
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
