//! Reads of the bitmaps, and their meaning for the members with which an array starts.

use strake_ondisk::{
    AreaLayout, BITMAP_BYTES, Bitmap, Bits, INCOMPAT_IN_DOUBT, Lacks, PAGE_BITS, PAGE_BYTES,
    PAGES_PER_BITMAP, PageRecord, RecordedState, Sequenced, Superblock, encode_page, newer,
};
use strake_raid::{Geometry, MemberState, Regions};
use strake_units::{MemberIndex, RegionIndex, StripeIndex, Uuid};

use super::layout_of;
use crate::bitmaps::{Bitmaps, WriteIntentPages};
use crate::drive::Drive;
use crate::fleet::{Failed, Fleet, Reading, Writing};
use crate::member_io::READ_BYTES;

/// A page; `None` if the page is lost.
type Page = Option<Sequenced<PageRecord>>;

/// Returns the sequences of the pages of a bitmap in `bytes`, the on-disk form; 0 for a lost page.
pub(crate) fn write_intent_pages(bytes: &[u8], array: Uuid) -> WriteIntentPages {
    [0, 1].map(|page| {
        let slot = |parity: usize| {
            let at = (page as usize * 2 + parity) * PAGE_BYTES;
            bytes.get(at..at + PAGE_BYTES).unwrap_or_default()
        };
        let newest = strake_ondisk::newest_page(slot(0), slot(1), array, Bitmap::WriteIntent, page);
        newest.map_or(0, |page| page.sequence)
    })
}

/// The content of the bitmap pages.
pub(super) struct Read {
    /// The newest copy of every page.
    pub(super) bitmaps: Bitmaps,
    /// A member whose pages are older than the pages that it certainly had. Its drive is an older snapshot.
    pub(super) older: Option<MemberIndex>,
    /// The newest copies of pages for members that have older copies, because an update was interrupted.
    ///
    /// The members must get these copies before any newer write. A newer write overwrites a member's own newest copy,
    /// so an interrupted start would leave the member with a still older copy, possibly alone if the other members are
    /// lost.
    pub(super) behind: Vec<Writing>,
    /// Members with unreadable or damaged pages that matter.
    pub(super) lost: Vec<LostPages>,
}

/// Lost pages of a member in sync: both copies are unreadable or damaged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostPages {
    pub(crate) member: MemberIndex,
    pub(crate) pages: u64,
    /// Number of these pages that no member in sync has. All their bits count as set.
    pub(crate) everywhere: u64,
}

