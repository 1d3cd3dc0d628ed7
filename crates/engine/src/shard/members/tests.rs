//! Tests which queues are kept open.

use std::collections::VecDeque;
use std::sync::Arc;

use strake_block::{BlockDevice, BufMut, IoError, Op, SgMut, Token};
use strake_dev_mem::NullDevice;
use strake_reactor::Scheduler;
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, MemberIndex, MemberSet, Nanos};

use super::{
    Capacity, DirectRead, Failed, HostRead, Members, PartBack, PartIo, PartTaken, SharedDevice,
    Takers,
};
use crate::array::IoLimits;
use crate::histogram::CoreTimes;
use crate::limits::MEMBER_DEPTH;
use crate::message::{Pairing, View};

mod hung;

const COUNT: usize = 3;
const OUT: MemberIndex = MemberIndex(1);

fn install(members: &mut Members, member: MemberIndex) {
    let device: Arc<dyn BlockDevice> = Arc::new(NullDevice::new(1 << 20, BlockSize::B4096));
    let device = SharedDevice::new(&device);
    members.install(member, &device, 0).expect("it has room for queues");
}

/// Returns members in sync, each with a device.
fn in_sync() -> Members {
    let inflight = MEMBER_DEPTH as usize + 1;
    let capacity = Capacity { inflight, tasks: 1, requests: 1, limits: IoLimits::default() };
    let times = Arc::new(CoreTimes::new(COUNT + 1));
    let mut members = Members::new(CoreIndex(0), BlockSize::B4096, COUNT, capacity, times);
    (0..COUNT).for_each(|at| install(&mut members, MemberIndex(at as u8)));
    members.set_views(&[View::InSync; COUNT]);
    members
}

/// Puts a member out of use on this shard.
fn put_out(members: &mut Members) {
    let mut views = [View::InSync; COUNT];
    views[OUT.at()] = View::Absent;
    members.set_views(&views);
}

/// Sends as many reads to the member that goes out as its device accepts at a time, and one read that waits.
fn read_more_than_fits(members: &mut Members) {
    for at in 0..=MEMBER_DEPTH {
        let data = SgMut::from(BufMut::alone(4096));
        let range = LbaRange::new(Lba(at.into()), 1);
        members.issue_host_read(Nanos(0), OUT, range.start, data, (at, range));
    }
}

/// A shard without requests.
struct NoRequests;

impl Takers for NoRequests {
    fn alike(
        &mut self,
        _first: &DirectRead,
        _next: impl FnMut() -> Option<(Token, Lba, SgMut)>,
    ) -> Option<u32> {
        unreachable!("a task reads")
    }

    fn direct(&mut self, _read: &DirectRead, _data: SgMut, _result: Result<(), IoError>) {}

    fn part(&mut self, _part: PartBack<'_>) -> PartTaken {
        unreachable!("a task reads")
    }

    fn ordinary_part(&mut self, _io: PartIo, _op: Op, _failed: Option<Failed>) {}

    fn host_read(&mut self, _read: HostRead) {}
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

/// The history of the bug: the doorbell of a closed drive was not rung for requests of its last turn. The drive never
/// answered them, and could not be re-added.
#[test]
fn a_device_that_is_closed_carries_out_what_it_was_given_last() {
    let mut members = in_sync();
    let scheduler = Scheduler::new(1);
    read_more_than_fits(&mut members);
    members.ring(Nanos(0));
    put_out(&mut members);
    // There is room for the waiting read now.
    members.poll(Nanos(0), &scheduler, &mut NoRequests);
    members.settle_views();
    assert_eq!(open(&members), [0, 2]);
    for _ in 0..3 {
        members.ring(Nanos(0));
        members.poll(Nanos(0), &scheduler, &mut NoRequests);
    }
    assert!(members.graveyard.is_empty(), "it has answered everything");
}

#[test]
fn what_a_device_did_not_answer_does_not_count_against_the_next() {
    let mut members = in_sync();
    read_more_than_fits(&mut members);
    put_out(&mut members);
    install(&mut members, OUT);
    let (scheduler, mut reads) = (Scheduler::new(1), VecDeque::new());
    let overdue =
        members.look_for_overdue(Nanos::SECOND.times(3600), &scheduler, &mut reads, |_| true);
    assert!(!overdue.failed.contains(OUT) && !members.lagging().contains(OUT));
    assert_eq!(reads.len(), MEMBER_DEPTH as usize, "they are given up");
    assert_eq!(members.slow_and_timeouts(OUT.at()), (0, 0));
}

/// A task may issue I/Os that it planned before the member went out, as long as other cores use the device.
#[test]
fn what_is_issued_while_others_use_the_device_does_not_count_against_the_next() {
    let mut members = in_sync();
    put_out(&mut members);
    read_more_than_fits(&mut members);
    members.settle_views();
    install(&mut members, OUT);
    let (scheduler, mut reads) = (Scheduler::new(1), VecDeque::new());
    let late = Nanos::SECOND.times(3600);
    let overdue = members.look_for_overdue(late, &scheduler, &mut reads, |_| true);
    assert!(!overdue.failed.contains(OUT), "{overdue:?}");
    assert_eq!(members.slow_and_timeouts(OUT.at()), (0, 0));
}

#[test]
fn a_device_that_does_not_take_its_place_is_closed() {
    let mut members = in_sync();
    put_out(&mut members);
    members.settle_views();
    install(&mut members, OUT);
    members.release(OUT);
    assert_eq!(open(&members), [0, 2]);
    members.release(MemberIndex(0));
    assert_eq!(open(&members), [0, 2], "it is in use");
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

#[test]
fn a_member_that_is_out_is_unsettled_until_every_shard_has_put_it_out() {
    let mut members = in_sync();
    members.settle_views();
    assert!(members.facts().unsettled.is_empty());
    put_out(&mut members);
    assert_eq!(members.facts().unsettled, MemberSet::EMPTY.with(OUT));
    members.settle_views();
    assert!(members.facts().unsettled.is_empty());
}
