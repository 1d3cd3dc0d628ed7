//! The control plane's record on the members. It is read and written while the array runs, through a separate queue.

use strake_ondisk::{Sequenced, config_bytes, decode_config, encode_config, newer, newest_of};
use strake_units::Uuid;

use crate::drive::Drive;
use crate::error::ArrayError;
use crate::member_io::{MemberIo, Wait};

/// Size of the first read of a slot. It contains the length, and usually the whole record.
const FIRST_BYTES: u64 = 4096;

/// Writes `content` to every one of `drives`, members of `array`, stable. A later record takes precedence over an
/// earlier record on any member.
///
/// # Errors
/// If the content is too long, or a drive fails. The drives before it already have the record, which is harmless.
pub fn store_config(
    drives: &[Drive],
    array: Uuid,
    content: &[u8],
    wait: Wait<'_>,
) -> Result<(), ArrayError> {
    let sequence = newest(drives, array, wait).map_or(1, |record| record.next());
    drives.iter().try_for_each(|drive| store_config_as(drive, array, sequence, content, wait))
}

/// Returns the sequence of the newest record of `array` on `drives`; 0 without a record. Unreadable drives count as
/// drives without a record.
#[must_use]
pub fn config_sequence(drives: &[Drive], array: Uuid, wait: Wait<'_>) -> u64 {
    newest(drives, array, wait).map_or(0, |record| record.sequence)
}

/// Writes `content` to one member of `array`, stable, as the record `sequence`, which must be one more than the newest
/// sequence on all members. This function is for callers that write to the members in parallel.
///
/// # Errors
/// If the content is too long, or the drive fails.
pub fn store_config_as(
    drive: &Drive,
    array: Uuid,
    sequence: u64,
    content: &[u8],
    wait: Wait<'_>,
) -> Result<(), ArrayError> {
    let record = encode_config(array, sequence, content).ok_or_else(|| {
        ArrayError::usage(format!(
            "{} bytes of configuration do not fit on a member; remove exports",
            content.len()
        ))
    })?;
    let mut io = MemberIo::open(drive, wait)?;
    let offset = io.config_offset(sequence)?;
    io.write(offset, &record, "writing the configuration")
}

/// Returns the newest record of `array` on `drives`. Unreadable drives count as drives without a record.
#[must_use]
pub fn load_config(drives: &[Drive], array: Uuid, wait: Wait<'_>) -> Option<Vec<u8>> {
    newest(drives, array, wait).map(|found| found.record)
}

fn newest(drives: &[Drive], array: Uuid, wait: Wait<'_>) -> Option<Sequenced<Vec<u8>>> {
    let mut best = None;
    for drive in drives {
        let slots = [0, 1].map(|slot| read(drive, array, slot, wait).unwrap_or_default());
        let usable = slots.map(|slot| slot.and_then(Sequenced::usable));
        best = newer(best, newest_of(usable), |record| record.sequence);
    }
    best
}

fn read(
    drive: &Drive,
    array: Uuid,
    slot: u64,
    wait: Wait<'_>,
) -> Result<Option<Sequenced<Vec<u8>>>, ArrayError> {
    let mut io = MemberIo::open(drive, wait)?;
    let offset = io.config_offset(slot)?;
    let doing = "reading the configuration";
    let mut bytes = io.read(offset, FIRST_BYTES, doing)?;
    let whole = config_bytes(&bytes) as u64;
    if whole > FIRST_BYTES {
        bytes.extend(io.read(offset + FIRST_BYTES, whole - FIRST_BYTES, doing)?);
    }
    Ok(decode_config(&bytes, array))
}
