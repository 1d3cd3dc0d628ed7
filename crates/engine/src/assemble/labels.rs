//! Reads of the labels of all drives concurrently.

use strake_block::IoError;
use strake_ondisk::{AreaLayout, Copy, Found, MEMBERS_MAX, RingScan, SLOT_BYTES};
use strake_units::{MemberIndex, Name, Uuid};

use crate::drive::Drive;
use crate::error::ArrayError;
use crate::fleet::{Failed, Fleet, Reading};
use crate::member_io::{Labels, READING_LABELS, Wait};

/// Returns the drives with a label of a `wanted` array, and the unreadable drives with their errors.
pub(super) fn labelled(
    drives: &[Drive],
    wanted: &dyn Fn(&Name, Uuid) -> bool,
    wait: Wait<'_>,
) -> (Vec<Found>, Vec<(usize, ArrayError)>) {
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for (nth, some) in drives.chunks(MEMBERS_MAX).enumerate() {
        for (at, labels) in read_labels(some, &mut *wait).into_iter().enumerate() {
            match labels {
                Ok(Labels { newest, in_tail, before }) => {
                    let label = newest.filter(|label| wanted(&label.name, label.array));
                    let device_bytes = some[at].device.info().bytes();
                    found.extend(label.map(|label| {
                        let confirmed = in_tail == Some((label.generation, label.epoch));
                        let drive = nth * MEMBERS_MAX + at;
                        Found { drive, device_bytes, label, confirmed, before }
                    }));
                }
                Err(error) => unreadable.push((nth * MEMBERS_MAX + at, error)),
            }
        }
    }
    (found, unreadable)
}

/// Returns the labels of each drive in `drives`, or the error of the drive.
fn read_labels(drives: &[Drive], wait: Wait<'_>) -> Vec<Result<Labels, ArrayError>> {
    let slots: Vec<Option<Drive>> = drives.iter().cloned().map(Some).collect();
    let (mut readings, mut copies) = (Vec::new(), Vec::new());
    for (at, drive) in drives.iter().enumerate() {
        let member = MemberIndex(at as u8);
        let layout = AreaLayout::of(drive.device.info().bytes());
        for copy in layout.iter().flat_map(|_| [Copy::Head, Copy::Tail]) {
            let (offset, bytes) = layout.expect("it has a layout").ring_range(copy);
            readings.push(Reading { member, offset, bytes });
            copies.push(copy);
        }
    }
    let mut scans = vec![RingScan::default(); readings.len()];
    // Unreadable slots count as damaged. Labels have several copies with checksums.
    let mut scan = |of: usize, offset: u64, piece: Result<&[u8], IoError>| {
        let first = (offset - readings[of].offset) as usize / SLOT_BYTES;
        match piece {
            Ok(part) => scans[of].add_slots(first, part, copies[of]),
            Err(_) => scans[of].add_unreadable(first),
        }
    };
    let read = Fleet::new(&slots, wait).read_pieces(&readings, READING_LABELS, &mut scan);
    scans.iter_mut().for_each(RingScan::prefer_refusal);
    let mut failed = match read {
        Err(Failed::Members(members)) => members,
        Err(Failed::Otherwise(_)) | Ok(()) => Vec::new(),
    };
    let mut scans = readings.iter().map(|reading| reading.member).zip(scans).peekable();
    let one = |(at, drive): (usize, &Drive)| {
        let member = MemberIndex(at as u8);
        let mut ring = || scans.next_if(|(of, _)| *of == member).map(|(_, scan)| scan);
        let rings = [ring(), ring()];
        if let Some(place) = failed.iter().position(|(of, _)| *of == member) {
            return Err(failed.swap_remove(place).1);
        }
        match rings {
            [Some(head), Some(tail)] => Labels::of(&drive.path, [head, tail]),
            // The drive is too small for a member.
            [Some(_) | None, _] => Ok(Labels::default()),
        }
    };
    drives.iter().enumerate().map(one).collect()
}
