//! Growing: an array takes all the room that its members have now.
//!
//! The number of rows is the one thing that changes: every block that both sizes have stays where it is. Between
//! the end of the old data and the end of the new on every member lies the *new area*, which is made zeroes before
//! anything else happens. Zeroes are data that parities of zeroes and copies agree with at every level, so no region is
//! in doubt under the new size, and what was never written reads as zeroes. While the array serves, nothing there is
//! read or written, but for labels behind the data of a device that has become larger:
//! [`Array::tails`](crate::Array::tails).
//!
//! [`grow()`] then works on an array that was stopped, and assembled and not started. Each step is stable on every
//! member before the next:
//!
//! 1. a partition table at the end that each device has now;
//! 2. a label that says that this is where the device ends, one generation later. Until then the table at the end of
//!    before showed that nothing was cut off it, and (3) may empty that;
//! 3. zeroes in what of the new area could not be made zeroes while the array served;
//! 4. the bitmap of regions that were written, so that it is right under the old size and under the new one. The
//!    write-intent bitmap and the per-member dirty bitmaps are empty, which is right under both;
//! 5. the label with the new size, one more generation later. It and (2) are updates as any other.
//!
//! [`Change::UpgradeFormat`] is the same with another format instead of another size: there is no new area, and (5) has
//! that format. Areas of format 2 hold nothing until their `incompat` bits are set, so those of a larger array are at
//! other offsets.
//!
//! So a crash before (5) leaves the old array, and one during (5) leaves an update that was cut short: the next start
//! follows the highest generation that is here, and a drive that is a member by either label has everything that both
//! sizes need. The new size is not used before a start has given that label to every member.

use strake_ondisk::{AreaLayout, Bitmap, Bits, Consistency, Format, REGIONS_MAX, Superblock};
use strake_raid::{Geometry, Regions};
use strake_units::{ByteSize, MemberIndex, RegionIndex};

use crate::assemble::Assembled;
use crate::create::Drive;
use crate::error::ArrayError;
use crate::fleet::{Failed, Fleet};
use crate::member_io::{MemberIo, Wait};
use crate::recorded::{geometry_of, record_of, understood};

/// What kind of change a plan makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The array takes all the room that its members have. It keeps its format.
    Grow,
    /// The array gets format 2. It keeps its size.
    UpgradeFormat,
}

/// What an array becomes by a [`Change`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowPlan {
    /// What a plan that is made again has to be a plan of.
    change: Change,
    before: Geometry,
    after: Geometry,
    /// The format before, and with its areas behind the data of afterwards.
    formats: (Format, Format),
    limit: MemberIndex,
    /// Bytes of each device.
    sizes: Vec<u64>,
}

/// Works out what the array that `label` describes becomes by `change` on `drives`, which are those of its members by
/// slot. Writes nothing.
///
/// # Errors
/// When a member has no drive, or one that is too small for what the array has already, or for the areas of format 2
/// behind that when it gets this format.
pub fn plan_change(
    change: Change,
    label: &Superblock,
    drives: &[Option<Drive>],
) -> Result<GrowPlan, ArrayError> {
    match change {
        Change::Grow => plan_grow(label, drives),
        Change::UpgradeFormat => plan_upgrade(label, drives),
    }
}

fn plan_grow(label: &Superblock, drives: &[Option<Drive>]) -> Result<GrowPlan, ArrayError> {
    let before = geometry_of(label)?;
    let (sizes, data) = room(label, drives, label.format)?;
    let limit = (0..data.len()).min_by_key(|slot| data[*slot]).unwrap_or(0);
    let shift = before.block_size().shift();
    let least = data.get(limit).copied().unwrap_or(0) >> shift;
    // Never less than now: what a label says is what is there.
    let after = before.resized(least.max(before.member_blocks_used()))?;
    let grown = label.format.resized(after.member_blocks_used() << shift);
    // What is recorded of areas stays as long as the data behind which they lie.
    let formats = (label.format, if after == before { label.format } else { grown });
    let change = Change::Grow;
    Ok(GrowPlan { change, before, after, formats, limit: MemberIndex(limit as u8), sizes })
}

