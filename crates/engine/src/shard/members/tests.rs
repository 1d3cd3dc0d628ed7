//! Which queues are kept open.

use std::sync::Arc;

use strake_block::BlockDevice;
use strake_dev_mem::NullDevice;
use strake_units::{BlockSize, CoreIndex, MemberIndex};

use super::{Capacity, Members, Pairing, SharedDevice};
use crate::array::IoLimits;
use crate::histogram::CoreTimes;
use crate::message::View;

const COUNT: usize = 3;
const OUT: MemberIndex = MemberIndex(1);

fn install(members: &mut Members, member: MemberIndex) {
    let device: Arc<dyn BlockDevice> = Arc::new(NullDevice::new(1 << 20, BlockSize::B4096));
    let device = SharedDevice::new(&device);
    members.install(member, &device, 0).expect("it has room for queues");
}

/// Members in sync, each with a device.
fn in_sync() -> Members {
    let capacity = Capacity { inflight: 4, tasks: 1, requests: 1, limits: IoLimits::default() };
    let times = Arc::new(CoreTimes::new(COUNT + 1));
    let mut members = Members::new(CoreIndex(0), BlockSize::B4096, COUNT, capacity, times);
    (0..COUNT).for_each(|at| install(&mut members, MemberIndex(at as u8)));
    members.set_views(&[View::InSync; COUNT]);
    members
}

/// A member goes out of use on this shard.
fn put_out(members: &mut Members) {
    let mut views = [View::InSync; COUNT];
    views[OUT.at()] = View::Absent;
    members.set_views(&views);
}

fn open(members: &Members) -> Vec<usize> {
    let places = members.members.iter().enumerate();
    places.filter(|(_, place)| place.queue.is_some()).map(|(at, _)| at).collect()
}

#[test]
fn a_device_that_no_shard_uses_is_closed() {
    let mut members = in_sync();
    put_out(&mut members);
    assert_eq!(open(&members), [0, 1, 2], "another shard may not know yet");
    members.settle_views();
    assert_eq!(open(&members), [0, 2]);
    assert_eq!(members.graveyard.len(), 1, "it is polled until it has nothing left");
}

#[test]
fn a_device_that_was_opened_for_the_place_since_is_kept() {
    let mut members = in_sync();
    put_out(&mut members);
    install(&mut members, OUT);
    members.settle_views();
    assert_eq!(open(&members), [0, 1, 2]);
    // Another member goes out before this one is used.
    members.set_views(&[View::Absent, View::Absent, View::InSync]);
    members.settle_views();
    assert_eq!(open(&members), [1, 2]);
}

#[test]
fn the_replacement_of_a_member_that_goes_out_is_kept() {
    let mut members = in_sync();
    let place = members.paired.place();
    install(&mut members, place);
    members.pair(Pairing::Copying(OUT));
    put_out(&mut members);
    for pairing in [Pairing::Orphaned(OUT), Pairing::TakenOver(OUT)] {
        members.pair(pairing);
        members.settle_views();
        assert_eq!(open(&members), [0, 1, 2, place.at()], "{pairing:?}");
    }
    let mut views = [View::InSync; COUNT];
    views[OUT.at()] = View::Rebuilding;
    members.set_views(&views);
    members.pair(Pairing::None);
    members.settle_views();
    assert_eq!(open(&members), [0, 1, 2], "the device of the member that went out is closed");
}
