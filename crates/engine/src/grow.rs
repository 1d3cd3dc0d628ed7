//! Growing: an array uses the additional space of its members.
//!
//! Only the number of stripes changes: every block that exists in both sizes keeps its address. On every member, the
//! *new area* lies between the old and the new end of the data. It is zeroed first. At every level, parities of zeroes
//! and copies agree with zeroes, so no region is in doubt under the new size, and unwritten blocks read as zeroes.
//! While the array serves, the new area is neither read nor written, except for labels after the data of a device that
//! has become larger: [`Array::tails`](crate::Array::tails).
//!
//! Then [`grow()`] works on an array that was stopped and assembled, and is not running. Each step is stable on every
//! member before the next step starts:
//!
//! 1. a partition table at the present end of each device;
//! 2. a label with the present end of the device, with the next generation. Before this step, the table at the former
//!    end proved that the device was not truncated; step 3 may clear this table;
//! 3. zeroes in the parts of the new area that could not be zeroed while the array served;
//! 4. the bitmap of written regions, with content that is valid for both sizes. The write-intent bitmap and the
//!    per-member dirty bitmaps are empty, which is valid for both sizes;
//! 5. the label with the new size, with the next generation. Steps 2 and 5 are ordinary label updates.
//!
//! [`Change::UpgradeFormat`] takes the same steps with another format instead of another size: there is no new area,
//! and the label in step 5 has the new format. Areas of format 2 are empty until their `incompat` bits are set, so the
//! areas of a larger array may have other offsets.
//!
//! Therefore a crash before step 5 leaves the old array, and a crash during step 5 leaves an incomplete label update.
//! The next start uses the highest generation that it finds, and a drive that is a member by either label has all data
//! for both sizes. The new size is used only after a start has written that label to every member.

use strake_ondisk::{AreaLayout, Bitmap, Bits, Consistency, Format, REGIONS_MAX, Superblock};
use strake_raid::{Geometry, Regions};
use strake_units::{ByteSize, MemberIndex, RegionIndex};

use crate::assemble::Assembled;
use crate::drive::Drive;
use crate::error::ArrayError;
use crate::fleet::{Failed, Fleet};
use crate::member_io::{MemberIo, Wait};
use crate::recorded::{geometry_of, record_of, understood};

/// The kind of change of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The array uses all space of its members and keeps its format.
    Grow,
    /// The array gets format 2 and keeps its size.
    UpgradeFormat,
}

/// The effect of a [`Change`] on an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowPlan {
    /// The kind of change, which a repeated plan must have too.
    change: Change,
    before: Geometry,
    after: Geometry,
    /// The format before, and the format with its areas after the new end of the data.
    formats: (Format, Format),
    limit: MemberIndex,
    /// Bytes of each device.
    sizes: Vec<u64>,
}

/// Computes the effect of `change` on the array of `label`. `drives` are the drives of its members by slot. Writes
/// nothing.
///
/// # Errors
/// If a member has no drive, or if a drive is too small for the present array or, for a conversion, for the areas of
/// format 2.
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
    // The size never shrinks.
    let after = before.resized(least.max(before.member_blocks_used()))?;
    let grown = label.format.resized(after.member_blocks_used() << shift);
    // The recorded areas stay unchanged as long as the end of the data is unchanged.
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