fn plan_upgrade(label: &Superblock, drives: &[Option<Drive>]) -> Result<GrowPlan, ArrayError> {
    let before = geometry_of(label)?;
    let used = before.member_blocks_used() << before.block_size().shift();
    let after = match label.format {
        Format::One => Format::two(used),
        Format::Two(_) => label.format,
    };
    let least = after.least_device_bytes(used);
    for (slot, drive) in drives.iter().enumerate() {
        let Some(drive) = drive else { continue };
        let has = drive.device.info().bytes();
        if has < least {
            return Err(ArrayError::state(format!(
                "array {} cannot have format 2: member {slot} ({}) has {has} bytes, and its data with the areas of \
                 that format need {least}, {} more; give it a larger drive first",
                label.name,
                drive.path,
                ByteSize(least - has)
            )));
        }
    }
    let (sizes, data) = room(label, drives, after)?;
    let limit = (0..data.len()).min_by_key(|slot| data[*slot]).unwrap_or(0);
    let formats = (label.format, after);
    let change = Change::UpgradeFormat;
    Ok(GrowPlan { change, before, after: before, formats, limit: MemberIndex(limit as u8), sizes })
}

/// Bytes of each device, and how many of them data can have in `format`.
fn room(
    label: &Superblock,
    drives: &[Option<Drive>],
    format: Format,
) -> Result<(Vec<u64>, Vec<u64>), ArrayError> {
    let before = geometry_of(label)?;
    let name = &label.name;
    let used = before.member_blocks_used() << before.block_size().shift();
    let needs = format.least_device_bytes(used);
    let (mut sizes, mut data) = (Vec::new(), Vec::new());
    for (slot, drive) in drives.iter().enumerate() {
        let drive = drive.as_ref().ok_or_else(|| {
            ArrayError::state(format!(
                "array {name} cannot change without member {slot}, whose drive is missing; replace it first"
            ))
        })?;
        let bytes = drive.device.info().bytes();
        if bytes < needs {
            return Err(ArrayError::too_small(&drive.path, MemberIndex(slot as u8), bytes, needs));
        }
        sizes.push(bytes);
        data.push(AreaLayout::of(bytes).map_or(0, |layout| format.data_bytes(&layout)));
    }
    Ok((sizes, data))
}

impl GrowPlan {
    /// The kind of change.
    #[must_use]
    pub const fn change(&self) -> Change {
        self.change
    }

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

