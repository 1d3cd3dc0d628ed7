//! Destruction of an array, which can be undone until its drives are used otherwise.
//!
//! The labels of a destroyed array stay readable. An undelete writes the former label to the members that were live,
//! with a generation above the destroyed one, so that it takes precedence over destroyed labels that appear later. A
//! member that was out keeps its own older label, and only loses the destroyed label, because its state in the array
//! must not change.

use strake_ondisk::{Copy, Foreign, Superblock};
use strake_units::{MemberIndex, MemberSet, Name};

use crate::drive::Drive;
use crate::error::ArrayError;
use crate::member_io::{MemberIo, Wait};
use crate::recorded::geometry_of;

/// Marks the labels of a stopped array as destroyed. The labels stay readable, so that [`unmark_destroyed`] can undo
/// this until the drives are used otherwise.
///
/// # Errors
/// If a drive fails. The drives before it are already marked.
pub fn mark_destroyed(drives: &[Drive], wait: Wait<'_>) -> Result<(), ArrayError> {
    let mut labels = Vec::new();
    for drive in drives {
        labels.push(MemberIo::open(drive, wait)?.inspect()?.label);
    }
    let newest = labels.iter().flatten().max_by_key(|label| label.generation).cloned();
    for (drive, label) in drives.iter().zip(labels) {
        let (Some(label), Some(newest)) = (label, &newest) else { continue };
        let mut label = as_held_by(newest, &label).unwrap_or(label);
        label.destroyed = true;
        label.generation += 1;
        write(drive, &label, wait)?;
    }
    Ok(())
}

/// Returns the newest label as the live member with the label `own` has it, or would have it if the last update had not
/// been interrupted. Returns `None` for a member that was out or not updated.
fn as_held_by(newest: &Superblock, own: &Superblock) -> Option<Superblock> {
    let current = own.array == newest.array && own.generation + 1 >= newest.generation;
    let same = newest.members.get(own.slot.at()).is_some_and(|row| row.uuid == own.member);
    (current && same && newest.calls_live(own.member)).then(|| Superblock {
        slot: own.slot,
        member: own.member,
        ..newest.clone()
    })
}

/// Undoes [`mark_destroyed`] on `drives`, which have labels of one destroyed array. Returns the name of the array. The
/// array is not started. Members that are not among the drives are then missing.
///
/// # Errors
/// Before the first write: if the array is not destroyed, a drive has been used otherwise since, or the remaining
/// members are too few. After a write: if a drive fails. The operation can then be repeated.
pub fn unmark_destroyed(drives: &[Drive], wait: Wait<'_>) -> Result<Name, ArrayError> {
    let Plan { destroyed, found, newest } = plan(drives, wait)?;
    for (drive, labels) in drives.iter().zip(&found) {
        match as_held_by(&newest, &labels.before) {
            Some(label) => {
                let generation = destroyed.max(label.generation) + 1;
                write(drive, &Superblock { generation, ..label }, wait)?;
            }
            None if labels.generation > labels.before.generation => {
                MemberIo::open(drive, wait)?.erase_label(labels.generation)?;
            }
            None => {}
        }
    }
    Ok(newest.name)
}

/// Checks that [`unmark_destroyed`] would succeed. Writes nothing.
///
/// # Errors
/// The errors of [`unmark_destroyed`] before its first write.
pub fn check_destroyed(drives: &[Drive], wait: Wait<'_>) -> Result<Name, ArrayError> {
    plan(drives, wait).map(|plan| plan.newest.name)
}

/// The plan of an undelete.
struct Plan {
    /// The generation of the destroyed label.
    destroyed: u64,
    /// The labels of each drive.
    found: Vec<Destroyed>,
    /// The newest label from before the destruction.
    newest: Superblock,
}

fn plan(drives: &[Drive], wait: Wait<'_>) -> Result<Plan, ArrayError> {
    let mut rings = Vec::new();
    for drive in drives {
        rings.push(read(drive, wait)?);
    }
    let destroyed = rings.iter().flatten().filter(|label| label.destroyed);
    let destroyed = destroyed.map(|label| label.generation).max().unwrap_or(0);
    let mut found = Vec::new();
    for (drive, labels) in drives.iter().zip(&rings) {
        found.push(Destroyed::of(drive, labels, destroyed)?);
    }
    let before = found.iter().map(|labels| &labels.before);
    let Some(newest) = before.max_by_key(|label| label.generation).cloned() else {
        return Err(ArrayError::usage("no drives are given, so there is nothing to undelete"));
    };
    refuse_others(drives, &found, &newest)?;
    refuse_too_few(&found, &newest)?;
    Ok(Plan { destroyed, found, newest })
}

