//! Reading the labels of all drives at once.

use strake_ondisk::{AreaLayout, Copy, Found, MEMBERS_MAX};
use strake_units::{MemberIndex, Name, Uuid};

use crate::create::Drive;
use crate::error::ArrayError;
use crate::fleet::{Failed, Fleet, Reading};
use crate::member_io::{Labels, READING_LABELS, Wait};

/// The drives that hold a label of an array that is `wanted`, and those that cannot be read, with why.
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

/// The labels of each of `drives`, or why they cannot be read.
fn read_labels(drives: &[Drive], wait: Wait<'_>) -> Vec<Result<Labels, ArrayError>> {
    let slots: Vec<Option<Drive>> = drives.iter().cloned().map(Some).collect();
    let mut readings = Vec::new();
    for (at, drive) in drives.iter().enumerate() {
        let member = MemberIndex(at as u8);
        let layout = AreaLayout::of(drive.device.info().bytes());
        for copy in layout.iter().flat_map(|_| [Copy::Head, Copy::Tail]) {
            let (offset, bytes) = layout.expect("it has a layout").ring_range(copy);
            readings.push(Reading { member, offset, bytes });
        }
    }
    let (found, failed) = Fleet::new(&slots, wait).read_some(&readings, READING_LABELS);
    let mut failed = match failed {
        Some(Failed::Members(members)) => members,
        Some(Failed::Otherwise(_)) | None => Vec::new(),
    };
    let one = |(at, drive): (usize, &Drive)| {
        let member = MemberIndex(at as u8);
        if let Some(place) = failed.iter().position(|(of, _)| *of == member) {
            return Err(failed.swap_remove(place).1);
        }
        let own = readings.iter().zip(&found).filter(|(reading, _)| reading.member == member);
        let rings: Vec<&[u8]> = own.map(|(_, read)| read.bytes.as_slice()).collect();
        match rings[..] {
            [head, tail] => Labels::of(&drive.path, head, tail),
            // Too small to be a member of anything.
            _ => Ok(Labels::default()),
        }
    };
    drives.iter().enumerate().map(one).collect()
}
