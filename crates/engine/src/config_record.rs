//! The control plane's record on the members: written and read beside a running array, through a queue of its own.

use strake_ondisk::{Sequenced, config_bytes, decode_config, encode_config, newer, newest_of};
use strake_units::Uuid;

use crate::create::Drive;
use crate::error::ArrayError;
use crate::member_io::{MemberIo, Wait};

/// Reads of a slot begin with this much: it holds the length, and mostly all of a record.
const FIRST_BYTES: u64 = 4096;

/// Writes `content` to every one of `drives`, members of `array`, stable. A later record counts more than an earlier
/// one on whatever member it is found.
///
/// # Errors
/// When the content is too long, or a drive fails; those before it hold the record already, which does no harm.
pub fn store_config(
    drives: &[Drive],
    array: Uuid,
    content: &[u8],
    wait: Wait<'_>,
) -> Result<(), ArrayError> {
    let sequence = newest(drives, array, wait).map_or(1, |record| record.next());
    drives.iter().try_for_each(|drive| store_config_as(drive, array, sequence, content, wait))
}

/// The sequence of the newest record of `array` that any of `drives` holds; 0 for none. Drives that cannot be read
/// hold none.
#[must_use]
pub fn config_sequence(drives: &[Drive], array: Uuid, wait: Wait<'_>) -> u64 {
    newest(drives, array, wait).map_or(0, |record| record.sequence)
}

/// Writes `content` to one member of `array`, stable, as the record `sequence`, which is one more than the newest of
/// all members: for callers that write to them in parallel.
///
/// # Errors
/// When the content is too long, or the drive fails.
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

/// The newest record of `array` that any of `drives` holds. Drives that cannot be read hold none.
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
