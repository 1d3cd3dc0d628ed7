//! Reading the bitmaps of the regions, and what they mean for the members an array starts with.

use strake_ondisk::{
    AreaLayout, BITMAP_BYTES, Bitmap, Bits, INCOMPAT_IN_DOUBT, Lacks, PAGE_BITS, PAGE_BYTES,
    PAGES_PER_BITMAP, PageRecord, RecordedState, Sequenced, Superblock, encode_page, newer,
};
use strake_raid::{Geometry, MemberState, Regions};
use strake_units::{MemberIndex, RegionIndex, StripeIndex, Uuid};

use super::layout_of;
use crate::bitmaps::{Bitmaps, WriteIntentPages};
use crate::create::Drive;
use crate::fleet::{Failed, Fleet, Reading, Writing};
use crate::member_io::READ_BYTES;

/// A page, `None` when it is lost.
type Page = Option<Sequenced<PageRecord>>;

/// The sequences of a bitmap's pages in `bytes`, the bitmap as it is on a drive; 0 for a page that is lost.
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

/// What the bitmap pages say.
pub(super) struct Read {
    /// The newest copy of every page.
    pub(super) bitmaps: Bitmaps,
    /// A member that shows less than it surely held: an older picture of itself.
    pub(super) older: Option<MemberIndex>,
    /// The newest copies that members lack which show an older one: what they do not have yet of an update that was cut
    /// short.
    ///
    /// They have to get it before anything newer is written: that goes where a member's own newest copy is, and a start
    /// cut short there would leave it one that is older still, alone if the others are lost.
    pub(super) behind: Vec<Writing>,
    /// Members that cannot show pages which count.
    pub(super) lost: Vec<LostPages>,
}

/// Pages that a member in sync cannot show: both slots are unreadable or damaged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostPages {
    pub(crate) member: MemberIndex,
    pub(crate) pages: u64,
    /// Of these, the ones that no member in sync shows: all their bits count as set.
    pub(crate) everywhere: u64,
}

/// The newest copy of every bitmap page on the members in sync. A page that none of them can show counts as
/// all set: everything is then resynchronized, nothing called unwritten, and nothing trusted on an absent member.
///
/// # Errors
/// When members fail, but for blocks that cannot be read: those are lost on this member, and others have them.
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
                // One that cannot be read may have been the newer one.
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
        // A page that it cannot show at all is lost, not old. Those of the write-intent bitmap come first.
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

/// Whether anything depends on a page: it has regions, and its bitmap is used.
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

/// The slots of a bitmap, page by page, even sequences first. A slot that cannot be read is empty.
fn slots(found: &crate::fleet::Read) -> impl Iterator<Item = &[u8]> {
    let slots = found.bytes.chunks(PAGE_BYTES).zip(&found.readable);
    slots.map(|(slot, readable)| if *readable { slot } else { &[] })
}

const _: () = assert!(PAGE_BYTES == READ_BYTES, "what is readable is known by pages");

/// `lost` is the sequence with which a page that no member can show starts again.
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

/// Makes the per-member dirty bitmaps say what each member lacks now: `found` is what the labels say, `states` what
/// follows.
pub(super) fn settle(
    bitmaps: &mut Bitmaps,
    superblock: &mut Superblock,
    found: &strake_ondisk::Assembled,
    states: &mut [MemberState],
    (geometry, regions): (&Geometry, &Regions),
) {
    // The two marks of a first write are on two pages, and a crash may have kept one of them. What may have been
    // written is never called unwritten: zeroing it would be left out.
    let write_intent = bitmaps.write_intent().clone();
    bitmaps.change(Bitmap::Written, |written| written.join(&write_intent));
    if superblock.incompat & INCOMPAT_IN_DOUBT == 0 {
        // Whatever is in the bitmap has been accepted, or was never written.
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
                    // It may have been left out of the last update, if that was cut short.
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

/// The regions that do not lie wholly below `recovered_stripes`.
fn behind(regions: &Regions, recovered_stripes: u64, geometry: &Geometry) -> Bits {
    let mut bits = Bits::new(regions.count());
    if recovered_stripes < geometry.stripes() {
        let first = regions.region_of(StripeIndex(recovered_stripes)).0;
        (first..regions.count()).for_each(|region| bits.set(region));
    }
    bits
}

/// Stripes of the array, counted from 0, below which nothing is stale.
pub(crate) fn complete_below(stale: &Bits, geometry: &Geometry, regions: &Regions) -> u64 {
    match stale.iter_ones().next() {
        Some(region) => regions.stripes(RegionIndex(region)).start,
        None => geometry.stripes(),
    }
}
