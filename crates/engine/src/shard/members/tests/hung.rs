//! Tests a device of two cores, of which one core abandons it.

use std::collections::VecDeque;
use std::sync::Arc;

use strake_block::{BlockDevice, BufMut, SgMut};
use strake_dev_mem::RamDevice;
use strake_reactor::Scheduler;
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, MemberIndex, MemberSet, Nanos};

use super::super::{Capacity, Members};
use crate::array::IoLimits;
use crate::histogram::CoreTimes;
use crate::message::{Pairing, View};
use crate::shared_device::SharedDevice;

/// The index of a replacement.
const PLACE: MemberIndex = MemberIndex(4);

/// The time at which the first core abandons the device, and the time of the next check on the second core.
const GIVEN_UP: Nanos = Nanos(8_000_000_000);
const LOOK: Nanos = Nanos(8_500_000_000);

fn device() -> SharedDevice {
    let device: Arc<dyn BlockDevice> = Arc::new(RamDevice::new(16, BlockSize::B4096));
    SharedDevice::new(&device)
}

/// The state of a core: a read was sent to the replacement at `since`, and is never answered, because nothing polls it.
fn core(number: u16, device: &SharedDevice, since: Nanos) -> Members {
    let capacity = Capacity { inflight: 4, tasks: 1, requests: 1, limits: IoLimits::default() };
    let times = Arc::new(CoreTimes::new(5));
    let mut members = Members::new(CoreIndex(number), BlockSize::B4096, 4, capacity, times);
    members.set_views(&[View::InSync; 4]);
    members.install(PLACE, device, 0).expect("a queue");
    members.set_views(&[View::InSync; 4]);
    members.pair(Pairing::Copying(MemberIndex(0)));
    let data = SgMut::from(BufMut::alone(4096));
    members.issue_host_read(since, PLACE, Lba(0), data, (0, LbaRange::new(Lba(0), 1)));
    members
}

/// Returns the members that the core abandons because of its own I/Os, and the number of abandoned reads.
fn look(members: &mut Members, now: Nanos) -> (MemberSet, usize) {
    let mut reads = VecDeque::new();
    let overdue = members.look_for_overdue(now, &Scheduler::new(1), &mut reads, |_| true);
    (overdue.failed, reads.len())
}

/// Returns the number of reads that the second core abandons at its check. It sent its read a second before the first
/// core abandoned the replacement. `shown`: the first core published this. `replaced`: another device has the index by
/// then.
fn given_up(shown: bool, replaced: bool) -> usize {
    let silent = device();
    let mut first = core(0, &silent, Nanos(0));
    let mut second = core(1, &silent, Nanos(7_000_000_000));
    assert_eq!(look(&mut first, GIVEN_UP), (MemberSet::of(PLACE), 1));
    if shown {
        first.show_hung(PLACE);
    }
    if replaced {
        second.set_views(&[View::InSync; 4]);
        second.pair(Pairing::None);
        second.install(PLACE, &device(), 0).expect("a queue");
    }
    let (failed, reads) = look(&mut second, LOOK);
    assert_eq!(failed, MemberSet::EMPTY, "it has nothing to report");
    reads
}

#[test]
fn every_core_gives_up_what_one_core_gave_up() {
    assert_eq!(given_up(true, false), 1);
    assert_eq!(given_up(false, false), 0, "otherwise it waits for its own limit");
}

/// The history of the bug: a spare replaced the drive before the core checked again, and the core waited for I/Os that
/// it had just sent to the drive.
#[test]
fn what_a_hung_device_has_is_given_up_after_it_lost_its_place() {
    assert_eq!(given_up(true, true), 1);
    assert_eq!(given_up(false, true), 0, "otherwise it waits for its own limit");
}

/// The state of the previous device does not concern a device that an operator removes.
#[test]
fn a_device_in_the_place_of_one_that_hung_has_its_own_limit() {
    let mut members = core(0, &device(), Nanos(0));
    let member = MemberIndex(0);
    let out = [View::Absent, View::InSync, View::InSync, View::InSync];
    members.install(member, &device(), 0).expect("a queue");
    members.show_hung(member);
    members.set_views(&out);
    members.install(member, &device(), 0).expect("a queue");
    members.set_views(&[View::InSync; 4]);
    let data = SgMut::from(BufMut::alone(4096));
    members.issue_host_read(LOOK, member, Lba(0), data, (0, LbaRange::new(Lba(0), 1)));
    members.set_views(&out);
    assert_eq!(look(&mut members, LOOK), (MemberSet::of(PLACE), 1), "the read of the other place");
}
