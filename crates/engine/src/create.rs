//! Making an array out of drives: everything is checked before the first byte is written.

use std::fmt;
use std::sync::Arc;

use strake_block::{BlockDevice, DeviceInfo};
use strake_ondisk::{
    Activation, AreaLayout, Bitmap, Bits, COMPAT_HISTORY, COMPAT_MEMBER_BITMAPS, Consistency,
    Foreign, Format, MemberRecord, RecordedState, Superblock,
};
use strake_raid::{Geometry, GeometrySpec, Level, MemberState, Regions};
use strake_units::{BlockSize, MemberIndex, MemberSet, Name, Uuid};

use crate::assemble::{Assembled, note_start};
use crate::bad_blocks::BadBlocks;
use crate::bitmaps::Bitmaps;
use crate::error::ArrayError;
use crate::fleet::{Failed, Fleet};
use crate::member_io::{MemberIo, Wait, occupied};
use crate::recorded::record_of;
use crate::settling;

/// A device with the name a person gave it by.
#[derive(Clone)]
pub struct Drive {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// Path or specification, for messages.
    pub path: String,
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Drive({})", self.path)
    }
}

/// What an array shall be like.
#[derive(Clone, Debug)]
pub struct CreateSpec {
    /// Its name.
    pub name: Name,
    /// Its level.
    pub level: Level,
    /// Members per group, for 50, 60 and 70.
    pub group_size: Option<u8>,
    /// Strip size in bytes.
    pub strip_bytes: u32,
    /// Logical block size; the largest of the drives' when not given.
    pub block_size: Option<BlockSize>,
    /// How its writes are made safe against crashes.
    pub consistency: Consistency,
}

/// Fresh identifiers, made by a caller that has randomness.
#[derive(Clone, Debug)]
pub struct Ids {
    /// The array's.
    pub array: Uuid,
    /// This activation's.
    pub epoch: Uuid,
    /// One for each member.
    pub members: Vec<Uuid>,
}

/// What [`create()`] is going to do.
#[derive(Clone, Debug)]
pub struct CreatePlan {
    /// As asked for.
    pub spec: CreateSpec,
    /// The result.
    pub geometry: Geometry,
    /// Things worth knowing that are no reason to refuse, one sentence each.
    pub warnings: Vec<String>,
}

/// Checks that `drives` can become the array `spec` asks for, and works out its geometry. Writes nothing.
///
/// # Errors
/// Whatever is wrong with the request, naming the drive concerned and the remedy.
pub fn plan_create(spec: &CreateSpec, drives: &[Drive]) -> Result<CreatePlan, ArrayError> {
    let infos: Vec<DeviceInfo> = drives.iter().map(|d| d.device.info()).collect();
    refuse_twice(drives, &infos)?;
    for (drive, info) in drives.iter().zip(&infos) {
        if info.read_only {
            return Err(ArrayError::usage(format!(
                "{} is read-only and cannot be a member",
                drive.path
            )));
        }
    }
    let largest = infos.iter().map(|i| i.block_size).max().unwrap_or(BlockSize::B4096);
    let block_size = spec.block_size.unwrap_or(largest);
    if let Some(at) = infos.iter().position(|i| i.block_size > block_size) {
        return Err(ArrayError::usage(format!(
            "{} has blocks of {} bytes, more than the array's {block_size}; use blocks of {} bytes",
            drives[at].path, infos[at].block_size, infos[at].block_size
        )));
    }
    let mut data_bytes = u64::MAX;
    for (drive, info) in drives.iter().zip(&infos) {
        let layout = AreaLayout::of(info.bytes()).ok_or_else(|| {
            ArrayError::usage(format!(
                "{} is too small: a member needs at least {}",
                drive.path,
                strake_units::ByteSize(strake_ondisk::MEMBER_BYTES_MIN)
            ))
        })?;
        data_bytes = data_bytes.min(strake_ondisk::data_bytes_of_2(&layout));
    }
    let geometry = Geometry::new(&GeometrySpec {
        level: spec.level,
        members: drives.len(),
        group_size: spec.group_size,
        strip_bytes: spec.strip_bytes,
        block_size,
        member_blocks: data_bytes >> block_size.shift(),
    })?;
    Ok(CreatePlan { spec: spec.clone(), geometry, warnings: warnings(drives, &infos) })
}

fn refuse_twice(drives: &[Drive], infos: &[DeviceInfo]) -> Result<(), ArrayError> {
    for (at, info) in infos.iter().enumerate() {
        if let Some(first) = infos[..at].iter().position(|other| other.identity == info.identity) {
            let (a, b) = (&drives[first].path, &drives[at].path);
            return Err(ArrayError::usage(if a == b {
                format!("{a} is named twice; every member needs a drive of its own")
            } else {
                format!("{a} and {b} are the same drive; every member needs a drive of its own")
            }));
        }
    }
    Ok(())
}

fn warnings(drives: &[Drive], infos: &[DeviceInfo]) -> Vec<String> {
    let smallest = infos.iter().map(DeviceInfo::bytes).min().unwrap_or(0);
    let mut warnings: Vec<String> = drives
        .iter()
        .zip(infos)
        .filter(|(_, info)| info.bytes() > smallest)
        .map(|(drive, info)| {
            let unused = strake_units::ByteSize(info.bytes() - smallest);
            format!(
                "{} is larger than the smallest drive; {unused} of it remain unused",
                drive.path
            )
        })
        .collect();
    if infos.windows(2).any(|pair| pair[0].block_size != pair[1].block_size) {
        warnings
            .push("the drives have different block sizes; the array uses the largest".to_owned());
    }
    warnings
}