/// Returns the bytes of each device, and the bytes available for data in `format`.
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
    /// Returns the kind of change.
    #[must_use]
    pub const fn change(&self) -> Change {
        self.change
    }

    /// Returns the present size of the array in bytes.
    #[must_use]
    pub const fn bytes_before(&self) -> u64 {
        self.before.capacity_blocks() << self.before.block_size().shift()
    }

    /// Returns the new size of the array in bytes.
    #[must_use]
    pub const fn bytes_after(&self) -> u64 {
        self.after.capacity_blocks() << self.after.block_size().shift()
    }

    /// True if the plan changes nothing: the array already uses all space of its members, or already has the format.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        match self.change {
            Change::Grow => self.bytes_before() == self.bytes_after(),
            Change::UpgradeFormat => self.formats.0.version() == self.formats.1.version(),
        }
    }

    /// True if `label` contains the planned change.
    #[must_use]
    pub fn is_done(&self, label: &Superblock) -> bool {
        label.format == self.formats.1
            && label.geometry.member_blocks == self.after.member_blocks_used()
    }

    /// Returns the minimum size of a member's drive in bytes, before and after the change.
    #[must_use]
    pub fn least_drive_bytes(&self) -> (u64, u64) {
        let shift = self.before.block_size().shift();
        let least = |format: Format, geometry: &Geometry| {
            format.least_device_bytes(geometry.member_blocks_used() << shift)
        };
        (least(self.formats.0, &self.before), least(self.formats.1, &self.after))
    }

    /// Returns the bytes that a member will lack for a conversion to format 2 after growing, if it has enough bytes
    /// now. Growing an array of format 1 uses the space that the areas of format 2 need.
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

    /// Plans the same change for the present state. The kind of change always comes from the first plan, so both plans
    /// have the same kind.
    ///
    /// # Errors
    /// As [`plan_change`].
    pub fn again(&self, label: &Superblock, drives: &[Option<Drive>]) -> Result<Self, ArrayError> {
        plan_change(self.change, label, drives)
    }

    /// Returns the member with the least space; the first one if several have the least space.
    #[must_use]
    pub const fn limit(&self) -> MemberIndex {
        self.limit
    }

    /// Returns the byte offset and the length of the new area, which are equal on every member.
    #[must_use]
    pub const fn new_area(&self) -> (u64, u64) {
        let shift = self.before.block_size().shift();
        let (from, to) = (self.before.member_blocks_used(), self.after.member_blocks_used());
        (strake_ondisk::HEAD_BYTES + (from << shift), (to - from) << shift)
    }

    /// Returns the byte ranges of the new area without `places`. These ranges can be zeroed while the array serves.
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

    /// Returns the intersection of the new area with the byte ranges in `places`.
    fn within_new_area(&self, places: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let (start, bytes) = self.new_area();
        let cut = |&(at, length): &(u64, u64)| {
            let (from, to) = (at.max(start), (at + length).min(start + bytes));
            (from < to).then(|| (from, to - from))
        };
        places.iter().filter_map(cut).collect()
    }

    /// Returns the written regions for both sizes. With either size, every region that contains data is marked as
    /// written.
    fn written(&self, before: &Bits, consistency: Consistency) -> Bits {
        let (old, new) = (Regions::new(&self.before), Regions::new(&self.after));
        let mut written = Bits::new(old.count().max(new.count()).min(REGIONS_MAX));
        if consistency == Consistency::None {
            // In this mode, writes are not recorded.
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
    /// Writes zeroes to `bytes` bytes from `offset`, by the fastest operation of the drive. The zeroes are stable only
    /// after [`settle`](Self::settle).
    ///
    /// # Errors
    /// If the drive fails.
    pub fn zero(&mut self, offset: u64, bytes: u64) -> Result<(), ArrayError> {
        self.make_zeroes(offset, bytes, "clearing new space on it")
    }

    /// Makes all earlier writes stable.
    ///
    /// # Errors
    /// If the drive fails.
    pub fn settle(&mut self) -> Result<(), ArrayError> {
        self.flush("flushing it")
    }
}

/// Applies `plan` to `assembled`, which is not running. `tails` are the areas on each member to which labels were
/// written after the rest of the new area was zeroed. After success or failure, the caller must assemble the array
/// again from its drives, which writes the newest label to every member.
///
/// # Errors
/// If the array changed since the plan, is not at rest, or a drive fails. The new size was not used then. The array
/// keeps its old size, unless the next start finds a drive with a label of the new size.
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
    // From here on, the present end shows whether a device was truncated, because the table at the former end may be in
    // the new area.
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

/// Returns `label` with the change of `plan` and the next generation. The complete geometry is recorded again. This
/// program starts from a label of format 1 whatever its derived fields are, but a label of format 2 with wrong derived
/// fields is refused.
fn changed(label: &Superblock, plan: &GrowPlan) -> Superblock {
    Superblock {
        generation: label.generation + 1,
        geometry: record_of(&plan.after),
        format: plan.formats.1,
        // No write has happened in this activation.
        clean: true,
        ..label.clone()
    }
}

/// Refuses a change after which this version could not start the array.
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

/// Claims the new end of `drive`, if the drive has become larger. The drive has the label `label`, and is about to
/// become a member of its array again. From then on, labels record this end, and a missing end means that it was
/// overwritten.
///
/// # Errors
/// If the drive fails.
pub fn claim_grown(drive: &Drive, label: &Superblock, wait: Wait<'_>) -> Result<(), ArrayError> {
    let bytes = drive.device.info().bytes();
    if label.own_record().is_none_or(|own| own.bytes >= bytes) {
        return Ok(());
    }
    MemberIo::open(drive, wait)?.claim_end(label.member)
}

/// Describes the plan for the operator.
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
