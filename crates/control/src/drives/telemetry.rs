//! The telemetry log of a drive: its read in pieces, with a check that the data did not change.

use std::time::Instant;

use strake_nvme_wire::maintenance::telemetry::{
    Area, BLOCK_BYTES, BYTES_MAX, Capture, Header, Initiator, read, read_header,
};

use crate::drives::maintenance::Maintained;
use crate::limits::{TELEMETRY_BYTES_MAX, TELEMETRY_TRIES};

const _: () = assert!(BYTES_MAX <= TELEMETRY_BYTES_MAX);

/// A telemetry log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) generation: u8,
    pub(crate) bytes: Vec<u8>,
}

/// Reads the log of `initiator` up to the end of `area`, until `deadline` at most. If the data change during the read,
/// the read is repeated.
///
/// # Errors
/// The reason for a failure, as text.
pub(crate) fn read_log(
    drive: &Maintained,
    initiator: Initiator,
    area: Area,
    deadline: Instant,
) -> Result<Log, String> {
    if !drive.functions.telemetry {
        return Err("it does not support telemetry".to_owned());
    }
    let mut header = look(drive, initiator, Capture::New)?;
    for _ in 0..TELEMETRY_TRIES {
        if initiator == Initiator::Controller && !header.is_available {
            return Err("it has captured no telemetry on its own initiative".to_owned());
        }
        let bytes = read_areas(drive, initiator, header.bytes(area), deadline)?;
        let after = look(drive, initiator, Capture::Present)?;
        if after == header {
            return Ok(Log { generation: header.generation, bytes });
        }
        header = after;
    }
    Err(format!("its telemetry changed during each of {TELEMETRY_TRIES} reads"))
}

fn look(drive: &Maintained, initiator: Initiator, capture: Capture) -> Result<Header, String> {
    let page = drive.page(read_header(initiator, capture))?;
    Header::parse(&page, initiator).map_err(|why| format!("the telemetry header is wrong: {why}"))
}

/// Reads the first `whole` bytes of the log.
fn read_areas(
    drive: &Maintained,
    initiator: Initiator,
    whole: u64,
    deadline: Instant,
) -> Result<Vec<u8>, String> {
    // Pieces consist of whole blocks (Base, section 5.16.1.8).
    let piece = drive.functions.transfer_bytes / BLOCK_BYTES * BLOCK_BYTES;
    let mut bytes = Vec::with_capacity(whole as usize);
    while (bytes.len() as u64) < whole {
        if Instant::now() >= deadline {
            let done = bytes.len();
            return Err(format!("it returned only {done} of {whole} bytes within the time limit"));
        }
        let from = bytes.len() as u64;
        let length = (whole - from).min(piece.into()) as u32;
        bytes.extend(drive.data(read(initiator, from, length))?);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