/// The labels of a drive of a destroyed array.
struct Destroyed {
    /// The newest label from before the destruction.
    before: Superblock,
    /// The generation of the newest label.
    generation: u64,
    /// True if the newest label is marked as destroyed.
    is_destroyed: bool,
}

impl Destroyed {
    /// Evaluates the labels of a drive of an array that was destroyed with labels up to generation `destroyed`.
    fn of(drive: &Drive, labels: &[Superblock], destroyed: u64) -> Result<Self, ArrayError> {
        let newest = labels.iter().max_by_key(|label| label.generation);
        let living = || labels.iter().filter(|label| !label.destroyed);
        let (Some(newest), Some(before)) = (newest, living().max_by_key(|l| l.generation)) else {
            return Err(ArrayError::refused(format!(
                "{} holds no label {}",
                drive.path,
                if newest.is_some() {
                    "from before its array was destroyed"
                } else {
                    "of a destroyed array; undelete the array without it"
                }
            )));
        };
        // An earlier undelete may have been interrupted. Drives that it reached continue from the label of the other
        // drives.
        let earlier = living().filter(|label| label.generation < destroyed);
        let earlier = earlier.max_by_key(|label| label.generation).filter(|earlier| {
            let generation = destroyed + 1;
            *before == Superblock { generation, ..Superblock::clone(earlier) }
        });
        Ok(Self {
            before: earlier.unwrap_or(before).clone(),
            generation: newest.generation,
            is_destroyed: newest.destroyed,
        })
    }
}

fn read(drive: &Drive, wait: Wait<'_>) -> Result<Vec<Superblock>, ArrayError> {
    let mut io = MemberIo::open(drive, wait)?;
    let foreign = |found: &Foreign| match found {
        Foreign::Other(_) | Foreign::StrakeUnknown | Foreign::StrakeDamaged => true,
        Foreign::Strake(_) | Foreign::Destroyed(_) => false,
    };
    if let Some(foreign) = io.inspect()?.foreign.filter(foreign) {
        return Err(ArrayError::refused(format!(
            "{} has been used for something else since: it holds {foreign}; its former content is lost. Undelete the \
             array without it",
            drive.path
        )));
    }
    io.all_labels()
}

fn refuse_others(
    drives: &[Drive],
    found: &[Destroyed],
    newest: &Superblock,
) -> Result<(), ArrayError> {
    for (drive, labels) in drives.iter().zip(found) {
        if labels.before.array != newest.array {
            return Err(ArrayError::refused(format!(
                "{} belongs to array {} ({}), not to {} ({}); undelete one array at a time",
                drive.path, labels.before.name, labels.before.array, newest.name, newest.array
            )));
        }
    }
    if found.iter().all(|labels| !labels.is_destroyed) {
        return Err(ArrayError::state(format!(
            "array {} is not destroyed; there is nothing to undelete",
            newest.name
        )));
    }
    Ok(())
}

fn refuse_too_few(found: &[Destroyed], newest: &Superblock) -> Result<(), ArrayError> {
    let here = |slot: usize| {
        let slot = MemberIndex(slot as u8);
        let live = |labels: &&Destroyed| as_held_by(newest, &labels.before).is_some();
        found.iter().filter(live).any(|labels| labels.before.slot == slot)
    };
    let in_sync = |slot: usize| newest.members[slot].state == strake_ondisk::RecordedState::InSync;
    let slots = 0..newest.members.len();
    let absent: MemberSet = slots.filter(|slot| !(here(*slot) && in_sync(*slot))).collect();
    if geometry_of(newest)?.tolerates(absent) {
        return Ok(());
    }
    let absent: Vec<String> = absent.iter().map(|slot| slot.to_string()).collect();
    Err(ArrayError::refused(format!(
        "array {} cannot be undeleted without more of its members: {} are missing or were not in sync",
        newest.name,
        absent.join(", ")
    )))
}

fn write(drive: &Drive, label: &Superblock, wait: Wait<'_>) -> Result<(), ArrayError> {
    for copy in [Copy::Head, Copy::Tail] {
        MemberIo::open(drive, wait)?.write_label(label, copy)?;
    }
    Ok(())
}
