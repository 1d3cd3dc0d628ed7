//! Physical region pages (Base, section 4.1.1).

use crate::bus::Bus;
use crate::status::PRP_OFFSET;
use strake_nvme_wire::Status;

/// Bytes of a memory page, the only size that the model supports.
pub(crate) const PAGE: u64 = 4096;
/// Bytes of an entry of a list.
const ENTRY: u64 = 8;

/// The pieces of memory that `bytes` bytes of data are in.
///
/// # Errors
/// As the command fails.
pub(crate) fn pieces(
    bus: &dyn Bus,
    (prp1, prp2): (u64, u64),
    bytes: u64,
    out: &mut Vec<(u64, usize)>,
) -> Result<(), Status> {
    out.clear();
    if prp1 % 4 != 0 {
        return Err(PRP_OFFSET);
    }
    let first = bytes.min(PAGE - prp1 % PAGE);
    out.push((prp1, first as usize));
    let mut left = bytes - first;
    if left == 0 {
        return Ok(());
    }
    if left <= PAGE {
        return push(prp2, left, out);
    }
    if prp2 % ENTRY != 0 {
        return Err(PRP_OFFSET);
    }
    let mut at = prp2;
    while left > 0 {
        let entry = entry(bus, at)?;
        if at % PAGE == PAGE - ENTRY && left > PAGE {
            // The last entry of a page of the list points to the next page.
            if entry % PAGE != 0 {
                return Err(PRP_OFFSET);
            }
            at = entry;
            continue;
        }
        let piece = left.min(PAGE);
        push(entry, piece, out)?;
        left -= piece;
        at += ENTRY;
    }
    Ok(())
}

fn push(address: u64, bytes: u64, out: &mut Vec<(u64, usize)>) -> Result<(), Status> {
    if !address.is_multiple_of(PAGE) {
        return Err(PRP_OFFSET);
    }
    out.push((address, bytes as usize));
    Ok(())
}

fn entry(bus: &dyn Bus, at: u64) -> Result<u64, Status> {
    let mut bytes = [0; 8];
    bus.read(at, &mut bytes).map_err(|_| Status::TRANSFER_ERROR)?;
    Ok(u64::from_le_bytes(bytes))
}