/// Creates the array: claims and labels every drive. What the drives promise to zero is zeroed at once; on
/// others the whole array is marked for initialization, which runs in the background while it serves.
///
/// # Errors
/// A drive that holds something (unless `overwrite`), or fails. Drives written before the failure hold a label
/// of an array that no other drive knows, which [`create()`] with `overwrite` may use again.
pub fn create(
    plan: &CreatePlan,
    drives: Vec<Drive>,
    ids: &Ids,
    overwrite: bool,
    wait: Wait<'_>,
) -> Result<Assembled, ArrayError> {
    for drive in &drives {
        if overwrite {
            erase_foreign(drive, wait)?;
        } else {
            refuse_occupied(drive, wait)?;
        }
    }
    let regions = Regions::new(&plan.geometry);
    let mut zeroed = true;
    for (drive, member) in drives.iter().zip(&ids.members) {
        zeroed &= prepare_drive(drive, *member, wait)?;
    }
    let mut bitmaps = Bitmaps::new(drives.len(), regions.count());
    if !zeroed {
        // What the drives hold is unknown: every region counts as written, and as dirty where there is
        // redundancy to bring into agreement.
        bitmaps.change(Bitmap::Written, Bits::fill);
        if plan.geometry.redundancy(MemberSet::EMPTY).is_some_and(|r| r > 0) {
            bitmaps.change(Bitmap::WriteIntent, Bits::fill);
        }
    }
    if plan.spec.consistency == Consistency::None {
        // In this mode writes are not recorded.
        bitmaps.change(Bitmap::Written, Bits::fill);
    }
    let mut superblock = first_superblock(plan, &drives, ids);
    let doubt = bitmaps.write_intent().count_ones() > 0;
    note_start(&mut superblock, &plan.geometry, MemberSet::EMPTY, doubt, MemberSet::EMPTY);
    let states = vec![MemberState::InSync; drives.len()];
    let mut assembled = Assembled::new(
        superblock,
        plan.geometry,
        states,
        drives.into_iter().map(Some).collect(),
        bitmaps,
        BadBlocks::default(),
    );
    let drives = assembled.drives.clone();
    let mut fleet = Fleet::new(&drives, wait);
    assembled.write_bitmaps(&mut fleet).map_err(Failed::into_error)?;
    assembled.write_labels(&mut fleet).map_err(Failed::into_error)?;
    drop(fleet);
    assembled.every_member_has_all();
    Ok(assembled)
}

/// Refuses a drive that holds something.
///
/// # Errors
/// When it does, naming what was found; or when it cannot be read.
pub fn refuse_occupied(drive: &Drive, wait: Wait<'_>) -> Result<(), ArrayError> {
    let found = MemberIo::open(drive, wait)?.inspect()?;
    if let Some(label) = found.label.filter(|label| !label.destroyed) {
        return Err(occupied(
            &drive.path,
            &format!("a member of array {} ({})", label.name, label.array),
        ));
    }
    match found.foreign.filter(Foreign::is_obstacle) {
        Some(foreign) => Err(occupied(&drive.path, &foreign.to_string())),
        None => Ok(()),
    }
}

/// Erases every sign of another program from a drive that is to be used although it holds something.
///
/// # Errors
/// When the drive fails, or is too small to be a member.
pub fn erase_foreign(drive: &Drive, wait: Wait<'_>) -> Result<(), ArrayError> {
    MemberIo::open(drive, wait)?.erase_foreign()
}

/// Makes a drive ready to be a member: claims it, empties its label rings, zeroes its data area where the drive
/// promises that. Returns whether it did the latter.
///
/// # Errors
/// When the drive fails.
pub fn prepare_drive(drive: &Drive, member: Uuid, wait: Wait<'_>) -> Result<bool, ArrayError> {
    let mut io = MemberIo::open(drive, wait)?;
    io.claim(member)?;
    io.zero_data()
}

fn first_superblock(plan: &CreatePlan, drives: &[Drive], ids: &Ids) -> Superblock {
    let geometry = &plan.geometry;
    let members = drives.iter().zip(&ids.members).map(|(drive, uuid)| MemberRecord {
        uuid: *uuid,
        state: RecordedState::InSync,
        in_sync_generation: 1,
        recovered_stripes: 0,
        held_generation: 0,
        bytes: drive.device.info().bytes(),
    });
    Superblock {
        array: ids.array,
        name: plan.spec.name.clone(),
        format: Format::two(geometry.member_blocks_used() << geometry.block_size().shift()),
        member: Uuid::NIL,
        slot: MemberIndex(0),
        generation: 1,
        epoch: ids.epoch,
        parent_epoch: Uuid::NIL,
        geometry: record_of(geometry),
        clean: false,
        destroyed: false,
        members: members.collect(),
        history: vec![Activation { epoch: ids.epoch, first_generation: 1 }],
        replacements: Vec::new(),
        consistency: plan.spec.consistency,
        logged: MemberSet::EMPTY,
        logged_since: 0,
        compat: COMPAT_HISTORY
            | COMPAT_MEMBER_BITMAPS
            | settling::mark(drives.iter().map(|drive| &*drive.device)),
        ro_compat: 0,
        incompat: 0,
    }
}
