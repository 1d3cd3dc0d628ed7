use strake_block::SETTLE_TIME_MAX;
use strake_ondisk::{COMPAT_REMOTE, Consistency, Format, GeometryRecord, Superblock};
use strake_units::{MemberIndex, MemberSet, Nanos, Uuid};

use super::{Candidate, LastUse, wait_until};

const NOW: Nanos = Nanos(100 * Nanos::SECOND.0);
const LATER: Nanos = Nanos(107 * Nanos::SECOND.0);
const UNKNOWN: LastUse = LastUse::Unknown { first_seen: NOW };

fn label(generation: u64, clean: bool) -> Superblock {
    Superblock {
        array: Uuid::from_random([1; 16]),
        name: "tank".parse().expect("a name"),
        format: Format::One,
        member: Uuid::from_random([2; 16]),
        slot: MemberIndex(0),
        generation,
        epoch: Uuid::from_random([generation as u8; 16]),
        parent_epoch: Uuid::NIL,
        geometry: GeometryRecord {
            level: 1,
            parity: 1,
            members: 2,
            group_width: 2,
            strip_bytes: 65_536,
            block_bytes: 4096,
            layout: 1,
            member_blocks: 1000,
            region_stripes: 256,
        },
        clean,
        destroyed: false,
        members: Vec::new(),
        history: Vec::new(),
        replacements: Vec::new(),
        consistency: Consistency::Safe,
        logged: MemberSet::EMPTY,
        logged_since: 0,
        compat: 0,
        ro_compat: 0,
        incompat: 0,
    }
}

fn local(label: &Superblock) -> Candidate<'_> {
    Candidate { label, settle_time: Nanos(0), settled_at: None }
}

fn remote(label: &Superblock) -> Candidate<'_> {
    Candidate { settle_time: Nanos(8 * Nanos::SECOND.0), ..local(label) }
}

#[test]
fn drives_of_this_machine_are_not_waited_for() {
    let label = label(7, false);
    assert_eq!(wait_until(&[local(&label), local(&label)], |_| UNKNOWN), None);
    assert_eq!(wait_until(&[], |_| UNKNOWN), None);
}

#[test]
fn one_drive_of_another_machine_is_enough() {
    let label = label(7, false);
    let until = wait_until(&[local(&label), remote(&label)], |_| UNKNOWN);
    assert_eq!(until, Some(NOW.plus(SETTLE_TIME_MAX)));
}

#[test]
fn after_an_orderly_stop_nothing_is_under_way() {
    let label = label(7, true);
    assert_eq!(wait_until(&[remote(&label)], |_| UNKNOWN), None);
}

#[test]
fn the_newest_label_says_how_it_ended_and_who_opened_it() {
    let (older, newer) = (label(7, true), label(8, false));
    let asked = |epoch| {
        assert_eq!(epoch, newer.epoch);
        UNKNOWN
    };
    assert!(wait_until(&[remote(&older), remote(&newer)], asked).is_some());
    let (older, newer) = (label(7, false), label(8, true));
    assert_eq!(wait_until(&[remote(&older), remote(&newer)], |_| UNKNOWN), None);
}

#[test]
fn an_array_of_this_process_starts_at_once() {
    let label = label(7, false);
    assert_eq!(wait_until(&[remote(&label)], |_| LastUse::Ours), None);
}

#[test]
fn records_say_how_long_is_enough() {
    let label = label(7, false);
    let known = Candidate { settled_at: Some(LATER), ..remote(&label) };
    assert_eq!(wait_until(&[remote(&label), known], |_| LastUse::Recorded), Some(LATER));
    // For an unknown activation, the records are not sufficient.
    assert_eq!(wait_until(&[known], |_| UNKNOWN), Some(NOW.plus(SETTLE_TIME_MAX)));
    let much_later = NOW.plus(Nanos::SECOND.times(60));
    let known = Candidate { settled_at: Some(much_later), ..remote(&label) };
    assert_eq!(wait_until(&[known], |_| UNKNOWN), Some(much_later));
}

#[test]
fn other_use_of_a_drive_is_waited_for_after_an_orderly_stop() {
    let label = label(7, true);
    let known = Candidate { settled_at: Some(LATER), ..remote(&label) };
    assert_eq!(wait_until(&[known], |_| UNKNOWN), Some(LATER));
}

#[test]
fn a_drive_that_was_reached_over_a_network_is_waited_for_at_its_own_machine() {
    let mut label = label(7, false);
    label.compat = COMPAT_REMOTE;
    assert_eq!(wait_until(&[local(&label)], |_| UNKNOWN), Some(NOW.plus(SETTLE_TIME_MAX)));
}