/// Reads the newest copy of every bitmap page on the members in sync. A page that no member has counts as all set: all
/// its regions are then resynchronized, counted as written, and treated as stale on absent members.
///
/// # Errors
/// If members fail. Unreadable blocks are not a failure, because other members have copies.
pub(super) fn read(
    superblock: &Superblock,
    states: &[MemberState],
    drives: &[Option<Drive>],
    regions: u32,
    fleet: &mut Fleet<'_>,
) -> Result<Read, Failed> {
    let count = Bitmap::all(states.len()).count();
    let mut newest: Vec<Page> = vec![None; count * PAGES_PER_BITMAP as usize];
    let mut seen: Vec<(MemberIndex, AreaLayout, Vec<Option<u64>>)> = Vec::new();
    let mut lost = Vec::new();
    let mut readings = Vec::new();
    for (slot, (state, drive)) in states.iter().zip(drives).enumerate() {
        let (MemberState::InSync, Some(drive)) = (state, drive) else { continue };
        let member = MemberIndex(slot as u8);
        let layout = layout_of(member, drive)?;
        readings.extend(Bitmap::all(states.len()).map(|bitmap| Reading {
            member,
            offset: layout.bitmap_page_offset(bitmap, 0, 0),
            bytes: BITMAP_BYTES,
        }));
        seen.push((member, layout, Vec::new()));
    }
    let read = fleet.read(&readings, "reading its bitmap")?;
    for ((member, _, own), bitmaps) in seen.iter_mut().zip(read.chunks_exact(count)) {
        let mut places = newest.iter_mut();
        for (bitmap, found) in Bitmap::all(states.len()).zip(bitmaps) {
            let slots: Vec<&[u8]> = slots(found).collect();
            for (page, place) in (0..PAGES_PER_BITMAP).zip(&mut places) {
                let [a, b] = [0, 1].map(|parity| slots[(page * 2 + parity) as usize]);
                let here = strake_ondisk::newest_page(a, b, superblock.array, bitmap, page);
                // An unreadable copy may have been the newer copy.
                let readable = !a.is_empty() && !b.is_empty();
                if here.is_none() && counts(superblock, regions, bitmap, page) {
                    lost.push((*member, own.len()));
                }
                own.push(here.as_ref().map(|page| page.sequence).filter(|_| readable));
                *place = newer(place.take(), here, |page| page.sequence);
            }
        }
    }
    let held = [0, 1].map(|page| newest[page].as_ref().map_or(0, |page| page.record.held));
    let shows_less = |own: &[Option<u64>]| {
        // An unreadable page is lost, not old. The pages of the write-intent bitmap come first.
        own.iter().zip(held).any(|(own, held)| own.is_some_and(|own| own < held))
    };
    let older = seen.iter().find(|(.., own)| shows_less(own)).map(|(member, ..)| *member);
    let lacking = |shown: &(MemberIndex, AreaLayout, Vec<Option<u64>>)| {
        let (member, layout, own) = shown;
        let pages = Bitmap::all(states.len()).flat_map(|bitmap| [(bitmap, 0), (bitmap, 1)]);
        let older = |((bitmap, page), (own, newest)): (_, (&Option<u64>, &Page))| {
            let newest =
                newest.as_ref().filter(|newest| own.is_some_and(|s| s < newest.sequence))?;
            let offset = layout.bitmap_page_offset(bitmap, page, newest.sequence);
            let bytes = encode_page(superblock.array, bitmap, page, newest).to_vec();
            Some(Writing { member: *member, offset, bytes })
        };
        pages.zip(own.iter().zip(&newest)).filter_map(older).collect::<Vec<_>>()
    };
    let behind = seen.iter().flat_map(lacking).collect();
    let lost_of = |(member, ..): &(MemberIndex, AreaLayout, Vec<Option<u64>>)| {
        let own = || lost.iter().filter(|(of, _)| of == member);
        let everywhere = own().filter(|(_, page)| newest[*page].is_none()).count() as u64;
        LostPages { member: *member, pages: own().count() as u64, everywhere }
    };
    let lost_pages = seen.iter().map(lost_of).filter(|lost| lost.pages > 0).collect();
    let lost = super::sequence_above_all(superblock);
    let mut bitmaps = assemble(states.len(), regions, newest, lost);
    bitmaps.surely_held(held);
    Ok(Read { bitmaps, older, behind, lost: lost_pages })
}

/// True if a page matters: it contains regions, and its bitmap is used.
fn counts(superblock: &Superblock, regions: u32, bitmap: Bitmap, page: u32) -> bool {
    let used = match bitmap {
        Bitmap::WriteIntent | Bitmap::Written => true,
        Bitmap::Member(member) => {
            let in_sync = superblock.members[member.at()].state == RecordedState::InSync;
            superblock.keeps_member_bitmaps() && !in_sync
        }
        Bitmap::InDoubt => superblock.incompat & INCOMPAT_IN_DOUBT != 0,
    };
    used && page * PAGE_BITS < regions
}

/// Returns the slots of a bitmap by page, even sequences first. An unreadable slot is empty.
fn slots(found: &crate::fleet::Read) -> impl Iterator<Item = &[u8]> {
    let slots = found.bytes.chunks(PAGE_BYTES).zip(&found.readable);
    slots.map(|(slot, readable)| if *readable { slot } else { &[] })
}