    /// True when the array uses all the room that its members have, or has the format already.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        match self.change {
            Change::Grow => self.bytes_before() == self.bytes_after(),
            Change::UpgradeFormat => self.formats.0.version() == self.formats.1.version(),
        }
    }

    /// True when `label` says what was planned.
    #[must_use]
    pub fn is_done(&self, label: &Superblock) -> bool {
        label.format == self.formats.1
            && label.geometry.member_blocks == self.after.member_blocks_used()
    }

    /// Bytes that a drive needs at least to be a member, before and afterwards.
    #[must_use]
    pub fn least_drive_bytes(&self) -> (u64, u64) {
        let shift = self.before.block_size().shift();
        let least = |format: Format, geometry: &Geometry| {
            format.least_device_bytes(geometry.member_blocks_used() << shift)
        };
        (least(self.formats.0, &self.before), least(self.formats.1, &self.after))
    }

    /// Bytes that a member lacks afterwards for a conversion to format 2, when it has them now: an array of format 1
    /// that grows uses the space that the areas of format 2 need.
    #[must_use]
    pub fn lacks_for_format_2(&self) -> Option<u64> {
        match (self.change, self.formats.0) {
            (Change::UpgradeFormat, _) | (Change::Grow, Format::Two(_)) => return None,
            (Change::Grow, Format::One) => {}
        }
        let shift = self.before.block_size().shift();
        let needs = |geometry: &Geometry| {
            let used = geometry.member_blocks_used() << shift;
            Format::two(used).least_device_bytes(used)
        };
        let least = self.sizes.iter().copied().min().unwrap_or(0);
        let lacks = needs(&self.after).saturating_sub(least);
        (needs(&self.before) <= least && lacks > 0).then_some(lacks)
    }

    /// The plan of the same change for what is there now. Nothing else than a plan says what is planned again, so a
    /// change cannot be checked against a plan of another kind.
    ///
    /// # Errors
    /// As [`plan_change`].
    pub fn again(&self, label: &Superblock, drives: &[Option<Drive>]) -> Result<Self, ArrayError> {
        plan_change(self.change, label, drives)
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
            // In this mode writes are not recorded.
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
        self.make_zeroes(offset, bytes, "clearing new space on it")
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
/// written after the rest of the new area was made zeroes. Afterwards it is to be assembled again from its drives,
/// which gives every member the label that says so; whether or not this succeeded.
///
/// # Errors
/// When the array is not as it was when the plan was made, or not at rest, or a drive fails. The new size has not
/// been used then. Unless a label with it has been written to a drive that is here at the next start, the array keeps
/// the old one.
pub fn grow(
    assembled: Assembled,
    plan: &GrowPlan,
    tails: &[Vec<(u64, u64)>],
    wait: Wait<'_>,
) -> Result<(), ArrayError> {
    let name = assembled.name().clone();
    if let Some(unrest) = assembled.unrest() {
        return Err(ArrayError::state(format!("array {name} cannot change: {unrest}")));
    }
    let unchanged = |assembled: &Assembled| -> Result<(), ArrayError> {
        if plan.again(&assembled.superblock, &assembled.drives)? == *plan {
            return Ok(());
        }
        Err(ArrayError::state(format!("a drive of array {name} got another size; try again")))
    };
    unchanged(&assembled)?;
    check_readable(&changed(&assembled.superblock, plan), plan)?;
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
    let written = plan.written(assembled.bitmaps.of(Bitmap::Written), consistency);
    assembled.bitmaps.write_again();
    assembled.bitmaps.load(Bitmap::Written, written);
    let mut fleet = Fleet::new(&drives, wait);
    assembled.write_bitmaps(&mut fleet).map_err(Failed::into_error)?;
    unchanged(&assembled)?;
    assembled.superblock = changed(&assembled.superblock, plan);
    assembled.write_labels(&mut fleet).map_err(Failed::into_error)
}

/// `label` with the change of `plan`, one generation later. All of the geometry is recorded again: a label of format 1
/// is opened whatever it records of what follows from the rest, one of format 2 is not.
fn changed(label: &Superblock, plan: &GrowPlan) -> Superblock {
    Superblock {
        generation: label.generation + 1,
        geometry: record_of(&plan.after),
        format: plan.formats.1,
        // Nothing was written since the start that began this activation.
        clean: true,
        ..label.clone()
    }
}

/// Refuses a change after which this version would not start the array.
fn check_readable(label: &Superblock, plan: &GrowPlan) -> Result<(), ArrayError> {
    let unreadable = |why: String| {
        ArrayError::state(format!("array {} cannot change: {why}; nothing was done", label.name))
    };
    match understood(label) {
        Ok(geometry) if geometry == plan.after => Ok(()),
        Ok(_) => Err(unreadable("its labels would record another geometry".to_owned())),
        Err(error) => Err(unreadable(format!("its labels would not be readable: {}", error.what))),
    }
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
        match self.change {
            Change::Grow => {
                let (before, after) = (self.bytes_before(), self.bytes_after());
                let more = ByteSize(after - before);
                write!(f, "from {} to {}, {more} more", ByteSize(before), ByteSize(after))
            }
            Change::UpgradeFormat => {
                let (before, after) = (self.formats.0.version(), self.formats.1.version());
                write!(f, "from format {before} to format {after}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
