//! Growing: an array takes all the room that its members have now.
//!
//! The number of rows is the one thing that changes: every block that both sizes have stays where it is. Between
//! the end of the old data and the end of the new on every member lies the *new area*, which is made zeroes before
//! anything else happens. Zeroes are data that parities of zeroes and copies agree with at every level, so no region is
//! in doubt under the new size, and what nobody wrote reads as zeroes. While the array serves, nobody reads or writes
//! there, but for labels behind the data of a device that has become larger:
//! [`Array::tails`](crate::Array::tails).
//!
//! [`grow()`] then works on an array that was stopped, and assembled and not started. Each step is stable on every
//! member before the next:
//!
//! 1. a partition table at the end that each device has now;
//! 2. a label that says that this is where the device ends, one generation later. Until then the table at the end of
//!    before showed that nothing was cut off it, and (3) may empty that;
//! 3. zeroes in what of the new area could not be made zeroes while the array served;
//! 4. the plane of regions that were written, so that it is right under the old size and under the new one. Intents and
//!    what members lack is empty, which is right under both;
//! 5. the label with the new size, one more generation later. It and (2) are updates as any other.
//!
//! So a crash before (5) leaves the old array, and one during (5) leaves an update that was cut short: the next start
//! follows the highest generation that is here, and whoever is a member by either label has everything that both sizes
//! need. Nobody acts on the new size before a start has given that label to everybody.

use strake_ondisk::{AreaLayout, Bits, Consistency, Plane, REGIONS_MAX, Superblock};
use strake_raid::{Geometry, Regions};
use strake_units::{ByteSize, MemberIndex, RegionIndex};

use crate::assemble::{Assembled, geometry_of};
use crate::create::Drive;
use crate::error::ArrayError;
use crate::fleet::{Failed, Fleet};
use crate::member_io::{MemberIo, Wait};

/// What an array becomes when it takes all the room that its members have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowPlan {
    before: Geometry,
    after: Geometry,
    limit: MemberIndex,
    /// Bytes of each device.
    sizes: Vec<u64>,
}

/// Works out what the array that `label` describes becomes on `drives`, which are those of its members by slot. Writes
/// nothing.
///
/// # Errors
/// When a member has no drive, or one that is too small for what the array has already.
pub fn plan_grow(label: &Superblock, drives: &[Option<Drive>]) -> Result<GrowPlan, ArrayError> {
    let before = geometry_of(label)?;
    let name = &label.name;
    let shift = before.block_size().shift();
    let (mut sizes, mut data) = (Vec::new(), Vec::new());
    for (slot, drive) in drives.iter().enumerate() {
        let drive = drive.as_ref().ok_or_else(|| {
            ArrayError::state(format!(
                "array {name} cannot grow without member {slot}, whose drive is not here; replace it first"
            ))
        })?;
        let bytes = drive.device.info().bytes();
        let has = AreaLayout::of(bytes).map_or(0, |layout| layout.data_bytes());
        let needs = before.member_blocks_used() << shift;
        if has < needs {
            return Err(ArrayError::too_small(&drive.path, MemberIndex(slot as u8), has, needs));
        }
        sizes.push(bytes);
        data.push(has);
    }
    let limit = (0..data.len()).min_by_key(|slot| data[*slot]).unwrap_or(0);
    let least = data.get(limit).copied().unwrap_or(0) >> shift;
    // Never less than now: what a label says is what is there.
    let after = before.resized(least.max(before.member_blocks_used()))?;
    Ok(GrowPlan { before, after, limit: MemberIndex(limit as u8), sizes })
}

impl GrowPlan {
    /// Bytes that the array has.
    #[must_use]
    pub const fn bytes_before(&self) -> u64 {
        self.before.capacity_blocks() << self.before.block_size().shift()
    }

    /// Bytes that it will have.
    #[must_use]
    pub const fn bytes_after(&self) -> u64 {
        self.after.capacity_blocks() << self.after.block_size().shift()
    }

    /// True when the array uses all the room that its members have.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        self.bytes_before() == self.bytes_after()
    }

    /// The member with the least room, the first of several.
    #[must_use]
    pub const fn limit(&self) -> MemberIndex {
        self.limit
    }

    /// Byte offset and bytes of the new area, the same on every member.
    #[must_use]
    pub const fn new_area(&self) -> (u64, u64) {
        let shift = self.before.block_size().shift();
        let (from, to) = (self.before.member_blocks_used(), self.after.member_blocks_used());
        (strake_ondisk::HEAD_BYTES + (from << shift), (to - from) << shift)
    }

    /// The new area without `places`, byte offsets and bytes: what can be made zeroes while the array serves.
    #[must_use]
    pub fn new_area_without(&self, places: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut taken = self.within_new_area(places);
        taken.sort_unstable();
        let (mut at, bytes) = self.new_area();
        let end = at + bytes;
        let mut left = Vec::new();
        for (from, bytes) in taken.into_iter().chain([(end, 0)]) {
            if from > at {
                left.push((at, from - at));
            }
            at = at.max(from + bytes);
        }
        left
    }

    /// What the new area has in common with `places`, byte offsets and bytes.
    fn within_new_area(&self, places: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let (start, bytes) = self.new_area();
        let cut = |&(at, length): &(u64, u64)| {
            let (from, to) = (at.max(start), (at + length).min(start + bytes));
            (from < to).then(|| (from, to - from))
        };
        places.iter().filter_map(cut).collect()
    }

    /// Regions that were written, for either size: whichever the label says, none that holds data is called unwritten.
    fn written(&self, before: &Bits, consistency: Consistency) -> Bits {
        let (old, new) = (Regions::new(&self.before), Regions::new(&self.after));
        let mut written = Bits::new(old.count().max(new.count()).min(REGIONS_MAX));
        if consistency == Consistency::None {
            // Nobody notes what is written.
            written.fill();
            return written;
        }
        for region in before.iter_ones() {
            written.set(region);
            new.covering(&old, RegionIndex(region)).for_each(|region| written.set(region));
        }
        written
    }
}