const _: () = assert!(PAGE_BYTES == READ_BYTES, "what is readable is known by pages");

/// `lost` is the first sequence of a page that no member has.
fn assemble(members: usize, regions: u32, newest: Vec<Page>, lost: u64) -> Bitmaps {
    let mut bitmaps = Bitmaps::new(members, regions);
    let mut pages = newest.into_iter();
    for bitmap in Bitmap::all(members) {
        let mut bits = Vec::new();
        for page in 0..PAGES_PER_BITMAP {
            let newest = pages.next().expect("one for every page");
            bitmaps.set_sequence(bitmap, page, newest.as_ref().map_or(lost, Sequenced::next));
            bits.push(newest.map(|page| page.record.bits));
        }
        bitmaps.load(bitmap, Bits::from_pages(regions, &bits));
    }
    bitmaps
}

/// Updates the per-member dirty bitmaps to the regions that each member lacks now. `found` contains the labels, and
/// `states` the derived states.
pub(super) fn settle(
    bitmaps: &mut Bitmaps,
    superblock: &mut Superblock,
    found: &strake_ondisk::Assembled,
    states: &mut [MemberState],
    (geometry, regions): (&Geometry, &Regions),
) {
    // The two bits of a first write are on two pages, and a crash may have kept only one of them. A region that may
    // have been written must not count as unwritten, because a later zeroing would skip it.
    let write_intent = bitmaps.write_intent().clone();
    bitmaps.change(Bitmap::Written, |written| written.join(&write_intent));
    if superblock.incompat & INCOMPAT_IN_DOUBT == 0 {
        // The operator has accepted the regions in the bitmap, or the bitmap was never written.
        bitmaps.load(Bitmap::InDoubt, Bits::new(regions.count()));
    }
    for (slot, member) in found.members.iter().enumerate() {
        let index = MemberIndex(slot as u8);
        let bitmap = Bitmap::Member(index);
        let kept = found.superblock.keeps_member_bitmaps();
        bitmaps.change(bitmap, |stale| match member.lacks {
            Lacks::Nothing => *stale = Bits::new(regions.count()),
            Lacks::Recorded if kept => {}
            Lacks::Recorded => *stale = behind(regions, member.recovered_stripes, geometry),
            Lacks::Everything => stale.fill(),
        });
        let row = &mut superblock.members[slot];
        match &mut states[slot] {
            MemberState::InSync => {}
            MemberState::Rebuilding { recovered_stripes } => {
                *recovered_stripes = complete_below(bitmaps.stale(index), geometry, regions);
                row.recovered_stripes = *recovered_stripes;
            }
            MemberState::Faulty | MemberState::Missing => {
                bitmaps.leave(index);
                row.recovered_stripes = 0;
                if found.superblock.members[slot].state.is_live() {
                    // The last update may not have reached the member, if the update was interrupted.
                    let late = u64::from(!found.confirmed);
                    row.held_generation = (found.superblock.generation - late).max(1);
                    bitmaps.left_before(index);
                }
            }
        }
        let in_sync = row.state == RecordedState::InSync;
        debug_assert!(!in_sync || bitmaps.stale(index).count_ones() == 0, "in sync lacks nothing");
    }
}

/// Returns the regions that are not completely below `recovered_stripes`.
fn behind(regions: &Regions, recovered_stripes: u64, geometry: &Geometry) -> Bits {
    let mut bits = Bits::new(regions.count());
    if recovered_stripes < geometry.stripes() {
        let first = regions.region_of(StripeIndex(recovered_stripes)).0;
        (first..regions.count()).for_each(|region| bits.set(region));
    }
    bits
}

/// Returns the number of stripes from the start of the array without a stale region.
pub(crate) fn complete_below(stale: &Bits, geometry: &Geometry, regions: &Regions) -> u64 {
    match stale.iter_ones().next() {
        Some(region) => regions.stripes(RegionIndex(region)).start,
        None => geometry.stripes(),
    }
}