impl MemberIo<'_> {
    /// Makes `bytes` from `offset` read as zeroes, as quickly as the drive can. Not stable before a
    /// [`settle`](Self::settle).
    ///
    /// # Errors
    /// When the drive fails.
    pub fn zero(&mut self, offset: u64, bytes: u64) -> Result<(), ArrayError> {
        self.make_zeroes(offset, bytes, "making room on it")
    }

    /// Makes stable what was written before.
    ///
    /// # Errors
    /// When the drive fails.
    pub fn settle(&mut self) -> Result<(), ArrayError> {
        self.flush("flushing it")
    }
}

/// Gives `assembled`, which is not running, the size of `plan`. `tails` are the places on each member where labels were
/// written after the rest of the new area was made zeroes. Afterwards it is to be assembled anew from its drives, which
/// gives everybody the label that says so; whether or not this succeeded.
///
/// # Errors
/// When the array is not as it was when the plan was made, or not at rest, or a drive fails. Nobody has acted on the
/// new size then. Unless a label with it has been written to a drive that is here at the next start, the array keeps
/// the old one.
pub fn grow(
    assembled: Assembled,
    plan: &GrowPlan,
    tails: &[Vec<(u64, u64)>],
    wait: Wait<'_>,
) -> Result<(), ArrayError> {
    let name = assembled.name().clone();
    if let Some(unrest) = assembled.unrest() {
        return Err(ArrayError::state(format!("array {name} cannot grow: {unrest}")));
    }
    let unchanged = |assembled: &Assembled| -> Result<(), ArrayError> {
        let now = plan_grow(&assembled.superblock, &assembled.drives)?;
        if now == *plan {
            return Ok(());
        }
        Err(ArrayError::state(format!("a drive of array {name} got another size; try again")))
    };
    unchanged(&assembled)?;
    let members: Vec<(MemberIndex, Drive)> =
        assembled.live().map(|(member, drive)| (member, drive.clone())).collect();
    for (member, drive) in &members {
        let mut io = MemberIo::open(drive, wait)?;
        io.claim_end(assembled.superblock.members[member.at()].uuid)?;
        io.settle()?;
    }
    // From here on it is the end of now that shows whether something was cut off: the table at the end of before may be
    // in the new area.
    let mut assembled = assembled;
    assembled.superblock.generation += 1;
    for (row, bytes) in assembled.superblock.members.iter_mut().zip(&plan.sizes) {
        row.bytes = *bytes;
    }
    let drives = assembled.drives.clone();
    assembled.write_labels(&mut Fleet::new(&drives, &mut *wait)).map_err(Failed::into_error)?;
    for (member, drive) in &members {
        let mut io = MemberIo::open(drive, wait)?;
        let places = tails.get(member.at()).map(Vec::as_slice).unwrap_or_default();
        for (offset, bytes) in plan.within_new_area(places) {
            io.zero(offset, bytes)?;
        }
        io.settle()?;
    }
    let consistency = assembled.superblock.consistency;
    let written = plan.written(assembled.planes.of(Plane::Written), consistency);
    assembled.planes.write_anew();
    assembled.planes.load(Plane::Written, written);
    let mut fleet = Fleet::new(&drives, wait);
    assembled.write_bitmaps(&mut fleet).map_err(Failed::into_error)?;
    unchanged(&assembled)?;
    let label = &mut assembled.superblock;
    label.generation += 1;
    label.geometry.member_blocks = plan.after.member_blocks_used();
    label.geometry.region_stripes = Regions::new(&plan.after).stripes_per_region();
    // Nothing was written since the start that began this activation.
    label.clean = true;
    assembled.write_labels(&mut fleet).map_err(Failed::into_error)
}

/// Claims `drive`, which holds `label` and is about to be a member of its array again, up to its end if it has become
/// larger. From then on labels say that this is its end, and what is missing there was written over.
///
/// # Errors
/// When the drive fails.
pub fn claim_grown(drive: &Drive, label: &Superblock, wait: Wait<'_>) -> Result<(), ArrayError> {
    let bytes = drive.device.info().bytes();
    if label.own_record().is_none_or(|own| own.bytes >= bytes) {
        return Ok(());
    }
    MemberIo::open(drive, wait)?.claim_end(label.member)
}

/// What a plan comes to, for a person.
impl std::fmt::Display for GrowPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (before, after) = (self.bytes_before(), self.bytes_after());
        let more = ByteSize(after - before);
        write!(f, "from {} to {}, {more} more", ByteSize(before), ByteSize(after))
    }
}

#[cfg(test)]
mod tests;
